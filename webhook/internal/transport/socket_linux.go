package transport

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// userTimeout ends a connection whose bytes the other side does not acknowledge. It is long
// enough for some lost packets in a row, and far below what the system would wait.
const userTimeout = 20 * time.Second

func setUserTimeout(raw syscall.RawConn) {
	_ = raw.Control(func(fd uintptr) { // a socket that does not know it does without
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds()))
	})
}

// waiting is how many bytes the socket has not had acknowledged, those not sent included.
func waiting(raw syscall.RawConn) int64 {
	n := 0
	_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	return int64(n)
}
