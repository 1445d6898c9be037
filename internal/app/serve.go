package app

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/pushlease/pushlease/api"
)

// door is where the API's callers come in, on a socket of this process's own.
type door struct {
	listener net.Listener
	server   *http.Server
	log      *slog.Logger
}

// openDoor comes before storage is opened: a second server started by mistake should
// leave nothing behind.
func openDoor(ctx context.Context, at string, listen func(context.Context, string, string) (net.Listener, error), log *slog.Logger) (*door, error) {
	if listen == nil {
		listen = (&net.ListenConfig{}).Listen
	}
	listener, err := listen(ctx, "tcp", at)
	if err != nil {
		return nil, fmt.Errorf("setting listen: %w (is another process on that port? choose another with --listen)", err)
	}
	return &door{listener: listener, server: newServer(nil, log), log: log}, nil
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

// close lets go of the socket, which the server does first where it serves.
func (d *door) close(context.Context) error { _ = d.listener.Close(); return nil }

// serve lets callers in to the handler until stop.
func (d *door) serve(handler http.Handler) error {
	d.server.Handler = handler
	connections := &callers{Listener: d.listener}
	d.server.ConnState, d.server.ConnContext = connections.changed, connections.mark
	return d.server.Serve(connections)
}

// front is what stands before the API on this process's own socket.
func front(next http.Handler, draining *atomic.Bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		if onlyProbes(ctx) {
			w.Header().Set("Connection", "close")
			r = r.WithContext(api.OnlyProbes(ctx))
		}
		if draining.Load() { // the next request should go to another instance
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// stop ends the API: first /readyz says so, and requests are served on while load
// balancers have not noticed; then no new ones are taken, and those under way are finished.
func (d *door) stop(ctx context.Context, delay, drain time.Duration) {
	linger := time.NewTimer(delay)
	defer linger.Stop()
	<-linger.C
	ctx, cancel := context.WithTimeout(ctx, drain)
	defer cancel()
	if err := d.server.Shutdown(ctx); err != nil {
		d.log.Warn("requests in progress were cut short", "error", err)
		_ = d.server.Close() // Shutdown already said what is wrong
	}
}
