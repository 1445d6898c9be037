//go:build unix

package npmtest

import (
	"errors"
	"os"
	"syscall"
)

// lockFile waits for an exclusive lock that the system gives back by itself
// when the process ends.
func lockFile(name string) (unlock func(), err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // a name of ours
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil // the lock ends with it, whatever it says
}
