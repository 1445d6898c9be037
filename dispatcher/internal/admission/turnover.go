package admission

import (
	"time"

	"github.com/pushlease/pushlease/queue"
)

// AheadTime is how long a message that was received before there was a slot for it waits for one
// at most. While slots turn over it waits for far less: it is what makes up for the time that a
// receive takes.
const AheadTime = time.Second

// ahead is how many messages of one queue may be in hand beside those that have a slot: one
// batch that is being received and half of one meanwhile, or three quarters of the slots if that
// is less.
func (b Bounds) ahead(wanted bool) int {
	if !wanted {
		return 0
	}
	return min(queue.MaxReceive+queue.MaxReceive/2, b.Slots*3/4)
}

// turnover knows when the last few slots came free.
type turnover struct {
	at   []time.Time // a ring
	next int         // the oldest
}

func newTurnover(n int) turnover { return turnover{at: make([]time.Time, n)} }

// note notes that a slot came free.
func (t *turnover) note(now time.Time) {
	if len(t.at) > 0 {
		t.at[t.next] = now
		t.next = (t.next + 1) % len(t.at)
	}
}

// within is how many slots it knows of, if all of them came free within so long; else none.
func (t *turnover) within(now time.Time, d time.Duration) int {
	if len(t.at) == 0 || t.at[t.next].IsZero() || now.Sub(t.at[t.next]) > d {
		return 0
	}
	return len(t.at)
}
