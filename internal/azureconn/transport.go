package azureconn

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pushlease/pushlease/internal/tcp"
)

const (
	// idleTimeout is shorter than what the services and load balancers before them allow an idle connection, so that
	// ours closes first: a request on a connection that just closed at the other end has an unknown outcome.
	idleTimeout = 45 * time.Second
	// userTimeout ends a connection whose bytes storage's system does not acknowledge, half of a try's time.
	userTimeout = 5 * time.Second
	// dialTimeout is as long as a try.
	dialTimeout = 10 * time.Second
	// purgeEvery is how often idle connections are closed at most: where storage is only slow, each request that it does not answer in
	// time would cost the others a handshake. What was forgotten is closed with the first one.
	purgeEvery = 10 * time.Second
)

// Transport sends the requests to one service over connections that it keeps.
type Transport struct {
	*http.Transport
	purges *purges
}

// purges says when idle connections may be closed. Safe for concurrent use.
type purges struct {
	every time.Duration

	mu   sync.Mutex
	last time.Time
}

func (p *purges) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.last.IsZero() && time.Since(p.last) < p.every {
		return false
	}
	p.last = time.Now()
	return true
}

// NewTransport makes one that keeps as many idle connections.
func NewTransport(idle int) Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: dialTimeout, Control: func(_, _ string, raw syscall.RawConn) error {
		tcp.SetUserTimeout(raw, userTimeout)
		return nil
	}}).DialContext
	t.MaxIdleConns = 0 // no bound of its own: there is one host
	t.MaxIdleConnsPerHost = idle
	t.IdleConnTimeout = idleTimeout
	// The services speak HTTP/1.1, and net/http's HTTP/2 repeats requests by rules of its own.
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	return Transport{t, &purges{every: purgeEvery}}
}

// RoundTrip sends a request. Where it gets no answer in time on a connection that was used before, a middle may have
// forgotten that, and all others with it: the idle ones are closed, so that the next request does not lose its time on one of them.
func (t Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	var reused atomic.Bool
	ctx := httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { reused.Store(c.Reused) }})
	res, err := t.Transport.RoundTrip(req.WithContext(ctx))
	var network net.Error
	if err != nil && reused.Load() && (errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) && network.Timeout()) && t.purges.begin() {
		t.CloseIdleConnections()
	}
	return res, err
}
