package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"sync/atomic"
	"time"
)

const (
	// freeInterim is how many 1xx answers are read at full speed.
	freeInterim = 100
	// interimPause then slows them down: a flood of them costs its sender a
	// connection and us nothing, until the deadline ends it.
	interimPause = 100 * time.Millisecond
)

// exchange is the state of one Send. Its tries run one after the other.
type exchange struct {
	// ctx ends with the deadline or with the caller's context.
	ctx context.Context
	// target is the URL that is asked. The layers above know only its scheme
	// and host, so that no path or query can get into a span.
	target *url.URL
	// header is what is sent. The layers above have an empty one, since http.Client copies
	// theirs for each request; what they add to it is taken over (see headerFor).
	header http.Header
	empty  bool

	// tries counts what the retrying client asked for; starts counts all, with
	// those that net/http began again before it had written anything.
	tries  int
	starts int
	// location is the header Location of the answer.
	location string
}

// try is the state of one request to net/http. firstByte and interim are
// written by its reading goroutine, the rest before that begins to read.
type try struct {
	*exchange
	// stop ends the try alone, of a request without a body; repeated says that net/http
	// had begun to repeat it.
	stop      context.CancelFunc
	repeated  bool
	conns     int
	reused    bool
	http2     bool
	firstByte atomic.Bool
	interim   int
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	return ctx.Value(exchangeKey{}).(*exchange)
}

// again is whether a failed try may be repeated: once, and before the end.
func (x *exchange) again(f *failure) bool {
	return f.again && x.tries == 1 && x.ctx.Err() == nil
}

// headerFor is the header of one try, with what a layer above has added to carry its span.
// An earlier try's may be read by net/http still, so it is never changed after the first.
func (x *exchange) headerFor(added http.Header) http.Header {
	if len(added) == 0 {
		return x.header
	}
	header := x.header
	if x.tries > 1 {
		header = header.Clone()
	}
	for _, name := range [...]string{"Traceparent", "Tracestate"} {
		if values := added[name]; values != nil {
			header[name] = values
		}
	}
	return header
}

// link is the innermost round tripper. Whatever passes it outwards is safe to
// record: it turns errors into failures and keeps Location from the client.
type link struct {
	pool *pool
}

func (l *link) RoundTrip(r *http.Request) (*http.Response, error) {
	x := exchangeOf(r.Context())
	x.tries++
	ctx, t := r.Context(), &try{exchange: x}
	if x.empty { // it ends with the context of the exchange at the latest, after the body
		ctx, t.stop = context.WithCancel(ctx)
	}
	r = r.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn:              t.gotConn,
		GotFirstResponseByte: func() { t.firstByte.Store(true) },
		Got1xxResponse:       t.got1xx,
	}))
	r.URL, r.Header = x.target, x.headerFor(r.Header)
	// Without GetBody net/http repeats no request whose body it has touched.
	r.GetBody = nil
	transport := l.pool.current(time.Now())
	if x.tries > 1 {
		transport = l.pool.fresh
	}
	resp, err := transport.RoundTrip(r)
	x.starts += max(1, t.conns)
	if err != nil {
		return nil, t.failure(err)
	}
	x.location = resp.Header.Get("Location")
	resp.Header.Del("Location")
	resp.Body = &answerBody{resp.Body}
	return resp, nil
}

func (t *try) failure(err error) *failure {
	if t.ctx.Err() != nil {
		return ended(t.ctx)
	}
	var f *failure // from the guard or the handshake
	if errors.As(err, &f) {
		return f
	}
	if t.conns == 0 {
		return connectFailure(err)
	}
	if t.repeated {
		return &failure{class: classReset, text: "the receiver refused the request before it answered"}
	}
	return exchangeFailure(err, t.reused, t.firstByte.Load())
}

func (t *try) gotConn(info httptrace.GotConnInfo) {
	// HTTP/2 repeats a request without a body up to six times by itself, also
	// after resets that do not mean that it was not processed.
	if t.empty && t.http2 {
		t.repeated = true
		t.stop()
		return
	}
	t.conns++
	t.reused = info.Reused
	secure, ok := info.Conn.(*tls.Conn)
	t.http2 = ok && secure.ConnectionState().NegotiatedProtocol == "h2"
}

func (t *try) got1xx(int, textproto.MIMEHeader) error {
	if t.interim++; t.interim <= freeInterim {
		return nil
	}
	if t.http2 { // its reading goroutine serves other requests too
		return errFlood
	}
	pause := time.NewTimer(interimPause)
	defer pause.Stop()
	select {
	case <-pause.C:
		return nil
	case <-t.ctx.Done():
		return context.Cause(t.ctx)
	}
}

// answerBody hides the texts of errors, which can hold what the receiver sent.
type answerBody struct {
	body io.ReadCloser
}

func (b *answerBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = &failure{class: classReset, text: "the answer's body broke off"}
	}
	return n, err
}

func (b *answerBody) Close() error { return b.body.Close() }
