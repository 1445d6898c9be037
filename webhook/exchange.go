package webhook

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	spans "go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/pushlease/pushlease/webhook/internal/transport"
)

// edge is the round tripper below the tracing. Whatever passes it outwards is safe to record:
// it turns errors into failures, and keeps paths, queries and Location to itself.
type edge struct {
	inner  http.RoundTripper
	traced bool // the request's span is about this request
}

func (e edge) RoundTrip(r *http.Request) (*http.Response, error) {
	if e.traced { // by its whole URL
		span := trace.SpanFromContext(r.Context())
		span.SetAttributes(spans.String("url.full", r.URL.Scheme+"://"+r.URL.Host))
	}
	response, err := e.inner.RoundTrip(r)
	if err != nil {
		return nil, failureOf(r.Context(), err)
	}
	response.Header = keep(response.Header)
	response.Body = answerBody{response.Body}
	return response, nil
}

// keep leaves what a Result is made of: the rest of a large header would be held for as long as
// the body is waited for.
func keep(all http.Header) http.Header {
	// http.Client makes an error of a Location that can't be parsed.
	location := all.Get("Location")
	kept, lines := all, 0
	for _, values := range all {
		lines += len(values)
	}
	if lines <= usualHeaders {
		maps.DeleteFunc(all, func(key string, _ []string) bool { return !slices.Contains(keptHeaders[:], key) })
	} else {
		kept = make(http.Header, len(keptHeaders)+1)
		for _, key := range keptHeaders {
			if values := all[key]; len(values) > 0 {
				kept[key] = slices.Clone(values)
			}
		}
	}
	if location != "" {
		kept[keyLocation] = []string{location}
	}
	return kept
}

// usualHeaders are so few lines that their room is not worth a copy.
const usualHeaders = 16

// keptHeaders of answers, in the form of net/http.
var keptHeaders = [...]string{keyRetryAfter, keyDate, keyRateLimit, keyDecision}

const (
	keyRetryAfter = "Retry-After"
	keyDate       = "Date"
	keyRateLimit  = "Ratelimit"
	keyDecision   = "Pushlease-Decision"
)

// keyLocation is where the header Location is kept: no receiver's header has such a key,
// since net/http writes them with a capital.
const keyLocation = "location"

// answerBody hides the texts of errors, which can hold what the receiver sent.
type answerBody struct {
	body io.ReadCloser
}

func (b answerBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = &failure{class: classReset, text: "the answer's body broke off"}
	}
	return n, err
}

func (b answerBody) Close() error { return b.body.Close() }

// tries is the state of one Send: its first try and, where that had no chance to be
// processed, a second one on a fresh connection. Where the receiver asks for HTTP/1.1 only
// then, a third one. It is the context of the request, too, so that all Sends share a client.
type tries struct {
	context.Context
	limits transport.Limits
	made   int
	first  *failure
	http1  bool // the receiver has asked for it
}

// Value finds also the tries themselves and, for the transport, their limits.
func (t *tries) Value(key any) any {
	switch key {
	case triesKey{}:
		return t
	case transport.LimitsKey{}:
		return &t.limits
	}
	return t.Context.Value(key)
}

type triesKey struct{}

func triesOf(ctx context.Context) *tries { return ctx.Value(triesKey{}).(*tries) }

// maxRepeats bounds what again allows.
const maxRepeats = 2

// again is go-retryablehttp's CheckRetry. It never looks at the answer: one that is there is
// the outcome.
func again(ctx context.Context, _ *http.Response, err error) (bool, error) {
	t := triesOf(ctx)
	t.made++
	if err == nil || ctx.Err() != nil {
		return false, nil //nolint:nilerr // the error is the caller's already; this says only that nothing is repeated
	}
	var f *failure
	if !errors.As(err, &f) || !f.again || t.made > 1 && (!f.http1 || t.http1) {
		return false, nil // the error is the caller's already; this says only that nothing is repeated
	}
	t.http1 = f.http1
	if t.first == nil {
		t.first = f
	}
	return true, nil
}

// prepareAgain is go-retryablehttp's PrepareRetry.
func prepareAgain(r *http.Request) error {
	fresh := triesOf(r.Context()).limits
	fresh.Fresh = true
	*r = *r.WithContext(transport.WithLimits(r.Context(), &fresh))
	return nil
}

// outcome is the failure of all tries. When the first one had sent something, that is what
// happened to the message; what became of the second is a detail, unless it was sent too. A second one that this
// machine could not make, or that was cut short here, leaves the attempt to nobody's charge: the first alone would have
// been repeated.
func (t *tries) outcome(last *failure) *failure {
	if t.first == nil || !t.first.sent || t.first.text == last.text {
		return last
	}
	f := *t.first
	if last.sent || last.class == classCanceled {
		f = *last
	}
	then, _, _ := strings.Cut(last.text, ":") // without the cure
	f.text = t.first.text + "; then " + then
	return &f
}
