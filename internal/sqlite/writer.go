package sqlite

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	engine "modernc.org/sqlite/lib"
)

const (
	// maxBatch bounds how long a caller waits for its neighbours.
	maxBatch = 256
	// settleGrace is how long a caller whose context has ended still waits for an
	// operation that has begun: mostly it ends within that, and the caller learns
	// what became of it.
	settleGrace = 250 * time.Millisecond
	// longestBusyPause is the longest pause before a lock is tried again.
	longestBusyPause = 100 * time.Millisecond
	// busyPatience is how long a write is tried again before it fails with
	// queue.ErrLocked, while the processes that lock it out commit.
	busyPatience = 10 * time.Second
	// lockPatience is how long it is while none does: the lock is held by one that does
	// something else. After it everything is answered at once, until the lock is free.
	lockPatience = 2 * time.Second
)

// op is one caller's part of a transaction. It may be run twice: once more, alone, after
// a neighbour has failed.
type op struct {
	ctx       context.Context
	operation string
	run       func(tx *tx) error
	err       error
	done      chan struct{} // holds one when the operation has ended
	// after are called once the commit is durable.
	after []func()
}

// writer owns the one connection that writes. Everything but do runs in its goroutine.
type writer struct {
	conn      *connection
	clock     *clock
	condition *condition
	ops       chan *op  // unbuffered: who is parked on it is queued
	ended     sync.Pool // of *op, to be used again
	// queues are the row ids of queues that are known to be there, as of this version of the file's
	// content: another process may delete one.
	queues  map[string]int64
	version int64
	// changed counts the rows that the transaction has changed so far.
	changed int64
	// others is about the processes that have kept the lock since it was asked for.
	others lockedOut
}

func newWriter(conn *connection, c *clock, file *condition) *writer {
	return &writer{conn: conn, clock: c, condition: file, ops: make(chan *op), queues: make(map[string]int64)}
}

// tx is the running transaction as one operation sees it. Its statements run without
// the caller's context: an interrupt would hit the neighbours too.
type tx struct {
	w  *writer
	op *op
	// changed counts the rows that the operation has changed so far.
	changed int64
}

// perform runs an operation. One without a name asks how the file is, and is run whatever that is.
func (t *tx) perform(o *op) {
	t.op, t.changed, o.err = o, 0, nil
	if o.operation != "" {
		o.err = t.w.condition.allows(o.operation)
	}
	if o.err == nil {
		o.err = o.run(t)
	}
}

// do queues run and waits for its commit. When ctx ends first it returns ctx's error;
// run has then not begun, unless the error says that it may have. Who waits toEnd must know what
// became of run: once that was queued, its end is waited for, however late. What has not begun when ctx
// ends does not begin.
func (w *writer) do(ctx context.Context, operation string, toEnd bool, run func(tx *tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	o, again := w.ended.Get().(*op)
	if !again {
		o = &op{done: make(chan struct{}, 1)}
	}
	o.ctx, o.operation, o.run = ctx, operation, run
	select {
	case w.ops <- o:
	case <-ctx.Done():
		return ctx.Err()
	}
	if toEnd {
		<-o.done
		return w.end(o)
	}
	select {
	case <-o.done:
		return w.end(o)
	case <-ctx.Done():
	}
	grace := time.NewTimer(settleGrace)
	defer grace.Stop()
	select {
	case <-o.done:
		return w.end(o)
	case <-grace.C: // the writer has it still
		return fmt.Errorf("the write may still take effect: %w", ctx.Err())
	}
}

// end returns how an operation ended, and gives it back.
func (w *writer) end(o *op) error {
	err := o.err
	*o = op{done: o.done}
	w.ended.Put(o)
	return err
}

// run commits what is queued, all of it at once, until stop.
func (w *writer) run(stop <-chan struct{}) {
	for {
		select {
		case first := <-w.ops:
			w.commit(w.gather(first))
		case <-stop:
			return
		}
	}
}

// gather takes whatever else is queued now. Callers that can run are let run first: those
// of the commit before have just been told that it is durable, and most of them write
// again. It waits for nobody.
func (w *writer) gather(first *op) []*op {
	batch := []*op{first}
	for grown := true; grown && len(batch) < maxBatch; {
		grown = false
		runtime.Gosched()
		for len(batch) < maxBatch {
			select {
			case o := <-w.ops:
				batch, grown = append(batch, o), true
				continue
			default:
			}
			break
		}
	}
	return batch
}

// commit runs the batch in one transaction and tells its callers.
func (w *writer) commit(batch []*op) {
	w.condition.look(w.conn)
	w.changed = 0
	batch, err := w.begin(batch)
	if len(batch) == 0 {
		return
	}
	j := w.clock.look()
	if err == nil {
		err = w.runTogether(batch, j)
	}
	if errors.Is(err, errHalfDone) {
		w.rollback()
		if batch, err = w.begin(batch); len(batch) == 0 {
			return
		}
		if err == nil {
			err = w.runApart(batch, j)
		}
	}
	if err == nil {
		_, err = w.conn.exec("COMMIT")
	}
	if err != nil {
		w.rollback()
	} else {
		w.clock.accept(j)
	}
	w.condition.noteEnd(err, w.changed > 0)
	for _, o := range batch {
		if err != nil {
			o.err = err
		}
		if o.err == nil {
			for _, f := range o.after {
				f()
			}
		}
		o.done <- struct{}{}
	}
}

// begin takes the write lock. While another process holds it, callers whose context
// ends are let go; it returns those that are left.
func (w *writer) begin(batch []*op) ([]*op, error) {
	start := time.Now()
	for try := 0; ; try++ {
		left := batch[:0:0]
		for _, o := range batch {
			if o.err = o.ctx.Err(); o.err != nil {
				if try > 0 {
					o.err = fmt.Errorf("%w: %w", w.condition.explain(errLocked), o.err)
				}
				o.done <- struct{}{}
				continue
			}
			left = append(left, o)
		}
		if batch = left; len(batch) == 0 {
			return nil, nil
		}
		_, err := w.conn.exec("BEGIN IMMEDIATE")
		if err == nil {
			w.others = lockedOut{}
			return batch, w.knowOthers()
		}
		if !isBusy(err) || w.others.idle(w.conn) > lockPatience || time.Since(start) > busyPatience {
			return batch, err
		}
		time.Sleep(busyPause(try))
	}
}

// busyPause is how long to wait for a lock before it is tried again.
func busyPause(try int) time.Duration {
	return min(time.Millisecond<<min(try, 10), longestBusyPause)
}

// knowOthers forgets where queues are when another process has written since the last transaction.
func (w *writer) knowOthers() error {
	version := w.version
	if err := w.conn.row("PRAGMA data_version", nil, &version); err != nil {
		return err
	}
	if version != w.version {
		w.version = version
		clear(w.queues)
	}
	return nil
}

// errLocked is what SQLite says of a lock that is waited for.
var errLocked = &engineError{code: engine.SQLITE_BUSY, text: "database is locked"}

// lockedOut watches those who have the lock; the zero value has not begun to.
type lockedOut struct {
	version int64 // of the file's content
	since   time.Time
}

// idle is for how long none of them has committed anything.
func (l *lockedOut) idle(conn *connection) time.Duration {
	version := l.version
	err := conn.row("PRAGMA data_version", nil, &version)
	if l.since.IsZero() || err == nil && version != l.version {
		l.version, l.since = version, time.Now()
	}
	return time.Since(l.since)
}

// errHalfDone is returned when an operation failed after it had changed something.
var errHalfDone = errors.New("an operation failed half-way")

// runTogether runs every operation, one after the other. Nearly all that fail have
// changed nothing, so that nothing has to be undone; after one that has, the whole batch
// must be run apart. The error that it returns is everybody's.
func (w *writer) runTogether(batch []*op, j jump) error {
	if err := w.clock.follow(w.conn, j); err != nil {
		return err
	}
	t := &tx{w: w} // one for all, each in its turn
	for _, o := range batch {
		t.perform(o)
		w.changed += t.changed
		if o.err == nil {
			continue
		}
		if breaksTransaction(o.err) {
			return o.err
		}
		if t.changed > 0 {
			return errHalfDone
		}
	}
	return nil
}

// runApart runs every operation in a savepoint of its own, so that one that fails takes
// nothing of its neighbours with it. Savepoints cost a copy of each page that changes.
func (w *writer) runApart(batch []*op, j jump) error {
	if err := w.clock.follow(w.conn, j); err != nil {
		return err
	}
	t := &tx{w: w}
	for _, o := range batch {
		o.after = nil
		if _, err := w.conn.exec("SAVEPOINT op"); err != nil {
			return err
		}
		t.perform(o)
		w.changed += t.changed
		if o.err != nil {
			if breaksTransaction(o.err) {
				return o.err
			}
			if _, err := w.conn.exec("ROLLBACK TO op"); err != nil {
				return errors.Join(o.err, err)
			}
		}
		if _, err := w.conn.exec("RELEASE op"); err != nil {
			return err
		}
	}
	return nil
}

// rollback ends a transaction that failed. SQLite may have ended it by itself, and
// then says so with an error that tells nothing more.
func (w *writer) rollback() {
	_, _ = w.conn.exec("ROLLBACK")
}

// exec runs a statement and returns how many rows it changed.
func (t *tx) exec(query string, args ...any) (int64, error) {
	n, err := t.w.conn.exec(query, args...)
	t.changed += n
	return n, err
}

// prepare returns the statement of a query whose arguments are bound one by one; what it
// changes is to be told to noteChanges.
func (t *tx) prepare(query string) (*statement, error) { return t.w.conn.prepare(query) }

// noteChanges adds what a prepared statement has changed.
func (t *tx) noteChanges(n int64, err error) error {
	t.changed += n
	return err
}

// row runs a query that gives at most one row; sql.ErrNoRows when it gives none.
func (t *tx) row(query string, args []any, into ...any) error {
	return t.w.conn.row(query, args, into...)
}

// afterCommit has f called once everything is durable.
func (t *tx) afterCommit(f func()) { t.op.after = append(t.op.after, f) }
