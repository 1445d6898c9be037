package azurequeue

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/pushlease/pushlease/internal/azureconn"
)

// application names pushlease to the service, in the User-Agent.
const application = "pushlease"

// transport sends requests once and counts them.
type transport struct {
	base          http.RoundTripper
	timeout       time.Duration // of one request
	onTransaction func(queue, operation string, status int, err error)
	clock         clock
}

// maxAnswer bounds an answer in memory. 32 messages of 64 KiB are 12 MiB when
// every character is escaped.
const maxAnswer = 32 << 20

func newTransport(opts Options) *transport {
	base := opts.Transport
	if base == nil {
		base = azureconn.NewTransport(opts.Connections)
	}
	return &transport{base: base, timeout: opts.Timeout, onTransaction: opts.OnTransaction}
}

// do runs one request of the SDK under its own deadline and translates its
// error.
func (t *transport) do(ctx context.Context, operation, queueName string, request func(context.Context) error) error {
	c := &call{operation: operation, queue: queueName}
	bounded := context.WithValue(ctx, callKey{}, c)
	if end, known := ctx.Deadline(); !known || time.Until(end) > t.timeout {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(bounded, t.timeout)
		defer cancel()
	}
	err := request(bounded)
	if err == nil {
		return nil
	}
	return c.translate(ctx, bounded, t.timeout, err)
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

// keepBodyPolicy sends updates without a body. Requests are signed after it,
// so the signature covers what is sent.
type keepBodyPolicy struct{}

func (keepBodyPolicy) Do(req *policy.Request) (*http.Response, error) {
	raw := req.Raw()
	if operation := callFrom(raw.Context()).operation; operation != opRenew && operation != opAbandon {
		return req.Next()
	}
	if err := req.SetBody(nil, ""); err != nil {
		return nil, err
	}
	raw.GetBody = nil
	if raw.Body != nil || raw.ContentLength != 0 || req.Body() != nil {
		return nil, errors.New("the update would erase the message") // SDK changed
	}
	return req.Next()
}
