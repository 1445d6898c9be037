// Package webhook is a registered target and the one signed, guarded POST to
// it.
package webhook

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/pushlease/pushlease/webhook/content"
	"github.com/pushlease/pushlease/webhook/internal/transport"
)

// Webhook is a registered target, as far as sending to it goes.
type Webhook struct {
	// ID is constant, [a-zA-Z0-9_], at most 64 bytes.
	ID string `json:"id"`
	// Name is for people.
	Name string `json:"name,omitempty"`
	// Queue is the queue whose messages it gets.
	Queue string `json:"queue"`
	// URL is the absolute http(s) URL that is POSTed to, without userinfo.
	URL string `json:"url"`
	// Secrets sign the requests: all that have not expired, the last one of the list first. A
	// rotation puts the new one at the beginning, or at the end where it is to sign first.
	Secrets []Secret `json:"secrets"`
	// Headers are sent as they are; ValidateHeaders says which are allowed.
	Headers map[string]string `json:"headers,omitempty"`
	// Timeout is the deadline of an exchange, from the first byte of the request to the
	// answer's head: progress does not extend it. To open a connection before may take as
	// long again.
	Timeout time.Duration `json:"timeout"`
	// Filter says which of the queue's messages it takes.
	Filter content.Filter `json:"filter,omitzero"`
	// Format is the form in which it gets them.
	Format content.Format `json:"format,omitempty"`
	// HTTP1 never offers HTTP/2 to the receiver.
	HTTP1 bool `json:"http1,omitempty"`
	// Signatures are made beside that of Standard Webhooks v1, unless it is nil.
	Signatures *Signatures `json:"signatures,omitempty"`
	// SigningKeys make those of Ed25519: all that have not expired. A rotation puts the new one at the beginning.
	SigningKeys []SigningKey `json:"signing_keys,omitempty"`
	// Auth shows the receiver a token, unless it is nil.
	Auth *Auth `json:"auth,omitempty"`
	// TLS is how connections to the receiver are made; nil is as to any other.
	TLS *TLS `json:"tls,omitempty"`
}

// Longest is how long a Send may take: a connection, with the token if there is one, and then the
// exchange, each have the whole timeout.
func (w *Webhook) Longest() time.Duration { return 2 * w.Timeout }

// Secret is one signing secret. It prints and logs as [secret]; only its JSON
// form, which is for the tables, holds the key.
type Secret struct {
	// Key is whsec_ and standard base64 of 24 to 64 bytes.
	Key string `json:"key"`
	// CreatedAt is when it was made.
	CreatedAt time.Time `json:"created_at"`
	// ExpiresAt ends its use for signing; zero means never.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

func (secret *Secret) ended(now time.Time) bool {
	return !secret.ExpiresAt.IsZero() && !now.Before(secret.ExpiresAt)
}

// String hides the key from %v and %s.
func (Secret) String() string { return "[secret]" }

// GoString hides the key from %#v.
func (Secret) GoString() string { return "[secret]" }

// LogValue hides the key from slog.
func (Secret) LogValue() slog.Value { return slog.StringValue("[secret]") }

// Request is one message to POST.
type Request struct {
	// MessageID becomes the header webhook-id: constant over attempts, webhooks
	// and replays. Characters outside [A-Za-z0-9_-] are escaped.
	MessageID string
	// Queue and Attempt (from 1) become pushlease-queue and pushlease-attempt.
	Queue   string
	Attempt int
	// Body is sent and signed exactly as it is.
	Body []byte
	// ContentType of the body.
	ContentType string
	// Headers come with the message (see content.Payload); they replace the webhook's own of
	// the same name. One that HTTP can't carry is left out.
	Headers map[string]string
	// Fresh asks for a new connection: the last attempt timed out, or somebody wants to know
	// whether the receiver can be reached now.
	Fresh bool
	// FreshToken asks for a token of this moment, where the receiver is shown one.
	FreshToken bool
	// Registered is when the webhook was last changed, as far as the caller knows: what it shows its receiver is of that time.
	Registered time.Time
	// Until ends the attempt as the webhook's timeout does, unless it is zero.
	Until time.Time
	// Begin is asked right before the first byte is written on a connection, unless it is nil: a name or a
	// connection may have taken long. Where it says no, nothing is sent any more.
	Begin func() bool
	// Meant tells of a 401 whether the webhook means more by it than that it knows nobody: then it is the
	// answer, and no fresh token is asked for. Nil tells so of none.
	Meant func(*Result) bool
	// Seen is shown the headers that are sent, unless it is nil; of each POST, where a second one
	// is made with a fresh token.
	Seen func(http.Header)

	// authorization is the header of that name, unless it is empty.
	authorization Hidden
	// identity is whose connections it goes over; nil is anybody's.
	identity *transport.Identity
}

// Request makes the request of one attempt: the message in the webhook's format.
func (w *Webhook) Request(c content.Content, o content.Origin, attempt int) Request {
	p := w.Format.Payload(c, o)
	return Request{
		MessageID: o.MessageID, Queue: o.Queue, Attempt: attempt,
		Body: p.Body, ContentType: p.ContentType, Headers: p.Headers,
	}
}

// Result is what one POST gave.
type Result struct {
	// StartedAt and Duration cover the whole exchange.
	StartedAt time.Time
	Duration  time.Duration
	// Status is the answer's status; 0 when there was none.
	Status int
	// ErrorClass is why there was none; empty otherwise. Its values are those
	// of policy.ErrorClass.
	ErrorClass string
	// NotBegun is whether nothing was sent since Request.Begin said no, or since no token could be had.
	NotBegun bool
	// TokenAt is when it is worth trying again to have a token, where none can be had that the receiver is to be shown.
	TokenAt time.Time
	// NameBlocked is true when the class is blocked and the refused addresses are what the
	// URL's host name led to, which can heal; false where the URL holds the address.
	NameBlocked bool
	// Error is a short text about the failure, without URL, secret, payload or
	// anything the receiver sent. Empty when there was an answer.
	Error string
	// RetryAfter, RateLimit and Steering are the answer's headers Retry-After,
	// RateLimit and pushlease-decision, each of at most 256 bytes. RetryAfter holds nothing
	// but numbers and dates, those of several lines joined by commas; the other two are for
	// no record. Date is the header Date when it is one.
	RetryAfter string
	RateLimit  string
	Steering   string
	Date       string
	// RedirectHost is the host that a 3xx pointed to; it was not asked.
	RedirectHost string
	// Body is the beginning of the answer's body: for rules, at most
	// MaxBodyRead bytes.
	Body []byte
	// Redials counts the connections that failed before the exchange could
	// begin and were tried once more at once.
	Redials int
	// StaleConn is whether the attempt failed on a connection that had been used before,
	// without a byte of an answer: it may have been the connection alone that was dead, so
	// this is no evidence against the receiver.
	StaleConn bool
	// Note is what else happened, in a sentence; nearly always empty.
	Note string

	// authorization is the header of that name that was sent.
	authorization Hidden
	// signature is the one of the webhook's HMAC that was sent. Over the body alone it is good for ever.
	signature Hidden
}
