package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

const (
	// maxBatch bounds how long a caller waits for its neighbours.
	maxBatch = 256
	// settleGrace is how long a caller whose context has ended still waits for an
	// operation that has begun: mostly it ends within that, and the caller learns
	// what became of it.
	settleGrace = 250 * time.Millisecond
)

// op is one caller's part of a transaction.
type op struct {
	ctx  context.Context
	run  func(tx *tx) error
	err  error
	done chan struct{}
	// after are called once the commit is durable.
	after []func()
}

// writer owns the one connection that writes. Everything but do runs in its
// goroutine.
type writer struct {
	db    *DB
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
	ops   chan *op // unbuffered: who is parked on it is queued
}

func newWriter(db *DB, conn *sql.Conn) *writer {
	return &writer{db: db, conn: conn, stmts: make(map[string]*sql.Stmt), ops: make(chan *op)}
}

// tx is the running transaction as one operation sees it. Its statements run without
// the caller's context: an interrupt would hit the neighbours too.
type tx struct {
	w  *writer
	op *op
}

// do queues run and waits for its commit. When ctx ends first it returns ctx's error;
// run has then not begun, unless the error says that it may have.
func (w *writer) do(ctx context.Context, run func(tx *tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	o := &op{ctx: ctx, run: run, done: make(chan struct{})}
	select {
	case w.ops <- o:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-o.done:
		return o.err
	case <-ctx.Done():
	}
	grace := time.NewTimer(settleGrace)
	defer grace.Stop()
	select {
	case <-o.done:
		return o.err
	case <-grace.C:
		return fmt.Errorf("the write may still take effect: %w", ctx.Err())
	}
}

// run commits what is queued, all of it at once, until the database is closed.
func (w *writer) run() {
	for {
		select {
		case first := <-w.ops:
			w.commit(w.gather(first))
		case <-w.db.stop:
			return
		}
	}
}

// gather takes whatever else is queued now.
func (w *writer) gather(first *op) []*op {
	batch := []*op{first}
	for len(batch) < maxBatch {
		select {
		case o := <-w.ops:
			batch = append(batch, o)
		default:
			return batch
		}
	}
	return batch
}

// commit runs the batch in one transaction and tells its callers.
func (w *writer) commit(batch []*op) {
	batch, err := w.begin(batch)
	if len(batch) == 0 {
		return
	}
	j := w.db.clock.look()
	if err == nil {
		err = w.runAll(batch, j)
	}
	if err == nil {
		_, err = w.exec("COMMIT")
	}
	if err != nil {
		w.rollback()
	} else {
		w.db.clock.accept(j)
	}
	for _, o := range batch {
		if err != nil {
			o.err = err
		}
		if o.err == nil {
			for _, f := range o.after {
				f()
			}
		}
		close(o.done)
	}
}

// begin takes the write lock. While another process holds it, callers whose context
// ends are let go; it returns those that are left.
func (w *writer) begin(batch []*op) ([]*op, error) {
	for start := time.Now(); ; {
		left := batch[:0:0]
		for _, o := range batch {
			if o.err = o.ctx.Err(); o.err != nil {
				close(o.done)
				continue
			}
			left = append(left, o)
		}
		if batch = left; len(batch) == 0 {
			return nil, nil
		}
		_, err := w.exec("BEGIN IMMEDIATE")
		if err == nil || !isBusy(err) || time.Since(start) > busyPatience {
			return batch, err
		}
	}
}

// runAll runs every operation in a savepoint of its own, so that one that fails takes
// nothing of its neighbours with it. The error that it returns is everybody's.
func (w *writer) runAll(batch []*op, j jump) error {
	if err := w.followClock(j); err != nil {
		return err
	}
	for _, o := range batch {
		if _, err := w.exec("SAVEPOINT op"); err != nil {
			return err
		}
		if o.err = o.run(&tx{w: w, op: o}); o.err != nil {
			if breaksTransaction(o.err) {
				return o.err
			}
			if _, err := w.exec("ROLLBACK TO op"); err != nil {
				return errors.Join(o.err, err)
			}
		}
		if _, err := w.exec("RELEASE op"); err != nil {
			return err
		}
	}
	return nil
}

// rollback ends a transaction that failed. SQLite may have ended it by itself, and
// then says so with an error that tells nothing more.
func (w *writer) rollback() {
	_, _ = w.exec("ROLLBACK")
}

func (w *writer) stmt(query string) (*sql.Stmt, error) {
	if s, ok := w.stmts[query]; ok {
		return s, nil
	}
	s, err := w.conn.PrepareContext(context.Background(), query)
	if err != nil {
		return nil, err
	}
	w.stmts[query] = s
	return s, nil
}

func (w *writer) exec(query string, args ...any) (int64, error) {
	s, err := w.stmt(query) //nolint:sqlclosecheck // kept for reuse; close closes it
	if err != nil {
		return 0, err
	}
	res, err := s.ExecContext(context.Background(), args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (w *writer) close() error {
	var errs []error
	for _, s := range w.stmts {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, w.conn.Close())...)
}

// exec runs a statement and returns how many rows it changed.
func (t *tx) exec(query string, args ...any) (int64, error) { return t.w.exec(query, args...) }

// row runs a query that gives at most one row; sql.ErrNoRows when it gives none.
func (t *tx) row(query string, args []any, into ...any) error {
	s, err := t.w.stmt(query) //nolint:sqlclosecheck // kept for reuse; close closes it
	if err != nil {
		return err
	}
	return s.QueryRowContext(context.Background(), args...).Scan(into...)
}

// rows runs a query and calls each for every row.
func (t *tx) rows(query string, args []any, each func(scan func(into ...any) error) error) (err error) {
	s, err := t.w.stmt(query) //nolint:sqlclosecheck // kept for reuse; close closes it
	if err != nil {
		return err
	}
	rows, err := s.QueryContext(context.Background(), args...)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := rows.Close(); err == nil {
			err = closeErr
		}
	}()
	for rows.Next() {
		if err := each(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// afterCommit has f called once everything is durable.
func (t *tx) afterCommit(f func()) { t.op.after = append(t.op.after, f) }
