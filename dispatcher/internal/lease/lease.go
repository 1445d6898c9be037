// Package lease keeps the leases of messages in work: it renews them at half of what storage last granted, goes on with a message that came back, and
// says how long a lease should be.
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
	// renewFirst is the first wait after a renewal that storage did not answer, renewLeast the shortest of those that follow (see again).
	renewFirst = 500 * time.Millisecond
	renewLeast = 250 * time.Millisecond
	// renewWait bounds how long settling waits for a renewal in flight.
	renewWait = 5 * time.Second
	// doubtLook is how often a lease that can't be renewed any more is looked at, while the work goes on and others wait for it: the message may have
	// come back to this process.
	doubtLook = 5 * time.Second
)

// state is how a lease fares.
type state int

const (
	kept   state = iota // as far as is known
	silent              // storage did not answer the last renewal; the lease goes on
	lapsed              // it has ended in that silence, and may be renewed still
	// doubtful: storage does not know the receipt, though a renewal that it did not answer may have been what replaced it. The work goes on for as
	// long as that one would last.
	doubtful
	lost // the work ended with it
)

// Lease is one message that this process has. It is renewed at half of what storage last granted, until it is stopped or lost; in between a timer
// waits for it, and no goroutine.
//
// Context ends with the cause queue.ErrLeaseLost only when storage says that the lease is lost. Storage that is merely silent does not end it: work
// in flight then runs to its own deadline, and its outcome is recorded.
type Lease struct {
	Queue   queue.Queue
	Message *queue.Message
	Context context.Context

	ls     *Leases
	cancel context.CancelCauseFunc
	// quit ends what act waits for.
	quit chan struct{}
	// using is held by a renewal and by a settling call, so that no renewal replaces the receipt of a settling call that is under way. One received
	// anew may (Begin): the old one is worth nothing by then.
	using chan struct{}

	// The rest, down to mu, belongs to act, which never runs twice at a time.
	unanswered int       // renewals in a row
	maybeUntil time.Time // how long an unanswered renewal may have extended the lease
	receipt    string    // the one that storage does not know, while state is doubtful

	mu    sync.Mutex
	state state
	// replaced: a renewal since the last one that storage answered may have replaced the receipt.
	replaced bool
	// timer lets it act next, unless stopped; acting is what Stop waits for.
	timer   *time.Timer
	stopped bool
	acting  sync.WaitGroup
	// count is the number of the newest receive; elsewhere: there was one by others.
	count     int64
	elsewhere bool
	// tellOthers is that of Tell; told: it was called since the last renewal that was answered, of which answered is the number. othersWait is what
	// came of that. telling is what it runs under, from the first time on.
	tellOthers TellOthers
	told       bool
	answered   int
	othersWait time.Time
	telling    context.Context
	cutTelling context.CancelFunc
}

// TellOthers puts on record that POSTs of a message are under way, for whoever receives it when its lease is over. It returns until when they leave
// it alone; the zero time where nothing was written. ctx ends when somebody else may have received the message.
type TellOthers func(ctx context.Context) (until time.Time)

// Leases are those of one process. Its lock may be held when that of a Lease is taken, never the other way round.
type Leases struct {
	write  context.Context
	length func(queueName string) time.Duration
	meter  *meter.Instruments
	log    *slog.Logger

	mu     sync.Mutex
	inWork map[work]*Lease
}

// work names a message that is in work.
type work struct{ queue, message string }

// New makes the leases. Renewals go on until write ends, and ask for a lease of length.
func New(write context.Context, length func(queueName string) time.Duration, m *meter.Instruments, log *slog.Logger) *Leases {
	return &Leases{write: write, length: length, meter: m, log: log, inWork: map[work]*Lease{}}
}

// Keep keeps m's lease from now on. Renewing outlives ctx, with which the work ends, until the message is settled.
func (ls *Leases) Keep(ctx context.Context, q queue.Queue, m *queue.Message) *Lease {
	l := ls.hold(ctx, q, m)
	l.actAt(m.Lease.Until().Add(-m.Lease.Granted() / 2))
	return l
}

// Within is the lease that a message gets instead of length: half of what is left of its life, if that is less, so that somebody else can see it
// before its end where this process dies. In its last ExpiryMargin nobody may be there for that, and it is hidden to its end.
func Within(m *queue.Message, length time.Duration) time.Duration {
	if left := time.Until(m.ExpiresAt); !m.ExpiresAt.IsZero() && left >= policy.ExpiryMargin {
		return min(length, left/2)
	}
	return length
}

func (l *Lease) length() time.Duration { return Within(l.Message, l.ls.length(l.Queue.Name())) }

func (ls *Leases) hold(ctx context.Context, q queue.Queue, m *queue.Message) *Lease {
	ctx, cancel := context.WithCancelCause(ctx)
	return &Lease{
		Queue: q, Message: m, Context: ctx, ls: ls, cancel: cancel, count: m.DequeueCount,
		quit: make(chan struct{}), using: make(chan struct{}, 1),
	}
}

// Stop ends renewing and waits for it.
func (l *Lease) Stop() {
	l.mu.Lock()
	l.stopped = true
	if l.timer != nil {
		l.timer.Stop()
	}
	if l.cutTelling != nil { // what is over is on record by now
		l.cutTelling()
	}
	l.mu.Unlock()
	close(l.quit)
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
	l.replaced = l.replaced && to != kept
	return from
}

// MayBeReplaced reports whether storage may know another receipt than ours by a renewal of ours that it did not answer.
func (l *Lease) MayBeReplaced() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.replaced
}

// atHalf makes the next renewal come at half of what storage last granted.
func (l *Lease) atHalf() {
	l.turn(kept)
	l.forgetTold()
	l.unanswered, l.maybeUntil = 0, time.Time{}
	l.actAt(l.Message.Lease.Until().Add(-l.Message.Lease.Granted() / 2))
}

// actAt makes the lease act then, unless it was stopped.
func (l *Lease) actAt(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
	}
	if !l.stopped {
		l.timer = time.AfterFunc(time.Until(at), l.act)
	}
}

// act does what the lease's time has come for, and says when it acts next, if ever.
func (l *Lease) act() {
	l.mu.Lock()
	if l.stopped {
		l.mu.Unlock()
		return
	}
	l.acting.Add(1)
	l.mu.Unlock()
	defer l.acting.Done()
	if l.ls.write.Err() != nil {
		return
	}
	if l.receipt != "" {
		l.inDoubt()
		return
	}
	start, receipt := time.Now(), l.Message.Lease.Receipt()
	length := l.length()
	err := l.renew(length)
	switch {
	case err == nil:
		l.atHalf()
	case errors.Is(err, queue.ErrLeaseLost) && l.Expires():
		l.ls.log.Warn("the message expired while it was being handled; the work goes on, and what fails now is dead-lettered",
			"queue", l.Queue.Name(), "message", l.Message.ID)
		l.ls.meter.LeasesLost.Add(meter.Labels{Queue: l.Queue.Name(), Kind: "expired"})
	case errors.Is(err, queue.ErrLeaseLost) && (start.Before(l.maybeUntil) || l.waitedFor() > 0):
		l.doubt(start, receipt)
	case errors.Is(err, queue.ErrLeaseLost):
		l.end(receipt)
	case l.ls.write.Err() == nil:
		l.again(start, length, err)
	}
}

// doubt goes on with the work although storage does not know receipt: a renewal that it did not answer may have replaced it. While the lease has not
// ended nothing else can have, and then others are told, who would receive the message while it is worked on; later somebody else may have received
// it.
func (l *Lease) doubt(now time.Time, receipt string) {
	said := "storage does not know the lease's receipt: a renewal that it did not answer has replaced it, and the lease can't be renewed again"
	over := l.Message.Lease.Over(now)
	if over {
		said = "storage does not know the lease's receipt any more: a renewal that it did not answer has replaced it, or someone else has received the message"
	}
	l.ls.log.Warn(said, "queue", l.Queue.Name(), "message", l.Message.ID, "until", l.maybeUntil)
	l.ls.meter.LeasesLost.Add(meter.Labels{Queue: l.Queue.Name(), Kind: "receipt_unknown"})
	l.receipt = receipt
	l.turn(doubtful)
	if !over {
		l.tell(l.maybeUntil)
	}
	l.actAt(later(l.maybeUntil, now))
}

// inDoubt is what comes when nobody has the receipt and the renewal that replaced it is over too: the work goes on for as long as others wait for it.
func (l *Lease) inDoubt() {
	if left := l.waitedFor(); l.Message.Lease.Receipt() == l.receipt && left > 0 {
		l.actAt(time.Now().Add(min(left, doubtLook)))
		return
	}
	l.end(l.receipt)
}

// end ends the work because storage does not know receipt any more, unless the message was received anew meanwhile: then the new lease is kept.
func (l *Lease) end(receipt string) {
	l.receipt = ""
	if !l.lose(receipt) {
		l.atHalf()
	}
}

// again makes a renewal that storage did not answer come again soon. Before the lease ends there is always one more try: each comes after half of
// what is left at the latest, down to renewLeast.
func (l *Lease) again(start time.Time, length time.Duration, err error) {
	l.unanswered++
	if queue.Ambiguous(err) {
		l.maybeUntil = start.Add(length)
		l.Message.Lease.AtMost(l.maybeUntil) // it may have shortened the lease
		l.mu.Lock()
		l.replaced = true
		l.mu.Unlock()
	}
	now, lease := time.Now(), l.Message.Lease
	left := lease.Until().Sub(now)
	wait := retry.Backoff(l.unanswered, renewFirst, max(lease.Granted()/4, renewFirst))
	if left > 0 {
		wait = min(wait, max(left/2, renewLeast))
		l.turn(silent)
		if left <= lease.Granted()/4 {
			l.tellBeside(lease.Until())
		}
	} else if l.turn(lapsed) != lapsed {
		l.ls.meter.LeasesLost.Add(meter.Labels{Queue: l.Queue.Name(), Kind: "silent"})
	}
	l.ls.log.Warn("lease renewal failed; work goes on while it is tried again",
		"queue", l.Queue.Name(), "message", l.Message.ID, "lease_left", left.Round(time.Millisecond), "error", err)
	l.actAt(now.Add(wait))
}

// Expires tells the one case in which a lost lease leaves the message to nobody else: cutting the work short then would lose it. The clocks here and
// in storage differ.
func (l *Lease) Expires() bool {
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
	l.ls.meter.Renewals.Add(meter.Labels{Queue: l.Queue.Name(), Result: result})
	return err
}

// patience is how long a renewal may take: one that hangs leaves time for another try before the lease ends.
func (l *Lease) patience() time.Duration {
	left := time.Until(l.Message.Lease.Until())
	if left <= 0 {
		return renewTimeout
	}
	return min(renewTimeout, max(left/2, renewLeast))
}

// lose ends the work because storage does not know receipt any more. It does nothing, and returns false, when the message was received anew
// meanwhile.
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
	l.ls.meter.LeasesLost.Add(meter.Labels{Queue: l.Queue.Name(), Kind: "lost"})
	return true
}

// adopt takes over the lease with which the message was received anew, because this one could not be renewed in time. It returns false when this one
// is lost.
func (l *Lease) adopt(again *queue.Message) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == lost {
		return false
	}
	l.elsewhere = l.elsewhere || again.DequeueCount > l.count+1
	l.count, l.replaced = again.DequeueCount, false
	granted := again.Lease.Granted()
	l.Message.Lease.Renewed(again.Lease.Receipt(), again.Lease.Until().Add(-granted), granted)
	return true
}

// Begin notes that the message is in work. It returns false when this process is at work on it already: then that work goes on, with the lease that
// was received now. One process never POSTs one message twice at a time. What was received for longer than Within allows is renewed at once.
func (l *Lease) Begin() bool {
	ls, key := l.ls, l.key()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if first := ls.inWork[key]; first != nil && first.adopt(l.Message) {
		ls.log.Warn("a message came back while it is worked on, because its lease had ended; the work goes on with the new one",
			"queue", key.queue, "message", key.message, "delivery_count", l.Message.DequeueCount)
		ls.meter.LeasesLost.Add(meter.Labels{Queue: key.queue, Kind: "received_again"})
		return false
	}
	ls.inWork[key] = l
	if granted := l.Message.Lease.Granted(); granted > Within(l.Message, granted)+time.Second { // storage grants whole seconds
		l.actAt(time.Now())
	}
	return true
}

// At reports whether this process is at work on a message.
func (ls *Leases) At(queueName, messageID string) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.inWork[work{queueName, messageID}] != nil
}

// Forget forgets what Begin noted. It comes when all that was done is on record, and before the message is given back: it may be received again
// before that has returned.
func (l *Lease) Forget() {
	l.ls.mu.Lock()
	defer l.ls.mu.Unlock()
	if key := l.key(); l.ls.inWork[key] == l {
		delete(l.ls.inWork, key)
	}
}

func (l *Lease) key() work { return work{l.Queue.Name(), l.Message.ID} }

// of is the lease with which m is in work here; nil for none.
func (ls *Leases) of(queueName string, m *queue.Message) *Lease {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l := ls.inWork[work{queueName, m.ID}]; l != nil && l.Message == m {
		return l
	}
	return nil
}

// MayBeElsewhere reports whether someone else may have gone on with a message in work since it was received: its lease is over, or was before it came
// back.
func (ls *Leases) MayBeElsewhere(ctx context.Context, queueName string, m *queue.Message) bool {
	if m.Lease.Over(time.Now()) || errors.Is(context.Cause(ctx), queue.ErrLeaseLost) {
		return true
	}
	l := ls.of(queueName, m)
	return l != nil && l.MayBeElsewhere()
}

// MayBeElsewhere is that for the lease's message.
func (l *Lease) MayBeElsewhere() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.elsewhere || l.state == lost || l.Message.Lease.Over(time.Now())
}

// CameBack reports whether somebody else had the message before it came back to the work on it here.
func (l *Lease) CameBack() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.elsewhere
}

// Sure reports whether nobody else can have gone on with the message: its lease has not ended, or can still be renewed. Whoever stood still for
// longer than a lease learns it here, before its next renewal. What went with its queue counts as ours: nobody can receive it.
func (l *Lease) Sure() bool {
	if l.IsLost() {
		return false
	}
	if !l.Message.Lease.Over(time.Now()) {
		return true
	}
	receipt := l.Message.Lease.Receipt()
	err := l.renew(l.length())
	if errors.Is(err, queue.ErrLeaseLost) {
		return !l.lose(receipt)
	}
	return err == nil || errors.Is(err, queue.ErrQueueNotFound)
}

// InWork counts the messages in work.
func (ls *Leases) InWork() int {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return len(ls.inWork)
}

// Settling runs one settling call with the newest receipt: it waits, bounded, for a renewal in flight, and keeps the next one away. Once the message
// is settled there is nothing left to renew: a renewal that waited would take a message that was given back away again, or call the lease of a
// deleted one lost.
func (l *Lease) Settling(call func() error) error {
	held := l.takeOver()
	err := call()
	if held && err != nil && !errors.Is(err, queue.ErrLeaseLost) {
		<-l.using
	}
	return err
}

// takeOver waits, bounded, until no renewal is in flight; false when that took too long.
func (l *Lease) takeOver() bool {
	select {
	case l.using <- struct{}{}: // nearly always
		return true
	default:
	}
	t := time.NewTimer(renewWait)
	defer t.Stop()
	select {
	case l.using <- struct{}{}:
		return true
	case <-t.C:
		return false
	}
}
