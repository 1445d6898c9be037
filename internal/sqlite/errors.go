package sqlite

import (
	"errors"
	"fmt"
	"syscall"

	driver "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"

	"github.com/pushlease/pushlease/queue"
)

// ErrClosed is returned by every call after Close.
var ErrClosed = errors.New("the database is closed")

var errForeign = errors.New("the file is an SQLite database of another program: name another file")

// code returns SQLite's primary result code for err; 0 when err is not SQLite's.
func code(err error) int {
	var own *engineError
	if errors.As(err, &own) {
		return own.code & 0xff
	}
	var e *driver.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

func isBusy(err error) bool {
	c := code(err)
	return c == codes.SQLITE_BUSY || c == codes.SQLITE_LOCKED
}

// breaksTransaction reports whether SQLite may have rolled back everything, not
// just the statement, so that nothing after it in the transaction counts.
func breaksTransaction(err error) bool {
	switch code(err) {
	case codes.SQLITE_BUSY, codes.SQLITE_LOCKED, codes.SQLITE_NOMEM, codes.SQLITE_READONLY, codes.SQLITE_INTERRUPT,
		codes.SQLITE_IOERR, codes.SQLITE_CORRUPT, codes.SQLITE_FULL, codes.SQLITE_CANTOPEN, codes.SQLITE_PROTOCOL,
		codes.SQLITE_NOTADB, codes.SQLITE_ABORT, codes.SQLITE_MISUSE:
		return true
	}
	return false
}

// outOfSpace reports whether the operating system had no space for a write. It is false when
// that came out while a commit was synced: the next start may find such a commit whole.
func outOfSpace(err error) bool {
	var own *engineError
	return errors.As(err, &own) && own.code != codes.SQLITE_IOERR_FSYNC &&
		(own.system == syscall.ENOSPC || own.system == syscall.EDQUOT)
}

// explain wraps an error of SQLite about the file at path with what a person can do about it.
func explain(path string, err error) error {
	if err == nil {
		return nil
	}
	switch code(err) {
	case 0:
		return err
	case codes.SQLITE_BUSY, codes.SQLITE_LOCKED:
		return fmt.Errorf("%w: end what holds %s open (a backup, a shell): %w", queue.ErrLocked, path, err)
	case codes.SQLITE_READONLY, codes.SQLITE_PERM, codes.SQLITE_AUTH:
		return fmt.Errorf("%w: %s can't be written: check the permissions of the file and its folder, and that the disk is not mounted read-only: %w", queue.ErrDenied, path, err)
	case codes.SQLITE_FULL:
		return fmt.Errorf("%w: the disk that holds %s has no room left: free some space: %w", queue.ErrFull, path, err)
	case codes.SQLITE_CANTOPEN:
		return fmt.Errorf("%s can't be opened: check that its folder exists and may be written: %w", path, err)
	case codes.SQLITE_NOTADB, codes.SQLITE_CORRUPT:
		return fmt.Errorf("%s is damaged or no SQLite database: restore it from a backup, or name another file: %w", path, err)
	case codes.SQLITE_IOERR:
		if outOfSpace(err) {
			return fmt.Errorf("%w: the disk that holds %s has no room left: free some space: %w", queue.ErrFull, path, err)
		}
		return fmt.Errorf("the disk that holds %s failed: %w", path, err)
	}
	return fmt.Errorf("database %s: %w", path, err)
}
