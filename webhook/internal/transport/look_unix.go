//go:build unix

package transport

import (
	"errors"
	"syscall"
	"time"
)

const canReadNow = true

// lookFor is how long a look lasts at what is no socket.
const lookFor = time.Microsecond

// readSocket reads what is there. Go's sockets don't block.
func readSocket(fd uintptr, p []byte) (int, error) {
	for {
		n, err := syscall.Read(int(fd), p)
		if !errors.Is(err, syscall.EINTR) {
			return n, err
		}
	}
}

func wouldBlock(err error) bool { return errors.Is(err, syscall.EAGAIN) }
