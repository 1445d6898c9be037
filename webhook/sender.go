package webhook

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/pushlease/pushlease/webhook/internal/transport"

	"github.com/pushlease/pushlease/webhook/content"
)

const (
	// MaxBodyRead is how much of an answer's body is read and kept, in bytes.
	// It is never decompressed.
	MaxBodyRead = 64 << 10
	// maxDrain is read beyond that, so that the connection can be used again.
	maxDrain = 4 << 10
	// maxAnswerHeader is how much of an answer's header is kept, in bytes.
	maxAnswerHeader = 256
	// tlsSessions is how many receivers' sessions are kept, for shorter handshakes.
	tlsSessions = 1024
)

// Options are the settings of a Sender. The zero value is for production.
type Options struct {
	// Version is written into the header User-Agent as pushlease/<version>.
	Version string
	// Guard says which addresses are allowed.
	Guard GuardOptions
	// Resolver resolves the hosts of webhooks; nil means net.DefaultResolver.
	Resolver Resolver
	// DialContext opens connections to addresses that the guard has checked;
	// nil means TCP, checked once more at the socket. For tests.
	DialContext DialFunc
	// RootCAs verify receivers; nil means those of the system.
	RootCAs *x509.CertPool
	// TracerProvider makes the spans of requests; nil means that of the span in
	// the context, or the global one.
	TracerProvider trace.TracerProvider
	// Unrecorded says that nobody takes the spans: the TracerProvider, which is required
	// then, is asked for no more than the id in the header traceparent.
	Unrecorded bool
}

// Sender POSTs messages to webhooks. It is safe for concurrent use.
type Sender struct {
	userAgent string
	transport *transport.Transport
	// exchanges are made by the transport, and what is told of them is safe to record. client makes them with a span
	// each; where nobody takes spans it is nil, and ids gives each request an id.
	exchanges http.RoundTripper
	client    *retryablehttp.Client
	ids       trace.Tracer
	// targets and signers are what was made of the webhooks' URLs and secrets.
	targets *kept[*url.URL]
	signers *kept[*signer]
	// signingKeys are the webhooks' keys of Ed25519.
	signingKeys *kept[ed25519.PrivateKey]
	// identities are those of the webhooks that have one.
	identities identities
	// shortage is the last one of this machine's.
	shortage atomic.Pointer[Shortage]
}

// Shortage is a lack of this machine's, for which a POST could not be made.
type Shortage struct {
	At time.Time
	// Text says what was lacking and what to do.
	Text string
}

// Shortage gives the last one; the zero value where there was none.
func (s *Sender) Shortage() Shortage {
	if last := s.shortage.Load(); last != nil {
		return *last
	}
	return Shortage{}
}

// NewSender makes a Sender. Close it when the last Send has returned.
func NewSender(opts Options) (*Sender, error) {
	for _, p := range slices.Concat(opts.Guard.AllowCIDRs, opts.Guard.DenyCIDRs) {
		if p == (netip.Prefix{}) || !p.IsValid() || p.Addr().Is4In6() {
			return nil, invalid("an address range is not valid", "write it as 10.0.0.0/8 or fd00::/8")
		}
	}
	version := content.HeaderValue(opts.Version)
	if version == "" {
		version = "dev"
	}
	base := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: opts.RootCAs}
	s := &Sender{
		userAgent: "pushlease/" + version,
		transport: newTransport(newGuard(opts.Guard, opts.Resolver, opts.DialContext), base),
	}
	s.targets = newKept(func(raw string) (*url.URL, error) { return parseTarget(raw, &opts.Guard) })
	s.signers, s.signingKeys = newKept(newSigner), newKept(parsedSigningKey)
	s.layer(s.transport, opts)
	s.identities.begin(s.transport, base, tokenClient(s.transport, s.userAgent), opts.Guard, s.lacks)
	return s, nil
}

func newTransport(g *guard, base *tls.Config) *transport.Transport {
	base = base.Clone()
	base.ClientSessionCache = tls.NewLRUClientSessionCache(tlsSessions)
	return transport.New(transport.Config{Dial: g.dial, KeepOld: keepOld, TLS: base})
}

// layer puts the layers on what makes the exchanges.
func (s *Sender) layer(exchanges http.RoundTripper, opts Options) {
	s.exchanges = edge{inner: exchanges, traced: !opts.Unrecorded}
	if opts.Unrecorded {
		s.ids = opts.TracerProvider.Tracer("pushlease/webhook")
		return
	}
	s.client = &retryablehttp.Client{
		HTTPClient: &http.Client{
			Transport:     traced(s.exchanges, opts.TracerProvider),
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		RetryMax: maxRepeats, CheckRetry: again, PrepareRetry: prepareAgain,
		Backoff: atOnce, ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
}

// traced gives each request a span. Metrics of otelhttp are off, since they carry the
// receiver's address as a label; baggage is for nobody outside.
func traced(inner http.RoundTripper, provider trace.TracerProvider) http.RoundTripper {
	return otelhttp.NewTransport(inner,
		otelhttp.WithTracerProvider(provider),
		otelhttp.WithMeterProvider(noop.NewMeterProvider()),
		otelhttp.WithPropagators(propagation.TraceContext{}),
	)
}

// Close closes the connections that are open. Send must not be in progress.
func (s *Sender) Close() {
	s.identities.end()
	s.transport.Close()
}

// Send makes the one signed POST of an attempt and waits for its end: an
// answer, a failure, the webhook's timeout, or the end of ctx. It never panics
// and never returns an error; the Result says everything. The body must not be
// changed afterwards, and the webhook not during the call.
func (s *Sender) Send(ctx context.Context, w *Webhook, r Request) (result Result) {
	result.StartedAt = time.Now()
	if w.Auth == nil && w.TLS == nil {
		s.send(ctx, w, &r, &result)
	} else {
		s.sendAs(ctx, w, &r, &result)
	}
	result.Duration = time.Since(result.StartedAt)
	return result
}

// send makes the POST; result has its start already. What is on the stack here is held for
// each POST in flight.
func (s *Sender) send(ctx context.Context, w *Webhook, r *Request, result *Result) {
	t := &tries{
		Context: ctx,
		limits:  transport.Limits{Start: result.StartedAt, Timeout: w.Timeout, Until: r.Until, Begin: r.Begin, Fresh: r.Fresh, HTTP1: w.HTTP1, Identity: r.identity},
	}
	if s.ids != nil {
		var span trace.Span
		t.Context, span = s.ids.Start(ctx, http.MethodPost)
		defer span.End()
	}
	request, err := s.prepare(t, w, r, result.StartedAt)
	if err != nil {
		result.ErrorClass, result.Error = classRequest, err.Error()
		return
	}
	if s.ids != nil {
		propagation.TraceContext{}.Inject(t, traceHeaders(request.Header))
	}
	if r.Seen != nil {
		r.Seen(request.Header)
	}
	result.authorization = r.authorization
	if w.Signatures != nil && w.Signatures.HMAC != nil {
		result.signature = Hidden(request.Header.Get(w.Signatures.HMAC.scheme().header))
	}
	resp, err := s.do(t, request, r.Body)
	result.Redials = max(0, t.made-1)
	if err != nil {
		var f *failure
		if !errors.As(err, &f) {
			f = failureOf(ctx, err)
		}
		last := f
		f = t.outcome(last)
		s.fail(result, last, f)
		result.NotBegun = f.held && (t.first == nil || !t.first.sent)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	result.read(request.URL, resp)
}

// do makes the tries of a request: with go-retryablehttp where each has a span, and else by the same rules without what
// that and http.Client copy for each of them.
func (s *Sender) do(t *tries, request *http.Request, body []byte) (*http.Response, error) {
	if s.client != nil {
		r := &retryablehttp.Request{Request: request}
		var raw any // without one, Content-Length is 0
		if len(body) > 0 {
			raw = body
		}
		if err := r.SetBody(raw); err != nil {
			return nil, err
		}
		return s.client.Do(r)
	}
	for {
		if len(body) > 0 { // each try has its own: of the one before something may be read still
			request.Body, request.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		}
		response, err := s.exchanges.RoundTrip(request)
		if repeat, _ := again(t, response, err); !repeat || t.made > maxRepeats {
			return response, err
		}
		next := *request
		if err := prepareAgain(&next); err != nil {
			return nil, err
		}
		request = &next
	}
}

// lacks notes a shortage.
func (s *Sender) lacks(text string) { s.shortage.Store(&Shortage{At: time.Now(), Text: text}) }

// fail is the end of a POST without an answer: the last of its tries, and what is said of all.
func (s *Sender) fail(result *Result, last, f *failure) {
	if last.short {
		s.lacks(last.text)
	}
	result.ErrorClass, result.Error, result.NameBlocked, result.StaleConn, result.TokenAt = f.class, f.text, f.name, f.stale, f.tokenAt
}

// traceHeaders are headers to which those of a trace are added.
type traceHeaders http.Header

// keyTraceparent is what net/http would make of traceparent, at an allocation each time.
const keyTraceparent = "Traceparent"

// Set implements propagation.TextMapCarrier.
func (h traceHeaders) Set(name, value string) {
	if name == "traceparent" {
		h[keyTraceparent] = []string{value}
		return
	}
	http.Header(h).Set(name, value)
}

// Get implements propagation.TextMapCarrier.
func (h traceHeaders) Get(name string) string { return http.Header(h).Get(name) }

// Keys implements propagation.TextMapCarrier.
func (h traceHeaders) Keys() []string { return slices.Collect(maps.Keys(h)) }

func atOnce(_, _ time.Duration, _ int, _ *http.Response) time.Duration { return 0 }

// read takes what is kept of an answer.
func (result *Result) read(target *url.URL, resp *http.Response) {
	result.Status = resp.StatusCode
	result.RetryAfter = retryAfter(resp.Header[keyRetryAfter])
	result.Date = httpDate(resp.Header.Get(keyDate))
	result.RateLimit = cut(strings.Join(resp.Header[keyRateLimit], ", "))
	result.Steering = cut(resp.Header.Get(keyDecision))
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		result.RedirectHost = redirectHost(target, resp.Header[keyLocation]) //nolint:staticcheck // a key that no receiver's header has
	}
	if resp.ContentLength != 0 {
		result.Body = readBody(resp.Body)
	}
}

// prepare makes the request. It checks the registration again, since a row in the tables can
// be older than the rules.
func (s *Sender) prepare(ctx context.Context, w *Webhook, r *Request, now time.Time) (*http.Request, error) {
	if w.Timeout <= 0 {
		return nil, invalid("the webhook has no timeout", "set one")
	}
	target, err := s.targets.of(w.URL)
	if err != nil {
		return nil, err
	}
	if err := ValidateHeaders(w.Headers); err != nil {
		return nil, err
	}
	id := EscapeID(r.MessageID)
	signature, err := s.signAll(w.Secrets, id, now, r.Body)
	if err != nil {
		return nil, err
	}
	header := make(http.Header, len(w.Headers)+10)
	contentType := content.HeaderValue(r.ContentType)
	if contentType == "" {
		contentType = content.DefaultType
	}
	own := [...]string{
		s.userAgent, contentType,
		"identity", id, strconv.FormatInt(now.Unix(), 10), signature, content.HeaderValue(r.Queue), strconv.Itoa(r.Attempt),
	}
	values := own[:] // one array for all of them
	header["User-Agent"] = values[0:1:1]
	if r.ContentType != "" || len(r.Body) > 0 || len(r.Headers) == 0 { // an event without data has none, and says so
		header["Content-Type"] = values[1:2:2]
	}
	for name, value := range w.Headers {
		if w.Format.Keeps(name) {
			header.Set(name, value)
		}
	}
	setMessageHeaders(header, r.Headers)
	for i, key := range ownHeaders {
		header[key] = values[i+2 : i+3 : i+3]
	}
	if w.Signatures != nil {
		if err := s.signBeside(w, target, header, id, now, r.Body); err != nil {
			return nil, err
		}
	}
	if r.authorization != "" {
		header["Authorization"] = []string{string(r.authorization)}
	}
	return (&http.Request{ // which is copied from the stack
		Method: http.MethodPost, URL: target, Host: target.Host, Header: header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx), nil
}

// ownHeaders are those that nothing may replace, in the form of net/http.
var ownHeaders = [...]string{
	"Accept-Encoding", http.CanonicalHeaderKey(HeaderID), http.CanonicalHeaderKey(HeaderTimestamp),
	http.CanonicalHeaderKey(HeaderSignature), "Pushlease-Queue", "Pushlease-Attempt",
}

// readBody reads the beginning of a body. The status has decided already, so a
// body that is endless or breaks off is no failure.
func readBody(body io.Reader) []byte {
	read, _ := io.ReadAll(io.LimitReader(body, MaxBodyRead))
	if len(read) == MaxBodyRead {
		_, _ = io.CopyN(io.Discard, body, maxDrain)
	}
	return read
}

// retryAfter joins the values of several lines, as a proxy would. It leaves nothing of one
// that is neither a number of seconds nor a date: it is recorded, and would be whatever the
// receiver made up or echoed.
func retryAfter(lines []string) string {
	var kept string
	for _, line := range lines {
		for rest := line; rest != ""; {
			var value string
			if value, rest = nextWait(rest); value == "" {
				continue
			}
			if kept != "" {
				value = kept + ", " + value
			}
			if len(value) > maxAnswerHeader {
				return kept
			}
			kept = value
		}
	}
	return kept
}

// nextWait is the first of the values that a line lists, where it is a number of seconds or a date, of
// which some forms have a comma.
func nextWait(line string) (value, rest string) {
	value, rest, _ = strings.Cut(line, ",")
	if value = strings.TrimSpace(value); strings.Trim(value, "0123456789") == "" || httpDate(value) != "" {
		return value, rest
	}
	end, after, _ := strings.Cut(rest, ",")
	if date := strings.TrimSpace(value + "," + end); httpDate(date) != "" {
		return date, after
	}
	return "", rest
}

// httpDate is value when it is a date.
func httpDate(value string) string {
	if value == "" {
		return ""
	}
	if _, err := http.ParseTime(value); err != nil {
		return ""
	}
	return value
}

func cut(value string) string {
	if len(value) <= maxAnswerHeader {
		return value
	}
	return strings.Clone(value[:maxAnswerHeader]) // a part holds the whole of a long text
}

// redirectHost gives the host that a Location means, without anything else.
func redirectHost(base *url.URL, location []string) string {
	if len(location) == 0 {
		return ""
	}
	u, err := base.Parse(location[0])
	if err != nil {
		return ""
	}
	host, err := normaliseHost(u.Hostname())
	if err != nil {
		return ""
	}
	return strings.Trim(host, "[]")
}
