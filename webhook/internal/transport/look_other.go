//go:build !unix

package transport

import (
	"errors"
	"time"
)

// Sockets can't be read at once here: a look waits for lookFor.
const (
	canReadNow = false
	lookFor    = time.Millisecond
)

func readSocket(uintptr, []byte) (int, error) { return 0, errors.ErrUnsupported }

func wouldBlock(error) bool { return false }
