package dispatcher

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/pushlease/pushlease/dispatcher/internal/admission"
	"github.com/pushlease/pushlease/dispatcher/internal/lease"
	"github.com/pushlease/pushlease/dispatcher/internal/meter"
	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/dispatcher/internal/settle"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
)

// Outcome is what delivering a message came to.
type Outcome = settle.Outcome

// RecordedCompletes is a store that keeps queues and records together.
type RecordedCompletes = settle.RecordedCompletes

// handle walks one message from the received lease to the settled message.
func (d *Dispatcher) handle(work context.Context, q queue.Queue, m *queue.Message, g *admission.Grant) {
	d.handleBy(work, q, m, func(ctx context.Context, queueName string, m *queue.Message, outcome *Outcome) {
		d.deliverInto(ctx, queueName, m, d.margins(m), g, outcome)
	})
}

// handleBy is handle with another way to decide; it returns how settling ended.
func (d *Dispatcher) handleBy(work context.Context, q queue.Queue, m *queue.Message,
	deliver func(context.Context, string, *queue.Message, *Outcome)) (result string) {
	start := time.Now()
	defer d.inFlight.Enter(q.Name())()
	d.metrics.Received(q.Name(), m.DequeueCount > 1)
	d.flows.Received(q.Name(), m.ID)
	l := d.leases.Keep(work, q, m)
	defer l.Stop()
	if !l.Begin() {
		return "work_goes_on"
	}
	ctx, span := d.spans.Message(l.Context, q.Name(), m.ID, m.DequeueCount)
	var outcome Outcome
	deliver(ctx, q.Name(), m, &outcome)
	return d.conclude(ctx, l, span, start, &outcome)
}

// conclude settles a message that was decided about, and tells what came of it.
func (d *Dispatcher) conclude(ctx context.Context, l *lease.Lease, span trace.Span, start time.Time, outcome *Outcome) (result string) {
	delivered := time.Now()
	result = d.completer.Settle(d.writing(ctx), l, *outcome)
	meter.Settled(span, string(outcome.Action), string(outcome.Reason), result, outcome.Action == policy.NoVerdict)
	d.metrics.Settled(meter.Settlement{
		Queue: l.Queue.Name(), Action: string(outcome.Action), Reason: string(outcome.Reason), Result: result,
		Gone: outcome.Action == policy.Complete && result == "deleted", DeadLettered: len(outcome.DeadLetters) > 0,
		Took: time.Since(start), Granted: l.Message.Lease.Granted(),
	})
	d.tookTime(l.Queue.Name(), l.Message, outcome, delivered.Sub(start), time.Since(delivered), l.Renewed())
	return result
}

// refuse gives back a message that was received but not begun.
func (d *Dispatcher) refuse(q queue.Queue, m *queue.Message) {
	ctx, cancel := context.WithTimeout(d.write, retry.Timeout)
	defer cancel()
	if err := q.Abandon(ctx, m, 0); err != nil {
		d.log.Warn("a message received while stopping could not be given back; it comes back when its lease ends",
			"queue", q.Name(), "message", m.ID, "error", err)
	}
}
