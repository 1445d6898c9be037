package transport

import (
	"context"
	"crypto/tls"
	"net"
	"time"
)

// flight is a connection that is being opened for all who need one to the host.
type flight struct {
	done chan struct{}
	// err is why there is none; nil also when the one who opened it gave up.
	err error
}

// open gives a new connection on which an exchange has begun. While it is not known that a
// host speaks HTTP/1.1, one is opened at a time: with HTTP/2, all can share it.
func (t *Transport) open(ctx context.Context, h *host, limits *Limits) (connection, error) {
	outer := ctx
	if by := limits.deadline(limits.Start); !by.IsZero() {
		var stop context.CancelFunc
		ctx, stop = context.WithDeadlineCause(ctx, by, errLate)
		defer stop()
	}
	for {
		f, mine := t.board(h, limits.Fresh)
		if mine {
			c, err := t.dial(ctx, h)
			t.land(ctx, h, f, err)
			return c, openFailed(outer, ctx, err)
		}
		select {
		case <-f.done:
		case <-ctx.Done():
			return nil, openFailed(outer, ctx, &Error{Stage: Connecting, Cause: errLate})
		}
		if f.err != nil {
			return nil, f.err
		}
		if c, _, _ := t.take(ctx, h, limits); c != nil {
			return c, nil
		}
	}
}

// board is whether the caller has to open a connection, and otherwise who does.
func (t *Transport) board(h *host, fresh bool) (f *flight, mine bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case h.scheme == "http", h.only1, fresh, t.hosts[h.origin] != h: // what is opened for a forgotten one is shared with nobody
		return nil, true
	case h.flight == nil:
		h.flight = &flight{done: make(chan struct{})}
		return h.flight, true
	}
	return h.flight, false
}

// land tells those who wait for a connection.
func (t *Transport) land(ctx context.Context, h *host, f *flight, err error) {
	if f == nil {
		return
	}
	t.mu.Lock()
	h.flight = nil
	t.mu.Unlock()
	if ctx.Err() == nil {
		f.err = err
	}
	close(f.done)
}

// openFailed is the error for one request; its context, or its time, may have been what ended.
func openFailed(outer, ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case outer.Err() != nil:
		return context.Cause(outer)
	}
	e := *err.(*Error) //nolint:errorlint // dial returns no other
	e.Late = ctx.Err() != nil
	return &e
}

// dial opens a connection on which an exchange has begun. Its error is an *Error.
func (t *Transport) dial(ctx context.Context, h *host) (connection, error) {
	raw, err := t.config.Dial(ctx, h.scheme, h.address)
	if err != nil {
		return nil, &Error{Stage: Connecting, Cause: err}
	}
	w := newWire(raw)
	if h.scheme == "http" {
		return t.began(newConn(t, h, w, w, nil, time.Now())), nil
	}
	config, shaken := t.config.TLS, &Handshake{}
	if h.identity != nil {
		config = h.identity.TLS
	}
	config = config.Clone()
	if config.ServerName == "" { // the name stays the name, whichever address was dialled
		config.ServerName, _, _ = net.SplitHostPort(h.address)
	}
	config.NextProtos = t.protocols(h)
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		shaken.AskedCertificate = true
		if len(config.Certificates) == 0 {
			return &tls.Certificate{}, nil
		}
		shaken.SentCertificate = true // whatever it says of authorities, so that it can tell what is wrong
		return &config.Certificates[0], nil
	}
	stream := tls.Client(w, config)
	w.secure = true
	if err := stream.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		t.mu.Lock()
		h.plain, h.plainFor = time.Time{}, 0 // it may speak HTTP/2 alone
		t.mu.Unlock()
		return nil, &Error{Stage: Handshaking, Cause: err, Secure: shaken}
	}
	if stream.ConnectionState().NegotiatedProtocol == "h2" {
		return t.share(ctx, h, w, stream, shaken)
	}
	t.mu.Lock()
	h.only1 = true
	t.mu.Unlock()
	return t.began(newConn(t, h, w, stream, shaken, time.Now())), nil
}

// began counts the exchange that begins on a new connection.
func (t *Transport) began(c *conn) connection {
	t.mu.Lock()
	c.host.begin(c.born)
	t.mu.Unlock()
	return c
}

// protocols are what is offered to the host.
func (t *Transport) protocols(h *host) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h.http1 || time.Now().Before(h.plain) {
		return []string{"http/1.1"}
	}
	return []string{"h2", "http/1.1"}
}
