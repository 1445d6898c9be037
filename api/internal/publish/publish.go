// Package publish sends messages to queues for the API: one, an event in any form, or a batch of
// them, once for each Idempotency-Key. It reads nothing back and manages nothing.
package publish

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// publishedView is the answer to a publish: about a message, or about each of a batch.
type publishedView struct {
	MessageID  string    `json:"message_id,omitempty"`
	Queue      string    `json:"queue"`
	InsertedAt time.Time `json:"inserted_at,omitzero"`
	// ExpiresAt is left out for a message that never expires.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	VisibleAt time.Time `json:"visible_at,omitzero"`
	// Events are those of a batch.
	Events   []eventResult `json:"events,omitzero"`
	Warnings []string      `json:"warnings,omitempty"`
}

// publication is a message on its way to a queue.
type publication struct {
	outgoing
	queue string
	opts  queue.SendOptions
	// text is what is stored.
	text []byte
}

// Options are what publishing needs of others.
type Options struct {
	Queues     queue.Service
	Deliveries tables.Deliveries
	Claims     tables.Claims
	// RecordedSends sends and records in one step; nil where the store has no such thing.
	RecordedSends RecordedSends
	// Encoding is the setting of a queue.
	Encoding func(queue string) queue.Encoding
	// Wake makes the queue's poller look at once.
	Wake func(queue string)
	// Warnings says what a publisher to the queue should know.
	Warnings func(ctx context.Context, queue string) []string
	Meter    metric.Meter
	Logger   *slog.Logger
}

// Publisher publishes messages, and manages nothing. Safe for concurrent use.
type Publisher struct {
	Options
	published, unrecorded, unfinished metric.Int64Counter
	recording                         recording
}

// New makes a Publisher.
func New(o Options) (*Publisher, error) {
	a := &Publisher{Options: o}
	var errs [3]error
	a.published, errs[0] = o.Meter.Int64Counter("pushlease.messages.published",
		metric.WithUnit("{message}"), metric.WithDescription("Messages sent to a queue through the API."))
	a.unrecorded, errs[1] = o.Meter.Int64Counter("pushlease.publish.records.failed",
		metric.WithUnit("{message}"), metric.WithDescription("Published messages whose record could not be written; they are delivered all the same."))
	a.unfinished, errs[2] = o.Meter.Int64Counter("pushlease.publish.keys.unfinished",
		metric.WithUnit("{message}"), metric.WithDescription("Published messages whose Idempotency-Key could not be kept; a repeated request sends another one, which is dropped when it is received."))
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("make counter: %w", err)
	}
	for _, c := range []metric.Int64Counter{a.published, a.unrecorded, a.unfinished} {
		c.Add(context.Background(), 0) // a counter that is born with its first event never rises
	}
	return a, nil
}

// Flush waits for the records of what was published, 2 s at most. What is published from then on has no record.
func (a *Publisher) Flush() { a.recording.flush() }

// Publish sends what the request says to a queue: its body as it is, a CloudEvents event
// of structured or binary mode, or a batch of events.
func (a *Publisher) Publish(w http.ResponseWriter, r *http.Request) error {
	name, badQueue := web.QueueParam(r)
	opts, badOptions := publishOptions(r)
	mode, badMode := readMode(r)
	key, badKey := web.IdempotencyKey(r)
	if mode == batched && key != "" {
		badKey = keyWithBatch
	}
	p := publication{queue: name, opts: opts}
	wrong := web.Together(badQueue, badOptions, badMode, badKey)
	if mode == batched {
		return a.publishBatch(w, r, p, wrong)
	}
	out, err := readOutgoing(w, r, mode)
	if err = web.Together(wrong, err); err != nil {
		return err
	}
	p.outgoing, p.key = out, key
	if p.text, err = p.encode(a.Encoding(name)); err != nil {
		return p.encodeProblem(err)
	}
	if key != "" {
		return a.publishOnce(w, r, p)
	}
	sent, handed, err := a.send(r.Context(), p)
	if err != nil {
		return sendProblem(err)
	}
	if !handed {
		a.Wake(p.queue)
	}
	a.recordPublished(r, p, sent)
	return a.accepted(w, r, p, sent)
}

// RecordedSends is a store that keeps queues and records together.
type RecordedSends interface {
	// SendRecorded sends a message as queue.Queue's Send does, and records what record
	// makes of the answer: both or neither. record may be called more than once, and
	// must not wait. handed says that the message is being delivered already, so that
	// nobody has to be woken for it.
	SendRecorded(ctx context.Context, queueName string, text []byte, opts queue.SendOptions, record func(queue.Sent) tables.Record) (sent queue.Sent, handed bool, err error)
}

// send stores the message, with its record where the store can. When it was not handed to
// the dispatcher, that is to be woken.
func (a *Publisher) send(ctx context.Context, p publication) (sent queue.Sent, handed bool, err error) {
	if a.RecordedSends != nil {
		d := newPublished(p, a.Encoding(p.queue))
		sent, handed, err = a.RecordedSends.SendRecorded(ctx, p.queue, p.text, p.opts, func(sent queue.Sent) tables.Record {
			return tables.Record{Deliveries: []tables.Delivery{publishedAs(d, p, sent)}}
		})
	} else {
		var q queue.Queue
		if q, err = a.Queues.Queue(p.queue); err != nil {
			return queue.Sent{}, false, fmt.Errorf("open queue: %w", err)
		}
		sent, err = q.Send(ctx, p.text, p.opts)
	}
	if err == nil {
		a.published.Add(ctx, 1)
	}
	return sent, handed, err
}

// accepted writes the answer of a publish.
func (a *Publisher) accepted(w http.ResponseWriter, r *http.Request, p publication, sent queue.Sent) error {
	w.Header().Set("Location", "/api/v1/messages/"+url.PathEscape(sent.ID))
	view := newPublishedView(p, sent)
	view.Warnings = a.Warnings(r.Context(), p.queue)
	return web.WriteJSON(w, http.StatusAccepted, view)
}

func newPublishedView(p publication, sent queue.Sent) publishedView {
	return publishedView{
		MessageID:  sent.ID,
		Queue:      p.queue,
		InsertedAt: sent.InsertedAt.UTC(),
		ExpiresAt:  web.UTC(sent.ExpiresAt),
		VisibleAt:  sent.InsertedAt.Add(p.opts.Delay).UTC(),
	}
}

// maxKeyedDelay leaves a day of the 7 in which the dispatcher knows two messages of one key for one.
const maxKeyedDelay = 6 * 24 * time.Hour

// shownFor is how much of its life a message has at least after its delay, or half of its life if that is less (ADR 0134).
const shownFor = time.Minute

// publishOptions reads delay and ttl.
func publishOptions(r *http.Request) (queue.SendOptions, error) {
	q := web.ReadQuery(r, "delay", "ttl")
	opts := queue.SendOptions{Delay: q.Seconds("delay", queue.MaxDelay)}
	switch q.Values.Get("ttl") {
	case "":
	case "never":
		opts.TTL = queue.NoExpiry
	default:
		const century = 100 * 365 * 24 * time.Hour
		if opts.TTL = q.Seconds("ttl", century); opts.TTL == 0 && len(q.Problems) == 0 {
			q.Fail("ttl", "is not positive", "give a duration such as 24h, or never, or leave it out for 7 days")
		}
	}
	if opts.Delay > maxKeyedDelay && r.Header.Get(web.IdempotencyHeader) != "" {
		q.Fail("delay", fmt.Sprintf("is above %s, too long with an Idempotency-Key: the key says for 7 days that two messages are one", maxKeyedDelay), "give a shorter delay, or no key")
	}
	life := opts.TTL
	if life == 0 {
		life = queue.DefaultTTL
	}
	if free := min(life/2, shownFor); len(q.Problems) == 0 && opts.TTL != queue.NoExpiry && opts.Delay > life-free {
		q.Fail("delay", fmt.Sprintf("leaves less than %s of the message's life of %s, too little for it to be seen in time", free, life), "give a shorter delay, or a longer ttl such as ttl=never")
	}
	return opts, q.Err()
}

// sendProblem says what a failed Encode or Send means to the publisher.
func sendProblem(err error) *web.Problem {
	switch {
	case errors.Is(err, queue.ErrTooLarge):
		return web.NewProblem(web.TooLarge,
			fmt.Sprintf("The message does not fit into the %d bytes that a queue message can have.", queue.MaxTextBytes),
			web.Wrong("body", fmt.Sprintf("does not fit into %d bytes as it is stored", queue.MaxTextBytes),
				"send at most about 48,000 bytes where the body is binary or has a content type of its own; put larger payloads into a blob and send its address"))
	case errors.Is(err, queue.ErrUnsendable):
		return web.NewProblem(web.Unsendable,
			"The body has characters that this queue can't carry under its encoding.",
			web.Wrong("body", "has characters that the queue's encoding can't carry", "set the queue's encoding to auto or base64, or send other bytes"))
	case queue.Ambiguous(err):
		p := web.StorageFault("publish the message", err)
		p.Detail = "Storage did not answer, so the message may or may not be in the queue: sending it again can publish it twice. /readyz says what is wrong."
		return p
	}
	p := web.StorageFault("publish the message", err)
	if why := web.Known(err); why != "" {
		p.Detail = "The message was not published: " + why
		return p
	}
	p.Detail = "Storage refused the message, so it was not published. Send it again in a moment; /readyz says what is wrong."
	return p
}

// newPublished is the message-level record of a publish, as far as it is known before.
func newPublished(p publication, setting queue.Encoding) tables.Delivery {
	sum := sha256.Sum256(p.body)
	d := tables.Delivery{
		MessageKey: tables.MessageKey{Queue: p.queue},
		State:      tables.Published,
		Size:       len(p.body),
		BodyHash:   hex.EncodeToString(sum[:8]),
	}
	if read, err := queue.Decode(setting, p.text); err == nil {
		d.Encoding = string(read.Encoding)
	}
	return d
}

// publishedAs completes d with what storage said.
func publishedAs(d tables.Delivery, p publication, sent queue.Sent) tables.Delivery {
	d.MessageID, d.Day = sent.ID, sent.InsertedAt
	d.NextAt, d.UpdatedAt, d.ExpiresAt = sent.InsertedAt.Add(p.opts.Delay), sent.InsertedAt, sent.ExpiresAt
	return d
}
