package dispatcher

import (
	"context"
	"errors"
	"sync"
	"time"

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
// first definitive answer.
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
	quit   chan struct{}
	done   chan struct{}
	// using is held by a renewal and by a settling call, so that the receipt is
	// never replaced while a settling call is under way with it.
	using chan struct{}

	mu   sync.Mutex
	lost bool
}

// keepLease starts keeping m's lease. Renewing outlives work: it goes on while the
// message is being settled.
func (d *Dispatcher) keepLease(work context.Context, q queue.Queue, m *queue.Message) *keeper {
	ctx, cancel := context.WithCancelCause(work)
	k := &keeper{
		d: d, q: q, m: m, ctx: ctx, cancel: cancel,
		quit: make(chan struct{}), done: make(chan struct{}), using: make(chan struct{}, 1),
	}
	go k.run()
	return k
}

// stop ends renewing and waits for it.
func (k *keeper) stop() {
	close(k.quit)
	<-k.done
	k.cancel(context.Canceled)
}

func (k *keeper) isLost() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lost
}

func (k *keeper) run() {
	defer close(k.done)
	silent := 0              // renewals in a row that storage did not answer
	var maybeUntil time.Time // how long an unanswered renewal may have extended the lease
	for {
		wait := time.Until(k.m.Lease.Until().Add(-k.m.Lease.Granted() / 2))
		if silent > 0 {
			wait = backoff(silent, renewRetryMin, max(k.m.Lease.Granted()/4, renewRetryMin))
		}
		if !k.pause(wait) {
			return
		}
		start := time.Now()
		err := k.renew()
		switch {
		case err == nil:
			silent, maybeUntil = 0, time.Time{}
		case errors.Is(err, queue.ErrLeaseLost):
			// A renewal whose answer was lost took the receipt with it. Nobody else can
			// have the message before that renewal ends, so the work may go on until then.
			if start.Before(maybeUntil) {
				k.d.log.Warn("a renewal took effect but its answer was lost; the lease can't be renewed again",
					"queue", k.q.Name(), "message", k.m.ID, "until", maybeUntil)
				k.d.metrics.leaseLost(k.q.Name(), "receipt_unknown")
				if !k.pause(time.Until(maybeUntil)) {
					return
				}
			}
			k.lose()
			return
		case k.d.write.Err() != nil:
			return
		default:
			silent++
			if queue.Ambiguous(err) {
				maybeUntil = start.Add(k.d.o.Lease)
			}
			k.d.log.Warn("lease renewal failed; work goes on while it is tried again",
				"queue", k.q.Name(), "message", k.m.ID, "lease_left", time.Until(k.m.Lease.Until()).Round(time.Millisecond), "error", err)
		}
	}
}

func (k *keeper) renew() error {
	select {
	case k.using <- struct{}{}:
		defer func() { <-k.using }()
	case <-k.quit:
		return nil
	}
	ctx, cancel := context.WithTimeout(k.d.write, renewTimeout)
	defer cancel()
	err := k.q.Renew(ctx, k.m, k.d.o.Lease)
	k.d.metrics.renewed(k.q.Name(), err)
	return err
}

func (k *keeper) lose() {
	k.mu.Lock()
	k.lost = true
	k.mu.Unlock()
	k.cancel(queue.ErrLeaseLost)
	k.d.log.Warn("lease lost: someone else may receive the message", "queue", k.q.Name(), "message", k.m.ID)
	k.d.metrics.leaseLost(k.q.Name(), "lost")
}

// pause waits and reports whether the keeper should go on.
func (k *keeper) pause(wait time.Duration) bool {
	t := time.NewTimer(max(wait, 0))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-k.quit:
	case <-k.d.write.Done():
	}
	return false
}

// settling runs one settling call with the newest receipt: it waits, bounded, for
// a renewal in flight, and keeps the next one away.
func (k *keeper) settling(call func() error) error {
	t := time.NewTimer(renewWait)
	defer t.Stop()
	select {
	case k.using <- struct{}{}:
		defer func() { <-k.using }()
	case <-t.C:
	}
	return call()
}
