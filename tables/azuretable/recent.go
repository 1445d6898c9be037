package azuretable

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pushlease/pushlease/tables"
)

const (
	// maxWaiting bounds the memory that attempts waiting for the index take;
	// further ones are dropped.
	maxWaiting = 4096
	// maxRound is how many attempts one round takes.
	maxRound = 500
	// recentWriters is how many transactions a round has under way.
	recentWriters = 4
	// rowsPerAttempt: one among all attempts, one among those of its webhook.
	rowsPerAttempt = 2
	// indexTimeout bounds one transaction with its repetition.
	indexTimeout = 30 * time.Second
)

// recentIndex writes attempts to the Recent tables in the background. A
// goroutine runs only while something waits; it takes whatever waits at once.
type recentIndex struct {
	// write writes attempts and returns how many rows could not be written.
	write   func(ctx context.Context, as []tables.Attempt) (failed int)
	dropped func(rows int)
	// ctx ends when close gives up.
	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.Mutex
	waiting []tables.Attempt
	running bool
	closed  bool
	// added and done count attempts, so that flush knows when its turn is over.
	added, done int64
	// progress is closed and renewed after each round.
	progress chan struct{}
}

func newRecentIndex(write func(context.Context, []tables.Attempt) int, dropped func(int)) *recentIndex {
	if dropped == nil {
		dropped = func(int) {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &recentIndex{write: write, dropped: dropped, ctx: ctx, cancel: cancel, progress: make(chan struct{})}
}

// add queues attempts; it never blocks.
func (x *recentIndex) add(as []tables.Attempt) {
	x.mu.Lock()
	room := maxWaiting - len(x.waiting)
	if x.closed {
		room = 0
	}
	take := min(len(as), room)
	x.waiting = append(x.waiting, as[:take]...)
	x.added += int64(take)
	start := take > 0 && !x.running
	if start {
		x.running = true
	}
	x.mu.Unlock()
	if start {
		go x.run()
	}
	if left := len(as) - take; left > 0 {
		x.dropped(rowsPerAttempt * left)
	}
}

func (x *recentIndex) run() {
	for {
		x.mu.Lock()
		if len(x.waiting) == 0 {
			x.running = false
			x.mu.Unlock()
			return
		}
		n := min(len(x.waiting), maxRound)
		round := x.waiting[:n:n]
		x.waiting = slices.Clone(x.waiting[n:])
		x.mu.Unlock()

		if failed := x.write(x.ctx, round); failed > 0 {
			x.dropped(failed)
		}

		x.mu.Lock()
		x.done += int64(n)
		close(x.progress)
		x.progress = make(chan struct{})
		x.mu.Unlock()
	}
}

// flush waits until what was added before has been written or dropped.
func (x *recentIndex) flush(ctx context.Context) error {
	x.mu.Lock()
	goal := x.added
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

// indexAttempts is called with attempts that are durable.
func (s *Store) indexAttempts(as []tables.Attempt) { s.recent.add(as) }

// writeRecent writes the index rows of attempts and returns how many failed.
func (s *Store) writeRecent(ctx context.Context, as []tables.Attempt) (failed int) {
	batches, failed := s.recentBatches(as)
	slots := make(chan struct{}, recentWriters)
	var wg sync.WaitGroup
	var mu sync.Mutex
	for p, rows := range batches {
		for chunk := range slices.Chunk(rows, maxBatchRows) {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				ctx, cancel := context.WithTimeout(ctx, indexTimeout)
				defer cancel()
				if err := s.submit(ctx, p.table, chunk); err != nil {
					mu.Lock()
					failed += len(chunk)
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	return failed
}

// recentBatches makes the index rows of attempts, each key once.
func (s *Store) recentBatches(as []tables.Attempt) (batches map[partition][]row, failed int) {
	commits := make(map[partition]*commit)
	for _, a := range as {
		columns := attemptColumns(a)
		hour := invertedHour(a.StartedAt)
		for _, pk := range []string{allWebhooks + hour, webhookPrefix(a.WebhookID) + hour} {
			r, err := columns.row(pk, recentKey(a))
			if err != nil {
				failed++
				continue
			}
			p := partition{table: s.recentTable(day(a.StartedAt)), key: pk}
			if commits[p] == nil {
				commits[p] = &commit{}
			}
			commits[p].rows = append(commits[p].rows, r)
		}
	}
	batches = make(map[partition][]row)
	for p, m := range commits {
		batches[p], _ = merge([]*commit{m})
	}
	return batches, failed
}
