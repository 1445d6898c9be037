package telemetry

import (
	"context"
	"os"
	"strings"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// collector is where telemetry is pushed to.
type collector struct {
	// endpoint is the base URL from Options; empty leaves the address to the
	// exporters, which read the standard variables.
	endpoint string
	// metrics and traces say what is pushed at all.
	metrics, traces bool
	// unsupported is a protocol that was asked for and is not spoken here.
	unsupported string
}

// newCollector decides from Options and the standard variables.
func newCollector(o Options) collector {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return collector{}
	}
	wanted := func(signal string) bool {
		if strings.EqualFold(os.Getenv("OTEL_"+signal+"_EXPORTER"), "none") {
			return false
		}
		return o.OTLPEndpoint != "" || os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT") != ""
	}
	c := collector{endpoint: strings.TrimRight(o.OTLPEndpoint, "/"), metrics: wanted("METRICS"), traces: wanted("TRACES")}
	if p := os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"); (c.metrics || c.traces) && p != "" && !strings.HasPrefix(p, "http/") {
		c.unsupported = p
	}
	return c
}

// newTracerProvider follows the sampling decision of a message's traceparent and
// samples everything else; OTEL_TRACES_SAMPLER changes that. shutdown is nil where there
// is nothing to flush: without a collector a span is no more than its id (see identities),
// unless a sampler was asked for, which needs the SDK.
func newTracerProvider(ctx context.Context, res *resource.Resource, target collector) (p trace.TracerProvider, shutdown func(context.Context) error, err error) {
	if !target.traces && os.Getenv("OTEL_TRACES_SAMPLER") == "" {
		return identities{}, nil, nil
	}
	opts := []sdktrace.TracerProviderOption{sdktrace.WithResource(res)}
	if target.traces {
		var export []otlptracehttp.Option
		if target.endpoint != "" {
			export = append(export, otlptracehttp.WithEndpointURL(target.endpoint+"/v1/traces"))
		}
		exporter, err := otlptracehttp.New(ctx, export...)
		if err != nil {
			return nil, nil, err
		}
		opts = append(opts, sdktrace.WithBatcher(exporter))
	}
	sdk := sdktrace.NewTracerProvider(opts...)
	return sdk, sdk.Shutdown, nil
}
