package sqlite

import "time"

// jumpTolerance is how far the wall clock may drift from the monotonic one before it
// counts as set. Clocks that are slewed stay far below it.
const jumpTolerance = time.Second

// clock is the wall clock, watched by the monotonic one, and the leases of this
// process by the monotonic one. Rows hold wall-clock times, since other processes
// and later ones read them; when the wall clock is set, the rows are put right.
// Everything but wall is for the writer's goroutine.
type clock struct {
	wall func() time.Time
	// The wall clock read base when the monotonic one read start, and so they did
	// for every transaction, but for drift.
	base  time.Time
	start time.Time
	drift time.Duration
	// A transaction reads the wall clock once, when it begins, and goes on by the
	// monotonic one: a clock that is set meanwhile is noticed by the next.
	begunWall time.Time
	begun     time.Time
	held      map[int64]heldLease
}

// heldLease is a lease that this process holds, by the monotonic clock.
type heldLease struct {
	receipt int64
	until   time.Time
}

func newClock(wall func() time.Time) *clock {
	c := &clock{wall: wall, start: time.Now(), held: make(map[int64]heldLease)}
	c.base = wall().Round(0)
	c.begun, c.begunWall = c.start, c.base
	return c
}

func (c *clock) time() time.Time { return c.begunWall.Add(time.Since(c.begun)) }

// now is the transaction's time in milliseconds, rounded down.
func (c *clock) now() int64 { return c.time().UnixMilli() }

// after is when d from now has surely passed: rounded up.
func (c *clock) after(d time.Duration) int64 {
	return c.time().Add(d + time.Millisecond - 1).UnixMilli()
}

// jump is how the wall clock was set since it was looked at before.
type jump struct {
	step  time.Duration // 0 when it was not
	drift time.Duration
}

// look reads the clocks for a transaction that begins.
func (c *clock) look() jump {
	c.begun, c.begunWall = time.Now(), c.wall().Round(0)
	drift := c.begunWall.Sub(c.base) - c.begun.Sub(c.start)
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

// follow puts the rows right after the wall clock was set. The leases of this
// process last as long as the monotonic clock says, whichever way the clock went.
//
// When it went forward, messages that would have expired by that alone live on, and leases of
// other processes go on that would have ended: their holders may notice too late. When it went back, everything else that is hidden is moved with it, so that nothing
// waits longer than was asked for. Both are done by the first process that notices
// only: afterwards the rows do not match any more, but for a lease that was taken since by the new clock, and that a process prolongs once more which
// notices later than the clock was set by. Where its holder dies the message comes back later by as much.
func (c *clock) follow(conn *connection, j jump) error {
	if j.step == 0 {
		return nil
	}
	c.forgetLapsed()
	now := c.now()
	for seq, l := range c.held {
		if _, err := conn.exec("UPDATE messages SET hidden_at = ?, visible_at = ? WHERE seq = ? AND receipt = ?",
			now, c.after(time.Until(l.until)), seq, l.receipt); err != nil {
			return err
		}
	}
	step := j.step.Milliseconds()
	if j.step > 0 {
		if _, err := conn.exec(holdOnSQL, step, now, now-step, now-step); err != nil {
			return err
		}
		_, err := conn.exec(liveOnSQL, step, now-step, now)
		return err
	}
	_, err := conn.exec(moveBackSQL, step, step, now, now+jumpTolerance.Milliseconds())
	return err
}

const liveOnSQL = `UPDATE messages SET expires_at = expires_at + ?
WHERE seq IN (SELECT seq FROM messages INDEXED BY messages_expiry WHERE expires_at > 0 AND expires_at > ? AND expires_at <= ?)`

// holdOnSQL moves what was received and is held, by a receipt that is odd, since a time by the clock as it was.
const holdOnSQL = `UPDATE messages SET visible_at = visible_at + ?, hidden_at = ?
WHERE seq IN (SELECT m.seq FROM queues q JOIN messages m INDEXED BY messages_visible ON m.queue = q.id
  WHERE m.visible_at > ? AND m.hidden_at <= ? AND m.receipt & 1 = 1 AND m.dequeue_count > 0)`

const moveBackSQL = `UPDATE messages SET visible_at = visible_at + ?, hidden_at = hidden_at + ?
WHERE seq IN (SELECT m.seq FROM queues q JOIN messages m INDEXED BY messages_visible ON m.queue = q.id
  WHERE m.visible_at > ? AND m.hidden_at > ?)`
