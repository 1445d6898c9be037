package azurequeue

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pushlease/pushlease/internal/azureconn"
)

// The operations, as Options.OnTransaction names them.
const (
	opReceive  = "receive"
	opRenew    = "renew"
	opAbandon  = "abandon"
	opComplete = "complete"
	opSend     = "send"
	opCreate   = "create"
	opDepth    = "depth"
	opPeek     = "peek"
	opList     = "list"
	opDelete   = "delete"
)

// call is what is known about one request. It travels in the context, because
// the SDK's pipeline lies between the caller and the transport.
type call struct {
	operation string
	queue     string      // its name, empty where the request is about the account
	connected atomic.Bool // a connection was there to write to
	answered  bool        // an answer's head was read
	err       error       // why there was none
	// messages are those of the answer to a receive; read is false when the SDK is to
	// read it.
	messages []received
	read     bool
}

type callKey struct{}

// callFrom returns the call that do put there: every request goes through it.
func callFrom(ctx context.Context) *call { return ctx.Value(callKey{}).(*call) }

// do runs one request of the SDK under its own deadline and translates its
// error.
func (s *Service) do(ctx context.Context, operation, queueName string, request func(context.Context) error) error {
	c := &call{operation: operation, queue: queueName}
	bounded := context.WithValue(ctx, callKey{}, c)
	if end, known := ctx.Deadline(); !known || time.Until(end) > s.timeout {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(bounded, s.timeout)
		defer cancel()
	}
	err := request(bounded)
	if err == nil {
		return nil
	}
	return s.translate(ctx, bounded, c, queueName, err)
}

// traced is a context in which net/http tells c of the connection for the request. It must
// not be used for anything else.
func (c *call) traced(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { c.connected.Store(true) },
	})
}

// unsent is true when storage can't have acted on the request, because there
// was no connection. What happened on a connection that broke is not known.
func (c *call) unsent() bool { return !c.connected.Load() }

// transport sends requests once and counts them.
type transport struct {
	base          http.RoundTripper
	onTransaction func(queue, operation string, status int, err error)
	clock         clock
}

// maxAnswer bounds an answer in memory. 32 messages of 64 KiB are 12 MiB when
// every character is escaped.
const maxAnswer = 32 << 20

func newTransport(opts Options) *transport {
	if opts.Transport != nil {
		return &transport{base: opts.Transport, onTransaction: opts.OnTransaction}
	}
	return &transport{base: azureconn.NewTransport(opts.Connections), onTransaction: opts.OnTransaction}
}

// Do implements policy.Transporter.
func (t *transport) Do(req *http.Request) (*http.Response, error) {
	c := callFrom(req.Context())
	req = req.WithContext(c.traced(req.Context()))
	if req.Method == http.MethodGet {
		// net/http repeats a GET when a reused connection breaks, but a receive
		// is a GET with an effect: the messages of the lost answer would stay
		// hidden, and nobody would know. It repeats nothing whose body it can't
		// get again, and sends no body where there is nothing to read.
		req.Body, req.GetBody = io.NopCloser(strings.NewReader("")), nil
	}
	return t.send(c, req)
}

// send sends c's request, whose context c has traced. It uses RoundTrip and not a Client:
// storage redirects nowhere, and a Client's errors hold the URL with the signature.
func (t *transport) send(c *call, req *http.Request) (*http.Response, error) {
	start := time.Now()
	res, err := t.base.RoundTrip(req)
	if err != nil {
		c.err = withoutQuotes(err)
		if !c.unsent() {
			t.onTransaction(c.queue, c.operation, 0, c.err)
		}
		return nil, c.err
	}
	c.answered = true
	t.onTransaction(c.queue, c.operation, res.StatusCode, nil)
	t.clock.look(start, res.Header)
	if res.Body != http.NoBody {
		res.Body = http.MaxBytesReader(nil, res.Body, maxAnswer)
	}
	return res, nil
}

// errNotHTTP stands for errors of net/http that quote what the peer said.
var errNotHTTP = errors.New("the other end broke off, or does not speak HTTP")

// withoutQuotes lets only errors through that were made at this end.
func withoutQuotes(err error) error {
	var (
		network     net.Error // dial, DNS, reset, time-outs, ends of contexts
		certificate *tls.CertificateVerificationError
		notTLS      tls.RecordHeaderError
	)
	switch {
	case errors.Is(err, context.Canceled), errors.As(err, &network), errors.As(err, &certificate),
		errors.As(err, &notTLS), errors.Is(err, io.EOF), errors.Is(err, http.ErrSchemeMismatch):
		return err
	}
	return errNotHTTP
}
