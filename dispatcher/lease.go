package dispatcher

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
)

const (
	// renewTimeout bounds one renewal.
	renewTimeout = 10 * time.Second
	// renewRetryMin is the first wait after a renewal that storage did not answer.
	renewRetryMin = 500 * time.Millisecond
	// renewWait bounds how long settling waits for a renewal in flight.
	renewWait = 5 * time.Second
)

// keeper renews one message's lease at half of what storage last granted, until it
// is stopped or the lease is lost. It ends on every path, and ends renewing on the
// first definitive answer. In between it waits in renewals, without a goroutine.
//
// ctx ends with the cause queue.ErrLeaseLost only when storage says that the
// lease is lost. Storage that is merely silent does not end it: work in flight
// then runs to its own deadline, and its outcome is recorded.
type keeper struct {
	d   *Dispatcher
	q   queue.Queue
	m   *queue.Message
	ctx context.Context

	cancel context.CancelCauseFunc
	// quit ends what act waits for; nil where the lease is not kept.
	quit chan struct{}
	// using is held by a renewal and by a settling call, so that the receipt is
	// never replaced while a settling call is under way with it.
	using chan struct{}

	// at, index and stopped belong to renewals; index is -1 while the keeper is not there.
	at      time.Time
	index   int
	stopped bool
	// acting is what stop waits for.
	acting sync.WaitGroup

	// The rest, down to mu, belongs to act, which never runs twice at a time.
	silent     int       // renewals in a row that storage did not answer
	lapsed     bool      // whether the lease has ended in that silence
	maybeUntil time.Time // how long an unanswered renewal may have extended the lease
	// losing is the receipt that storage does not know any more, while the work goes on
	// until maybeUntil; empty otherwise.
	losing string

	mu   sync.Mutex
	lost bool
	// count is the number of the newest receive; elsewhere: there was one by others.
	count     int64
	elsewhere bool
}

// keepLease starts keeping m's lease. Renewing outlives work: it goes on while the
// message is being settled.
func (d *Dispatcher) keepLease(work context.Context, q queue.Queue, m *queue.Message) *keeper {
	ctx, cancel := context.WithCancelCause(work)
	k := &keeper{
		d: d, q: q, m: m, ctx: ctx, cancel: cancel, index: -1, count: m.DequeueCount,
		quit: make(chan struct{}), using: make(chan struct{}, 1),
	}
	k.atHalf()
	return k
}

// stop ends renewing and waits for it.
func (k *keeper) stop() {
	k.d.renewals.remove(k)
	close(k.quit)
	k.acting.Wait()
	k.cancel(context.Canceled)
}

func (k *keeper) isLost() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lost
}

// atHalf makes the next renewal come at half of what storage last granted.
func (k *keeper) atHalf() {
	k.silent, k.lapsed, k.maybeUntil, k.losing = 0, false, time.Time{}, ""
	k.d.renewals.add(k, k.m.Lease.Until().Add(-k.m.Lease.Granted()/2))
}

// act does what the keeper's time has come for, and says when it acts next, if ever.
func (k *keeper) act() {
	defer k.acting.Done()
	if k.d.write.Err() != nil {
		return
	}
	if k.losing != "" {
		k.end(k.losing)
		return
	}
	start, receipt := time.Now(), k.m.Lease.Receipt()
	lease := k.d.measure.lease(k.q.Name())
	err := k.renew(lease)
	switch {
	case err == nil:
		k.atHalf()
	case errors.Is(err, queue.ErrLeaseLost) && k.expired():
		k.d.log.Warn("the message expired while it was being handled; the work goes on, and what fails now is dead-lettered",
			"queue", k.q.Name(), "message", k.m.ID)
		k.d.metrics.leaseLost(k.q.Name(), "expired")
	case errors.Is(err, queue.ErrLeaseLost) && start.Before(k.maybeUntil):
		// A renewal whose answer was lost took the receipt with it. Nobody else can
		// have the message before that renewal ends, so the work may go on until then.
		k.d.log.Warn("a renewal took effect but its answer was lost; the lease can't be renewed again",
			"queue", k.q.Name(), "message", k.m.ID, "until", k.maybeUntil)
		k.d.metrics.leaseLost(k.q.Name(), "receipt_unknown")
		k.losing = receipt
		k.d.renewals.add(k, k.maybeUntil)
	case errors.Is(err, queue.ErrLeaseLost):
		k.end(receipt)
	case k.d.write.Err() == nil:
		k.unanswered(start, lease, err)
	}
}

// end ends the work because storage does not know receipt any more, unless the message was
// received anew meanwhile: then the new lease is kept.
func (k *keeper) end(receipt string) {
	if !k.lose(receipt) {
		k.atHalf()
	}
}

// unanswered makes a renewal that storage did not answer come again soon.
func (k *keeper) unanswered(start time.Time, lease time.Duration, err error) {
	k.silent++
	if queue.Ambiguous(err) {
		k.maybeUntil = start.Add(lease)
	}
	if !k.lapsed && time.Now().After(k.m.Lease.Until()) {
		k.lapsed = true
		k.d.metrics.leaseLost(k.q.Name(), "silent")
	}
	k.d.log.Warn("lease renewal failed; work goes on while it is tried again",
		"queue", k.q.Name(), "message", k.m.ID, "lease_left", time.Until(k.m.Lease.Until()).Round(time.Millisecond), "error", err)
	k.d.renewals.add(k, time.Now().Add(retry.Backoff(k.silent, renewRetryMin, max(k.m.Lease.Granted()/4, renewRetryMin))))
}

// expired tells the one case in which a lost lease leaves the message to nobody else:
// cutting the work short then would lose it. The clocks here and in storage differ.
func (k *keeper) expired() bool {
	return !k.m.ExpiresAt.IsZero() && time.Until(k.m.ExpiresAt) < policy.ExpiryMargin
}

func (k *keeper) renew(lease time.Duration) error {
	select {
	case k.using <- struct{}{}:
		defer func() { <-k.using }()
	case <-k.quit:
		return nil
	}
	ctx, cancel := context.WithTimeout(k.d.write, renewTimeout)
	defer cancel()
	err := k.q.Renew(ctx, k.m, lease)
	k.d.metrics.renewed(k.q.Name(), err)
	return err
}

// lose ends the work because storage does not know receipt any more. It does
// nothing, and returns false, when the message was received anew meanwhile.
func (k *keeper) lose(receipt string) bool {
	k.mu.Lock()
	if k.m.Lease.Receipt() != receipt {
		k.mu.Unlock()
		return false
	}
	k.lost = true
	k.mu.Unlock()
	k.cancel(queue.ErrLeaseLost)
	k.d.log.Warn("lease lost: someone else may receive the message", "queue", k.q.Name(), "message", k.m.ID)
	k.d.metrics.leaseLost(k.q.Name(), "lost")
	return true
}

// adopt takes over the lease with which the message was received anew, because this
// one could not be renewed in time. It returns false when this one is lost.
func (k *keeper) adopt(again *queue.Message) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lost {
		return false
	}
	k.elsewhere = k.elsewhere || again.DequeueCount > k.count+1
	k.count = again.DequeueCount
	granted := again.Lease.Granted()
	k.m.Lease.Renewed(again.Lease.Receipt(), again.Lease.Until().Add(-granted), granted)
	return true
}

// inWork names a message that is being delivered by this process.
type inWork struct{ queue, message string }

// begin notes that k's message is being delivered. It returns false when this
// process is at work on it already: then that work goes on, with the lease that was
// received now. One process never POSTs one message twice at a time.
func (d *Dispatcher) begin(k *keeper) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := inWork{k.q.Name(), k.m.ID}
	if first := d.inWork[key]; first != nil && first.adopt(k.m) {
		d.log.Warn("a message came back while it is worked on, because its lease had ended; the work goes on with the new one",
			"queue", key.queue, "message", key.message, "delivery_count", k.m.DequeueCount)
		d.metrics.leaseLost(key.queue, "received_again")
		return false
	}
	d.inWork[key] = k
	return true
}

// mayBeElsewhere reports whether someone else may have gone on with the message since it
// was received: its lease is over, or was before it came back.
func (d *Dispatcher) mayBeElsewhere(ctx context.Context, p *parcel) bool {
	if time.Now().After(p.m.Lease.Until()) || errors.Is(context.Cause(ctx), queue.ErrLeaseLost) {
		return true
	}
	d.mu.Lock()
	k := d.inWork[inWork{p.key.Queue, p.m.ID}]
	d.mu.Unlock()
	if k == nil || k.m != p.m {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.elsewhere
}

// end forgets what begin noted. It comes before settling: a message that was given
// back may be received again before that has returned.
func (d *Dispatcher) end(k *keeper) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if key := (inWork{k.q.Name(), k.m.ID}); d.inWork[key] == k {
		delete(d.inWork, key)
	}
}

// settling runs one settling call with the newest receipt: it waits, bounded, for
// a renewal in flight, and keeps the next one away. Once the message is settled there
// is nothing left to renew: a renewal that waited would take a message that was
// given back away again, or call the lease of a deleted one lost.
func (k *keeper) settling(call func() error) error {
	held := k.takeOver()
	err := call()
	if held && err != nil && !errors.Is(err, queue.ErrLeaseLost) {
		<-k.using
	}
	return err
}

// takeOver waits, bounded, until no renewal is in flight; false when that took too long.
func (k *keeper) takeOver() bool {
	select {
	case k.using <- struct{}{}: // nearly always
		return true
	default:
	}
	t := time.NewTimer(renewWait)
	defer t.Stop()
	select {
	case k.using <- struct{}{}:
		return true
	case <-t.C:
		return false
	}
}
