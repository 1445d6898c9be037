package api

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/pushlease/pushlease/api/internal/web"
)

type onlyProbesKey struct{}

// OnlyProbes marks the requests of a caller who came when all connections were at work:
// only /healthz and /readyz are answered, so that nobody takes the process for dead.
func OnlyProbes(ctx context.Context) context.Context {
	return context.WithValue(ctx, onlyProbesKey{}, true)
}

// tooManyCallers is the answer to all else.
func tooManyCallers() *web.Problem {
	return web.NewProblem(web.TooManyConnections,
		"All connections that the API takes are at work. Send the request again in a moment, over a connection that is kept.")
}

// handler handles a request; an error becomes a problem.
type handler func(w http.ResponseWriter, r *http.Request) error

// open serves h to anybody.
func (a *API) open(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			web.Unread(w, r)
		}
		if err := h(w, r); err != nil {
			web.Unread(w, r)
			web.NoteOf(r).Err = err
			web.WriteProblem(w, r, err)
		}
	}
}

// allow serves h to callers with the scope.
func (a *API) allow(s Scope, h handler) http.HandlerFunc {
	return a.open(func(w http.ResponseWriter, r *http.Request) error {
		if r.Context().Value(onlyProbesKey{}) != nil {
			return tooManyCallers()
		}
		if err := a.authorize(r, s); err != nil {
			return err
		}
		if s != scopeAnyone {
			r = a.traced(r)
		}
		return h(w, r)
	})
}

// observe gives each request an id, sets the headers that every answer has, turns
// a panic into a problem, and writes one log line. That line has the route
// pattern, never the URL: paths and queries can hold what must not be logged.
func (a *API) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		n := &web.Note{ID: strings.ToLower(rand.Text())}
		r = r.WithContext(context.WithValue(r.Context(), web.NoteKey{}, n))
		ww := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		ww.Header().Set("X-Request-Id", n.ID)
		ww.Header().Set("X-Content-Type-Options", "nosniff")
		ww.Header().Set("Cache-Control", "no-store")
		ww.Header().Set("Cross-Origin-Resource-Policy", "same-origin")
		defer func() {
			if v := recover(); v != nil {
				if v == http.ErrAbortHandler { //nolint:errorlint // net/http compares the panic value too
					panic(v)
				}
				n.Err = &panicError{value: v, stack: debug.Stack()}
				if ww.Status() == 0 {
					web.WriteProblem(ww, r, n.Err)
				}
			}
			a.logRequest(r, n, ww.Status(), time.Since(start))
		}()
		next.ServeHTTP(ww, r)
	})
}

// countRequest counts n requests on the route's pattern; none make the series.
func (a *API) countRequest(method, route string, status int, n int64) {
	a.requests.Add(context.Background(), n, metric.WithAttributes(attribute.String("method", method),
		attribute.String("route", route), attribute.String("status", fmt.Sprintf("%dxx", status/100))))
}

func (a *API) logRequest(r *http.Request, n *web.Note, status int, took time.Duration) {
	route := chi.RouteContext(r.Context()).RoutePattern()
	known := route
	if known == "" {
		known = "none" // a path that nothing is served on
	}
	a.countRequest(logMethod(r.Method), known, status, 1)
	endSpan(n, logMethod(r.Method), known, status)
	level := slog.LevelInfo
	switch {
	case errors.Is(r.Context().Err(), context.Canceled): // the caller has gone: what failed then is no news
	case status >= 500 && route != "/readyz":
		level = slog.LevelError
	case route == "/healthz" || route == "/readyz" || route == "/metrics":
		level = slog.LevelDebug
	}
	attrs := []slog.Attr{
		slog.String("method", logMethod(r.Method)),
		slog.String("route", route),
		slog.Int("status", status),
		slog.Duration("duration", took),
		slog.String("request_id", n.ID),
	}
	if n.Key != "" {
		attrs = append(attrs, slog.String("api_key", n.Key))
	}
	if n.Err != nil && status >= 500 { // what a 4xx says can be the caller's own words
		attrs = append(attrs, slog.String("error", n.Err.Error()))
	}
	var p *panicError
	if errors.As(n.Err, &p) {
		attrs = append(attrs, slog.String("stack", string(p.stack)))
	}
	a.Logger.LogAttrs(r.Context(), level, "http request", attrs...)
}

// logMethod keeps a made-up method out of the log.
func logMethod(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPatch, http.MethodDelete, http.MethodPut, http.MethodOptions:
		return m
	}
	return "other"
}

// panicError is a panic that was caught. Its text is the value only when the
// runtime made it: others can hold what a request brought.
type panicError struct {
	value any
	stack []byte
}

func (p *panicError) Error() string {
	if err, ok := p.value.(runtime.Error); ok {
		return "panic: " + err.Error()
	}
	return fmt.Sprintf("panic with a %T", p.value)
}
