package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
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

// withDefaults fills in what does nothing.
func (o Options) withDefaults() Options {
	if o.OnTransaction == nil {
		o.OnTransaction = func(string, string, error) {}
	}
	if o.OnExpired == nil {
		o.OnExpired = func(Expired) {}
	}
	if o.Encoding == nil {
		o.Encoding = func(string) queue.Encoding { return queue.EncodingAuto }
	}
	if o.OnFault == nil {
		o.OnFault = func(error) {}
	}
	return o
}

// DB is one open file. It implements tables.Store; Queues gives its queues. Safe
// for concurrent use.
type DB struct {
	path   string
	opts   Options
	writer *writer
	reads  *sql.DB
	clock  *clock

	condition *condition
	census    tables.Census

	stop       chan struct{} // ends the background goroutines
	tidyUp     chan struct{} // makes housekeeping begin now
	background sync.WaitGroup

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup // calls under way
	// statements are those of reads that stay prepared, by their texts.
	statements map[string]*sql.Stmt
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
	if err := errors.Join(db.reads.Close(), db.condition.leave(db.writer.conn)); err != nil {
		return fmt.Errorf("close database: %w", explain(db.path, err))
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

// Expired are messages of a queue that were removed together because their life was over. Copies of
// dead letters are not among them.
type Expired struct {
	Queue    string
	Messages int
	// DeadLettered are those of the messages of which dead letters were made, and Letters are these, without
	// their text.
	DeadLettered int
	Letters      []tables.DeadLetter
}

// add counts a message and the dead letters that were made of it.
func (e *Expired) add(letters []tables.DeadLetter) {
	e.Messages++
	if len(letters) > 0 {
		e.DeadLettered++
	}
	e.Letters = append(e.Letters, letters...)
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
		err = explain(db.path, db.writer.do(ctx, c.Operation, toEnd, run))
	} else {
		err = db.opts.Around(ctx, c, func() error { return explain(db.path, db.writer.do(ctx, c.Operation, toEnd, run)) })
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
		return explain(db.path, db.readRows(ctx, q, each))
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
	// filtered says that the text differs with what a list is filtered by: it does not stay prepared. Of
	// the others there are some dozen texts.
	filtered bool
}

func (db *DB) readRows(ctx context.Context, q query, each func(scan func(into ...any) error) (bool, error)) (err error) {
	rows, err := db.query(ctx, q)
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

// query begins a read. Its statement stays prepared, as to prepare one takes longer than most reads.
func (db *DB) query(ctx context.Context, q query) (*sql.Rows, error) {
	if q.filtered {
		return db.reads.QueryContext(ctx, q.text, q.args...)
	}
	s, err := db.prepared(ctx, q.text) //nolint:sqlclosecheck // it stays prepared
	if err != nil {
		return nil, err
	}
	return s.QueryContext(ctx, q.args...)
}

// prepared is the statement of a text. Closing the connections closes it.
func (db *DB) prepared(ctx context.Context, text string) (*sql.Stmt, error) {
	db.mu.Lock()
	s := db.statements[text]
	db.mu.Unlock()
	if s != nil {
		return s, nil
	}
	s, err := db.reads.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	if other := db.statements[text]; other != nil { // somebody was quicker
		return other, s.Close() //nolint:sqlclosecheck // the one that nobody uses
	}
	db.statements[text] = s
	return s, nil
}

// ctxOr prefers the context's error to SQLite's "interrupted".
func ctxOr(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
