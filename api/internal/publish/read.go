package publish

import (
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/webhook/content"
)

// mode says how a request carries what is to be published.
type mode int

const (
	raw        mode = iota // the body is the message
	structured             // the body is a CloudEvents event
	binary                 // the body is an event's data, ce-* headers are its attributes
	batched                // the body is a list of events
)

const (
	eventType = "application/cloudevents+json"
	batchType = "application/cloudevents-batch+json"
)

// outgoing is a message to publish.
type outgoing struct {
	body []byte
	// contentType is kept with the body; empty for the usual one of such a body.
	contentType string
	// event is whether the body is an event by its content type, and was checked.
	event bool
	// traceParent is the publisher's trace context, empty when it gave none that is
	// worth carrying.
	traceParent string
	// traceState goes with it; empty without one.
	traceState string
	// key is the publisher's idempotency key.
	key string
}

const uncompressed = "send the body uncompressed, or mark it as what it is, such as Content-Type: application/gzip"

// readMode tells the mode by the headers, as the CloudEvents HTTP binding does, and
// refuses a form of the body that nothing could read later.
func readMode(r *http.Request) (mode, error) {
	if err := web.CheckCoding(r, uncompressed); err != nil {
		return raw, err
	}
	media, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || !strings.HasPrefix(media, "application/cloudevents") {
		if hasAttributes(r.Header) {
			return binary, nil
		}
		return raw, nil
	}
	if charset := strings.ToLower(params["charset"]); charset != "" && charset != "utf-8" {
		return raw, wrongEventType("names a charset that JSON does not have", "send the event in UTF-8, and leave the charset out")
	}
	switch media {
	case eventType:
		return structured, nil
	case batchType:
		return batched, nil
	}
	return raw, wrongEventType("is no form of CloudEvents that is read here", "send events as "+eventType+" or "+batchType+", or in binary mode with ce- headers")
}

func wrongEventType(what, cure string) error {
	return web.NewProblem(web.UnsupportedMediaType,
		"This form of event can't be read. Events are read in the JSON format, and in binary mode.", web.Wrong("Content-Type", what, cure))
}

// readOutgoing reads a message of any mode but batched.
func readOutgoing(w http.ResponseWriter, r *http.Request, in mode) (outgoing, error) {
	body, badBody := messageBody(w, r)
	// An empty one is nearly always a body that was lost on the way (a forgotten -d, a
	// proxy that drops chunked bodies). Only an event may do without data.
	if badBody == nil && len(body) == 0 && in != binary {
		badBody = web.Invalid(web.Wrong("body", "is empty", "send the message as the request's body with a Content-Length (curl: --data-binary @file); for a message without content send {}"))
	}
	contentType, badType := messageType(r, body)
	if badBody == nil {
		badBody = web.CheckUncompressed(r.Header.Get("Content-Type"), body, uncompressed)
	}
	m := outgoing{body: body, contentType: contentType, event: in != raw}
	m.traceParent, m.traceState = traceContext(r)
	var problems []web.FieldError
	switch {
	case in == structured && badBody == nil:
		problems = checkEvent(body, r.Header)
	case in == binary:
		m.contentType = eventType
		m.body, problems = binaryEvent(r.Header, body, contentType)
	}
	var notEvent error
	if len(problems) > 0 {
		notEvent = badEvent(problems)
	}
	if err := web.Together(badBody, badType, notEvent); err != nil {
		return outgoing{}, err
	}
	if e, ok := content.ParseEvent(m.body, eventType); m.event && ok && e.Parent.IsValid() {
		m.traceParent, m.traceState = "", "" // the event says more exactly where it comes from
	}
	return m, nil
}

// ReadOne reads a message as a publish does, to look at and not to send; a batch is refused.
func ReadOne(w http.ResponseWriter, r *http.Request) (content.Content, error) {
	in, badMode := readMode(r)
	if in == batched {
		badMode, in = wrongEventType("is a batch, and one message is looked at here", "send one event as "+eventType), raw
	}
	m, err := readOutgoing(w, r, in)
	if err = web.Together(badMode, err); err != nil {
		return content.Content{}, err
	}
	if m.contentType == "" {
		m.contentType = queue.DefaultContentType(m.body)
	}
	return content.Read(m.body, m.contentType), nil
}

func messageBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	cure := fmt.Sprintf("send at most %d bytes (about 48,000 where the body is binary or has a content type of its own); put larger payloads into a blob and send its address", queue.MaxTextBytes)
	body, err := web.TakeBody(w, r, queue.MaxTextBytes)
	if err != nil {
		return nil, web.BodyFault(err, cure)
	}
	return body, nil
}

// messageType returns the content type to keep with the message; empty for the
// usual one of such a body. curl -d marks everything as a form: a JSON
// document so marked counts as not marked.
func messageType(r *http.Request, body []byte) (string, error) {
	bad := web.NewProblem(web.UnsupportedMediaType,
		"The content type can't be kept. The Content-Type is sent on to the webhook, so it must be one.",
		web.Wrong("Content-Type", "is not a media type of at most 256 printable ASCII characters, given once", "send one such as application/json, or leave it out"))
	switch values := r.Header.Values("Content-Type"); {
	case len(values) == 0 || len(values) == 1 && values[0] == "":
		return "", nil
	case len(values) > 1:
		return "", bad
	}
	contentType := r.Header.Get("Content-Type")
	if len(contentType) > 256 || strings.ContainsFunc(contentType, func(c rune) bool { return c < 0x20 || c > 0x7e }) {
		return "", bad
	}
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil || !strings.Contains(media, "/") {
		return "", bad
	}
	usual := queue.DefaultContentType(body)
	if media == "application/x-www-form-urlencoded" && usual == "application/json" {
		return "", nil
	}
	return contentType, nil
}

// traceContext returns the W3C trace context that a message goes on with: that of the span of this request where
// that is recorded, the caller's otherwise, and none where the caller has none. It is best effort: one that is malformed
// counts as none.
func traceContext(r *http.Request) (parent, state string) {
	values := r.Header.Values("Traceparent")
	if len(values) != 1 || !content.ParentOf(values[0], "").IsValid() {
		return "", ""
	}
	parent = values[0]
	if trace.SpanFromContext(r.Context()).IsRecording() { // one that is not sampled leads nowhere
		own := propagation.MapCarrier{}
		propagation.TraceContext{}.Inject(r.Context(), own)
		parent = own["traceparent"]
	}
	return parent, content.TraceState(strings.Join(r.Header.Values("Tracestate"), ","))
}

// encode makes the text to store. What the publisher asked for (a key, a content type)
// has its envelope on every queue. What is merely nice to have (a trace, the content type
// of a body that says itself that it is an event) has one only under the setting auto:
// none and base64 say what other readers of the queue expect. The nice is also left out
// when the message would not fit with it.
//
// The error is one of queue's; see encodeProblem.
func (m outgoing) encode(setting queue.Encoding) ([]byte, error) {
	whole := queue.Body{Bytes: m.body, ContentType: m.contentType, IdempotencyKey: m.key, TraceParent: m.traceParent, TraceState: m.traceState}
	if queue.ImpliesContentType(m.body, m.contentType) {
		whole.ContentType = ""
	}
	switch {
	case m.key != "":
		text, err := queue.EncodeEnvelope(setting, whole)
		if errors.Is(err, queue.ErrTooLarge) {
			whole.TraceParent, whole.TraceState = "", ""
			return queue.EncodeEnvelope(setting, whole)
		}
		return text, err
	case m.traceParent != "" && setting == queue.EncodingAuto:
		if text, err := queue.EncodeEnvelope(setting, whole); err == nil {
			return text, nil
		}
	}
	if m.event && setting != queue.EncodingAuto {
		return queue.Encode(setting, m.body, "")
	}
	text, err := queue.Encode(setting, m.body, m.contentType)
	if m.event && errors.Is(err, queue.ErrTooLarge) {
		return queue.Encode(setting, m.body, "")
	}
	return text, err
}

// encodeProblem says what a failed encode means to the publisher.
func (m outgoing) encodeProblem(err error) *web.Problem {
	if m.key == "" || !errors.Is(err, queue.ErrTooLarge) {
		return sendProblem(err)
	}
	return web.NewProblem(web.TooLarge,
		fmt.Sprintf("The message is too large for an Idempotency-Key. The key is stored with the message, and both do not fit into the %d bytes that a queue message can have.", queue.MaxTextBytes),
		web.Wrong("body", "does not fit into a queue message together with its Idempotency-Key",
			"send at most about 48,000 bytes with a key; or put the payload into a blob and send its address; or publish an event with an id of its own, without a key, on a queue with the setting dedup: event-id"))
}
