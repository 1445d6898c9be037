package meter

import (
	"sync"
	"time"
)

// tallyHour is the length of a tally's window; it looks back one to two of them.
const tallyHour = time.Hour

// Tally counts what was lately finished with, by queue. The metrics count for ever, and
// are for others to read; this is what the API can say without them.
type Tally struct {
	mu      sync.Mutex
	byQueue map[string]*Lately
}

// Lately counts over two windows, this one and the one before.
type Lately [2]struct {
	start time.Time
	// all are the things that happened, some those of them of which the share matters.
	all, some int
}

// NewTally makes one that has counted nothing.
func NewTally() *Tally { return &Tally{byQueue: map[string]*Lately{}} }

// Add counts a message that was finished with.
func (t *Tally) Add(queueName string, deadLettered bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.byQueue[queueName]
	if w == nil {
		w = &Lately{}
		t.byQueue[queueName] = w
	}
	w.Add(deadLettered, time.Now())
}

// Recent returns the counts of the last one to two hours.
func (t *Tally) Recent(queueName string) (handled, deadLettered int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byQueue[queueName] == nil {
		return 0, 0
	}
	return t.byQueue[queueName].Sums(time.Now())
}

// Add counts one more thing.
func (w *Lately) Add(some bool, now time.Time) {
	w.turn(now)
	w[0].all++
	if some {
		w[0].some++
	}
}

// Sums are the counts of the last one to two hours.
func (w *Lately) Sums(now time.Time) (all, some int) {
	w.turn(now)
	return w[0].all + w[1].all, w[0].some + w[1].some
}

// turn makes the windows those of now.
func (w *Lately) turn(now time.Time) {
	switch age := now.Sub(w[0].start); {
	case age >= 2*tallyHour:
		*w = Lately{}
		w[0].start = now
	case age >= tallyHour:
		w[1], w[0] = w[0], Lately{}[0]
		w[0].start = now
	}
}
