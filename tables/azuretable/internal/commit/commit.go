// Package commit writes rows in transactions, which are billed one by one: what waits goes together, in lanes of which a late one
// holds up itself only. What the rows say is of no account here.
package commit

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Limits of one transaction: 100 rows and 4 MiB of request, of which a part is
// kept for the frame.
const (
	MaxRows  = 100
	MaxBytes = 4<<20 - 64<<10
	// rowFrame is what the request adds to a row but for its keys: multipart headers,
	// request line with the service's address and signature, headers. It is generous.
	rowFrame = 1000
)

// Row is one row, ready to be written.
type Row struct {
	PK, RK string
	// Columns are the properties but for the keys, as the members of a JSON object,
	// each with a comma before it. They are ASCII on one line, whatever they hold.
	Columns []byte
}

// Size is at most what the row takes in a request. Its keys are in it twice.
func (r Row) Size() int { return len(r.Columns) + 2*(len(r.PK)+len(r.RK)) + rowFrame }

// Partition is what one transaction can be about.
type Partition struct{ Table, Key string }

// commit is one caller's rows. They are written together or not at all.
type commit struct {
	rows []Row
	// then is called once they are written; nil for nothing.
	then func()
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

// Committer writes rows in transactions. What comes while one is under way in a partition
// waits and goes together in the next, so busy partitions cost few requests and an idle one
// adds no delay. It waits for transactions that are late only where they are about the same
// message, whose rows stay in order: the others go in another one beside them, a lane of
// their own.
type Committer struct {
	// Submit writes rows of one partition, all or none.
	Submit func(ctx context.Context, table string, rows []Row) error
	// Message is what rows have in common that have to stay in order, by their keys.
	Message func(rk string) string

	mu sync.Mutex
	// stalls counts lanes that were begun because all others of their partition were late.
	stalls int64
	// busy has an entry for each partition with a transaction under way.
	busy map[Partition]*lanes
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

// Commit writes rows, whose keys differ, and returns when they are durable.
// When ctx ends first the rows may be written all the same, and then is called then too.
func (c *Committer) Commit(ctx context.Context, p Partition, rows []Row, then func()) error {
	m := &commit{rows: rows, then: then, gone: ctx, result: make(chan error, 1)}
	c.mu.Lock()
	l := c.busy[p]
	if l == nil {
		l = &lanes{messages: make(map[string]struct{})}
		if c.busy == nil {
			c.busy = make(map[Partition]*lanes)
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
		return fmt.Errorf("table storage: transaction: no answer: %w", ctx.Err())
	}
}

// Lanes returns how many transactions are under way, and how many began so far beside others that were late.
func (c *Committer) Lanes() (underWay int, stalls int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.busy {
		underWay += l.n
	}
	return underWay, c.stalls
}

// widen begins another lane when all that there are are late, and sees to it that this is
// looked at again when they may be. c.mu is held.
func (c *Committer) widen(p Partition, l *lanes) {
	late := lateAfter - time.Since(l.newest)
	switch {
	case len(l.waiting) == 0 || l.n == maxLanes:
	case l.n == 0 || late <= 0:
		if l.n > 0 {
			c.stalls++
		}
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
func (c *Committer) run(p Partition, l *lanes) {
	for {
		// Callers that are about to come are let through first: it costs nothing when
		// there are none.
		runtime.Gosched()
		c.mu.Lock()
		batch, rest := c.takeBatch(l.waiting, l.messages)
		l.waiting = rest
		if len(batch) == 0 {
			if l.n--; l.n == 0 {
				delete(c.busy, p)
			}
			c.mu.Unlock()
			return
		}
		l.newest = time.Now()
		about := c.messagesOf(batch)
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

func (c *Committer) messagesOf(batch []*commit) map[string]struct{} {
	about := make(map[string]struct{}, len(batch))
	for _, m := range batch {
		for _, r := range m.rows {
			about[c.Message(r.RK)] = struct{}{}
		}
	}
	return about
}

// takeBatch splits off the commits that fit into one transaction, in order. Those
// that nobody waits for any more are left out, and those about messages that are under way
// wait, with all that comes after them about the same.
func (c *Committer) takeBatch(waiting []*commit, underWay map[string]struct{}) (batch, rest []*commit) {
	keys, held := make(map[string]struct{}), make(map[string]struct{})
	size := 0
	for i, m := range waiting {
		if m.gone.Err() != nil {
			continue
		}
		if c.mustWait(m, underWay, held) {
			rest = append(rest, m)
			continue
		}
		count := len(keys)
		for _, r := range m.rows {
			size += r.Size()
			if _, twice := keys[r.RK]; !twice {
				count++
			}
		}
		if len(batch) > 0 && (count > MaxRows || size > MaxBytes) {
			return batch, append(rest, waiting[i:]...)
		}
		for _, r := range m.rows {
			keys[r.RK] = struct{}{}
		}
		batch = append(batch, m)
	}
	return batch, rest
}

// mustWait reports whether rows of the commit are about a message that others before them are
// about, which are under way or held; then what it is about is held too.
func (c *Committer) mustWait(m *commit, underWay, held map[string]struct{}) (wait bool) {
	if len(underWay)+len(held) == 0 {
		return false
	}
	for _, r := range m.rows {
		_, one := underWay[c.Message(r.RK)]
		_, other := held[c.Message(r.RK)]
		wait = wait || one || other
	}
	if wait {
		for _, r := range m.rows {
			held[c.Message(r.RK)] = struct{}{}
		}
	}
	return wait
}

// write commits a batch. When the service refuses a row, its owner gets the error
// and the others are written without it.
func (c *Committer) write(p Partition, batch []*commit) {
	ctx, stop := whileAnyWaits(batch)
	defer stop()
	for len(batch) > 0 {
		rows, owners := merge(batch)
		err := c.Submit(ctx, p.Table, rows)
		if err == nil {
			for _, m := range batch {
				if m.then != nil {
					m.then()
				}
				m.result <- nil
			}
			return
		}
		switch bad := culprit(err, owners); {
		case bad != nil:
			bad.result <- err
			batch = slices.DeleteFunc(batch, func(m *commit) bool { return m == bad })
		case isRefusal(err) && len(batch) > 1: // and the service did not say for which row
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
func merge(batch []*commit) (rows []Row, owners []*commit) {
	index := make(map[string]int)
	for _, m := range batch {
		for _, r := range m.rows {
			i, taken := index[r.RK]
			if !taken {
				i = len(rows)
				index[r.RK] = i
				rows, owners = append(rows, Row{}), append(owners, nil)
			}
			rows[i], owners[i] = r, m
		}
	}
	return rows, owners
}

// LastOfEach returns the rows with each key once, the last one winning.
func LastOfEach(rows []Row) []Row {
	rows, _ = merge([]*commit{{rows: rows}})
	return rows
}

// refusal is an error that says that the service refuses the content of a transaction, and which row's; -1 when it named none.
type refusal interface {
	Refusal() (row int, refused bool)
}

func isRefusal(err error) bool {
	var e refusal
	if !errors.As(err, &e) {
		return false
	}
	_, refused := e.Refusal()
	return refused
}

// culprit returns whose row the service refused; nil when it refused none or
// did not say which.
func culprit(err error, owners []*commit) *commit {
	var e refusal
	if !errors.As(err, &e) {
		return nil
	}
	if row, refused := e.Refusal(); refused && row >= 0 && row < len(owners) {
		return owners[row]
	}
	return nil
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
