// Package azurestandin is a fast stand-in for the Azure queue and table services, in
// memory, for benchmarks and tests: Azurite takes about 350 messages a second, so that
// nothing faster can be measured on it.
//
// It speaks as much of the two protocols as azqueue, aztables and our adapters use, and
// enforces what they rely on: receipts, leases that end, expiry, 64 KiB a message, ETags,
// the rules of entity group transactions, pages with continuation tokens. It counts each
// request by operation, which is what the services bill, and can answer late.
//
// It does not check signatures, keeps nothing on disk, and knows only filters that join comparisons by
// "and". It throttles nobody unless SetLimits says so. Options make it a model for the simulation, with
// a clock of its own, disorder, and queues and tables that take a while to be deleted.
package azurestandin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// account and key are in the connection string; nobody checks them.
const (
	account = "standin"
	key     = "bm8gc2VjcmV0" // no secret
)

// Server is a running stand-in with one empty account. Safe for concurrent use.
type Server struct {
	model  *model
	queues queueService
	tables tableService

	latency atomic.Int64
	mu      sync.Mutex
	counts  map[string]int64

	endpoints map[string]string // by service
	servers   []*http.Server
	serving   sync.WaitGroup
}

// Start serves both services on free loopback ports. latency is how long each request
// takes before it does anything.
func Start(ctx context.Context, latency time.Duration) (*Server, error) {
	s := New(Options{Latency: latency})
	for name, handler := range map[string]http.HandlerFunc{"queue": s.serveQueue, "table": s.serveTable} {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, errors.Join(fmt.Errorf("listen: %w", err), s.Close())
		}
		s.endpoints[name] = "http://" + l.Addr().String() + "/" + account
		server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
		s.servers = append(s.servers, server)
		s.serving.Go(func() { _ = server.Serve(l) }) // it ends when it is closed
	}
	return s, nil
}

// New makes a stand-in that has no sockets: Handler is the way to it.
func New(o Options) *Server {
	m := newModel(o)
	s := &Server{model: m, counts: map[string]int64{}, endpoints: map[string]string{}}
	s.queues = queueService{model: m, queues: map[string]*storedQueue{}, deleted: map[string]time.Time{}}
	s.tables = tableService{model: m, tables: map[string]*table{}, deleted: map[string]time.Time{}}
	s.SetLatency(o.Latency)
	return s
}

// ConnectionString names both services, for the adapters.
func (s *Server) ConnectionString() string {
	return fmt.Sprintf("AccountName=%s;AccountKey=%s;QueueEndpoint=%s;TableEndpoint=%s", account, key, s.endpoints["queue"], s.endpoints["table"])
}

// SetLatency changes how long each request takes from now on.
func (s *Server) SetLatency(d time.Duration) { s.latency.Store(int64(d)) }

// SetLimits changes what is refused and what is late from now on.
func (s *Server) SetLimits(l Limits) { s.model.limits.set(l) }

// Counts are the requests since the last Reset, by "service operation": the wire's own
// names, so that a renewal and an abandon are both a "queue update".
func (s *Server) Counts() map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.counts)
}

// Reset counts from nothing again.
func (s *Server) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.counts)
}

// Close ends all connections.
func (s *Server) Close() error {
	var errs []error
	for _, server := range s.servers {
		errs = append(errs, server.Close())
	}
	s.serving.Wait()
	return errors.Join(errs...)
}

// errGone is for a caller that is gone, and needs no answer.
var errGone = errors.New("the caller is gone")

// begin counts a request, reads its body and lets the latency pass.
func (s *Server) begin(r *http.Request, service, operation string) (body []byte, err error) {
	s.mu.Lock()
	s.counts[service+" "+operation]++
	s.mu.Unlock()
	var b bytes.Buffer
	if r.ContentLength > 0 { // what it is read into at once
		b.Grow(int(min(r.ContentLength, maxRequest)) + bytes.MinRead)
	}
	if r.ContentLength != 0 {
		if _, err := b.ReadFrom(io.LimitReader(r.Body, maxRequest+1)); err != nil {
			return nil, errGone
		}
	}
	late, err := s.model.limits.request()
	if d := time.Duration(s.latency.Load()) + late; d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-r.Context().Done():
			return nil, errGone
		}
	}
	return b.Bytes(), err
}

// maxRequest is more than any request may have: a transaction has 4 MiB.
const maxRequest = 5 << 20

// refusal is an error as the services answer it.
type refusal struct {
	status int
	code   string
}

func (e *refusal) Error() string { return e.code }

var (
	errInvalid      = &refusal{http.StatusBadRequest, "InvalidInput"}
	errOutOfRange   = &refusal{http.StatusBadRequest, "OutOfRangeQueryParameterValue"}
	errNoRoute      = &refusal{http.StatusBadRequest, "InvalidUri"}
	errNotSupported = &refusal{http.StatusNotImplemented, "NotImplemented"}
)

// refusalOf is what an error is answered with.
func refusalOf(err error) *refusal {
	var r *refusal
	if errors.As(err, &r) {
		return r
	}
	return &refusal{http.StatusInternalServerError, "InternalError"}
}
