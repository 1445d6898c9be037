//go:build !linux

package transport

import "syscall"

func setUserTimeout(syscall.RawConn) {}

// waiting is not known here.
func waiting(syscall.RawConn) int64 { return 0 }
