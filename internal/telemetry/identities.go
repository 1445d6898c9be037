package telemetry

import (
	"context"
	"encoding/binary"
	"math/rand/v2"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/embedded"
)

// identities is the TracerProvider of a process whose spans nobody collects: its spans
// are an id each, and record nothing. Receivers are owed a traceparent whose span id is
// new with every attempt; a recording span, made to be dropped, costs as much as the rest
// of a POST's preparation. What an id carries on is as in the SDK with its default
// sampler: the parent's trace, its decision to sample or not, and its state; a trace that
// begins here is sampled.
type identities struct{ embedded.TracerProvider }

func (identities) Tracer(string, ...trace.TracerOption) trace.Tracer { return identityTracer{} }

type identityTracer struct{ embedded.Tracer }

func (identityTracer) Start(ctx context.Context, _ string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	parent := trace.SpanContextFromContext(ctx)
	if len(opts) > 0 { // all but one of them describe what is not recorded
		if config := trace.NewSpanStartConfig(opts...); config.NewRoot() {
			parent = trace.SpanContext{}
		}
	}
	id := trace.SpanContextConfig{
		TraceID: parent.TraceID(), TraceFlags: parent.TraceFlags(), TraceState: parent.TraceState(),
	}
	if !id.TraceID.IsValid() {
		id.TraceID, id.TraceFlags = newTraceID(), trace.FlagsSampled
	}
	binary.NativeEndian.PutUint64(id.SpanID[:], randomID())
	ctx = trace.ContextWithSpanContext(ctx, trace.NewSpanContext(id))
	return ctx, trace.SpanFromContext(ctx)
}

func newTraceID() (id trace.TraceID) {
	binary.NativeEndian.PutUint64(id[:8], randomID())
	binary.NativeEndian.PutUint64(id[8:], randomID())
	return id
}

// randomID is never zero: that stands for no id.
func randomID() uint64 { return rand.Uint64() | 1 }
