package lease

import (
	"context"
	"errors"
	"time"

	"github.com/pushlease/pushlease/queue"
)

// Begin notes that the message is in work. It returns false when this
// process is at work on it already: then that work goes on, with the lease that was
// received now. One process never POSTs one message twice at a time.
func (l *Lease) Begin() bool {
	ls, key := l.ls, l.key()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if first := ls.inWork[key]; first != nil && first.adopt(l.Message) {
		ls.log.Warn("a message came back while it is worked on, because its lease had ended; the work goes on with the new one",
			"queue", key.queue, "message", key.message, "delivery_count", l.Message.DequeueCount)
		ls.meter.LeaseLost(key.queue, "received_again")
		return false
	}
	ls.inWork[key] = l
	return true
}

// End forgets what Begin noted. It comes when all that was done is on record, and before the
// message is given back: it may be received again before that has returned.
func (l *Lease) End() {
	l.ls.mu.Lock()
	defer l.ls.mu.Unlock()
	if key := l.key(); l.ls.inWork[key] == l {
		delete(l.ls.inWork, key)
	}
}

func (l *Lease) key() work { return work{l.Queue.Name(), l.Message.ID} }

// MayBeElsewhere reports whether someone else may have gone on with a message in work since it
// was received: its lease is over, or was before it came back.
func (ls *Leases) MayBeElsewhere(ctx context.Context, queueName string, m *queue.Message) bool {
	if time.Now().After(m.Lease.Until()) || errors.Is(context.Cause(ctx), queue.ErrLeaseLost) {
		return true
	}
	ls.mu.Lock()
	l := ls.inWork[work{queueName, m.ID}]
	ls.mu.Unlock()
	if l == nil || l.Message != m {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.elsewhere
}

// Sure reports whether nobody else can have gone on with the message: its lease has not ended, or
// can still be renewed. Whoever stood still for longer than a lease learns it here, before its
// next renewal. What is about to expire counts as ours: nobody may be there to receive it again.
func (l *Lease) Sure() bool {
	if l.IsLost() {
		return false
	}
	if !l.Renewed() || time.Now().Before(l.Message.Lease.Until()) || l.expired() {
		return true
	}
	receipt := l.Message.Lease.Receipt()
	err := l.renew(l.ls.length(l.Queue.Name()))
	if errors.Is(err, queue.ErrLeaseLost) {
		return !l.lose(receipt)
	}
	return err == nil
}

// InWork counts the messages in work.
func (ls *Leases) InWork() int {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return len(ls.inWork)
}

// Kept counts the leases that wait for their next renewal.
func (ls *Leases) Kept() int { return ls.clock.len() }

// Settling runs one settling call with the newest receipt: it waits, bounded, for
// a renewal in flight, and keeps the next one away. Once the message is settled there
// is nothing left to renew: a renewal that waited would take a message that was
// given back away again, or call the lease of a deleted one lost.
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
