package receive

import (
	"sync"
	"time"
)

const (
	// dueStep is how exactly due times are kept: those within one step are one.
	dueStep = 250 * time.Millisecond
	// maxDue bounds the messages whose due times are kept. What is beyond is found by polling.
	maxDue = 16_384
)

// due knows when messages that a poller gave back are visible again, so that it looks for
// them then, however long it waits between looks otherwise. What has come back before its time
// is looked for no more.
type due struct {
	mu    sync.Mutex
	of    map[string]int64 // the step of each message
	steps map[int64]int    // how many messages each step has
}

// note notes that a message is visible again at t.
func (d *due) note(id string, t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of == nil {
		d.of, d.steps = map[string]int64{}, map[int64]int{}
	}
	d.drop(id)
	if len(d.of) >= maxDue {
		d.pass(time.Now())
	}
	if len(d.of) < maxDue {
		step := stepOf(t) + 1 // not before t
		d.of[id] = step
		d.steps[step]++
	}
}

// back notes that a message has come back, or need not be waited for.
func (d *due) back(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.drop(id)
}

// drop forgets a message. d.mu is held.
func (d *due) drop(id string) {
	step, known := d.of[id]
	if !known {
		return
	}
	delete(d.of, id)
	if d.steps[step] > 1 {
		d.steps[step]--
	} else {
		delete(d.steps, step)
	}
}

// pass forgets the messages whose time has passed: others may have received them. d.mu is held.
func (d *due) pass(now time.Time) {
	for id, step := range d.of {
		if step <= stepOf(now) {
			d.drop(id)
		}
	}
}

// next returns the first due time that has not passed by now; zero when none is left.
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
