package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// pingAfter and pingWithin end an HTTP/2 connection that has died in silence.
	pingAfter  = 3 * time.Second
	pingWithin = 4 * time.Second
	// stillness is the longest time for which nothing comes on a connection that works, while an answer is waited for: a ping goes out
	// after pingAfter, and its answer is there well within the rest.
	stillness = pingAfter + 1500*time.Millisecond
	// sharedBytes is how much of request bodies may be under way on one connection while
	// further ones can be opened: they all share one window.
	sharedBytes = 256 << 10
	maxShared   = 16
	// windowBytes is about what a receiver takes of all bodies on a connection before it says that it takes more,
	// and oneFrame of a body at once.
	windowBytes = 60 << 10
	oneFrame    = 16 << 10
	// unreadStream and unread are how much of answers a receiver may send that nobody has read, in one of them and in
	// all on a connection: net/http alone takes 4 MiB and 1 GiB.
	unreadStream = 128 << 10
	unread       = 2 << 20
)

// newH2 makes what http.ClientConns are made by; it has no connections of its own.
func newH2() *http.Transport {
	return &http.Transport{
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return ctx.Value(streamKey{}).(*tls.Conn), nil
		},
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHead,
		IdleConnTimeout:        maxIdleTime,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: pingAfter, PingTimeout: pingWithin,
			MaxReceiveBufferPerStream: unreadStream, MaxReceiveBufferPerConnection: unread,
		},
	}
}

// streamKey is for the one connection that a ClientConn is made of.
type streamKey struct{}

// h2conn is one HTTP/2 connection, which many exchanges share.
type h2conn struct {
	t      *Transport
	host   *host
	client *http.ClientConn
	secure *Handshake
	wire   *wire
	born   time.Time

	// Under the transport's lock.
	used     time.Time // when it last answered
	answers  int       // and other signs of life
	inFlight int       // requests without an answer
	woke     time.Time // when the first of them found the connection idle
	wokeWith int       // answers until then

	bytes   atomic.Int64 // of bodies whose answer has not begun
	retired atomic.Bool
}

// share makes an HTTP/2 connection known to all, with an exchange begun on it.
func (t *Transport) share(ctx context.Context, h *host, w *wire, stream *tls.Conn, shaken *Handshake) (connection, error) {
	w.secure, w.shared = false, true // it is never looked at
	client, err := t.h2.NewClientConn(context.WithValue(ctx, streamKey{}, stream), "https", h.address)
	if err == nil {
		err = client.Reserve()
	}
	if err != nil {
		_ = stream.Close()
		return nil, &Error{Stage: Handshaking, Cause: err, Secure: shaken}
	}
	c := &h2conn{t: t, host: h, client: client, secure: shaken, wire: w, born: time.Now()}
	client.SetStateHook(func(*http.ClientConn) { c.finish() })
	t.mu.Lock()
	if t.closed || t.hosts[h.origin] != h { // it was forgotten meanwhile
		c.retired.Store(true)
	} else {
		h.shared = append(h.shared, c)
		t.sweepLater()
	}
	h.begin(c.born)
	t.mu.Unlock()
	return c, nil
}

// room is whether a further request should go on the connection. of is how many there are.
func (c *h2conn) room(of int) bool { return of >= maxShared || c.bytes.Load() < sharedBytes }

func (c *h2conn) proven() time.Time {
	if c.used.IsZero() {
		return c.born
	}
	return c.used
}

func (c *h2conn) release() {
	c.t.ended(c.host, time.Time{})
	c.client.Release()
	c.finish()
}

func (c *h2conn) drop() {
	c.retired.Store(true)
	c.finish()
}

// finish closes the connection when it was dropped and nothing is in flight.
func (c *h2conn) finish() {
	if c.retired.Load() && c.client.InFlight() == 0 {
		_ = c.client.Close()
	}
}

// shared is the state of one request on an h2conn. Its hooks run on net/http's goroutines.
type shared struct {
	*h2conn
	reused   bool      // the connection had answered before this request began
	woke     time.Time // as of the connection, when it began
	wokeWith int
	wrote    atomic.Int64 // when the request was written, in ns
	sent     atomic.Bool
	answered atomic.Bool
	began    time.Time
	interim  atomic.Int64
	body     *lastByte // nil where there is no more than a byte of it
}

// lastByte is a request's body that knows whether its end was asked for. Where it may be made to wait, the last
// byte is given apart: it is asked for when the others were written. That the last byte alone waits for room can't be
// known: such a request counts as one that the receiver may have.
type lastByte struct {
	io.ReadCloser
	left  int64
	apart bool
	asked atomic.Bool
}

func (b *lastByte) Read(p []byte) (int, error) {
	if b.apart && b.left > 1 {
		p = p[:min(int64(len(p)), b.left-1)]
	}
	if int64(len(p)) >= b.left {
		b.asked.Store(true)
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	return n, err
}

// begin is the state of a request that begins.
func (c *h2conn) begin(now time.Time) *shared {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	if c.inFlight == 0 {
		c.woke, c.wokeWith = now, c.answers
	}
	c.inFlight++
	return &shared{h2conn: c, reused: c.answers > 0, woke: c.woke, wokeWith: c.wokeWith, began: now}
}

// ended is about a request that has its answer, since then, or gets none.
func (c *h2conn) ended(answered time.Time) {
	c.t.mu.Lock()
	c.inFlight--
	if !answered.IsZero() {
		c.used = answered
		c.answers++
	}
	c.t.mu.Unlock()
	c.t.ended(c.host, answered)
}

// lives notes that the receiver has said something about a request, though not its answer.
func (c *h2conn) lives() {
	c.t.mu.Lock()
	c.answers++
	c.t.mu.Unlock()
}

// rested is whether the connection had been idle until this request, or those with which it
// is under way, and has answered nothing since, so that it may have ended before them all.
func (x *shared) rested() bool {
	x.t.mu.Lock()
	defer x.t.mu.Unlock()
	return x.reused && x.answers == x.wokeWith && time.Since(x.woke) < repeatable
}

// alive is whether anything came on the connection since the request was written, and of late: a ping
// is answered by one that works, whatever becomes of the request. One that a middle forgot at its work (C89) carried
// answers to others just before.
func (x *shared) alive(began time.Time) bool {
	since := x.wrote.Load()
	if since == 0 {
		since = began.UnixNano()
	}
	heard := x.wire.heard.Load()
	return heard > since && time.Since(time.Unix(0, heard)) < stillness
}

func (c *h2conn) exchange(r *http.Request, now, deadline time.Time) (*http.Response, error) {
	ctx, stop := context.WithCancelCause(r.Context())
	var clock *time.Timer
	if !deadline.IsZero() {
		clock = time.AfterFunc(time.Until(deadline), func() { stop(errLate) })
	}
	x := c.begin(now)
	length := max(r.ContentLength, 0)
	under := c.bytes.Add(length)
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteHeaders:         func() { x.sent.Store(true) },
		WroteRequest:         x.wroteRequest,
		GotFirstResponseByte: func() { x.answered.Store(true) },
		Got1xxResponse:       x.got1xx,
	})
	request := r.WithContext(traced)
	if length > 1 {
		x.body = &lastByte{ReadCloser: r.Body, left: length, apart: length > oneFrame || under > windowBytes}
		request.Body = x.body
	}
	response, err := c.client.RoundTrip(request)
	c.bytes.Add(-length)
	end := func() {
		if clock != nil {
			clock.Stop()
		}
		stop(nil)
	}
	if err == nil && response.StatusCode < 200 {
		_ = response.Body.Close()
		err = ErrNotFinal
	}
	if err != nil {
		cause := context.Cause(ctx)
		end()
		failed := x.failed(r, err, cause, now)
		if errors.As(err, new(StreamError)) {
			c.lives()
		}
		c.ended(time.Time{})
		return nil, failed
	}
	answered := time.Now()
	c.ended(answered)
	if by := bodyDeadline(ctx, response.StatusCode, answered, deadline); by != deadline {
		if clock != nil {
			clock.Stop()
		}
		clock = time.AfterFunc(time.Until(by), func() { stop(errLate) })
	}
	response.Body = &streamBody{ReadCloser: response.Body, end: end}
	return response, nil
}

func (x *shared) wroteRequest(info httptrace.WroteRequestInfo) {
	if info.Err == nil {
		x.wrote.CompareAndSwap(0, time.Now().UnixNano())
	}
}

// got1xx can't slow a flood down: the goroutine that reads serves other requests too. As many are taken as HTTP/1.1 reads
// in the time.
func (x *shared) got1xx(int, textproto.MIMEHeader) error {
	x.lives()
	if x.answered.Store(true); x.interim.Add(1) > freeInterim+int64(time.Since(x.began)/interimPause) {
		return ErrFlood
	}
	return nil
}

// speakPlainly has a host spoken to over HTTP/1.1 for a while, and for twice as long each time that HTTP/2 has failed anew.
func (t *Transport) speakPlainly(h *host) {
	t.mu.Lock()
	if now := time.Now(); !now.Before(h.plain) { // the first of those on the connection
		h.plainFor = min(max(plain, 2*h.plainFor), plainMax)
		h.plain = now.Add(h.plainFor)
	}
	h.only1 = false
	drop := t.remove(h, func(*conn) bool { return false }, func(*h2conn) bool { return true })
	t.mu.Unlock()
	dropAll(drop)
}

// failed makes the error of an exchange.
func (x *shared) failed(r *http.Request, err, cause error, began time.Time) error {
	if ended := context.Cause(r.Context()); ended != nil {
		return ended
	}
	e := &Error{
		Stage: Exchanging, Cause: err, HTTP2: true, Reused: x.reused, Rested: x.rested(), Alive: x.alive(began),
		Sent: x.sent.Load(), Answered: x.answered.Load(), Late: errors.Is(cause, errLate), Secure: x.secure,
	}
	if wrote := x.wrote.Load(); wrote != 0 {
		e.Whole, e.After = true, time.Since(time.Unix(0, wrote))
	}
	e.Cut = x.body != nil && !x.body.asked.Load()
	switch {
	case e.Late && e.Stale():
		x.t.retire(x.host, began, x.h2conn)
	case e.Late && !e.Alive: // evidence against the receiver, but no connection for the next one
		x.t.retire(x.host, x.born, x.h2conn)
	case e.Late:
	case wants1(err):
		x.t.speakPlainly(x.host)
		e.Unprocessed, e.WantsHTTP1 = true, true
	case flooded(err):
		e.Cause = ErrFlood
	case malformed(err):
		x.t.speakPlainly(x.host)
		e.Cause = ErrMalformed2
	default:
		e.Unprocessed = unprocessed(err)
	}
	return e
}

// streamBody ends the exchange's clock with the body.
type streamBody struct {
	io.ReadCloser
	end func()
}

func (b *streamBody) Close() error {
	err := b.ReadCloser.Close()
	b.end()
	return err
}

// What net/http's HTTP/2 says in the texts of errors; it exports none of them.
const (
	h2GoAway   = "http2: Transport received Server's graceful shutdown GOAWAY"
	h2Unusable = "http2: client conn not usable"
	// h2Refused is about the first request of a connection, where GOAWAY names a fault and a
	// lower last stream. Behind it is the code.
	h2Refused = "http2: Transport received GOAWAY from server ErrCode:"
	h2Closed  = "http2: server sent GOAWAY and closed the connection; "
	h2Lost    = "http2: client connection lost" // a ping had no answer
	h2Debug   = ", debug="
	h2Peer    = "received from peer" // the cause of a reset that the receiver sent
	h2Own     = "connection error: " // of one that net/http ended for what came on it
)

// codes are those of RFC 9113, section 7.
var codes = [...]string{
	"NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED",
	"FRAME_SIZE_ERROR", "REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM",
	"INADEQUATE_SECURITY", wantsHTTP1,
}

const (
	codeRefused   = 7
	codeWantsHTTP = 13
	wantsHTTP1    = "HTTP_1_1_REQUIRED"
)

// StreamError is how net/http's HTTP/2 reports that a stream was ended (see its As).
type StreamError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (e StreamError) Error() string { return "the stream was reset with " + e.Name() }

// Name is the RFC's name of the code.
func (e StreamError) Name() string {
	if int(e.Code) < len(codes) {
		return codes[e.Code]
	}
	return "an unknown code"
}

// unprocessed is whether HTTP/2 guarantees that the receiver did not begin with the
// request: GOAWAY with a lower last stream, whatever its code, REFUSED_STREAM, or a connection that took no
// further stream. Texts that a receiver could write are not looked at.
func unprocessed(err error) bool {
	var stream StreamError
	if errors.As(err, &stream) {
		return stream.Code == codeRefused
	}
	text := err.Error()
	return strings.HasPrefix(text, h2GoAway) || strings.HasPrefix(text, h2Unusable) || strings.HasPrefix(text, h2Refused)
}

// GoAwayCode is the code of the GOAWAY by which the receiver took no request at all, or "".
func (e *Error) GoAwayCode() string {
	if code, ok := strings.CutPrefix(e.Cause.Error(), h2Refused); ok && e.HTTP2 {
		return code
	}
	return ""
}

// flooded is whether got1xx ended the stream.
func flooded(err error) bool {
	var stream StreamError
	return errors.As(err, &stream) && errors.Is(stream.Cause, ErrFlood)
}

// malformed is whether net/http ended the stream, or the connection, for what the receiver sent on it: a field of a head
// that RFC 9113 does not allow, a head that is too large. It does not tell the status then, though HTTP/1.1's counts at its line.
func malformed(err error) bool {
	var stream StreamError
	if errors.As(err, &stream) {
		return stream.Cause == nil || stream.Cause.Error() != h2Peer
	}
	return strings.HasPrefix(err.Error(), h2Own)
}

// wants1 is whether the receiver asks for HTTP/1.1. It has processed nothing then.
func wants1(err error) bool {
	var stream StreamError
	if errors.As(err, &stream) {
		return stream.Code == codeWantsHTTP
	}
	if err.Error() == h2Refused+wantsHTTP1 {
		return true
	}
	own, _, _ := strings.Cut(err.Error(), h2Debug) // behind it is the receiver's text
	return strings.HasPrefix(own, h2Closed) && strings.HasSuffix(own, "ErrCode="+wantsHTTP1)
}
