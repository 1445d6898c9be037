package tcp

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// SetUserTimeout ends a connection whose bytes the other side does not acknowledge for that long.
func SetUserTimeout(raw syscall.RawConn, d time.Duration) {
	_ = raw.Control(func(fd uintptr) { // a socket that does not know it does without
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
	})
}

// Waiting tells how many bytes the socket has not had acknowledged, those not sent included. What it returns is for one goroutine, and
// allocates nothing.
func Waiting(raw syscall.RawConn) func() int64 {
	n := 0
	look := func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }
	return func() int64 {
		n = 0
		_ = raw.Control(look)
		return int64(n)
	}
}
