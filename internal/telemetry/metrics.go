package telemetry

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/otlptranslator"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/exemplar"
	"go.opentelemetry.io/otel/sdk/resource"
)

// seriesLimit is the most label combinations that one instrument may have; what
// goes beyond is summed up under otel_metric_overflow. It is the last line of
// defence: labels are bounded where they are set. It leaves room for the 17 reasons of dead
// letters of 500 queues: what goes beyond has no queue, so that no alert can name it.
const seriesLimit = 10_000

// secondBuckets suit whole HTTP exchanges, from a fast receiver to the longest
// timeout that a webhook may have. Instruments may ask for buckets of their own.
var secondBuckets = []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}

// httpDurations are the instruments of otelhttp whose own buckets end at 10 s.
var httpDurations = map[string]bool{"http.client.request.duration": true, "http.server.request.duration": true}

// unbounded are attributes that take a new value with every target, caller or
// message. Several are defaults of the HTTP instrumentation.
var unbounded = []attribute.Key{
	"client.address", "client.port", "server.address", "server.port", "net.host.name", "net.host.port", "net.peer.name", "net.peer.port",
	"network.local.address", "network.local.port", "network.peer.address", "network.peer.port", "peer.address", "http.host",
	"http.url", "http.target", "http.user_agent", "url.full", "url.path", "url.query", "user_agent.original",
	"message.id", "messaging.message.id", "webhook.url", "error", "error.message", "dlq.error_description",
}

// newMeterProvider reads every instrument for Prometheus, and for the collector
// if there is one.
func newMeterProvider(ctx context.Context, res *resource.Resource, registry prometheus.Registerer, target collector) (*sdkmetric.MeterProvider, error) {
	scrape, err := otelprometheus.New(
		otelprometheus.WithRegisterer(registry),
		otelprometheus.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithSuffixes),
		otelprometheus.WithoutScopeInfo(),
		otelprometheus.WithAggregationSelector(aggregation),
	)
	if err != nil {
		return nil, err
	}
	opts := []sdkmetric.Option{
		sdkmetric.WithResource(res),
		sdkmetric.WithReader(scrape),
		sdkmetric.WithView(bounded()),
		sdkmetric.WithCardinalityLimit(seriesLimit),
	}
	if !target.traces { // an exemplar names a trace that nobody has
		opts = append(opts, sdkmetric.WithExemplarFilter(exemplar.AlwaysOffFilter))
	}
	if target.metrics {
		export := []otlpmetrichttp.Option{otlpmetrichttp.WithAggregationSelector(aggregation)}
		if target.endpoint != "" {
			export = append(export, otlpmetrichttp.WithEndpointURL(target.endpoint+"/v1/metrics"))
		}
		exporter, err := otlpmetrichttp.New(ctx, export...)
		if err != nil {
			return nil, err
		}
		opts = append(opts, sdkmetric.WithReader(sdkmetric.NewPeriodicReader(exporter)))
	}
	return sdkmetric.NewMeterProvider(opts...), nil
}

// aggregation is the SDK's, but for the buckets of histograms.
func aggregation(k sdkmetric.InstrumentKind) sdkmetric.Aggregation {
	if k == sdkmetric.InstrumentKindHistogram {
		return sdkmetric.AggregationExplicitBucketHistogram{Boundaries: secondBuckets}
	}
	return sdkmetric.DefaultAggregationSelector(k)
}

// bounded is one view for all instruments: each further view that matches would
// make one more stream of the same instrument.
func bounded() sdkmetric.View {
	filter := attribute.NewDenyKeysFilter(unbounded...)
	return func(i sdkmetric.Instrument) (sdkmetric.Stream, bool) {
		s := sdkmetric.Stream{Name: i.Name, Description: i.Description, Unit: i.Unit, AttributeFilter: filter}
		if httpDurations[i.Name] {
			s.Aggregation = aggregation(sdkmetric.InstrumentKindHistogram)
		}
		return s, true
	}
}
