package api

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/webhook/content"
)

// A request of the API is a span in its caller's trace, and the message that it publishes goes on with that span. What
// a caller wrote into a path, a query or a header is in no span.
func TestRequestsAreSpansInTheTraceOfTheirCallers(t *testing.T) {
	ended := tracetest.NewSpanRecorder()
	h := newHarness(t, withEncoding(queue.EncodingAuto), func(o *Options) {
		o.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(ended)).Tracer("")
	})
	h.do(http.StatusAccepted, "POST", publishTarget, "hello", "traceparent", traceHeader, "tracestate", "a=b", "Cookie", "s3cret", "User-Agent", "s3cret")
	spans := ended.Ended()
	if len(spans) != 1 || spans[0].Name() != "POST /api/v1/queues/{queue}/messages" {
		t.Fatalf("%d spans: %v", len(spans), spans)
	}
	own := spans[0].SpanContext()
	if caller := content.ParentOf(traceHeader, ""); spans[0].Parent().SpanID() != caller.SpanID() || own.TraceID() != caller.TraceID() {
		t.Errorf("its parent is %v", spans[0].Parent())
	}
	_, got := h.received(queue.EncodingAuto)
	if parent := content.ParentOf(got.TraceParent, got.TraceState); parent.SpanID() != own.SpanID() || parent.TraceID() != own.TraceID() || got.TraceState != "a=b" {
		t.Errorf("the message goes on with %q %q, want the span %v", got.TraceParent, got.TraceState, own)
	}

	h.do(http.StatusNotFound, "GET", "/api/v1/webhooks/s3cret", "")
	h.do(http.StatusBadRequest, "GET", "/api/v1/attempts?queue=s3cret!", "")
	for _, untraced := range []string{"/healthz", "/readyz", "/metrics", "/ui/"} {
		h.do(http.StatusOK, "GET", untraced, "")
	}
	h.api.ServeHTTP(httptest.NewRecorder(), request("S3CRET", "/api/v1/webhooks", ""))
	if spans = ended.Ended(); len(spans) != 3 {
		t.Errorf("%d spans, want those of the requests to the API", len(spans))
	}
	for _, s := range spans {
		if s.Status().Code == codes.Error {
			t.Errorf("%s is an error: nothing failed here", s.Name())
		}
		for _, a := range s.Attributes() {
			if strings.Contains(strings.ToLower(a.Value.String()), "s3cret") {
				t.Errorf("%s has %s", s.Name(), a.Key)
			}
		}
	}

	strangers := newHarness(t, withKeys, func(o *Options) { o.Tracer = h.api.Tracer })
	strangers.do(http.StatusUnauthorized, "GET", "/api/v1/webhooks", "", "traceparent", traceHeader)
	strangers.do(http.StatusOK, "GET", "/api/v1/session", "")
	if n := len(ended.Ended()); n != 3 {
		t.Errorf("%d spans: strangers make some", n-3)
	}

	h.do(http.StatusAccepted, "POST", publishTarget, "hello")
	if _, got := h.received(queue.EncodingAuto); got.TraceParent != "" {
		t.Errorf("a message whose caller has no trace goes on with %q", got.TraceParent)
	}
}

// An alert sees the first publish that fails only where the series was there at 0.
func TestTheSeriesOfPublishesAreThereBeforeTheFirst(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	newHarness(t, func(o *Options) { o.Meter = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("") })
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	var born []string
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == "pushlease.api.requests" {
				for _, p := range sum.DataPoints {
					born = append(born, fmt.Sprint(p.Value, p.Attributes.ToSlice()))
				}
			}
		}
	}
	slices.Sort(born)
	const route = `{"route":"` + publishRoute + `"} `
	if want := `0 [{"method":"POST"} ` + route + `{"status":"2xx"}] 0 [{"method":"POST"} ` + route + `{"status":"5xx"}]`; strings.Join(born, " ") != want {
		t.Errorf("born: %s, want %s", born, want)
	}
}

// What storage does not do is a span that is an error.
func TestARequestThatFailsIsASpanThatIsAnError(t *testing.T) {
	ended := tracetest.NewSpanRecorder()
	h := newHarness(t, func(o *Options) {
		o.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(ended)).Tracer("")
	})
	if err := h.db.Close(); err != nil {
		t.Fatal(err)
	}
	h.do(http.StatusServiceUnavailable, "GET", "/api/v1/webhooks", "")
	if spans := ended.Ended(); len(spans) != 1 || spans[0].Status().Code != codes.Error {
		t.Errorf("%d spans: %v", len(spans), spans)
	}
}
