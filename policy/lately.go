package policy

import "time"

// latelyHour is the length of the windows of Lately.
const latelyHour = time.Hour

// Lately counts what happened, and those of it of which the share matters, over two windows:
// this hour, and the one before.
type Lately [2]struct {
	start     time.Time
	all, some int
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
	case age >= 2*latelyHour:
		*w = Lately{}
		w[0].start = now
	case age >= latelyHour:
		w[1], w[0] = w[0], Lately{}[0]
		w[0].start = now
	}
}
