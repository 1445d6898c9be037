// Package sqlite keeps queues and tables in one SQLite file: it is the store of a
// pushlease without a storage account, and the fast one of its tests.
//
// All writes go through one goroutine and one connection. A commit takes whatever
// is waiting when the one before ends, so throughput grows with the number of
// callers while a lone caller waits for nothing but its own commit. Every call
// that writes returns after its commit is durable (WAL, synchronous=FULL).
//
// Several processes may open one file on a local disk.
package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"modernc.org/sqlite"
)

// readers is how many reads run at once; the rest wait.
const readers = 4

// Open opens the file at path, or creates it, readable by its owner only. The folder
// must exist. ctx bounds the opening only.
func Open(ctx context.Context, path string, opts Options) (*DB, error) {
	return open(ctx, path, opts, newClock(time.Now))
}

func open(ctx context.Context, path string, opts Options, c *clock) (*DB, error) {
	db := &DB{path: path, opts: opts.withDefaults(), clock: c, stop: make(chan struct{}), tidyUp: make(chan struct{}, 1), statements: make(map[string]*sql.Stmt)}
	if err := createFile(path); err != nil {
		return nil, err
	}
	// Commits need the data and its length on the disk, not the file's times. Where there
	// is no such call the stronger one stays.
	_, _ = sqlite.Fdatasync(true)
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	conn, err := prepare(ctx, abs)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", explain(path, err))
	}
	if db.condition, err = newCondition(path, abs, db.opts.OnFault); err != nil {
		return nil, errors.Join(fmt.Errorf("open database: %w", err), conn.close())
	}
	reader, err := newReader(&db.condition.files, abs)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open database: %w", err), conn.close())
	}
	db.reads = sql.OpenDB(reader)
	db.reads.SetMaxOpenConns(readers)
	db.reads.SetMaxIdleConns(readers)
	db.writer = newWriter(conn, c, db.condition)
	db.background.Go(func() { db.writer.run(db.stop) })
	db.background.Go(db.keepHouse)
	if err := db.tidyFirst(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open database: %w", err), db.Close())
	}
	return db, nil
}

// reader opens the connections that read. A later one must not open another file than the
// first: its locks, and the part of the journal that it would read, are not ours.
type reader struct {
	driver.Connector
	files *openFiles
}

func newReader(files *openFiles, path string) (reader, error) {
	file := "file:" + (&url.URL{Path: filepath.ToSlash(path)}).EscapedPath()
	c, err := sqlite.NewConnector(file + fmt.Sprintf("?_pragma=busy_timeout(%d)&_pragma=query_only(1)", busyPatience.Milliseconds()))
	if err != nil {
		return reader{}, err
	}
	return reader{c, files}, nil
}

// Connect implements driver.Connector.
func (r reader) Connect(ctx context.Context) (driver.Conn, error) {
	if err := r.files.explain(r.files.look()); err != nil {
		return nil, err
	}
	return r.Connector.Connect(ctx)
}

// createFile makes sure that the file is there. SQLite would create it readable by
// others; its journals copy the mode.
func createFile(path string) error {
	if path == "" {
		return errors.New("open database: the path is empty: name a file")
	}
	_, err := os.Stat(path) //nolint:gosec // the file that the operator named
	isNew := errors.Is(err, fs.ErrNotExist)
	if isNew {
		if saved := Rescued(path); len(saved) > 0 {
			return fmt.Errorf("open database: %s is not there, but %s is, which was saved when the file was taken away: "+
				"rename it to %s to go on with it, or move it elsewhere to begin with an empty file", path, saved[len(saved)-1], path)
		}
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // the operator names the file
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("open database: the folder %s does not exist: create it, or name another file: %w", filepath.Dir(path), err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("open database: this user may not write %s: change the owner or mode of the file and its folder, or name another file: %w", path, err)
	case err != nil:
		return fmt.Errorf("open database: %s can't be used: name a file on a disk that may be written: %w", path, err)
	}
	if err := f.Close(); err != nil || !isNew {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

// syncFolder makes the names in a folder durable, where the system has that: SQLite syncs what
// is in the files, and the names of the journals that it makes.
func syncFolder(folder string) error {
	d, err := os.Open(folder) //nolint:gosec // of the operator's own setting
	if err != nil {
		return err
	}
	if err := d.Sync(); err != nil && runtime.GOOS != "windows" {
		return errors.Join(fmt.Errorf("open database: the folder %s can't be synced: %w", folder, err), d.Close())
	}
	return d.Close()
}

// prepare opens the writer's connection. Switching to WAL and making the schema meet
// locks of other processes that open the file at the same time.
func prepare(ctx context.Context, path string) (*connection, error) {
	start := time.Now()
	for try := 0; ; try++ {
		conn, err := connect(path)
		if err == nil || !isBusy(err) || time.Since(start) > busyPatience {
			return conn, err
		}
		retry := time.NewTimer(busyPause(try))
		select {
		case <-ctx.Done():
			retry.Stop()
			return nil, ctx.Err()
		case <-retry.C:
		}
	}
}

func connect(path string) (*connection, error) {
	conn, err := openConnection(path)
	if err != nil {
		return nil, err
	}
	for _, pragma := range []string{
		"PRAGMA journal_mode = WAL",
		"PRAGMA synchronous = FULL",
		"PRAGMA journal_size_limit = 67108864",
		"PRAGMA cache_size = -8192", // KiB
	} {
		if err := conn.script(pragma); err != nil {
			return nil, errors.Join(err, conn.close())
		}
	}
	if err := prepareFile(conn); err != nil {
		return nil, errors.Join(err, conn.close())
	}
	return conn, nil
}

// checkPatience bounds one look.
const checkPatience = time.Second

// Fault says what keeps the file from being used: its names lead elsewhere, or the last
// write failed, with its cause and a cure. It is nil when nothing does. What it says is at
// most about a second old. It holds no secret.
func (db *DB) Fault(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	known := db.condition.fault()
	// What is asked of the writer looks at the files first; after a failed write it writes.
	if db.enter() != nil {
		return known
	}
	defer db.leave()
	err := db.writer.do(ctx, "", false, func(tx *tx) error {
		if known == nil {
			return nil
		}
		return tx.writeVersion()
	})
	if now := db.condition.fault(); now != nil || err == nil {
		return now
	}
	return known // a writer that is busy is no fault
}

// writeVersion writes what is there already, to find out whether it can be written.
func (t *tx) writeVersion() error {
	err := t.w.conn.script(setVersion())
	t.changed++
	return err
}
