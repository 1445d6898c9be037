package lease

import (
	"context"
	"time"

	"github.com/pushlease/pushlease/queue"
)

// Who can't renew a lease can still say what it was for: tables may answer where the queue does
// not, and where the answer of a renewal was lost nobody has the receipt any more (ADR 0058).

// Tell has f called, beside the work, when a lease may end while POSTs are under way: where
// nobody has its receipt any more, and where storage has not answered a renewal until a
// quarter of it was left.
func (ls *Leases) Tell(queueName string, m *queue.Message, f TellOthers) {
	if l := ls.of(queueName, m); l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.tellOthers = f
	}
}

// TooLate reports whether others were told what is under way, or are being told: what is not by
// now must not begin.
func (ls *Leases) TooLate(queueName string, m *queue.Message) bool {
	l := ls.of(queueName, m)
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.told
}

// tell tells others, where the work has something to say. Until by nobody else can have received
// the message. What comes of it counts unless a renewal was answered meanwhile.
func (l *Lease) tell(by time.Time) {
	f, ctx, answered := l.beginTelling()
	if f == nil {
		return
	}
	ctx, cancel := context.WithDeadline(ctx, by)
	defer cancel()
	until := f(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.answered == answered {
		l.othersWait = later(l.othersWait, until)
	}
}

// beginTelling notes that others are being told. f is nil where there is nothing to say, or nothing
// any more.
func (l *Lease) beginTelling() (f TellOthers, ctx context.Context, answered int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told = true
	if l.stopped {
		return nil, nil, 0
	}
	if l.telling == nil {
		l.telling, l.cutTelling = context.WithCancel(l.ls.write)
	}
	return l.tellOthers, l.telling, l.answered
}

// tellBeside is tell once, while renewals go on.
func (l *Lease) tellBeside(by time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.told {
		return
	}
	l.told = true
	l.acting.Go(func() { l.tell(by) })
}

// waitedFor is for how long others leave the message alone.
func (l *Lease) waitedFor() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Until(l.othersWait)
}

// forgetTold is for a lease that is well again.
func (l *Lease) forgetTold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told, l.othersWait = false, time.Time{}
	l.answered++
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
