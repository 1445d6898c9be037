package azuretable

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
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

// commit is one caller's rows. They are written together or not at all.
type commit struct {
	rows []row
	// index are rows for the index of recent attempts, once the others are written.
	index []indexRow
	// gone is the caller's context: once it is done nobody waits for the result.
	gone   context.Context
	result chan error // holds one
}

// committer writes rows in transactions, one at a time for each partition.
// What comes while one is under way waits and goes together in the next, so
// busy partitions cost few requests and an idle one adds no delay.
type committer struct {
	// submit writes rows of one partition, all or none.
	submit func(ctx context.Context, table string, rows []row) error
	// committed gets what is to be indexed of the rows that were written.
	committed func([]indexRow)

	mu sync.Mutex
	// waiting has an entry for each partition that a goroutine is busy with.
	waiting map[partition][]*commit
}

// commit writes rows, whose keys differ, and returns when they are durable.
// When ctx ends first the rows may be written all the same.
func (c *committer) commit(ctx context.Context, p partition, rows []row, index []indexRow) error {
	m := &commit{rows: rows, index: index, gone: ctx, result: make(chan error, 1)}
	c.mu.Lock()
	queue, busy := c.waiting[p]
	if c.waiting == nil {
		c.waiting = make(map[partition][]*commit)
	}
	c.waiting[p] = append(queue, m)
	c.mu.Unlock()
	if !busy {
		go c.run(p)
	}
	select {
	case err := <-m.result:
		return err
	case <-ctx.Done():
		return storageErr(ctx, transaction, ctx.Err())
	}
}

// run writes until nothing waits for the partition.
func (c *committer) run(p partition) {
	for {
		// Callers that are about to come are let through first: it costs nothing when
		// there are none.
		runtime.Gosched()
		c.mu.Lock()
		batch, rest := takeBatch(c.waiting[p])
		if len(batch) == 0 {
			delete(c.waiting, p)
			c.mu.Unlock()
			return
		}
		c.waiting[p] = rest
		c.mu.Unlock()
		c.write(p, batch)
	}
}

// takeBatch splits off the commits that fit into one transaction, in order. Those
// that nobody waits for any more are left out.
func takeBatch(waiting []*commit) (batch, rest []*commit) {
	keys := make(map[string]struct{})
	size := 0
	for i, m := range waiting {
		if m.gone.Err() != nil {
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
			return batch, waiting[i:]
		}
		for _, r := range m.rows {
			keys[r.rk] = struct{}{}
		}
		batch = append(batch, m)
	}
	return batch, nil
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

func isRefused(err error) bool {
	var e *storageError
	return errors.As(err, &e) && e.refused()
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
