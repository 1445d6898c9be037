package telemetry

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/metric"
)

// Where traces are collected, a histogram names one that took so long; where nobody has them it names none.
func TestHistogramsNameTracesThatSomebodyHas(t *testing.T) {
	for collected, o := range map[bool]Options{true: {OTLPEndpoint: newFakeCollector(t).URL}, false: {}} {
		noCollector(t)
		tel := start(t, o)
		h, err := tel.MeterProvider.Meter("test").Float64Histogram("pushlease.attempt.duration", metric.WithUnit("s"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, span := tel.TracerProvider.Tracer("test").Start(t.Context(), "attempt")
		h.Record(ctx, 45)
		h.Record(context.Background(), 3)
		span.End()
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
		w := httptest.NewRecorder()
		tel.Handler().ServeHTTP(w, r)
		named := strings.Count(w.Body.String(), " # {")
		if here := strings.Contains(w.Body.String(), `trace_id="`+span.SpanContext().TraceID().String()+`"`); here != collected || named > 1 {
			t.Errorf("collected %t: %d exemplars, the trace of the span is there: %t", collected, named, here)
		}
	}
}
