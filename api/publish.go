package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// recordTimeout bounds how long a publish waits for its record: the message is
// stored by then, and the record is a convenience.
const recordTimeout = 2 * time.Second

// publishedView is the answer to a publish.
type publishedView struct {
	MessageID  string    `json:"message_id"`
	Queue      string    `json:"queue"`
	InsertedAt time.Time `json:"inserted_at"`
	// ExpiresAt is left out for a message that never expires.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	VisibleAt time.Time `json:"visible_at"`
}

// publish sends the request's body, as it is, to a queue.
func (a *API) publish(w http.ResponseWriter, r *http.Request) error {
	name, err := queueParam(r)
	if err != nil {
		return err
	}
	opts, err := publishOptions(r)
	if err != nil {
		return err
	}
	if err := refuseUnkept(r); err != nil {
		return err
	}
	body, err := readMessage(w, r)
	if err != nil {
		return err
	}
	contentType, err := messageType(r, body)
	if err != nil {
		return err
	}
	setting := a.Encoding(name)
	text, err := queue.Encode(setting, body, contentType)
	if err != nil {
		return sendProblem(err)
	}
	q, err := a.Queues.Queue(name)
	if err != nil {
		return invalid(badQueue(err))
	}
	sent, err := q.Send(r.Context(), text, opts)
	if err != nil {
		return sendProblem(err)
	}
	a.published.Add(r.Context(), 1)
	a.recordPublished(r, newPublished(name, sent, setting, text, body, opts.Delay))
	a.Dispatcher.Wake(name)

	w.Header().Set("Location", "/api/v1/messages/"+url.PathEscape(sent.ID))
	return writeJSON(w, http.StatusAccepted, publishedView{
		MessageID:  sent.ID,
		Queue:      name,
		InsertedAt: sent.InsertedAt.UTC(),
		ExpiresAt:  utc(sent.ExpiresAt),
		VisibleAt:  sent.InsertedAt.Add(opts.Delay).UTC(),
	})
}

// publishOptions reads delay and ttl.
func publishOptions(r *http.Request) (queue.SendOptions, error) {
	q := readQuery(r, "delay", "ttl")
	opts := queue.SendOptions{Delay: q.seconds("delay", queue.MaxDelay)}
	switch q.values.Get("ttl") {
	case "":
	case "never":
		opts.TTL = queue.NoExpiry
	default:
		const century = 100 * 365 * 24 * time.Hour
		if opts.TTL = q.seconds("ttl", century); opts.TTL == 0 && len(q.problems) == 0 {
			q.fail("ttl", "is not positive", "give a duration such as 24h, or never, or leave it out for 7 days")
		}
	}
	life := opts.TTL
	if life == 0 {
		life = queue.DefaultTTL
	}
	if len(q.problems) == 0 && opts.TTL != queue.NoExpiry && opts.Delay >= life {
		q.fail("delay", fmt.Sprintf("is not shorter than the message's life of %s", life), "give a shorter delay, or a longer ttl such as ttl=never")
	}
	return opts, q.err()
}

// refuseUnkept refuses what could only be dropped silently: the publisher would
// count on something that does not happen.
func refuseUnkept(r *http.Request) error {
	var problems []fieldError
	if _, ok := r.Header["Idempotency-Key"]; ok {
		problems = append(problems, fieldError{"Idempotency-Key", "is not supported yet, and ignoring it could publish a message twice",
			"leave it out; when an answer is lost, look for the message before you publish it again"})
	}
	for name := range r.Header {
		if strings.HasPrefix(name, "Ce-") {
			problems = append(problems, fieldError{shownName(strings.ToLower(name)), "is a CloudEvents attribute in a header, which a queue message can't keep",
				"send the event in structured mode: one JSON object with Content-Type: application/cloudevents+json"})
			break
		}
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return newProblem(http.StatusUnsupportedMediaType, "unsupported-media-type", "The body is compressed",
			"A queue message does not keep a Content-Encoding, so the webhook could not read the body.",
			fieldError{"Content-Encoding", "is not supported", "send the body uncompressed, or mark it as what it is, such as Content-Type: application/gzip"})
	}
	if len(problems) > 0 {
		return invalid(problems...)
	}
	return nil
}

// readMessage reads the body. An empty one is refused: it is nearly always a body
// that was lost on the way (a forgotten -d, a proxy that drops chunked bodies).
func readMessage(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	cure := fmt.Sprintf("send at most %d bytes (about 48,000 where the body is binary or has a content type of its own); put larger payloads into a blob and send its address", queue.MaxTextBytes)
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, queue.MaxTextBytes))
	if err != nil {
		return nil, bodyFault(err, cure)
	}
	if len(body) == 0 {
		return nil, invalid(fieldError{"body", "is empty", "send the message as the request's body with a Content-Length (curl: --data-binary @file); for a message without content send {}"})
	}
	return body, nil
}

// messageType returns the content type to keep with the message; empty for the
// usual one of such a body. curl -d marks everything as a form: a JSON
// document so marked counts as not marked.
func messageType(r *http.Request, body []byte) (string, error) {
	bad := newProblem(http.StatusUnsupportedMediaType, "unsupported-media-type", "The content type can't be kept",
		"The Content-Type is sent on to the webhook, so it must be one.",
		fieldError{"Content-Type", "is not a media type of at most 256 printable ASCII characters, given once", "send one such as application/json, or leave it out"})
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

// sendProblem says what a failed Encode or Send means to the publisher.
func sendProblem(err error) error {
	switch {
	case errors.Is(err, queue.ErrTooLarge):
		return newProblem(http.StatusRequestEntityTooLarge, "too-large", "The message is too large",
			fmt.Sprintf("The message does not fit into the %d bytes that a queue message can have.", queue.MaxTextBytes),
			fieldError{"body", fmt.Sprintf("does not fit into %d bytes as it is stored", queue.MaxTextBytes),
				"send at most about 48,000 bytes where the body is binary or has a content type of its own; put larger payloads into a blob and send its address"})
	case errors.Is(err, queue.ErrUnsendable):
		return newProblem(http.StatusUnprocessableEntity, "unsendable", "The queue can't carry this body",
			"The body has characters that this queue can't carry under its encoding.",
			fieldError{"body", "has characters that the queue's encoding can't carry", "set the queue's encoding to auto or base64, or send other bytes"})
	case queue.Ambiguous(err):
		p := storageFault("publish the message", err)
		p.Detail = "Storage did not answer, so the message may or may not be in the queue: sending it again can publish it twice. /readyz says what is wrong."
		return p
	}
	p := storageFault("publish the message", err)
	p.Detail = "Storage refused the message, so it was not published. Send it again in a moment; /readyz says what is wrong."
	return p
}

// newPublished is the message-level record of a publish.
func newPublished(name string, sent queue.Sent, setting queue.Encoding, text, body []byte, delay time.Duration) tables.Delivery {
	sum := sha256.Sum256(body)
	d := tables.Delivery{
		MessageKey: tables.MessageKey{Queue: name, MessageID: sent.ID, Day: sent.InsertedAt},
		State:      tables.Published,
		NextAt:     sent.InsertedAt.Add(delay),
		UpdatedAt:  sent.InsertedAt,
		ExpiresAt:  sent.ExpiresAt,
		Size:       len(body),
		BodyHash:   hex.EncodeToString(sum[:8]),
	}
	if read, err := queue.Decode(setting, text); err == nil {
		d.Encoding = string(read.Encoding)
	}
	return d
}

// recordPublished records the message for its timeline. The message is in the
// queue whatever happens here.
func (a *API) recordPublished(r *http.Request, d tables.Delivery) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), recordTimeout)
	defer cancel()
	if err := a.Deliveries.Record(ctx, tables.Record{Deliveries: []tables.Delivery{d}}); err != nil {
		a.unrecorded.Add(ctx, 1)
		a.Logger.WarnContext(ctx, "publish not recorded", "message", d.MessageID, "queue", d.Queue, "request_id", noteOf(r).id, "error", err)
	}
}

// utc keeps the zero time zero.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}
