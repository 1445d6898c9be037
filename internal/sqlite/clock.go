package sqlite

import (
	"time"

	"github.com/pushlease/pushlease/queue"
)

// jumpTolerance is how far the wall clock may drift from the monotonic one before it
// counts as set. Clocks that are slewed stay far below it.
const jumpTolerance = time.Second

// clock is the wall clock, watched by the monotonic one, and the leases of this
// process by the monotonic one. Rows hold wall-clock times, since other processes
// and later ones read them; when the wall clock is set, the rows are put right.
// Everything but now is for the writer's goroutine.
type clock struct {
	wall  func() time.Time
	base  time.Time // the wall clock's reading at start
	start time.Time // the monotonic one's
	drift time.Duration
	held  map[int64]heldLease
}

// heldLease is a lease that this process holds, by the monotonic clock.
type heldLease struct {
	receipt int64
	until   time.Time
}

func newClock(wall func() time.Time) *clock {
	return &clock{wall: wall, base: wall().Round(0), start: time.Now(), held: make(map[int64]heldLease)}
}

// now is the wall clock's time in milliseconds, rounded down.
func (c *clock) now() int64 { return c.wall().UnixMilli() }

// after is when d from now has surely passed: rounded up.
func (c *clock) after(d time.Duration) int64 {
	return c.wall().Add(d + time.Millisecond - 1).UnixMilli()
}

// jump is how the wall clock was set since it was looked at before.
type jump struct {
	step  time.Duration // 0 when it was not
	drift time.Duration
}

func (c *clock) look() jump {
	drift := c.wall().Round(0).Sub(c.base) - time.Since(c.start)
	step := drift - c.drift
	if step.Abs() < jumpTolerance {
		return jump{}
	}
	return jump{step: step, drift: drift}
}

// accept notes that the rows follow the clock now.
func (c *clock) accept(j jump) {
	if j.step != 0 {
		c.drift = j.drift
	}
}

// hold notes a lease, prolongs it, or replaces the one of an earlier holder.
func (c *clock) hold(seq, receipt int64, start time.Time, lease time.Duration) {
	c.held[seq] = heldLease{receipt: receipt, until: start.Add(lease)}
}

func (c *clock) release(seq int64) { delete(c.held, seq) }

// forgetLapsed bounds held by what is really held.
func (c *clock) forgetLapsed() {
	now := time.Now()
	for seq, l := range c.held {
		if !l.until.After(now) {
			delete(c.held, seq)
		}
	}
}

// followClock puts the rows right after the wall clock was set. The leases of this
// process last as long as the monotonic clock says, whichever way the clock went.
// When it went back, everything else that is hidden is moved with it, so that
// nothing waits longer than was asked for; a row is moved by the first process that
// notices only, since afterwards it was not hidden in the future any more.
func (w *writer) followClock(j jump) error {
	if j.step == 0 {
		return nil
	}
	c := w.db.clock
	c.forgetLapsed()
	now := c.now()
	for seq, l := range c.held {
		if _, err := w.exec("UPDATE messages SET hidden_at = ?, visible_at = ? WHERE seq = ? AND receipt = ?",
			now, c.after(time.Until(l.until)), seq, l.receipt); err != nil {
			return err
		}
	}
	if j.step > 0 {
		return nil
	}
	step := j.step.Milliseconds()
	_, err := w.exec(moveBackSQL, step, step, now, now+jumpTolerance.Milliseconds())
	return err
}

const moveBackSQL = `UPDATE messages SET visible_at = visible_at + ?, hidden_at = hidden_at + ?
WHERE seq IN (SELECT m.seq FROM queues q JOIN messages m INDEXED BY messages_visible ON m.queue = q.id
  WHERE m.visible_at > ? AND m.hidden_at > ?)`

// clampSQL is for rows that were hidden by a clock that is not known any more: they
// begin to wait now, for as long as was asked for, and never longer than is allowed.
const clampSQL = `UPDATE messages SET visible_at = ? + max(0, min(visible_at - hidden_at, ?)), hidden_at = ?
WHERE seq IN (SELECT m.seq FROM queues q JOIN messages m INDEXED BY messages_visible ON m.queue = q.id
  WHERE m.visible_at > ? AND (m.hidden_at > ? OR m.visible_at > ?))`

// clamp brings back what a wrong clock has hidden for too long.
func (t *tx) clamp(now int64) error {
	longest := queue.MaxDelay.Milliseconds()
	slack := jumpTolerance.Milliseconds()
	_, err := t.exec(clampSQL, now, longest, now, now, now+slack, now+longest+slack)
	return err
}
