package meter

import (
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// Where nobody takes spans, a message has one id, and its requests belong to the trace of the event.
func TestAnAttemptHasNoSpanOfItsOwnWhereNobodyTakesIt(t *testing.T) {
	taken := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(taken)).Tracer("")
	parent := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
	for unrecorded, want := range map[bool]int{false: 2, true: 1} {
		s := Spans{Tracer: tracer, Unrecorded: unrecorded}
		before := len(taken.Started())
		ctx, message := s.Message(t.Context(), "orders", "m", 1)
		inMessage, attempt := s.Attempt(ctx, trace.SpanContext{}, "orders", "m", "wh", 1)
		attempt.End()
		if n := len(taken.Started()) - before; n != want {
			t.Errorf("unrecorded %v: %d spans for a message and its attempt, want %d", unrecorded, n, want)
		}
		if trace.SpanContextFromContext(inMessage).TraceID() != message.SpanContext().TraceID() {
			t.Errorf("unrecorded %v: the attempt is not in the trace of its message", unrecorded)
		}
		inEvent, attempt := s.Attempt(ctx, parent, "orders", "m", "wh", 2)
		attempt.End()
		if trace.SpanContextFromContext(inEvent).TraceID() != parent.TraceID() {
			t.Errorf("unrecorded %v: the attempt is not in the trace of its event", unrecorded)
		}
	}
}
