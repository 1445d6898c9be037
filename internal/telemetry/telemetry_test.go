package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/pushlease/pushlease/internal/bubble"
)

// noCollector keeps variables of the machine that runs the test out of it.
func noCollector(t *testing.T) {
	t.Helper()
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
		"OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER", "OTEL_TRACES_SAMPLER"} {
		t.Setenv(name, "")
	}
}

func start(t *testing.T, o Options) *Telemetry {
	t.Helper()
	if o.LogOutput == nil {
		o.LogOutput = io.Discard
	}
	if o.LogFormat == "" {
		o.LogFormat = "json"
	}
	tel, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = tel.Shutdown(ctx) // a test's collector may be gone already
	})
	return tel
}

func scrape(t *testing.T, tel *Telemetry) string {
	t.Helper()
	w := httptest.NewRecorder()
	tel.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func counter(t *testing.T, tel *Telemetry, name string, opts ...metric.Int64CounterOption) metric.Int64Counter {
	t.Helper()
	c, err := tel.MeterProvider.Meter("test").Int64Counter(name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestPrometheusNamesAreThoseThatTheDocumentsPromise(t *testing.T) {
	noCollector(t)
	tel := start(t, Options{Version: "1.2.3", Instance: "one"})
	meter := tel.MeterProvider.Meter("test")
	counter(t, tel, "pushlease.messages.deadlettered", metric.WithUnit("{message}")).Add(t.Context(), 1,
		metric.WithAttributes(attribute.String("queue", "orders"), attribute.String("reason", "PoisonMessage")))
	counter(t, tel, "pushlease.storage.transactions").Add(t.Context(), 2,
		metric.WithAttributes(attribute.String("service", "queue"), attribute.String("operation", "receive")))
	gauge, err := meter.Int64Gauge("pushlease.messages.in_flight", metric.WithUnit("{message}"))
	if err != nil {
		t.Fatal(err)
	}
	gauge.Record(t.Context(), 3)
	histogram, err := meter.Float64Histogram("pushlease.attempt.duration", metric.WithUnit("s"))
	if err != nil {
		t.Fatal(err)
	}
	histogram.Record(t.Context(), 45)
	got := scrape(t, tel)
	for _, want := range []string{
		"\n" + `pushlease_messages_deadlettered_total{queue="orders",reason="PoisonMessage"} 1` + "\n",
		"\n" + `pushlease_storage_transactions_total{operation="receive",service="queue"} 2` + "\n",
		"\n" + `pushlease_messages_in_flight 3` + "\n",
		"\n" + `pushlease_attempt_duration_seconds_bucket{le="60"} 1` + "\n",
		"\n" + `pushlease_attempt_duration_seconds_bucket{le="30"} 0` + "\n",
		`service_version="1.2.3"`, `service_name="pushlease"`, `service_instance_id="one"`,
		"\ngo_goroutines ", "\nprocess_start_time_seconds ",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in:\n%s", want, got)
		}
	}
	if strings.Contains(got, "otel_scope") {
		t.Error("scope labels are there")
	}
}

func TestAnInstrumentKeepsTheBucketsThatItAsksFor(t *testing.T) {
	noCollector(t)
	tel := start(t, Options{})
	h, err := tel.MeterProvider.Meter("test").Float64Histogram("pushlease.lease.utilization", metric.WithExplicitBucketBoundaries(0.5, 0.8))
	if err != nil {
		t.Fatal(err)
	}
	h.Record(t.Context(), 0.7)
	if got := scrape(t, tel); !strings.Contains(got, `pushlease_lease_utilization_bucket{le="0.8"} 1`) {
		t.Error(got)
	}
}

func TestHTTPInstrumentationHasNoUnboundedLabels(t *testing.T) {
	noCollector(t)
	tel := start(t, Options{})
	server := httptest.NewServer(otelhttp.NewHandler(http.NotFoundHandler(), "api",
		otelhttp.WithMeterProvider(tel.MeterProvider), otelhttp.WithTracerProvider(tel.TracerProvider)))
	defer server.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: otelhttp.NewTransport(transport, otelhttp.WithMeterProvider(tel.MeterProvider), otelhttp.WithTracerProvider(tel.TracerProvider))}
	resp, err := client.Post(server.URL+"/secret-path?token=abc", "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil { // the end of the answer ends the measurement
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	server.Close() // it counts a request after its answer
	got := scrape(t, tel)
	if !strings.Contains(got, "http_client_request_duration_seconds_bucket") || !strings.Contains(got, `le="600"`) ||
		!strings.Contains(got, "http_server_request_duration_seconds_bucket") {
		t.Errorf("the durations are missing, or end at 10 s:\n%s", got)
	}
	for _, bad := range []string{"server_address", "server_port", "127.0.0.1", "secret-path", "abc", "peer"} {
		if strings.Contains(got, bad) {
			t.Errorf("%s is in the metrics:\n%s", bad, got)
		}
	}
}

func TestUnboundedAttributesAndTooManySeriesAreSummedUp(t *testing.T) {
	noCollector(t)
	tel := start(t, Options{})
	byID := counter(t, tel, "by.id")
	byWebhook := counter(t, tel, "by.webhook")
	for i := range 3 * seriesLimit {
		byID.Add(t.Context(), 1, metric.WithAttributes(attribute.Int("message.id", i), attribute.String("url.full", fmt.Sprint("http://", i))))
		byWebhook.Add(t.Context(), 1, metric.WithAttributes(attribute.Int("webhook", i)))
	}
	got := scrape(t, tel)
	if want := fmt.Sprintf("\nby_id_total %d\n", 3*seriesLimit); !strings.Contains(got, want) {
		t.Errorf("%q is missing", want)
	}
	if n := strings.Count(got, "\nby_webhook_total{"); n != seriesLimit {
		t.Errorf("%d series, want %d", n, seriesLimit)
	}
	if !strings.Contains(got, `by_webhook_total{otel_metric_overflow="true"}`) {
		t.Error("the overflow is not counted")
	}
}

func TestLogLinesCarryTraceIDsAndReadableDurations(t *testing.T) {
	noCollector(t)
	var out bytes.Buffer
	tel := start(t, Options{LogOutput: &out, LogLevel: slog.LevelInfo})
	ctx, span := tel.TracerProvider.Tracer("test").Start(t.Context(), "x")
	tel.Logger.With("queue", "orders", "age", time.Minute).InfoContext(ctx, "hello", "delay", 90*time.Second, "took", slog.GroupValue(slog.Duration("all", time.Second)))
	tel.Logger.Debug("not this")
	if text, at := tel.LastError(); text != "" || !at.IsZero() {
		t.Errorf("last error %q at %s before there was one", text, at)
	}
	span.End()
	tel.log.Flush()
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	want := map[string]any{"level": "INFO", "msg": "hello", "queue": "orders", "age": "1m0s", "delay": "1m30s",
		"trace_id": span.SpanContext().TraceID().String(), "span_id": span.SpanContext().SpanID().String()}
	for k, v := range want {
		if line[k] != v {
			t.Errorf("%s = %v, want %v", k, line[k], v)
		}
	}
	if took, _ := line["took"].(map[string]any); took["all"] != "1s" {
		t.Errorf("a duration in a group is %v", line["took"])
	}
	if _, err := time.Parse(time.RFC3339Nano, fmt.Sprint(line["time"])); err != nil {
		t.Error(err)
	}
}

// What a process logged last as an error is what it tells the others of itself.
func TestTheLastErrorIsKept(t *testing.T) {
	noCollector(t)
	tel := start(t, Options{LogOutput: io.Discard, LogLevel: slog.LevelError})
	tel.Logger.Error("an older one", "error", "x")
	tel.Logger.With("queue", "orders").WithGroup("g").Error("receive failed; trying again", "queue", "orders", "error", errors.New("storage denied access"))
	tel.Logger.Warn("not this", "error", "y")
	if text, at := tel.LastError(); text != "receive failed; trying again: storage denied access" || time.Since(at) > time.Minute {
		t.Errorf("last error %q at %s", text, at)
	}
}

func TestTextLog(t *testing.T) {
	noCollector(t)
	var out bytes.Buffer
	tel := start(t, Options{LogOutput: &out, LogFormat: "text"})
	tel.Logger.Info("hello", "a", "b\nc")
	tel.log.Flush()
	if !strings.Contains(out.String(), `msg=hello a="b\nc"`) || strings.Count(out.String(), "\n") != 1 {
		t.Errorf("%q", out.String())
	}
}

// A pipe, as a supervisor or container reads it, gets JSON; what is typed into a terminal, text.
func TestAutomaticLogIsJSONWhereNobodyReads(t *testing.T) {
	noCollector(t)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var buffer bytes.Buffer
	for _, to := range []io.Writer{write, &buffer} {
		tel := start(t, Options{LogOutput: to, LogFormat: "auto"})
		tel.Logger.Info("hello")
		tel.log.Flush()
	}
	if err := write.Close(); err != nil {
		t.Fatal(err)
	}
	piped, err := io.ReadAll(read)
	for _, line := range []string{string(piped), buffer.String()} {
		if err != nil || !strings.HasPrefix(line, `{"time"`) {
			t.Errorf("%q, %v", line, err)
		}
	}
}

// C38: without a collector too, each attempt has a traceparent of its own that
// belongs to the message's trace.
func TestTraceparentWithoutACollector(t *testing.T) {
	noCollector(t)
	tel := start(t, Options{})
	attempt := func(traceparent string) trace.SpanContext {
		ctx := tel.Propagator.Extract(t.Context(), propagation.MapCarrier{"traceparent": traceparent, "baggage": "user=1"})
		ctx, span := tel.TracerProvider.Tracer("test").Start(ctx, "attempt")
		defer span.End()
		sent := propagation.MapCarrier{}
		tel.Propagator.Inject(ctx, sent)
		if sent["baggage"] != "" {
			t.Error("baggage was sent")
		}
		got := trace.SpanContextFromContext(tel.Propagator.Extract(t.Context(), sent))
		if got.SpanID() != span.SpanContext().SpanID() {
			t.Errorf("sent %v, the span is %v", sent, span.SpanContext().SpanID())
		}
		return got
	}
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	first, second := attempt(parent), attempt(parent)
	if first.TraceID().String() != "0af7651916cd43dd8448eb211c80319c" || second.TraceID() != first.TraceID() {
		t.Errorf("trace ids %s and %s", first.TraceID(), second.TraceID())
	}
	if first.SpanID() == second.SpanID() || first.SpanID().String() == "b7ad6b7169203331" {
		t.Error("two attempts share a span id")
	}
	if unsampled := attempt("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"); unsampled.IsSampled() {
		t.Error("the publisher's decision not to sample is overruled")
	}
	for _, bad := range []string{"", "nonsense", "00-00000000000000000000000000000000-b7ad6b7169203331-01"} {
		if got := attempt(bad); !got.IsValid() || got.TraceID() == first.TraceID() {
			t.Errorf("traceparent %q gives %v, want a new trace", bad, got)
		}
	}
}

// A span that nobody collects is its id alone: the parent's decision and state go on in it.
func TestSpansWithoutACollectorRecordNothing(t *testing.T) {
	noCollector(t)
	tel := start(t, Options{})
	tracer := tel.TracerProvider.Tracer("test")
	if tel.Recording {
		t.Error("without a collector spans are said to be recorded")
	}
	carrier := propagation.MapCarrier{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", "tracestate": "vendor=1"}
	ctx := tel.Propagator.Extract(t.Context(), carrier)
	_, child := tracer.Start(ctx, "child")
	if sc := child.SpanContext(); child.IsRecording() || sc.IsSampled() || sc.TraceState().String() != "vendor=1" || sc.IsRemote() {
		t.Errorf("recording %t, %+v", child.IsRecording(), sc)
	}
	_, root := tracer.Start(ctx, "root", trace.WithNewRoot(), trace.WithAttributes(attribute.String("a", "b")))
	if sc := root.SpanContext(); !sc.IsValid() || !sc.IsSampled() || sc.TraceID() == child.SpanContext().TraceID() || sc.TraceState().Len() != 0 {
		t.Errorf("a new root is %+v", sc)
	}
}

func TestASamplerIsObeyedWithoutACollectorToo(t *testing.T) {
	noCollector(t)
	t.Setenv("OTEL_TRACES_SAMPLER", "always_off")
	_, span := start(t, Options{}).TracerProvider.Tracer("test").Start(t.Context(), "x")
	if sc := span.SpanContext(); !sc.IsValid() || sc.IsSampled() {
		t.Errorf("always_off gives %+v", sc)
	}
}

// fakeCollector counts the exports per path.
type fakeCollector struct {
	*httptest.Server
	mu    sync.Mutex
	paths map[string]int
}

func newFakeCollector(t *testing.T) *fakeCollector {
	t.Helper()
	c := &fakeCollector{paths: map[string]int{}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.paths[r.URL.Path]++
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(c.Close)
	return c
}

func TestCollectorGetsMetricsAndTraces(t *testing.T) {
	tests := []struct {
		name            string
		endpoint        string
		env             map[string]string
		metrics, traces int
	}{
		{"by option", "URL", nil, 1, 1},
		{"option with a slash at the end", "URL/", nil, 1, 1},
		{"by variable", "", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "URL"}, 1, 1},
		{"traces only", "", map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "URL/v1/traces"}, 0, 1},
		{"no traces", "URL", map[string]string{"OTEL_TRACES_EXPORTER": "none"}, 1, 0},
		{"switched off", "", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "URL", "OTEL_SDK_DISABLED": "true"}, 0, 0},
		{"nothing said", "", nil, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			noCollector(t)
			c := newFakeCollector(t)
			for k, v := range tt.env {
				t.Setenv(k, strings.ReplaceAll(v, "URL", c.URL))
			}
			tel := start(t, Options{OTLPEndpoint: strings.ReplaceAll(tt.endpoint, "URL", c.URL)})
			counter(t, tel, "x").Add(t.Context(), 1)
			_, span := tel.TracerProvider.Tracer("test").Start(t.Context(), "x")
			span.End()
			if err := tel.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			if c.paths["/v1/metrics"] != tt.metrics || c.paths["/v1/traces"] != tt.traces {
				t.Errorf("exports: %v, want %d of metrics and %d of traces", c.paths, tt.metrics, tt.traces)
			}
		})
	}
}

func TestShutdownDoesNotWaitForACollectorThatNeverAnswers(t *testing.T) {
	noCollector(t)
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts in the kernel, never answers
	if err != nil {
		t.Fatal(err)
	}
	tel := start(t, Options{OTLPEndpoint: "http://" + l.Addr().String()})
	counter(t, tel, "x").Add(t.Context(), 1)
	_, span := tel.TracerProvider.Tracer("test").Start(t.Context(), "x")
	span.End()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	began := time.Now()
	if err := tel.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("err = %v", err)
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("took %s", took)
	}
	if err := tel.Shutdown(t.Context()); err != nil {
		t.Errorf("second call: %v", err)
	}
	// The SDK goes on with the export in hand; its end must not reach other tests.
	ended := make(chan error, 10)
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { ended <- err }))
	_ = l.Close()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the export in hand does not end when its collector goes away")
	}
}

func TestExporterErrorsAreLoggedOnceAMinuteAndCut(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		e := &errorLog{log: slog.New(slog.NewTextHandler(&out, nil)), every: time.Minute}
		for range 100 {
			e.Handle(errors.New(strings.Repeat("x", 1000)))
		}
		time.Sleep(time.Minute)
		e.Handle(errors.New("y"))
		e.Handle(nil)
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 2 || len(lines[0]) > 500 || !strings.Contains(lines[1], "error=y suppressed=99") {
			t.Errorf("log: %s", out.String())
		}
	})
}

func TestExportersReportToOurLog(t *testing.T) {
	noCollector(t)
	var out bytes.Buffer
	start(t, Options{LogOutput: &out})
	otel.Handle(errors.New("collector is down"))
	if !strings.Contains(out.String(), "collector is down") {
		t.Errorf("log: %s", out.String())
	}
}

func TestVariablesThatCanNotBeReadAreNotQuoted(t *testing.T) {
	for name, value := range map[string]string{
		"OTEL_EXPORTER_OTLP_HEADERS":  "Authorization: Bearer COLLECTOR-KEY",
		"OTEL_EXPORTER_OTLP_ENDPOINT": "http://user:COLLECTOR-KEY and more@127.0.0.1:1",
	} {
		t.Run(name, func(t *testing.T) {
			noCollector(t)
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
			t.Setenv(name, value)
			var log bytes.Buffer
			start(t, Options{LogOutput: &log})
			if !strings.Contains(log.String(), "OTEL_*") || strings.Contains(log.String(), "COLLECTOR-KEY") {
				t.Errorf("log: %s", log.String())
			}
		})
	}
}

func TestAnUnsupportedProtocolIsSaid(t *testing.T) {
	noCollector(t)
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
	var out bytes.Buffer
	start(t, Options{LogOutput: &out, OTLPEndpoint: newFakeCollector(t).URL})
	if !strings.Contains(out.String(), "grpc") {
		t.Errorf("log: %s", out.String())
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, o := range []Options{{LogFormat: "json"}, {LogOutput: io.Discard}, {LogOutput: io.Discard, LogFormat: "xml"}} {
		if _, err := Start(t.Context(), o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}
