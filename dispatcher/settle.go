package dispatcher

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/pushlease/pushlease/dispatcher/internal/claims"
	"github.com/pushlease/pushlease/dispatcher/internal/flow"
	"github.com/pushlease/pushlease/dispatcher/internal/lease"
	"github.com/pushlease/pushlease/dispatcher/internal/meter"
	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// Decision is what happens to one queue message, folded from its deliveries.
type Decision struct {
	// Action is Complete, Abandon, Hold (abandoned for longer) or NoVerdict
	// (given back, nothing charged). Dead letters are in DeadLetters: once they are
	// durable, Action is what happens to the queue message.
	Action policy.Action
	Reason policy.Reason
	// Delay before the message is shown again, unless Action is Complete.
	Delay time.Duration
	// DeadLetters must be durable before Action is applied (see DeadLetter).
	DeadLetters []DeadLettering
	// Replayed is the dead letter whose replay has ended with this.
	Replayed *tables.DeadLetter

	heldFor []flow.Since   // the webhooks that the message waits for, if any
	posts   []lease.Posted // the POSTs that were made now
	claim   *claims.Claim  // the claim on the message's event, if it has one
	last    lastRecord     // to be written together with the delete
}

// DeadLettering is one dead letter to make durable.
type DeadLettering struct {
	Row tables.DeadLetter
	// Delivery is recorded as DeadLettered afterwards.
	Delivery tables.Delivery
	// Copy is whether the row's text is also to be copied to the poison queue:
	// once per message, however many webhooks gave it up.
	Copy bool
}

const (
	ownFaultDelayMin = 2 * time.Second
	ownFaultDelayMax = 5 * time.Minute
)

// handle walks one message from the received lease to the settled message.
func (d *Dispatcher) handle(work context.Context, q queue.Queue, m *queue.Message, a *arrival) {
	d.handleBy(work, q, m, func(ctx context.Context, queueName string, m *queue.Message, decision *Decision) {
		d.deliverInto(ctx, queueName, m, d.holdMargin(m), a, decision)
	})
}

// handleBy is handle with another way to decide; it returns how settling ended.
func (d *Dispatcher) handleBy(work context.Context, q queue.Queue, m *queue.Message,
	deliver func(context.Context, string, *queue.Message, *Decision)) (result string) {
	start := time.Now()
	defer d.inFlight.Enter(q.Name())()
	d.metrics.Received(q.Name(), m.DequeueCount > 1)
	d.flows.Received(q.Name(), m.ID)
	k := d.leases.Keep(work, q, m)
	defer k.Stop()
	if !k.Begin() {
		return "work_goes_on"
	}
	ctx, span := d.spans.Message(k.Context, q.Name(), m.ID, m.DequeueCount)

	var decision Decision
	deliver(ctx, q.Name(), m, &decision)
	return d.conclude(ctx, k, span, start, &decision)
}

// conclude settles a message that was decided about, and tells what came of it.
func (d *Dispatcher) conclude(ctx context.Context, k *lease.Lease, span trace.Span, start time.Time, decision *Decision) (result string) {
	if decision.last.none() {
		k.End()
	}
	delivered := time.Now()
	result = d.settle(d.writing(ctx), k, *decision)

	d.countSettled(k, span, decision, result, time.Since(start))
	d.tookTime(k.Queue.Name(), k.Message, *decision, delivered.Sub(start), time.Since(delivered))
	return result
}

// countSettled tells how handling a message ended.
func (d *Dispatcher) countSettled(k *lease.Lease, span trace.Span, decision *Decision, result string, took time.Duration) {
	meter.Settled(span, string(decision.Action), string(decision.Reason), result, decision.Action == policy.NoVerdict)
	d.metrics.Settled(meter.Settlement{
		Queue: k.Queue.Name(), Action: string(decision.Action), Reason: string(decision.Reason), Result: result,
		Gone: decision.Action == policy.Complete && result == "deleted", DeadLettered: len(decision.DeadLetters) > 0,
		Took: took, Granted: k.Message.Lease.Granted(),
	})
}

// settle is the one place where a queue message is completed, abandoned or
// dead-lettered. What it can't do now heals on redelivery.
func (d *Dispatcher) settle(ctx context.Context, k *lease.Lease, decision Decision) (result string) {
	if k.IsLost() && (decision.Action != policy.Complete || len(decision.DeadLetters) > 0) {
		return "lease_lost" // the message is someone else's now, and goes on from what was recorded
	}
	for i := range decision.DeadLetters {
		if err := d.DeadLetter(ctx, &decision.DeadLetters[i]); err != nil {
			d.log.Error("dead letter could not be written; the message stays and is tried again",
				"queue", k.Queue.Name(), "message", k.Message.ID, "error", err)
			d.excuse(ctx, decision.DeadLetters[i].Delivery)
			decision.Action, decision.Reason = policy.NoVerdict, policy.StorageFault
			decision.Delay = ownFaultDelay(k.Message)
			decision.Replayed = nil
			break
		}
	}
	if decision.Replayed != nil {
		if err := d.finishReplay(ctx, *decision.Replayed); err != nil {
			d.log.Error("the dead letter could not be marked as replayed; the message stays and is tried again",
				"dead_letter", decision.Replayed.ID, "error", err)
			decision.Action, decision.Reason, decision.Delay = policy.NoVerdict, policy.StorageFault, ownFaultDelay(k.Message)
		}
	}
	switch decision.Action {
	case policy.Complete, policy.DeadLetter:
		d.claims.End(ctx, decision.claim)
		return d.complete(ctx, k, decision.last)
	default:
		d.claims.Keep(ctx, decision.claim, decision.Delay, k.Message.Lease.Granted())
		d.late.note(k.Queue.Name(), k.Message, decision.Delay)
		if result = d.abandon(ctx, k, decision); result == "abandoned" {
			d.willBeVisible(k.Queue.Name(), decision.Delay)
		}
		return result
	}
}

// abandon gives the message back after the decision's delay. When that fails, the lease's
// own end gives it back: later, but surely.
func (d *Dispatcher) abandon(ctx context.Context, k *lease.Lease, decision Decision) (result string) {
	giveBack := func(ctx context.Context) error { return k.Queue.Abandon(ctx, k.Message, decision.Delay) }
	if len(decision.heldFor) > 0 && decision.Delay >= flow.HoldMin && k.Renewed() { // a host's lease is not ours
		giveBack = func(ctx context.Context) error { return d.hideFor(ctx, k, decision) }
	}
	err := retry.Do(ctx, retry.GiveBack, func(ctx context.Context, _ int) error {
		return k.Settling(func() error { return giveBack(ctx) })
	})
	switch {
	case err == nil:
		return "abandoned"
	case errors.Is(err, queue.ErrLeaseLost):
		return "lease_lost"
	}
	d.log.Warn("the message could not be given back with its delay; it comes back when its lease ends",
		"queue", k.Queue.Name(), "message", k.Message.ID, "error", err)
	return "failed"
}

// hideFor gives a message back for longer than flow.HoldMin, and keeps its receipt: a renewal
// is the one call that tells the new one.
func (d *Dispatcher) hideFor(ctx context.Context, k *lease.Lease, decision Decision) error {
	m := &queue.Message{
		ID: k.Message.ID, InsertedAt: k.Message.InsertedAt, ExpiresAt: k.Message.ExpiresAt,
		Lease: queue.NewLease(k.Message.Lease.Receipt(), time.Now(), decision.Delay),
	}
	if err := k.Queue.Renew(ctx, m, decision.Delay); err != nil {
		return err // as it is: it stands for the error of Abandon
	}
	d.flows.Hold(k.Queue, m, decision.heldFor)
	return nil
}

// giveBack returns a message that was received but not begun.
func (d *Dispatcher) giveBack(q queue.Queue, m *queue.Message) {
	ctx, cancel := context.WithTimeout(d.write, retry.Timeout)
	defer cancel()
	if err := q.Abandon(ctx, m, 0); err != nil {
		d.log.Warn("a message received while stopping could not be given back; it comes back when its lease ends",
			"queue", q.Name(), "message", m.ID, "error", err)
	}
}

// ownFaultDelay spaces out redeliveries that our own faults cause. It grows with the
// dequeue count, the only counter that works when nothing can be recorded. A
// message that will expire is never hidden for more than half of what is left of it.
func ownFaultDelay(m *queue.Message) time.Duration {
	return withinLife(m, retry.Backoff(int(min(m.DequeueCount, 30)), ownFaultDelayMin, ownFaultDelayMax))
}

// withinLife shortens a delay so that the message is looked at again before it expires.
func withinLife(m *queue.Message, delay time.Duration) time.Duration {
	if m.ExpiresAt.IsZero() {
		return delay
	}
	return min(delay, max(time.Until(m.ExpiresAt)/2, time.Second))
}
