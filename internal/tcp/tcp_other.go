//go:build !linux

package tcp

import (
	"syscall"
	"time"
)

// SetUserTimeout does nothing here.
func SetUserTimeout(syscall.RawConn, time.Duration) {}

// Waiting is not known here.
func Waiting(syscall.RawConn) func() int64 { return func() int64 { return 0 } }
