package dispatcher

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/pushlease/pushlease/dispatcher/internal/admission"
	"github.com/pushlease/pushlease/dispatcher/internal/delivery"
	"github.com/pushlease/pushlease/dispatcher/internal/lease"
	"github.com/pushlease/pushlease/dispatcher/internal/meter"
	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/dispatcher/internal/settle"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
)

// Outcome is what delivering a message came to.
type Outcome = settle.Outcome

// Result is what became of a message.
type Result = settle.Result

// RecordedCompletes is a store that keeps queues and records together.
type RecordedCompletes = settle.RecordedCompletes

// handleReceived is handle for a message that was received here.
func (d *Dispatcher) handleReceived(work context.Context, q queue.Queue, m *queue.Message, terms delivery.Terms, g *admission.Grant) settle.Result {
	return d.handle(work, q, m, terms, g, func() {})
}

// handle walks one message from the received lease to the settled message, and returns how
// settling ended. decided is called before that.
func (d *Dispatcher) handle(work context.Context, q queue.Queue, m *queue.Message, terms delivery.Terms, g *admission.Grant, decided func()) settle.Result {
	start := time.Now()
	d.metrics.Queues.Enter(q.Name())
	defer d.metrics.Queues.Leave(q.Name())
	d.metrics.Received(q.Name(), m.DequeueCount > 1)
	d.flows.Received(q.Name(), m.ID)
	d.receiver.Received(q.Name(), m.ID)
	l := d.leases.Keep(work, q, m)
	defer l.Stop()
	if !l.Begin() {
		return settle.WorkGoesOn
	}
	// For a panic: an app goes on after one, and the message must not count as in work for good.
	defer l.Forget()
	ctx, span := d.spans.Message(l.Context, q.Name(), m.ID, m.DequeueCount)
	outcome := d.deliverer.Deliver(ctx, q.Name(), m, terms, g)
	decided()
	return d.conclude(ctx, l, span, start, &outcome)
}

// conclude settles a message that was decided about, and tells what came of it.
func (d *Dispatcher) conclude(ctx context.Context, l *lease.Lease, span trace.Span, start time.Time, outcome *Outcome) settle.Result {
	delivered := time.Now()
	result := d.completer.Settle(d.writing(ctx), l, outcome)
	if result == settle.Deleted && l.Message.DequeueCount > 1 {
		d.putOffs.Ended(l.Queue.Name(), l.Message.ID)
	}
	meter.Settled(span, string(outcome.Action), string(outcome.Reason), string(result), outcome.Action == policy.NoVerdict)
	d.metrics.Settled(ctx, meter.Settlement{
		Queue: l.Queue.Name(), Action: string(outcome.Action), Reason: string(outcome.Reason), Result: string(result),
		DeadLettered: len(outcome.DeadLetters) > 0, Took: time.Since(start), Granted: d.measure.Fits(l.Queue.Name(), l.Message),
	})
	d.tookTime(l.Queue.Name(), l.Message, outcome, delivered.Sub(start), time.Since(delivered))
	return result
}

// tookTime notes how long a message took, and warns when it was too much of its lease. For the lease
// of the next ones settling counts up to one call, so that an outage of storage does not look like slow work.
func (d *Dispatcher) tookTime(queueName string, m *queue.Message, decision *Outcome, delivering, settling time.Duration) {
	took, granted := delivering+settling, d.measure.Fits(queueName, m)
	d.measure.Took(queueName, decision.Posts, delivering+min(settling, retry.Timeout), granted)
	share := policy.Utilisation(took, granted)
	if share <= policy.UtilisationAtRisk {
		return
	}
	d.metrics.LeasesAtRisk.Add(meter.Labels{Queue: queueName})
	if unlogged, log := d.measure.AtRisk(queueName); log {
		_, rec, _ := d.measure.Status(queueName)
		d.log.Warn("a message took too much of its lease; it was held by renewing it", "queue", queueName, "message", m.ID,
			"took", took.Round(time.Millisecond), "lease", granted, "utilisation", fmt.Sprintf("%.2f", share),
			"recommended_lease", time.Duration(rec.Lease), "unlogged_before", unlogged)
	}
}
