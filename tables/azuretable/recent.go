package azuretable

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/tables/azuretable/internal/commit"
)

// How long an attempt may wait for others, so that few transactions write the index. It
// goes sooner when a partition of the index has enough of them for a whole transaction,
// and at once when this process is asked for a list or closes.
const (
	// failedWait is for an attempt that did not complete its delivery: somebody may be
	// looking for it, through another process.
	failedWait = 5 * time.Second
	// completedWait is for all others: at one message in two seconds, 30 of them share
	// two transactions.
	completedWait = time.Minute
)

const (
	// maxIndexRows bounds the memory that rows waiting for the index take; further
	// ones are dropped.
	maxIndexRows = 8192
	// recentWriters is how many transactions a round has under way.
	recentWriters = 4
	// rowsPerAttempt: one among all attempts, one among those of its webhook.
	rowsPerAttempt = 2
	// indexTimeout bounds one transaction with its repetition.
	indexTimeout = 30 * time.Second
)

// indexRow is a row on its way into the index.
type indexRow struct {
	partition commit.Partition
	row       commit.Row
	// wait is how long it may wait for others.
	wait time.Duration
}

// recentIndex gathers the rows of the Recent tables and writes them in the background.
// A goroutine runs only while something waits.
type recentIndex struct {
	// submit writes up to 100 rows of one partition.
	submit  func(ctx context.Context, table string, rows []commit.Row) error
	dropped func(rows int)
	// ctx ends when close gives up.
	ctx    context.Context
	cancel context.CancelFunc

	mu       sync.Mutex
	gathered map[commit.Partition]*gathering
	// turn is the shard that the next transaction of all webhooks goes to.
	turn int
	// rows counts those that wait or are being written.
	rows    int
	running bool
	closed  bool
	// added and done count rows, so that flush knows when its turn is over; rows up to
	// goal are not to wait any longer.
	added, done, goal int64
	// hurry has an element when the goroutine is to look again before its time.
	hurry chan struct{}
	// progress is closed and renewed after each round.
	progress chan struct{}
}

// gathering are the rows that wait for one partition.
type gathering struct {
	rows []commit.Row
	// due is when they are written, however few they are.
	due time.Time
}

func newRecentIndex(submit func(context.Context, string, []commit.Row) error, dropped func(int)) *recentIndex {
	if dropped == nil {
		dropped = func(int) {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &recentIndex{
		submit: submit, dropped: dropped, ctx: ctx, cancel: cancel,
		gathered: make(map[commit.Partition]*gathering), hurry: make(chan struct{}, 1), progress: make(chan struct{}),
	}
}

// add gathers rows; it never blocks.
func (x *recentIndex) add(rows []indexRow) {
	x.mu.Lock()
	room := max(0, maxIndexRows-x.rows)
	if x.closed {
		room = 0
	}
	take := min(len(rows), room)
	sooner := false
	for _, r := range rows[:take] {
		due := time.Now().Add(r.wait)
		g := x.gathered[r.partition]
		if g == nil {
			g = &gathering{due: due}
			x.gathered[r.partition] = g
			sooner = true
		}
		if due.Before(g.due) {
			g.due, sooner = due, true
		}
		g.rows = append(g.rows, r.row)
		sooner = sooner || len(g.rows) == commit.MaxRows
	}
	x.rows += take
	x.added += int64(take)
	start := take > 0 && !x.running
	if start {
		x.running = true
	}
	x.mu.Unlock()
	switch {
	case start:
		go x.run()
	case sooner:
		x.wake()
	}
	if left := len(rows) - take; left > 0 {
		x.dropped(left)
	}
}

// wake makes the goroutine look again at what is due.
func (x *recentIndex) wake() {
	select {
	case x.hurry <- struct{}{}:
	default:
	}
}

// run writes until nothing waits.
func (x *recentIndex) run() {
	for {
		x.mu.Lock()
		if len(x.gathered) == 0 {
			x.running = false
			x.mu.Unlock()
			return
		}
		round, next := x.takeDue(time.Now())
		x.mu.Unlock()
		if len(round) == 0 {
			x.sleep(next)
			continue
		}
		written := x.write(round)
		x.mu.Lock()
		x.rows -= written
		x.done += int64(written)
		close(x.progress)
		x.progress = make(chan struct{})
		x.mu.Unlock()
	}
}

// sleep waits until next or until it is woken.
func (x *recentIndex) sleep(next time.Time) {
	t := time.NewTimer(time.Until(next))
	defer t.Stop()
	select {
	case <-t.C:
	case <-x.hurry:
	}
}

// batch is one transaction's rows.
type batch struct {
	table string
	rows  []commit.Row
}

// takeDue takes what is to be written now: everything of a partition that is due or
// asked for, and otherwise only what fills whole transactions. next is when more is
// due. x.mu is held.
func (x *recentIndex) takeDue(now time.Time) (round []batch, next time.Time) {
	for p, g := range x.gathered {
		all := x.done < x.goal || !now.Before(g.due)
		for len(g.rows) >= commit.MaxRows || all && len(g.rows) > 0 {
			n := min(len(g.rows), commit.MaxRows)
			round = append(round, batch{table: p.Table, rows: x.spread(p.Key, g.rows[:n:n])})
			g.rows = g.rows[n:]
		}
		switch {
		case len(g.rows) == 0:
			delete(x.gathered, p)
		case next.IsZero() || g.due.Before(next):
			next = g.due
		}
	}
	return round, next
}

// spread puts the rows of one transaction into a shard, where their partition has several. x.mu is held.
func (x *recentIndex) spread(partition string, rows []commit.Row) []commit.Row {
	hour, all := strings.CutPrefix(partition, allWebhooks)
	if !all {
		return rows
	}
	shards := allPrefixes()
	key := shards[x.turn] + hour
	x.turn = (x.turn + 1) % len(shards)
	for i := range rows {
		rows[i].PK = key
	}
	return rows
}

// write writes a round, and returns how many rows it had.
func (x *recentIndex) write(round []batch) (n int) {
	slots := make(chan struct{}, recentWriters)
	var wg sync.WaitGroup
	for _, b := range round {
		n += len(b.rows)
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(x.ctx, indexTimeout)
			defer cancel()
			// An attempt may have been recorded twice.
			rows := commit.LastOfEach(b.rows)
			if err := x.submit(ctx, b.table, rows); err != nil {
				x.dropped(len(rows))
			}
		})
	}
	wg.Wait()
	return n
}

// flush waits until what was added before has been written or dropped.
func (x *recentIndex) flush(ctx context.Context) error {
	x.mu.Lock()
	goal := x.added
	if x.done < goal {
		x.goal = goal
		x.wake()
	}
	for x.done < goal {
		progress := x.progress
		x.mu.Unlock()
		select {
		case <-progress:
		case <-ctx.Done():
			return ctx.Err()
		}
		x.mu.Lock()
	}
	x.mu.Unlock()
	return nil
}

// close flushes, and gives up when ctx ends first. Later additions are dropped.
func (x *recentIndex) close(ctx context.Context) error {
	x.mu.Lock()
	x.closed = true
	x.mu.Unlock()
	err := x.flush(ctx)
	x.cancel()
	if err != nil {
		// Requests end at once now, so what is left drops within moments.
		_ = x.flush(context.WithoutCancel(ctx))
	}
	return err
}

// addIndexRows adds the rows of the index for an attempt, whose columns are those of its
// record.
func (n names) addIndexRows(rows []indexRow, a *tables.Attempt, columns []byte) []indexRow {
	wait := failedWait
	if a.Action == policy.Complete {
		wait = completedWait
	}
	table, hour, rk := n.recentTable(day(a.StartedAt)), invertedHour(a.StartedAt), recentKey(*a)
	rows = slices.Grow(rows, rowsPerAttempt)
	for _, pk := range [...]string{allWebhooks + hour, webhookPrefix(a.WebhookID) + hour} {
		rows = append(rows, indexRow{
			partition: commit.Partition{Table: table, Key: pk}, row: commit.Row{PK: pk, RK: rk, Columns: columns}, wait: wait,
		})
	}
	return rows
}
