// Package telemetry starts and flushes logging, metrics and traces. The metrics
// and spans themselves are defined beside the code that they are about.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/trace"
)

// shutdownBound is the longest that Shutdown takes, whatever its context says:
// a dead collector must not hold up a stopping process.
const shutdownBound = 5 * time.Second

// Options say where telemetry goes.
type Options struct {
	// Version is the program's; it becomes service.version.
	Version string
	// Instance becomes service.instance.id.
	Instance string
	// LogOutput takes the log, one Write at a time; required. Lines that are no warnings may reach it 50 ms
	// late, unless it is a terminal.
	LogOutput io.Writer
	// LogLevel is the least important level that is logged.
	LogLevel slog.Level
	// LogFormat is "json", "text", or "auto": text on a terminal, and JSON elsewhere.
	LogFormat string
	// OTLPEndpoint is the base URL of a collector (OTLP over HTTP), without
	// credentials. Empty: the standard OTEL_EXPORTER_OTLP_* variables decide, and
	// without them nothing is sent.
	OTLPEndpoint string
}

func (o Options) validate() error {
	switch {
	case o.LogOutput == nil:
		return errors.New("telemetry: LogOutput is missing")
	case o.LogFormat != "auto" && o.LogFormat != "json" && o.LogFormat != "text":
		return fmt.Errorf("telemetry: LogFormat %q is none of auto, json and text", o.LogFormat)
	}
	return nil
}

// Telemetry is what the other packages are given.
type Telemetry struct {
	// Logger adds trace_id and span_id to what is logged with a context.
	Logger *slog.Logger
	// MeterProvider feeds Handler, and a collector if there is one.
	MeterProvider metric.MeterProvider
	// TracerProvider gives every span an id of its own even when there is no
	// collector, so that a receiver always gets a proper traceparent.
	TracerProvider trace.TracerProvider
	// Recording says whether spans hold anything but their id.
	Recording bool
	// Collected says whether a collector takes spans: a sampler alone makes them, and nobody sees them.
	Collected bool
	// Propagator is W3C Trace Context. Baggage is left out on purpose: it
	// would carry the publishers' data to third parties.
	Propagator propagation.TextMapPropagator

	log      *lines
	worst    *lastError
	handler  http.Handler
	shutdown []func(context.Context) error
}

// Start sets everything up. It asks no collector for anything, so it neither
// waits for one nor fails without one. The only OpenTelemetry globals that it sets
// are the error handler and the logger, because the exporters report nowhere else.
func Start(ctx context.Context, o Options) (*Telemetry, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	log, worst := &lines{to: o.LogOutput}, &lastError{}
	t := &Telemetry{Logger: slog.New(newHandler(o, log, worst)), Propagator: propagation.TraceContext{}, log: log, worst: worst}
	otel.SetErrorHandler(&errorLog{log: t.Logger, every: time.Minute})
	otel.SetLogger(logr.New(sdkLog{t.Logger}))

	res, err := newResource(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("telemetry: describe this process: %w", err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	t.handler = promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(t.Logger.Handler(), slog.LevelError),
		ErrorHandling:       promhttp.ContinueOnError, // some metrics are better than none
		EnableOpenMetrics:   true,                     // only this format has exemplars; Prometheus asks for it by itself
		MaxRequestsInFlight: 4,
		Timeout:             10 * time.Second,
	})
	target := newCollector(o)
	if target.unsupported != "" {
		t.Logger.Warn("telemetry is sent as OTLP over HTTP; the protocol asked for is not supported", "protocol", target.unsupported)
	}
	meters, err := newMeterProvider(ctx, res, registry, target)
	if err != nil {
		return nil, fmt.Errorf("telemetry: set up metrics: %w", err)
	}
	t.MeterProvider = meters
	t.shutdown = append(t.shutdown, meters.Shutdown)
	tracers, flush, err := newTracerProvider(ctx, res, target)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("telemetry: set up traces: %w", err), t.Shutdown(ctx))
	}
	t.TracerProvider, t.Recording, t.Collected = tracers, flush != nil, target.traces
	if flush != nil {
		t.shutdown = append(t.shutdown, flush)
	}
	return t, nil
}

// LastError returns what was logged last as an error, in one sentence with its cause, and when; zeros where nothing was.
func (t *Telemetry) LastError() (text string, at time.Time) { return t.worst.get() }

// Handler serves the metrics in Prometheus' format.
func (t *Telemetry) Handler() http.Handler { return t.handler }

// Shutdown sends what is waiting and stops. It returns when ctx ends, and after
// 5 s at the latest; what could not be sent by then is lost, and the error says
// so. Calls after the first do nothing. What is logged later is written at once.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	t.log.Direct()
	ctx, cancel := context.WithTimeout(ctx, shutdownBound)
	defer cancel()
	steps := t.shutdown
	t.shutdown = nil
	done := make(chan error, 1)
	go func() {
		errs := make([]error, len(steps))
		var wg sync.WaitGroup
		for i, step := range steps {
			wg.Go(func() { errs[i] = step(ctx) })
		}
		wg.Wait()
		done <- errors.Join(errs...)
	}()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("telemetry: flush: %w", err)
		}
		return nil
	case <-ctx.Done(): // an exporter may be slow to notice
		return fmt.Errorf("telemetry: flush: %w", ctx.Err())
	}
}

// newResource names this process. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES
// win over what we say.
func newResource(ctx context.Context, o Options) (*resource.Resource, error) {
	return resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(
			attribute.String("service.name", "pushlease"),
			attribute.String("service.version", o.Version),
			attribute.String("service.instance.id", o.Instance),
		),
		resource.WithFromEnv(),
	)
}
