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
	of    map[string]shown
	steps map[int64]int // how many messages each step has
}

// shown is when a message is visible again: the step, and as which delivery it was given back.
type shown struct{ step, delivery int64 }

// note notes that a message is visible again at t, which was given back as this delivery of it. What
// is told of an earlier one comes late, since storage gave its answer late, and changes nothing.
func (d *due) note(id string, delivery int64, t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of == nil {
		d.of, d.steps = map[string]shown{}, map[int64]int{}
	}
	if d.of[id].delivery > delivery {
		return
	}
	d.drop(id)
	if len(d.of) >= maxDue {
		d.pass(time.Now())
	}
	if len(d.of) < maxDue {
		step := stepOf(t) + 1 // not before t
		d.of[id] = shown{step, delivery}
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
	one, known := d.of[id]
	if !known {
		return
	}
	delete(d.of, id)
	if d.steps[one.step] > 1 {
		d.steps[one.step]--
	} else {
		delete(d.steps, one.step)
	}
}

// pass forgets the messages whose time has passed: others may have received them. d.mu is held.
func (d *due) pass(now time.Time) {
	for id, one := range d.of {
		if one.step <= stepOf(now) {
			d.drop(id)
		}
	}
}

// next returns the first due time after looked, when the last look began; zero when none is left. One
// that has passed since is due now: storage may have judged that look before it.
func (d *due) next(looked time.Time) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	passed, first := stepOf(looked), int64(0)
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
