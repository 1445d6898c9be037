package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"
)

// Config is what a Transport stands on. All of it is required.
type Config struct {
	// Dial opens a connection to host:port for URLs of the scheme. Its errors are passed on within an *Error.
	Dial func(ctx context.Context, scheme, address string) (net.Conn, error)
	// KeepOld is for how long connections that are old go on, from the first time that none
	// could be opened in their place, for which err is the newest reason.
	KeepOld func(err error) time.Duration
	// TLS is the configuration of handshakes. Its NextProtos are the transport's.
	TLS *tls.Config
}

// Limits bound one request. They travel with its context, as httptrace's hooks do.
type Limits struct {
	// Start is when the attempt began, and Timeout how long a connection may take from then,
	// and again how long the exchange may take from when the connection is there.
	Start   time.Time
	Timeout time.Duration
	// Until ends all of it, unless it is zero.
	Until time.Time
	// Fresh is whether a new connection has to be opened. It is for this request alone, unless
	// it can be shared: what made it necessary may be about to happen again.
	Fresh bool
	// Begin is asked right before the first byte of the request is written, unless it is nil. Where it
	// says no, nothing is.
	Begin func() bool
	// WholeBody is whether the answer's body counts as much as its status: it may take as long as the exchange may.
	WholeBody bool
	// HTTP1 is whether HTTP/2 is not offered. Connections are not shared with requests that
	// do offer it.
	HTTP1 bool
	// Identity is who is behind the connection; nil is anybody.
	Identity *Identity
}

// Identity is who a receiver sees behind a connection. Connections are shared by requests of one identity alone.
type Identity struct {
	// TLS takes the place of the configuration's. Its ServerName may be empty: then it is the host's.
	TLS *tls.Config
}

// LimitsKey is under what a context has its *Limits.
type LimitsKey struct{}

// WithLimits bounds the requests under the context.
func WithLimits(ctx context.Context, l *Limits) context.Context {
	return context.WithValue(ctx, LimitsKey{}, l)
}

// LimitsOf gives the limits of a context, or none.
func LimitsOf(ctx context.Context) Limits {
	if l, ok := ctx.Value(LimitsKey{}).(*Limits); ok {
		return *l
	}
	return Limits{}
}

// deadline is when what begins at now has to be over; zero means never.
func (l *Limits) deadline(now time.Time) time.Time {
	if l.Timeout <= 0 {
		return l.Until
	}
	by := now.Add(l.Timeout)
	if !l.Until.IsZero() && l.Until.Before(by) {
		return l.Until
	}
	return by
}

// Transport is an http.RoundTripper, safe for concurrent use. Its errors are *Error, or the
// cause why the request's context ended. It has no CloseIdleConnections: go-retryablehttp
// would call that after each failure of anyone.
type Transport struct {
	config Config
	h2     *http.Transport
	life   context.Context // of what is opened in the place of old connections
	end    context.CancelFunc
	work   sync.WaitGroup

	mu       sync.Mutex
	hosts    map[origin]*host
	idle     int
	sweeper  *time.Timer
	sweeping bool
	closed   bool
}

// New makes a Transport. Close it when the last request has ended.
func New(config Config) *Transport {
	t := &Transport{config: config, hosts: map[origin]*host{}, h2: newH2()}
	t.life, t.end = context.WithCancel(context.Background())
	return t
}

// Close closes all connections that are idle. No request may be in progress.
func (t *Transport) Close() {
	t.end()
	var drop []connection
	t.mu.Lock()
	t.closed = true
	if t.sweeper != nil {
		t.sweeper.Stop()
	}
	for _, h := range t.hosts {
		drop = append(drop, t.remove(h, func(*conn) bool { return true }, func(*h2conn) bool { return true })...)
	}
	t.mu.Unlock()
	dropAll(drop)
	t.work.Wait()
}

// Forget closes the connections of an identity that are idle, and those in use when their exchange has ended.
func (t *Transport) Forget(id *Identity) {
	var drop []connection
	t.mu.Lock()
	for o, h := range t.hosts {
		if o.identity == id {
			drop = append(drop, t.remove(h, func(*conn) bool { return true }, func(*h2conn) bool { return true })...)
			delete(t.hosts, o)
		}
	}
	t.mu.Unlock()
	dropAll(drop)
}

// RoundTrip makes one exchange. Nothing is ever sent twice.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	c, now, deadline, err := t.connection(r)
	if begin := LimitsOf(r.Context()).Begin; err == nil && begin != nil && !begin() {
		c.release()
		err = &Error{Stage: Connecting, Cause: ErrNotBegun}
	}
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	return c.exchange(r, now, deadline)
}

// connection gives one for the request, on which its exchange has begun.
func (t *Transport) connection(r *http.Request) (c connection, now, deadline time.Time, err error) {
	if err := validate(r); err != nil {
		return nil, now, deadline, &Error{Stage: Request, Cause: err}
	}
	ctx, limits := r.Context(), LimitsOf(r.Context())
	if ctx.Err() != nil {
		return nil, now, deadline, context.Cause(ctx)
	}
	h := t.hostOf(origin{r.URL.Scheme, address(r), limits.HTTP1, limits.Identity})
	if !limits.Fresh {
		if c, now, deadline = t.take(ctx, h, &limits); c != nil {
			return c, now, deadline, nil
		}
	}
	if c, err = t.open(ctx, h, &limits); err != nil {
		return nil, now, deadline, err
	}
	now = time.Now()
	deadline = limits.deadline(now)
	if fair := limits.deadline(limits.Start).Sub(limits.Start) / 2; deadline.Sub(now) < fair && fair > 0 {
		c.release()
		return nil, now, deadline, &Error{Stage: Connecting, Cause: ErrTooLate}
	}
	if one, exclusive := c.(*conn); exclusive {
		one.once = limits.Fresh
		one.wire.until(deadline)
		if !t.proven(h) {
			pause(ctx, firstWords)
		}
		if err = one.silent(); err == nil && ctx.Err() != nil { // nothing is sent by somebody who has gone
			c.release()
			return nil, now, deadline, context.Cause(ctx)
		}
	}
	return c, now, deadline, err
}

// validate refuses what http.Request.Write would write although it is not HTTP.
func validate(r *http.Request) error {
	switch {
	case r.URL == nil || r.URL.Host == "" || r.URL.Scheme != "http" && r.URL.Scheme != "https":
		return errors.New("the request has no address over http or https")
	case !httpguts.ValidHeaderFieldName(r.Method): // a method is a token, too
		return errors.New("the request's method is not valid")
	}
	for name, values := range r.Header {
		if !httpguts.ValidHeaderFieldName(name) {
			return errors.New("the name of a header is not valid")
		}
		for _, value := range values {
			if !httpguts.ValidHeaderFieldValue(value) {
				return errors.New("the value of a header is not valid")
			}
		}
	}
	return nil
}

// address is host:port of a request.
func address(r *http.Request) string {
	port := r.URL.Port()
	switch {
	case port != "":
		return r.URL.Host
	case r.URL.Scheme == "https":
		port = "443"
	default:
		port = "80"
	}
	return net.JoinHostPort(r.URL.Hostname(), port)
}
