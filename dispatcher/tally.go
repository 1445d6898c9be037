package dispatcher

import (
	"sync"
	"time"
)

// tallyHour is the length of a tally's window; it looks back one to two of them.
const tallyHour = time.Hour

// tally counts what was lately finished with, by queue. The metrics count for ever, and
// are for others to read; this is what the API can say without them.
type tally struct {
	mu      sync.Mutex
	byQueue map[string]*lately
}

// lately counts over two windows, this one and the one before.
type lately [2]struct {
	start time.Time
	// all are the things that happened, some those of them of which the share matters.
	all, some int
}

func newTally() *tally { return &tally{byQueue: map[string]*lately{}} }

// add counts a message that was finished with.
func (t *tally) add(queueName string, deadLettered bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.byQueue[queueName]
	if w == nil {
		w = &lately{}
		t.byQueue[queueName] = w
	}
	w.add(deadLettered, time.Now())
}

// recent returns the counts of the last one to two hours.
func (t *tally) recent(queueName string) (handled, deadLettered int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byQueue[queueName] == nil {
		return 0, 0
	}
	return t.byQueue[queueName].sums(time.Now())
}

func (w *lately) add(some bool, now time.Time) {
	w.turn(now)
	w[0].all++
	if some {
		w[0].some++
	}
}

// sums are the counts of the last one to two hours.
func (w *lately) sums(now time.Time) (all, some int) {
	w.turn(now)
	return w[0].all + w[1].all, w[0].some + w[1].some
}

// turn makes the windows those of now.
func (w *lately) turn(now time.Time) {
	switch age := now.Sub(w[0].start); {
	case age >= 2*tallyHour:
		*w = lately{}
		w[0].start = now
	case age >= tallyHour:
		w[1], w[0] = w[0], lately{}[0]
		w[0].start = now
	}
}
