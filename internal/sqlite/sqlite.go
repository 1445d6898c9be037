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
	"sync"
	"time"

	"modernc.org/sqlite"

	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

const (
	// longestBusyPause is the longest pause before a lock is tried again.
	longestBusyPause = 100 * time.Millisecond
	// busyPatience is how long a write is tried again before it fails with
	// queue.ErrLocked, while the processes that lock it out commit.
	busyPatience = 10 * time.Second
	// lockPatience is how long it is while none does: the lock is held by one that does
	// something else. After it everything is answered at once, until the lock is free.
	lockPatience = 2 * time.Second
	// readers is how many reads run at once; the rest wait.
	readers = 4
)

// Options are what Open can be told; the zero value is good.
type Options struct {
	// OnTransaction is called once after every operation that asked storage for
	// something; service is "queue" or "table". It may be called concurrently.
	OnTransaction func(service, operation string, err error)
	// OnExpired is called after messages of a queue were removed because their life was over.
	// Writes wait for it: it must not block, nor call the DB.
	OnExpired func(Expired)
	// Encoding says how the texts of a queue are read, and Instance who this is, for the
	// dead letters of messages whose life is over; with PoisonCopy these have a copy on
	// <queue>-poison, for PoisonCopyTTL; zero is for ever.
	Encoding      func(queueName string) queue.Encoding
	Instance      string
	PoisonCopy    bool
	PoisonCopyTTL time.Duration
	// Around runs each call to the file, which is what run does, or fails it. For tests.
	Around func(ctx context.Context, c *Call, run func() error) error
	// OnFault is called when what Fault says begins, changes, and ends (with nil), for the
	// log. Writes wait for it: it must not block, nor call the DB.
	OnFault func(err error)
	// OnRemoved is told of registrations as tables.Traces.Removed is.
	OnRemoved func(webhookID, queue string)
}

// DB is one open file. It implements tables.Store; Queues gives its queues. Safe
// for concurrent use.
type DB struct {
	path   string
	opts   Options
	writer *writer
	reads  *sql.DB
	clock  *clock

	condition condition
	census    tables.Census

	stop       chan struct{} // ends the background goroutines
	tidyUp     chan struct{} // makes housekeeping begin now
	background sync.WaitGroup

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup // calls under way
}

// Open opens the file at path, or creates it, readable by its owner only. The folder
// must exist. ctx bounds the opening only.
func Open(ctx context.Context, path string, opts Options) (*DB, error) {
	return open(ctx, path, opts, newClock(time.Now))
}

func open(ctx context.Context, path string, opts Options, c *clock) (*DB, error) {
	db := &DB{path: path, opts: opts, clock: c, stop: make(chan struct{}), tidyUp: make(chan struct{}, 1)}
	if db.opts.OnTransaction == nil {
		db.opts.OnTransaction = func(string, string, error) {}
	}
	if db.opts.OnExpired == nil {
		db.opts.OnExpired = func(Expired) {}
	}
	if db.opts.Encoding == nil {
		db.opts.Encoding = func(string) queue.Encoding { return queue.EncodingAuto }
	}
	if db.opts.OnFault == nil {
		db.opts.OnFault = func(error) {}
	}
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
		return nil, fmt.Errorf("open database: %w", db.explain(err))
	}
	if db.condition.files, err = identify(abs); err != nil {
		return nil, errors.Join(fmt.Errorf("open database: %w", err), conn.close())
	}
	db.condition.lookedAt = time.Now()
	reader, err := newReader(db, abs)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open database: %w", err), conn.close())
	}
	db.reads = sql.OpenDB(reader)
	db.reads.SetMaxOpenConns(readers)
	db.reads.SetMaxIdleConns(readers)
	db.writer = newWriter(db, conn)
	db.background.Go(db.writer.run)
	db.background.Go(db.keepHouse)
	if err := db.tidy(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open database: %w", err), db.Close())
	}
	return db, nil
}

// reader opens the connections that read. A later one must not open another file than the
// first: its locks, and the part of the journal that it would read, are not ours.
type reader struct {
	driver.Connector
	db *DB
}

func newReader(db *DB, path string) (reader, error) {
	file := "file:" + (&url.URL{Path: filepath.ToSlash(path)}).EscapedPath()
	c, err := sqlite.NewConnector(file + fmt.Sprintf("?_pragma=busy_timeout(%d)&_pragma=query_only(1)", busyPatience.Milliseconds()))
	if err != nil {
		return reader{}, err
	}
	return reader{c, db}, nil
}

// Connect implements driver.Connector.
func (r reader) Connect(ctx context.Context) (driver.Conn, error) {
	files := &r.db.condition.files
	if err := files.explain(files.look()); err != nil {
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

// busyPause is how long to wait for a lock before it is tried again.
func busyPause(try int) time.Duration {
	return min(time.Millisecond<<min(try, 10), longestBusyPause)
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

// Close waits for the calls under way and closes the file. Further calls return
// ErrClosed; a second Close does nothing.
func (db *DB) Close() error {
	db.mu.Lock()
	if db.closed {
		db.mu.Unlock()
		return nil
	}
	db.closed = true
	db.mu.Unlock()
	db.calls.Wait()
	close(db.stop)
	db.background.Wait()
	if err := errors.Join(db.reads.Close(), db.writer.leave()); err != nil {
		return fmt.Errorf("close database: %w", db.explain(err))
	}
	return nil
}

// enter registers a call, so that Close waits for it. leave ends it.
func (db *DB) enter() error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed {
		return ErrClosed
	}
	db.calls.Add(1)
	return nil
}

func (db *DB) leave() { db.calls.Done() }

// Services of OnTransaction.
const (
	serviceQueue = "queue"
	serviceTable = "table"
)

// Call is one call to the file, as Options.Around is told of it.
type Call struct {
	Service, Operation string
	// Messages are those of a queue that it is about, and Hidden how long it hides them. What a receive
	// found is here when its run has ended well.
	Messages []string
	Hidden   time.Duration
	// Text is what it puts on a queue.
	Text []byte
	// Record is what it writes about one message.
	Record tables.Record
}

// write runs op in the writer and returns after its commit.
func (db *DB) write(ctx context.Context, service, operation string, run func(tx *tx) error) error {
	return db.writeBy(ctx, false, &Call{Service: service, Operation: operation}, run)
}

// writeBy is write, which waits until ctx ends, or for one who waits toEnd.
func (db *DB) writeBy(ctx context.Context, toEnd bool, c *Call, run func(tx *tx) error) error {
	if err := db.enter(); err != nil {
		return err
	}
	defer db.leave()
	var err error
	if db.opts.Around == nil {
		err = db.explain(db.writer.do(ctx, c.Operation, toEnd, run))
	} else {
		err = db.opts.Around(ctx, c, func() error { return db.explain(db.writer.do(ctx, c.Operation, toEnd, run)) })
	}
	db.opts.OnTransaction(c.Service, c.Operation, err)
	return err
}

// read runs a query and calls each for every row until it returns false.
func (db *DB) read(ctx context.Context, service, operation string, q query, each func(scan func(into ...any) error) (bool, error)) error {
	if err := db.enter(); err != nil {
		return err
	}
	defer db.leave()
	run := func() error {
		if err := db.condition.gone(); err != nil {
			return err
		}
		return db.explain(db.readRows(ctx, q, each))
	}
	var err error
	if db.opts.Around == nil {
		err = run()
	} else {
		err = db.opts.Around(ctx, &Call{Service: service, Operation: operation}, run)
	}
	db.opts.OnTransaction(service, operation, err)
	return err
}

// query is one statement and its arguments.
type query struct {
	text string
	args []any
}

func (db *DB) readRows(ctx context.Context, q query, each func(scan func(into ...any) error) (bool, error)) (err error) {
	rows, err := db.reads.QueryContext(ctx, q.text, q.args...)
	if err != nil {
		return ctxOr(ctx, err)
	}
	defer func() {
		if closeErr := rows.Close(); err == nil {
			err = ctxOr(ctx, closeErr)
		}
	}()
	for rows.Next() {
		if more, err := each(rows.Scan); err != nil || !more {
			return err
		}
	}
	return ctxOr(ctx, rows.Err())
}

// ctxOr prefers the context's error to SQLite's "interrupted".
func ctxOr(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
