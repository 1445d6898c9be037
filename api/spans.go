package api

import (
	"net/http"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/webhook/content"
)

// traced begins the span of a request whose caller was let in by a scope, a child of the caller's where it names one: strangers make
// none. Metrics and the stream, which lasts for hours, have none either. endSpan ends it.
func (a *API) traced(r *http.Request) *http.Request {
	if a.Tracer == nil || !strings.HasPrefix(r.URL.Path, "/api/") || r.URL.Path == "/api/v1/stream" {
		return r
	}
	ctx := r.Context()
	if parents := r.Header.Values("Traceparent"); len(parents) == 1 {
		ctx = trace.ContextWithRemoteSpanContext(ctx, content.ParentOf(parents[0], strings.Join(r.Header.Values("Tracestate"), ",")))
	}
	ctx, span := a.Tracer.Start(ctx, logMethod(r.Method), trace.WithSpanKind(trace.SpanKindServer))
	web.NoteOf(r).Span = span
	return r.WithContext(ctx)
}

// endSpan describes the request by its route: what a caller may have written into path, query and headers is nowhere.
func endSpan(n *web.Note, method, route string, status int) {
	if n.Span == nil {
		return
	}
	defer n.Span.End()
	n.Span.SetName(method + " " + route)
	n.Span.SetAttributes(
		semconv.HTTPRequestMethodKey.String(method), semconv.HTTPRoute(route), semconv.HTTPResponseStatusCode(status), attribute.String("request.id", n.ID),
	)
	if n.Key != "" {
		n.Span.SetAttributes(attribute.String("api_key", n.Key))
	}
	if status >= http.StatusInternalServerError {
		n.Span.SetStatus(codes.Error, "")
		n.Span.SetAttributes(semconv.ErrorTypeKey.String(strconv.Itoa(status)))
	}
}
