package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/flow"
	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/webhook"
)

// This file is the dispatcher under a host that receives messages by itself, keeps
// them leased, and wants an answer within a bounded time (Azure Functions). What a
// message goes through is the same; nothing is polled and nothing is renewed.

// RunHosted writes what could not be written before until ctx ends, and then what is
// left of it. It receives nothing: the host hands messages to HandleHosted, and Pump works
// when it is called. Call it instead of Run, once, and end ctx when the last of these calls
// has returned.
func (d *Dispatcher) RunHosted(ctx context.Context) {
	d.run(ctx, d.superviseHosted)
}

// superviseHosted reads the registered webhooks at the start and when they were changed
// here. What others changed is read when the next message comes.
func (d *Dispatcher) superviseHosted(ctx, _ context.Context) {
	for {
		_ = d.registry.Refresh(ctx) // it is logged there, and read again before it is needed
		select {
		case <-ctx.Done():
			return
		case <-d.registry.Changed:
		}
	}
}

// HandleHosted delivers a message that the host received, and settles it through q,
// whose Complete and Abandon do what there is to do under this host. m.Lease ends
// when the host's patience does: it is never renewed, and no POST runs past it (see
// WithPostDeadline). The result is "deleted" or "abandoned" when q took the decision;
// with any other the host has to give the message back.
func (d *Dispatcher) HandleHosted(ctx context.Context, q queue.Queue, m *queue.Message) (Outcome, string) {
	start := time.Now()
	defer d.inFlight.Enter(q.Name())()
	d.metrics.Received(q.Name(), m.DequeueCount > 1)
	k := d.leases.Hold(ctx, q, m)
	defer k.Stop()
	if !k.Begin() {
		return ownFault(m, policy.LeaseLost), "work_goes_on"
	}
	ctx, span := d.spans.Message(WithPostDeadline(k.Context, m.Lease.Until(), m.Lease.Granted()/3), q.Name(), m.ID, m.DequeueCount)

	decision := ownFault(m, policy.StorageFault)
	if d.upToDate(ctx, start) {
		decision = d.Deliver(ctx, q.Name(), m)
	}
	return decision, d.conclude(ctx, k, span, start, &decision)
}

// GiveUp makes a dead letter of a text that a host handed over without surely saying which
// message it is: it can be neither given back nor tried again. m has an id that stands in
// for the message's own, and the time of now. The reason is Undecodable where that is so,
// and else Unidentified. An error means that there is no dead letter, or not surely.
func (d *Dispatcher) GiveUp(ctx context.Context, queueName string, m *queue.Message) error {
	defer d.inFlight.Enter(queueName)()
	reason := policy.Unidentified
	p, err := d.open(ctx, queueName, m)
	switch {
	case errors.Is(err, queue.ErrUndecodable):
		reason = policy.Undecodable
	case err != nil:
		return fmt.Errorf("open the message: %w", err)
	}
	for _, dl := range d.giveUpMessage(ctx, p, history{}, nil, reason).DeadLetters {
		dl.Row.Description += " Its id and times are those of the invocation that brought it."
		if err := d.completer.DeadLetter(d.writing(ctx), &dl); err != nil {
			return err
		}
	}
	return nil
}

// upToDate re-reads the registered webhooks where that is due: no loop does it while
// nothing is invoked, since that would cost transactions all day. One that could
// never be read decides nothing; an older one is better than none.
func (d *Dispatcher) upToDate(ctx context.Context, now time.Time) bool {
	readAt, _ := d.registry.Status()
	if now.Sub(readAt) < d.o.RegistryRefresh {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, retry.Timeout)
	defer cancel()
	return d.registry.Fresh(ctx, now) || !readAt.IsZero()
}

// lookSlack is how much of its life a message has left at least when it is shown again,
// besides policy.ExpiryMargin: LookGap, or a quarter of its life if that is less.
func (d *Dispatcher) lookSlack(m *queue.Message) time.Duration {
	return min(d.o.LookGap, max(m.ExpiresAt.Sub(m.InsertedAt)/4, 0))
}

// margins are how much of its life a message has left at least when it is held once more:
// because nobody takes it, and because its webhook can't be sent to now.
type margins struct{ held, postponed time.Duration }

// margins are those of a message that is received again when its time has come.
func (d *Dispatcher) margins(m *queue.Message) margins {
	return margins{held: holdDelay + max(heldMargin, d.lookSlack(m)), postponed: policy.ExpiryMargin}
}

const (
	// hostLookMin is the shortest wait of a message of a host's that is made longer because
	// the message was held before, and hostLookMax the longest that it is made.
	hostLookMin = time.Minute
	hostLookMax = 30 * time.Minute
)

// hostsLook is when a message that was held so often before is looked at again. A host
// receives from a queue though nothing can be sent, and each look is an invocation: where
// nothing at all gets through to the webhook for long the waits double. One that is merely
// busy has its turn, which others would take, and a short pause delays nothing for long.
func (d *Dispatcher) hostsLook(queueName string, held int, r *flow.Refusal, now time.Time) time.Time {
	if held == 0 || r.Reason == policy.WebhookBusy || r.Until.Sub(now) < hostLookMin || !d.o.Hosted(queueName) {
		return r.Until
	}
	if at := now.Add(retry.Backoff(held, hostLookMin, hostLookMax)); at.After(r.Until) {
		return at
	}
	return r.Until
}

// ours are those of names that d receives from itself: a host receives from the others.
func (d *Dispatcher) ours(names map[string]bool) map[string]bool {
	maps.DeleteFunc(names, func(name string, _ bool) bool { return d.o.Hosted(name) })
	return names
}

type postDeadlineKey struct{}

type postDeadline struct {
	by    time.Time
	least time.Duration
}

// WithPostDeadline makes every POST under ctx end by then, whatever its webhook's own
// timeout allows. A POST that ends so is a timeout like any other: it is charged, or a
// receiver that is slower than the host allows would be tried for ever. For that it
// has to be given a fair time: none is begun with less than the webhook's timeout, or
// least if that is shorter.
func WithPostDeadline(ctx context.Context, by time.Time, least time.Duration) context.Context {
	return context.WithValue(ctx, postDeadlineKey{}, postDeadline{by, least})
}

// fairTime reports whether a POST may begin under ctx's deadline.
func fairTime(ctx context.Context, w *webhook.Webhook) bool {
	d, ok := ctx.Value(postDeadlineKey{}).(postDeadline)
	return !ok || time.Until(d.by) >= min(w.Timeout, d.least)
}

// postBy is when a POST under ctx has to be over; zero where nothing but its webhook's
// timeout says so.
func postBy(ctx context.Context) time.Time {
	d, _ := ctx.Value(postDeadlineKey{}).(postDeadline)
	return d.by
}
