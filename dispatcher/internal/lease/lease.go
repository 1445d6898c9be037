// Package lease keeps the leases of messages in work: it renews them at half of what storage
// last granted, goes on with a message that came back, and says how long a lease should be.
package lease

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/meter"
	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
)

const (
	// renewTimeout bounds one renewal.
	renewTimeout = 10 * time.Second
	// renewFirst is the first wait after a renewal that storage did not answer, renewLeast the
	// shortest of those that follow (see again).
	renewFirst = 500 * time.Millisecond
	renewLeast = 250 * time.Millisecond
	// renewWait bounds how long settling waits for a renewal in flight.
	renewWait = 5 * time.Second
)

// state is how a lease fares.
type state int

const (
	kept   state = iota // as far as is known
	silent              // storage did not answer the last renewal; the lease goes on
	lapsed              // it has ended in that silence, and may be renewed still
	// doubtful: storage does not know the receipt, though a renewal that it did not answer may
	// have been what replaced it. The work goes on for as long as that one would last.
	doubtful
	lost // the work ended with it
)

// Lease is one message that this process has. It is renewed at half of what storage last
// granted, until it is stopped or lost; in between it waits in the clock, without a goroutine.
//
// Context ends with the cause queue.ErrLeaseLost only when storage says that the
// lease is lost. Storage that is merely silent does not end it: work in flight
// then runs to its own deadline, and its outcome is recorded.
type Lease struct {
	Queue   queue.Queue
	Message *queue.Message
	Context context.Context

	ls     *Leases
	cancel context.CancelCauseFunc
	// quit ends what act waits for; nil where the lease is not renewed here.
	quit chan struct{}
	// using is held by a renewal and by a settling call, so that the receipt is
	// never replaced while a settling call is under way with it.
	using chan struct{}

	// at, index and stopped belong to the clock; index is -1 while the lease is not there.
	at      time.Time
	index   int
	stopped bool
	// acting is what Stop waits for.
	acting sync.WaitGroup

	// The rest, down to mu, belongs to act, which never runs twice at a time.
	unanswered int       // renewals in a row
	maybeUntil time.Time // how long an unanswered renewal may have extended the lease
	receipt    string    // the one that storage does not know, while state is doubtful

	mu    sync.Mutex
	state state
	// count is the number of the newest receive; elsewhere: there was one by others.
	count     int64
	elsewhere bool
}

// Leases are those of one process. Its lock may be held when that of a Lease is taken, never the
// other way round.
type Leases struct {
	write  context.Context
	length func(queueName string) time.Duration
	meter  *meter.Instruments
	log    *slog.Logger
	clock  clock

	mu     sync.Mutex
	inWork map[work]*Lease
}

// work names a message that is in work.
type work struct{ queue, message string }

// New makes the leases. Renewals go on until write ends, and ask for a lease of length.
func New(write context.Context, length func(queueName string) time.Duration, m *meter.Instruments, log *slog.Logger) *Leases {
	return &Leases{write: write, length: length, meter: m, log: log, inWork: map[work]*Lease{}}
}

// Keep starts keeping m's lease. Renewing outlives ctx, with which the work ends: it goes on
// while the message is being settled.
func (ls *Leases) Keep(ctx context.Context, q queue.Queue, m *queue.Message) *Lease {
	l := ls.Hold(ctx, q, m)
	l.quit = make(chan struct{})
	l.atHalf()
	return l
}

// Hold is Keep without renewals: somebody else keeps the lease.
func (ls *Leases) Hold(ctx context.Context, q queue.Queue, m *queue.Message) *Lease {
	ctx, cancel := context.WithCancelCause(ctx)
	return &Lease{Queue: q, Message: m, Context: ctx, ls: ls, cancel: cancel, index: -1, count: m.DequeueCount, using: make(chan struct{}, 1)}
}

// Renewed reports whether the lease is renewed here, so that its receipt is ours.
func (l *Lease) Renewed() bool { return l.quit != nil }

// Stop ends renewing and waits for it.
func (l *Lease) Stop() {
	l.ls.clock.remove(l)
	if l.quit != nil {
		close(l.quit)
	}
	l.acting.Wait()
	l.cancel(context.Canceled)
}

// IsLost reports whether storage said that the lease is lost.
func (l *Lease) IsLost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state == lost
}

// turn puts the lease into a state, and returns the one before. What is lost stays so.
func (l *Lease) turn(to state) (from state) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if from = l.state; from != lost {
		l.state = to
	}
	return from
}

// atHalf makes the next renewal come at half of what storage last granted.
func (l *Lease) atHalf() {
	l.turn(kept)
	l.unanswered, l.maybeUntil = 0, time.Time{}
	l.ls.clock.add(l, l.Message.Lease.Until().Add(-l.Message.Lease.Granted()/2))
}

// act does what the lease's time has come for, and says when it acts next, if ever.
func (l *Lease) act() {
	defer l.acting.Done()
	if l.ls.write.Err() != nil {
		return
	}
	if l.receipt != "" {
		l.end(l.receipt)
		return
	}
	start, receipt := time.Now(), l.Message.Lease.Receipt()
	length := l.ls.length(l.Queue.Name())
	err := l.renew(length)
	switch {
	case err == nil:
		l.atHalf()
	case errors.Is(err, queue.ErrLeaseLost) && l.expired():
		l.ls.log.Warn("the message expired while it was being handled; the work goes on, and what fails now is dead-lettered",
			"queue", l.Queue.Name(), "message", l.Message.ID)
		l.ls.meter.LeaseLost(l.Queue.Name(), "expired")
	case errors.Is(err, queue.ErrLeaseLost) && start.Before(l.maybeUntil):
		l.doubt(start, receipt)
	case errors.Is(err, queue.ErrLeaseLost):
		l.end(receipt)
	case l.ls.write.Err() == nil:
		l.again(start, length, err)
	}
}

// doubt goes on with the work although storage does not know receipt: a renewal that it did not
// answer may have replaced it. While the lease has not ended nothing else can have; later
// somebody else may have received the message.
func (l *Lease) doubt(now time.Time, receipt string) {
	said := "storage does not know the lease's receipt: a renewal that it did not answer has replaced it, and the lease can't be renewed again"
	if now.After(l.Message.Lease.Until()) {
		said = "storage does not know the lease's receipt any more: a renewal that it did not answer has replaced it, or someone else has received the message"
	}
	l.ls.log.Warn(said, "queue", l.Queue.Name(), "message", l.Message.ID, "until", l.maybeUntil)
	l.ls.meter.LeaseLost(l.Queue.Name(), "receipt_unknown")
	l.receipt = receipt
	l.turn(doubtful)
	l.ls.clock.add(l, l.maybeUntil)
}

// end ends the work because storage does not know receipt any more, unless the message was
// received anew meanwhile: then the new lease is kept.
func (l *Lease) end(receipt string) {
	l.receipt = ""
	if !l.lose(receipt) {
		l.atHalf()
	}
}

// again makes a renewal that storage did not answer come again soon. Before the lease ends there
// is always one more try: each comes after half of what is left at the latest, down to
// renewLeast.
func (l *Lease) again(start time.Time, length time.Duration, err error) {
	l.unanswered++
	if queue.Ambiguous(err) {
		l.maybeUntil = start.Add(length)
	}
	now, lease := time.Now(), l.Message.Lease
	left := lease.Until().Sub(now)
	wait := retry.Backoff(l.unanswered, renewFirst, max(lease.Granted()/4, renewFirst))
	if left > 0 {
		wait = min(wait, max(left/2, renewLeast))
		l.turn(silent)
	} else if l.turn(lapsed) != lapsed {
		l.ls.meter.LeaseLost(l.Queue.Name(), "silent")
	}
	l.ls.log.Warn("lease renewal failed; work goes on while it is tried again",
		"queue", l.Queue.Name(), "message", l.Message.ID, "lease_left", left.Round(time.Millisecond), "error", err)
	l.ls.clock.add(l, now.Add(wait))
}

// expired tells the one case in which a lost lease leaves the message to nobody else:
// cutting the work short then would lose it. The clocks here and in storage differ.
func (l *Lease) expired() bool {
	return !l.Message.ExpiresAt.IsZero() && time.Until(l.Message.ExpiresAt) < policy.ExpiryMargin
}

func (l *Lease) renew(length time.Duration) error {
	select {
	case l.using <- struct{}{}:
		defer func() { <-l.using }()
	case <-l.quit:
		return nil
	}
	ctx, cancel := context.WithTimeout(l.ls.write, l.patience())
	defer cancel()
	err := l.Queue.Renew(ctx, l.Message, length)
	result := "renewed"
	switch {
	case errors.Is(err, queue.ErrLeaseLost):
		result = "lost"
	case err != nil:
		result = "failed"
	}
	l.ls.meter.Renewed(l.Queue.Name(), result)
	return err
}

// patience is how long a renewal may take: one that hangs leaves time for another try before
// the lease ends.
func (l *Lease) patience() time.Duration {
	left := time.Until(l.Message.Lease.Until())
	if left <= 0 {
		return renewTimeout
	}
	return min(renewTimeout, max(left/2, renewLeast))
}

// lose ends the work because storage does not know receipt any more. It does
// nothing, and returns false, when the message was received anew meanwhile.
func (l *Lease) lose(receipt string) bool {
	l.mu.Lock()
	if l.Message.Lease.Receipt() != receipt {
		l.mu.Unlock()
		return false
	}
	l.state = lost
	l.mu.Unlock()
	l.cancel(queue.ErrLeaseLost)
	l.ls.log.Warn("lease lost: someone else may receive the message", "queue", l.Queue.Name(), "message", l.Message.ID)
	l.ls.meter.LeaseLost(l.Queue.Name(), "lost")
	return true
}

// adopt takes over the lease with which the message was received anew, because this
// one could not be renewed in time. It returns false when this one is lost.
func (l *Lease) adopt(again *queue.Message) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == lost {
		return false
	}
	l.elsewhere = l.elsewhere || again.DequeueCount > l.count+1
	l.count = again.DequeueCount
	granted := again.Lease.Granted()
	l.Message.Lease.Renewed(again.Lease.Receipt(), again.Lease.Until().Add(-granted), granted)
	return true
}
