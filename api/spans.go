package api

import (
	"net/http"
	"strings"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// traced gives each request of the API a span, a child of the caller's where it names one. The page's files, probes
// and the stream, which lasts for hours, have none. Metrics of otelhttp are off: a.requests counts.
func (a *API) traced(next http.Handler) http.Handler {
	if a.TracerProvider == nil {
		return next
	}
	return otelhttp.NewMiddleware("api",
		otelhttp.WithTracerProvider(a.TracerProvider),
		otelhttp.WithMeterProvider(noop.NewMeterProvider()),
		otelhttp.WithPropagators(propagation.TraceContext{}),
		otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string { return logMethod(r.Method) }),
		otelhttp.WithFilter(func(r *http.Request) bool {
			return strings.HasPrefix(r.URL.Path, "/api/") && r.URL.Path != "/api/v1/stream"
		}),
	)(next)
}

// describe names the span of a request by its route. Neither the name nor url.path has what a caller may have written
// into the path by mistake.
func describe(span trace.Span, method, route, requestID, key string) {
	if !span.IsRecording() {
		return
	}
	span.SetName(method + " " + route)
	span.SetAttributes(semconv.HTTPRoute(route), semconv.URLPath(route), attribute.String("request.id", requestID))
	if key != "" {
		span.SetAttributes(attribute.String("api_key", key))
	}
}
