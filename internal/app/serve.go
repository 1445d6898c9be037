package app

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/pushlease/pushlease/api"
)

// listen comes before storage is opened: a second server started by mistake should
// leave nothing behind.
func (a *App) listen(ctx context.Context, listen func(context.Context, string, string) (net.Listener, error)) (err error) {
	if listen == nil {
		listen = (&net.ListenConfig{}).Listen
	}
	if a.listener, err = listen(ctx, "tcp", a.cfg.Listen); err != nil {
		return fmt.Errorf("setting listen: %w (is another process on that port? choose another with --listen)", err)
	}
	a.cleanups.add("listener", func(context.Context) error { _ = a.listener.Close(); return nil }) // the server closes it first
	return nil
}

// newServer bounds what a caller can hold on to: without a time to write, one that
// takes no answer would keep its connection for ever.
func newServer(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: 2 * time.Minute,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// serve serves until the server is shut down.
func (a *App) serve() error {
	connections := &callers{Listener: a.listener}
	a.server.ConnState, a.server.ConnContext = connections.changed, connections.mark
	return a.server.Serve(connections)
}

// front is what stands before the API on this process's own socket.
func (a *App) front(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		if onlyProbes(ctx) {
			w.Header().Set("Connection", "close")
			r = r.WithContext(api.OnlyProbes(ctx))
		}
		if a.draining.Load() { // the next request should go to another instance
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// stopServing ends the API: first /readyz says so, and requests are served on while load
// balancers have not noticed; then no new ones are taken, and those under way are finished.
func (a *App) stopServing(ctx context.Context) {
	linger := time.NewTimer(a.cfg.ShutdownDelay)
	defer linger.Stop()
	<-linger.C
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Drain)
	defer cancel()
	if err := a.server.Shutdown(ctx); err != nil {
		a.log.Warn("requests in progress were cut short", "error", err)
		_ = a.server.Close() // Shutdown already said what is wrong
	}
}
