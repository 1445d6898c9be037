package azuretable

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Limits of one transaction: 100 rows and 4 MiB of request, of which a part is
// kept for the frame.
const (
	maxBatchRows  = 100
	maxBatchBytes = 4<<20 - 64<<10
	// rowFrame is what the request adds to a row but for its keys: multipart headers,
	// request line with the service's address and signature, headers. It is generous.
	rowFrame = 1000
)

// size is at most what the row takes in a request. Its keys are in it twice.
func (r row) size() int { return len(r.columns) + 2*(len(r.pk)+len(r.rk)) + rowFrame }

// partition is what one transaction can be about.
type partition struct{ table, key string }

// indexRow is a row on its way into the index.
type indexRow struct {
	partition partition
	row       row
	// wait is how long it may wait for others.
	wait time.Duration
}

// commit is one caller's rows. They are written together or not at all.
type commit struct {
	rows []row
	// index are rows for the index of recent attempts, once the others are written.
	index []indexRow
	// gone is the caller's context: once it is done nobody waits for the result.
	gone   context.Context
	result chan error // holds one
}

const (
	// lateAfter is how long a transaction may take before others of its partition stop waiting
	// for it: most take a fraction of that.
	lateAfter = 25 * time.Millisecond
	// maxLanes bounds the transactions that are under way in one partition. With 100 rows each
	// they are more than a partition takes.
	maxLanes = 8
)

// committer writes rows in transactions. What comes while one is under way in a partition
// waits and goes together in the next, so busy partitions cost few requests and an idle one
// adds no delay. It waits for transactions that are late only where they are about the same
// message, whose rows stay in order: the others go in another one beside them, a lane of
// their own.
type committer struct {
	// submit writes rows of one partition, all or none.
	submit func(ctx context.Context, table string, rows []row) error
	// committed gets what is to be indexed of the rows that were written.
	committed func([]indexRow)

	mu sync.Mutex
	// busy has an entry for each partition with a transaction under way.
	busy map[partition]*lanes
}

// lanes are the transactions of one partition, and what waits for them.
type lanes struct {
	waiting []*commit
	n       int
	// messages are those that the transactions under way are about.
	messages map[string]struct{}
	// newest is when the last of these transactions began. look is set while a timer will
	// look whether it is late.
	newest time.Time
	look   bool
}

// commit writes rows, whose keys differ, and returns when they are durable.
// When ctx ends first the rows may be written all the same.
func (c *committer) commit(ctx context.Context, p partition, rows []row, index []indexRow) error {
	m := &commit{rows: rows, index: index, gone: ctx, result: make(chan error, 1)}
	c.mu.Lock()
	l := c.busy[p]
	if l == nil {
		l = &lanes{messages: make(map[string]struct{})}
		if c.busy == nil {
			c.busy = make(map[partition]*lanes)
		}
		c.busy[p] = l
	}
	l.waiting = append(l.waiting, m)
	c.widen(p, l)
	c.mu.Unlock()
	select {
	case err := <-m.result:
		return err
	case <-ctx.Done():
		return storageErr(ctx, transaction, ctx.Err())
	}
}

// widen begins another lane when all that there are are late, and sees to it that this is
// looked at again when they may be. c.mu is held.
func (c *committer) widen(p partition, l *lanes) {
	late := lateAfter - time.Since(l.newest)
	switch {
	case len(l.waiting) == 0 || l.n == maxLanes:
	case l.n == 0 || late <= 0:
		l.n++
		l.newest = time.Now()
		go c.run(p, l)
	case !l.look:
		l.look = true
		time.AfterFunc(late, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			l.look = false
			c.widen(p, l)
		})
	}
}

// run writes until nothing waits that it may write.
func (c *committer) run(p partition, l *lanes) {
	for {
		// Callers that are about to come are let through first: it costs nothing when
		// there are none.
		runtime.Gosched()
		c.mu.Lock()
		batch, rest := takeBatch(l.waiting, l.messages)
		l.waiting = rest
		if len(batch) == 0 {
			if l.n--; l.n == 0 {
				delete(c.busy, p)
			}
			c.mu.Unlock()
			return
		}
		l.newest = time.Now()
		about := messagesOf(batch)
		for m := range about {
			l.messages[m] = struct{}{}
		}
		c.widen(p, l)
		c.mu.Unlock()
		c.write(p, batch)
		c.mu.Lock()
		for m := range about {
			delete(l.messages, m)
		}
		c.mu.Unlock()
	}
}

// message is what rows have in common that have to stay in order: in a table of records the
// message, which is the first part of the key, and the row itself everywhere else.
func (r row) message() string {
	if m, _, ok := strings.Cut(r.rk, separator); ok {
		return m
	}
	return r.rk
}

func messagesOf(batch []*commit) map[string]struct{} {
	about := make(map[string]struct{}, len(batch))
	for _, m := range batch {
		for _, r := range m.rows {
			about[r.message()] = struct{}{}
		}
	}
	return about
}

// takeBatch splits off the commits that fit into one transaction, in order. Those
// that nobody waits for any more are left out, and those about messages that are under way
// wait, with all that comes after them about the same.
func takeBatch(waiting []*commit, underWay map[string]struct{}) (batch, rest []*commit) {
	keys, held := make(map[string]struct{}), make(map[string]struct{})
	size := 0
	for i, m := range waiting {
		if m.gone.Err() != nil {
			continue
		}
		if m.mustWait(underWay, held) {
			rest = append(rest, m)
			continue
		}
		count := len(keys)
		for _, r := range m.rows {
			size += r.size()
			if _, twice := keys[r.rk]; !twice {
				count++
			}
		}
		if len(batch) > 0 && (count > maxBatchRows || size > maxBatchBytes) {
			return batch, append(rest, waiting[i:]...)
		}
		for _, r := range m.rows {
			keys[r.rk] = struct{}{}
		}
		batch = append(batch, m)
	}
	return batch, rest
}

// mustWait reports whether rows of the commit are about a message that others before them are
// about, which are under way or held; then what it is about is held too.
func (m *commit) mustWait(underWay, held map[string]struct{}) (wait bool) {
	if len(underWay)+len(held) == 0 {
		return false
	}
	for _, r := range m.rows {
		_, one := underWay[r.message()]
		_, other := held[r.message()]
		wait = wait || one || other
	}
	if wait {
		for _, r := range m.rows {
			held[r.message()] = struct{}{}
		}
	}
	return wait
}

// write commits a batch. When the service refuses a row, its owner gets the error
// and the others are written without it.
func (c *committer) write(p partition, batch []*commit) {
	ctx, stop := whileAnyWaits(batch)
	defer stop()
	for len(batch) > 0 {
		rows, owners := merge(batch)
		err := c.submit(ctx, p.table, rows)
		if err == nil {
			for _, m := range batch {
				c.committed(m.index)
				m.result <- nil
			}
			return
		}
		switch bad := culprit(err, owners); {
		case bad != nil:
			bad.result <- err
			batch = slices.DeleteFunc(batch, func(m *commit) bool { return m == bad })
		case isRefused(err) && len(batch) > 1: // and the service did not say for which row
			for _, m := range batch {
				c.write(p, []*commit{m})
			}
			return
		default:
			for _, m := range batch {
				m.result <- err
			}
			return
		}
	}
}

// merge puts the rows of a batch in one list with each key once, the last one
// winning, and says whose each is.
func merge(batch []*commit) (rows []row, owners []*commit) {
	index := make(map[string]int)
	for _, m := range batch {
		for _, r := range m.rows {
			i, taken := index[r.rk]
			if !taken {
				i = len(rows)
				index[r.rk] = i
				rows, owners = append(rows, row{}), append(owners, nil)
			}
			rows[i], owners[i] = r, m
		}
	}
	return rows, owners
}

// culprit returns whose row the service refused; nil when it refused none or
// did not say which.
func culprit(err error, owners []*commit) *commit {
	var e *storageError
	if !errors.As(err, &e) || !e.refused() || e.index < 0 || e.index >= len(owners) {
		return nil
	}
	return owners[e.index]
}

// whileAnyWaits returns a context that lasts until the last caller of the batch
// is gone: one caller's hanging up must not fail the others.
func whileAnyWaits(batch []*commit) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(batch[0].gone))
	var left atomic.Int64
	left.Store(int64(len(batch)))
	stops := make([]func() bool, 0, len(batch))
	for _, m := range batch {
		stops = append(stops, context.AfterFunc(m.gone, func() {
			if left.Add(-1) == 0 {
				cancel()
			}
		}))
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel()
	}
}
