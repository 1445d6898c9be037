package dispatcher

import (
	"context"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/delivery"
	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
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
		d.registry.Refresh(ctx) // what can't be read is read again before it is needed
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
	defer d.metrics.Queues.Enter(q.Name())()
	d.metrics.Received(q.Name(), m.DequeueCount > 1)
	k := d.leases.Hold(ctx, q, m)
	defer k.Stop()
	if !k.Begin() {
		return delivery.OwnFault(m, policy.LeaseLost), "work_goes_on"
	}
	ctx, span := d.spans.Message(WithPostDeadline(k.Context, m.Lease.Until(), m.Lease.Granted()/3), q.Name(), m.ID, m.DequeueCount)

	outcome := delivery.OwnFault(m, policy.StorageFault)
	if d.upToDate(ctx, start) {
		outcome = d.Deliver(ctx, q.Name(), m)
	}
	return outcome, d.conclude(ctx, k, span, start, &outcome)
}

// GiveUp makes a dead letter of a text that a host handed over without surely saying which
// message it is: it can be neither given back nor tried again. m has an id that stands in
// for the message's own, and the time of now. The reason is Undecodable where that is so,
// and else Unidentified. An error means that there is no dead letter, or not surely.
func (d *Dispatcher) GiveUp(ctx context.Context, queueName string, m *queue.Message) error {
	defer d.metrics.Queues.Enter(queueName)()
	outcome, err := d.deliverer.GiveUp(ctx, queueName, m)
	for _, dl := range outcome.DeadLetters {
		dl.Row.Description += " Its id and times are those of the invocation that brought it."
		if err := d.completer.DeadLetter(d.writing(ctx), &dl); err != nil {
			return err
		}
	}
	return err
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

// WithPostDeadline makes every POST under ctx end by then, whatever its webhook's own
// timeout allows, and none begin with less than the webhook's timeout, or least if that is
// shorter.
func WithPostDeadline(ctx context.Context, by time.Time, least time.Duration) context.Context {
	return delivery.WithPostDeadline(ctx, by, least)
}
