package receive

import (
	"sync"
	"time"
)

const (
	// dueStep is how exactly due times are kept: those within one step are one.
	dueStep = 250 * time.Millisecond
	// maxDue bounds the due times that are kept. What is beyond is found by polling.
	maxDue = 4096
)

// due knows when messages that a poller gave back are visible again, so that it looks for
// them then, however long it waits between looks otherwise.
type due struct {
	mu    sync.Mutex
	steps map[int64]struct{}
}

// note notes that a message is visible again at t.
func (d *due) note(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.steps == nil {
		d.steps = map[int64]struct{}{}
	}
	if len(d.steps) < maxDue {
		d.steps[stepOf(t)+1] = struct{}{} // not before t
	}
}

// next returns the first due time, and forgets those that have passed by now; zero when
// none is left.
func (d *due) next(now time.Time) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	passed, first := stepOf(now), int64(0)
	for step := range d.steps {
		switch {
		case step <= passed:
			delete(d.steps, step)
		case first == 0 || step < first:
			first = step
		}
	}
	if first == 0 {
		return time.Time{}
	}
	return time.UnixMilli(first * dueStep.Milliseconds())
}

func stepOf(t time.Time) int64 { return t.UnixMilli() / dueStep.Milliseconds() }
