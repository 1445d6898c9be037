package meter

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// Span and attribute names follow OpenTelemetry's messaging conventions, together
// with the names that the source documents ask for.

// messagingSystem is what the conventions want a system without a name of their own to be called by.
const messagingSystem = "azure_storage_queues"

// Spans makes the spans of messages and attempts. They are described only where somebody
// takes them: otherwise they are no more than an id that logs and requests carry.
type Spans struct {
	Tracer trace.Tracer
	// Unrecorded says that nobody takes them: then a message has an id, and an attempt is part of it. The
	// sender gives each request an id of its own.
	Unrecorded bool
}

// Message begins the span of handling a message.
func (s Spans) Message(ctx context.Context, queueName, messageID string, deliveryCount int64) (context.Context, trace.Span) {
	if s.Unrecorded {
		return s.Tracer.Start(ctx, "process")
	}
	ctx, span := s.Tracer.Start(ctx, "process "+queueName, trace.WithSpanKind(trace.SpanKindConsumer))
	if span.IsRecording() {
		span.SetAttributes(
			semconv.MessagingSystemKey.String(messagingSystem), semconv.MessagingOperationName("process"), semconv.MessagingOperationTypeProcess,
			semconv.MessagingDestinationName(queueName), semconv.MessagingMessageID(messageID),
			attribute.String("queue.name", queueName),
			attribute.String("message.id", messageID),
			attribute.Int64("delivery.count", deliveryCount),
		)
	}
	return ctx, span
}

// Settled describes how handling a message ended, and ends its span. fault says that it ended
// with no verdict.
func Settled(span trace.Span, action, reason, result string, fault bool) {
	defer span.End()
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attribute.String("decision", action), attribute.String("reason", reason),
		attribute.String("settled", result))
	if fault {
		span.SetStatus(codes.Error, reason)
	}
}

// Attempt begins the span of one attempt; the sender passes its context on to the webhook as
// traceparent. The span belongs to the trace of parent, where there is one, and is then linked
// to the handling of the message.
func (s Spans) Attempt(ctx context.Context, parent trace.SpanContext, queueName, messageID, webhookID string, number int) (context.Context, trace.Span) {
	if s.Unrecorded {
		if parent.IsValid() {
			ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
		}
		return ctx, noop.Span{}
	}
	var opts []trace.SpanStartOption
	if parent.IsValid() {
		opts = []trace.SpanStartOption{trace.WithLinks(trace.LinkFromContext(ctx))}
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
	}
	ctx, span := s.Tracer.Start(ctx, "attempt "+queueName, opts...)
	if span.IsRecording() {
		span.SetAttributes(
			attribute.String("queue.name", queueName),
			attribute.String("message.id", messageID),
			attribute.String("webhook.id", webhookID),
			attribute.Int("attempt", number),
		)
	}
	return ctx, span
}

// Decided describes what came of an attempt; failed says that it did not deliver.
func Decided(span trace.Span, action, reason string, status int, failed bool) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attribute.String("decision", action), attribute.String("reason", reason),
		attribute.Int("http.response.status_code", status))
	if failed {
		span.SetStatus(codes.Error, reason)
	}
}
