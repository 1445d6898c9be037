// Package sqlitetest gives tests that are about something else than the database file one that
// costs little.
package sqlitetest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"modernc.org/libc"
	engine "modernc.org/sqlite/lib"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/internal/sqlite"
)

// File is the path of a new file for sqlite.Open: with its schema, in memory where the system has that, and
// locked by no other process. From the first call on that is so for all files of this test
// binary: connections of this process know of each other's locks and of the journal's index in its own
// memory, where they asked the system for each of them. A third of the processor time of tests in simulated
// time was that. What processes do to each other's files is for the tests of package sqlite.
func File(t testing.TB) string {
	t.Helper()
	content, err := fresh()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(bubble.Folder(t), "test.db")
	// The second is what SQLite keeps the index in otherwise, and sqlite.Open wants to see.
	if err := errors.Join(os.WriteFile(path, content, 0o600), os.WriteFile(path+"-shm", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	return path
}

// fresh is what a new file holds: to make the schema takes longer than most tests take.
var fresh = sync.OnceValues(func() (content []byte, err error) {
	folder, err := os.MkdirTemp(bubble.InMemory(), "fresh")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	path := filepath.Join(folder, "test.db")
	db, err := sqlite.Open(context.Background(), path, sqlite.Options{})
	if err != nil {
		return nil, err
	}
	if err := db.Close(); err != nil {
		return nil, err
	}
	if err := lockInProcess(); err != nil {
		return nil, err
	}
	return os.ReadFile(path) //nolint:gosec // the file made above
})

// lockInProcess makes SQLite's "unix-excl" what files are opened by from now on. Where there is none, as on
// Windows, all stays as it is.
func lockInProcess() error {
	tls := libc.NewTLS()
	defer tls.Close()
	name, err := libc.CString("unix-excl")
	if err != nil {
		return err
	}
	defer libc.Xfree(tls, name)
	vfs := engine.Xsqlite3_vfs_find(tls, name)
	if vfs == 0 {
		return nil
	}
	if engine.Xsqlite3_vfs_register(tls, vfs, 1) != engine.SQLITE_OK {
		return errors.New("unix-excl can't be made SQLite's default")
	}
	return nil
}
