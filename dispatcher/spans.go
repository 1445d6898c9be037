package dispatcher

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/webhook"
)

// Span and attribute names follow OpenTelemetry's messaging conventions, together
// with the names that the source documents ask for (REQUIREMENTS R5).

// startMessageSpan describes the span only where somebody takes it: otherwise it is no
// more than an id that logs and requests carry.
func (d *Dispatcher) startMessageSpan(ctx context.Context, queueName string, m *queue.Message) (context.Context, trace.Span) {
	ctx, span := d.o.Tracer.Start(ctx, "process "+queueName, trace.WithSpanKind(trace.SpanKindConsumer))
	if span.IsRecording() {
		span.SetAttributes(
			attribute.String("messaging.operation.type", "process"),
			attribute.String("messaging.destination.name", queueName),
			attribute.String("messaging.message.id", m.ID),
			attribute.String("queue.name", queueName),
			attribute.String("message.id", m.ID),
			attribute.Int64("delivery.count", m.DequeueCount),
		)
	}
	return ctx, span
}

func (d *Dispatcher) endMessageSpan(span trace.Span, dec Decision, result string) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attribute.String("decision", string(dec.Action)), attribute.String("reason", string(dec.Reason)),
		attribute.String("settled", result))
	if dec.Action == policy.NoVerdict {
		span.SetStatus(codes.Error, string(dec.Reason))
	}
}

// startAttemptSpan gives each attempt a span of its own; the sender passes its
// context on to the webhook as traceparent. The span belongs to the trace that the event
// or its publisher names, and is then linked to the handling of the message.
func (d *Dispatcher) startAttemptSpan(ctx context.Context, p *parcel, t *target) (context.Context, trace.Span) {
	var opts []trace.SpanStartOption
	if parent := p.parent(); parent.IsValid() {
		opts = []trace.SpanStartOption{trace.WithLinks(trace.LinkFromContext(ctx))}
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
	}
	ctx, span := d.o.Tracer.Start(ctx, "attempt "+p.key.Queue, opts...)
	if span.IsRecording() {
		span.SetAttributes(
			attribute.String("queue.name", p.key.Queue),
			attribute.String("message.id", p.key.MessageID),
			attribute.String("webhook.id", t.registration.ID),
			attribute.Int("attempt", t.delivery.Attempts+1),
		)
	}
	return ctx, span
}

func endAttemptSpan(span trace.Span, dec *policy.Decision, status int) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attribute.String("decision", string(dec.Action)), attribute.String("reason", string(dec.Reason)),
		attribute.Int("http.response.status_code", status))
	if dec.Action != policy.Complete {
		span.SetStatus(codes.Error, string(dec.Reason))
	}
}

// parent is the span that the event names, or else the publish. What is malformed counts
// as absent.
func (p *parcel) parent() trace.SpanContext {
	if e := p.content.Event; e != nil && e.Parent.IsValid() {
		return e.Parent
	}
	return webhook.ParentOf(p.body.TraceParent, p.body.TraceState)
}
