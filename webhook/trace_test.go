package webhook_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/webhook"
	"github.com/pushlease/pushlease/webhook/webhooktest"
)

func recorder() (*tracetest.SpanRecorder, func(*webhook.Options)) {
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	return spans, func(o *webhook.Options) { o.TracerProvider = provider }
}

// spanText is all that is in the spans.
func spanText(spans []sdktrace.ReadOnlySpan) string {
	var b strings.Builder
	for _, s := range spans {
		fmt.Fprintln(&b, s.Name(), s.Status(), s.Attributes(), s.Events(), s.Links())
	}
	return b.String()
}

// C38: each request has its own span in the caller's trace; nothing but
// traceparent and a valid tracestate leaves.
func TestTraceContextIsPassedOn(t *testing.T) {
	previous := otel.GetTextMapPropagator()
	otel.SetTextMapPropagator(propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}))
	defer otel.SetTextMapPropagator(previous)
	bubble.Test(t, func(t *testing.T) {
		receiver := webhooktest.NewReceiver(webhooktest.Sequence(webhooktest.Status(500), webhooktest.Status(200)))
		defer receiver.Close()
		spans, tracing := recorder()
		s := newSender(t, receiver.Dial, tracing)
		defer s.Close()
		state, err := trace.ParseTraceState("vendor=1")
		if err != nil {
			t.Fatal(err)
		}
		parent := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, TraceState: state})
		member, err := baggage.NewMember("tenant", "secret-text")
		if err != nil {
			t.Fatal(err)
		}
		bag, err := baggage.New(member)
		if err != nil {
			t.Fatal(err)
		}
		ctx := baggage.ContextWithBaggage(trace.ContextWithSpanContext(t.Context(), parent), bag)
		s.Send(ctx, hook(), message("{}"))
		s.Send(ctx, hook(), message("{}"))
		s.Send(t.Context(), hook(), message("{}"))

		got, ended := receiver.Received(), spans.Ended()
		if len(got) != 3 || len(ended) != 3 {
			t.Fatalf("%d requests, %d spans", len(got), len(ended))
		}
		for i, r := range got {
			sc := ended[i].SpanContext()
			want := fmt.Sprintf("00-%s-%s-01", sc.TraceID(), sc.SpanID())
			if values := r.Header.Values("Traceparent"); len(values) != 1 || values[0] != want {
				t.Errorf("request %d: traceparent %q, want %s", i, values, want)
			}
			if inTrace := sc.TraceID() == parent.TraceID(); inTrace != (i < 2) || r.Header.Get("Baggage") != "" || (r.Header.Get("Tracestate") == "vendor=1") != (i < 2) {
				t.Errorf("request %d: %v", i, r.Header)
			}
		}
		if ended[0].SpanContext().SpanID() == ended[1].SpanContext().SpanID() {
			t.Error("two attempts share a span")
		}
	})
}

// The second try of one Send has a span of its own, which is what the receiver is told.
func TestTraceContextOfTheSecondTry(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		wire := webhooktest.NewWire(t, webhooktest.CloseOnReuse)
		spans, tracing := recorder()
		s := newSender(t, wire.Dial, tracing)
		defer s.Close()
		for _, redials := range []int{0, 1} {
			if got := s.Send(t.Context(), hook(), message("{}")); got.Status != 200 || got.Redials != redials {
				t.Fatalf("status %d after %d redials, want 200 after %d", got.Status, got.Redials, redials)
			}
		}
		raw, ended := wire.Raw(), spans.Ended()
		if len(raw) != 2 || len(ended) != 3 {
			t.Fatalf("%d requests, %d spans; want 2, 3", len(raw), len(ended))
		}
		last := ended[2].SpanContext()
		if want := fmt.Sprintf("Traceparent: 00-%s-%s-01\r\n", last.TraceID(), last.SpanID()); strings.Count(string(raw[1]), want) != 1 {
			t.Errorf("the second request lacks %q:\n%s", want, raw[1])
		}
	})
}

// Where nobody takes spans, each attempt still has a traceparent of its own.
func TestTraceContextIsPassedOnThoughNobodyTakesTheSpans(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		receiver := webhooktest.NewReceiver(nil)
		defer receiver.Close()
		spans, tracing := recorder()
		s := newSender(t, receiver.Dial, tracing, func(o *webhook.Options) { o.Unrecorded = true })
		defer s.Close()
		parent := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
		w := hook()
		w.Headers = map[string]string{"X-Tenant": "a"}
		for range 2 {
			wantAnswer(t, s.Send(trace.ContextWithSpanContext(t.Context(), parent), w, message("{}")), 200)
		}
		wantAnswer(t, s.Send(t.Context(), w, message("{}")), 200)
		ended := spans.Ended()
		if len(ended) != 3 {
			t.Fatalf("%d spans, want one for each attempt, and none of the client's", len(ended))
		}
		for i, r := range receiver.Received() {
			sc := ended[i].SpanContext()
			want := fmt.Sprintf("00-%s-%s-01", sc.TraceID(), sc.SpanID())
			if values := r.Header.Values("Traceparent"); len(values) != 1 || values[0] != want {
				t.Errorf("request %d: traceparent %q, want %s", i, values, want)
			}
			if inTrace := sc.TraceID() == parent.TraceID(); inTrace != (i < 2) || r.Header.Get("X-Tenant") != "a" {
				t.Errorf("request %d: trace %s, headers %v", i, sc.TraceID(), r.Header)
			}
			if len(ended[i].Attributes()) > 0 {
				t.Errorf("request %d: a span that nobody takes was described: %v", i, ended[i].Attributes())
			}
		}
	})
}

// I6: spans know the origin, and neither path, query, header, body nor answer.
func TestSpansHoldNoSecrets(t *testing.T) {
	for name, c := range map[string]struct {
		script webhooktest.Script
		spans  int
		class  string
	}{
		"answer":    {webhooktest.Answer("HTTP/1.1 302 secret-text\r\nLocation: https://secret-text.example/secret-text\r\nContent-Length: 11\r\n\r\nsecret-text"), 1, ""},
		"malformed": {webhooktest.Answer("secret-text\r\n\r\n"), 1, "protocol"},
		"bad chunk": {webhooktest.Answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nsecret-text\r\n"), 1, ""},
		"reset":     {webhooktest.Reset, 1, "reset"},
		"timeout":   {webhooktest.Hang, 1, "timeout"},
		"dial":      {nil, 2, "connect"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				dial := fails(&net.OpError{Op: "dial", Err: io.EOF, Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}})
				if c.script != nil {
					dial = webhooktest.NewWire(t, c.script).Dial
				}
				spans, tracing := recorder()
				s := newSender(t, dial, tracing)
				w := hook()
				w.Headers = map[string]string{"Authorization": "Bearer header-secret"}
				got := s.Send(t.Context(), w, message("payload-secret"))
				if got.ErrorClass != c.class {
					t.Errorf("class %q, want %q", got.ErrorClass, c.class)
				}
				ended := spans.Ended()
				if len(ended) != c.spans {
					t.Fatalf("%d spans, want %d", len(ended), c.spans)
				}
				text := spanText(ended)
				webhooktest.AssertNoSecrets(t, []string{text}, testSecret, "secret-text", "path-secret", "query-secret", "payload-secret", "header-secret")
				for _, kv := range ended[0].Attributes() {
					if kv.Key == "url.full" && kv.Value.AsString() != "http://127.0.0.1" {
						t.Errorf("url.full is %q", kv.Value.AsString())
					}
					if kv.Key == "error.type" && c.class != "" && kv.Value != attribute.StringValue(c.class) {
						t.Errorf("error.type is %q", kv.Value.AsString())
					}
				}
			})
		})
	}
}

// C37: the HTTP instrumentation would label its metrics with the address.
func TestNoMetricsOfTheInstrumentation(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	previous := otel.GetMeterProvider()
	otel.SetMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)))
	defer otel.SetMeterProvider(previous)
	bubble.Test(t, func(t *testing.T) {
		receiver := webhooktest.NewReceiver(nil)
		defer receiver.Close()
		s := newSender(t, receiver.Dial)
		defer s.Close()
		wantAnswer(t, s.Send(t.Context(), hook(), message("{}")), 200)
	})
	var metrics metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &metrics); err != nil || len(metrics.ScopeMetrics) != 0 {
		t.Errorf("%v, error %v", metrics.ScopeMetrics, err)
	}
}
