//go:build linux || darwin

package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	engine "modernc.org/sqlite/lib"
)

// lookForLock is how often a lock is looked for within lockPatience.
const lookForLock = 20 * time.Millisecond

// The bytes that SQLite's processes lock (https://sqlite.org/src/file/src/os.h and os_unix.c).
const (
	fileLocks, fileLocksLen = 0x40000000, 512 // of the file: written by who has it alone
	walWriter               = 120             // of the index of the write-ahead log: written by who writes
)

// Obstacle says what keeps a process that is to be started from writing the file at path, in the words of the error that it
// would meet: no permission, no room on the disk, or a lock that another process keeps. It changes nothing, and waits for lockPatience
// at most. Nil where nothing does, or the file is not there yet and its folder may be written.
func Obstacle(ctx context.Context, path string) error {
	return explain(path, obstacle(ctx, path, unix.Access, unix.Statfs))
}

func obstacle(ctx context.Context, path string, access func(string, uint32) error, statfs func(string, *unix.Statfs_t) error) error {
	for _, name := range []string{filepath.Dir(path), path} {
		if err := access(name, unix.W_OK); err != nil && !errors.Is(err, unix.ENOENT) {
			return &engineError{code: engine.SQLITE_READONLY, text: fmt.Sprintf("%s: %v", name, err)}
		}
	}
	if free, known := room(filepath.Dir(path), statfs); known && free < reserve {
		return &engineError{code: engine.SQLITE_FULL, text: fmt.Sprintf("%d KiB are left", free>>10)}
	}
	if holder := lockedFor(ctx, path); holder != 0 {
		return &engineError{code: engine.SQLITE_BUSY, text: fmt.Sprintf("process %d has it locked", holder)}
	}
	return nil
}

// roomOn is how many bytes are free on the disk of a folder.
func roomOn(folder string) (free uint64, known bool) { return room(folder, unix.Statfs) }

func room(folder string, statfs func(string, *unix.Statfs_t) error) (free uint64, known bool) {
	var disk unix.Statfs_t
	if err := statfs(folder, &disk); err != nil || disk.Blocks == 0 {
		return 0, false
	}
	return disk.Bavail * uint64(disk.Bsize), true
}

// lockedFor is the process that has had the file locked at each look within lockPatience; 0 for none.
func lockedFor(ctx context.Context, path string) (holder int32) {
	for began := time.Now(); ctx.Err() == nil && time.Since(began) < lockPatience; time.Sleep(lookForLock) {
		now := lockHolder(path, fileLocks, fileLocksLen)
		if now == 0 {
			now = lockHolder(path+"-shm", walWriter, 1)
		}
		if now == 0 || holder != 0 && now != holder {
			return 0
		}
		holder = now
	}
	return holder
}

// lockHolder is the process that has bytes of a file locked for writing; 0 for none, and where that can't be told.
func lockHolder(name string, start, length int64) int32 {
	f, err := os.Open(name) //nolint:gosec // the operator's own setting
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }() // only read
	lock := unix.Flock_t{Type: unix.F_RDLCK, Start: start, Len: length}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock); err != nil || lock.Type == unix.F_UNLCK {
		return 0
	}
	return lock.Pid
}
