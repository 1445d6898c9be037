package webhook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// maxPoolAge is how long new requests use the same pool of connections. A
	// busy connection never ends by itself, so this is what makes a change in
	// the DNS take effect; it leaves 15 s of a minute for caches.
	maxPoolAge = 45 * time.Second
	// idleTimeout is below the 60 s after which common servers and load
	// balancers close, often just as the next request arrives.
	idleTimeout = 30 * time.Second

	// readBuffer and writeBuffer are held by each connection for as long as it is open, by
	// those of POSTs that take minutes too. A request of a few hundred bytes with its headers
	// is one write, and what is longer passes them by.
	readBuffer  = 1 << 10
	writeBuffer = 2 << 10

	maxIdle        = 2048
	maxIdlePerHost = 256
	tlsSessions    = 1024
)

// pool hands out transports. It starts no goroutine of its own.
type pool struct {
	guard *guard
	tls   *tls.Config
	// fresh gives every request a connection of its own.
	fresh *http.Transport

	mu       sync.Mutex
	shared   *http.Transport
	born     time.Time
	previous *http.Transport
}

func newPool(g *guard, roots *x509.CertPool) *pool {
	p := &pool{guard: g, tls: &tls.Config{
		MinVersion:         tls.VersionTLS12,
		NextProtos:         []string{"h2", "http/1.1"},
		RootCAs:            roots,
		ClientSessionCache: tls.NewLRUClientSessionCache(tlsSessions),
	}}
	p.fresh = p.transport()
	p.fresh.DisableKeepAlives = true
	return p
}

func (p *pool) transport() *http.Transport {
	return &http.Transport{
		Proxy:                  nil, // the environment's would dial for us, unguarded
		DialContext:            p.dial,
		DialTLSContext:         p.dialTLS,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeaderRead,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdlePerHost,
		IdleConnTimeout:        idleTimeout,
		ReadBufferSize:         readBuffer,
		WriteBufferSize:        writeBuffer,
	}
}

// current gives the transport for a request that begins now. One that has
// reached its age gets no further requests; those in flight end undisturbed.
func (p *pool) current(now time.Time) *http.Transport {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shared == nil || now.Sub(p.born) >= maxPoolAge {
		if p.shared != nil {
			p.shared.CloseIdleConnections()
		}
		p.previous, p.shared, p.born = p.shared, p.transport(), now
	}
	return p.shared
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range []*http.Transport{p.previous, p.shared, p.fresh} {
		if t != nil {
			t.CloseIdleConnections()
		}
	}
}

// dial takes the context of the exchange that asked for the connection. The one
// that net/http passes has lost its deadline: a dial, and above all a stalled
// handshake, would outlive everybody who wants it.
func (p *pool) dial(ctx context.Context, _, address string) (net.Conn, error) {
	return p.guard.dial(exchangeOf(ctx).ctx, address)
}

func (p *pool) dialTLS(ctx context.Context, network, address string) (net.Conn, error) {
	raw, err := p.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	config := p.tls.Clone()
	// The name stays the name, whichever address was dialled.
	config.ServerName, _, _ = net.SplitHostPort(address)
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(exchangeOf(ctx).ctx); err != nil {
		_ = raw.Close()
		return nil, tlsFailure(err)
	}
	return conn, nil
}
