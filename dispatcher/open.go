package dispatcher

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/admission"
	"github.com/pushlease/pushlease/dispatcher/internal/claims"
	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
	"go.opentelemetry.io/otel/trace"
)

// parcel is one received message, opened: what to POST, and under which name it is
// remembered.
type parcel struct {
	m   *queue.Message
	key tables.MessageKey
	// receivedAt is when it was received by this process.
	receivedAt time.Time
	// setting is the encoding setting, and text the stored text that it reads; for a
	// replay both are the dead letter's.
	setting queue.Encoding
	text    []byte
	body    queue.Body
	hash    string
	// content is the body as filters and formats see it.
	content webhook.Content
	// event names the event that the message carries, for deduplication; claim is the
	// message's claim on it, nil while it has none.
	event string
	claim *claims.Claim
	// insertedAt is when the original message was inserted.
	insertedAt time.Time
	// generation is 0 but for a replay.
	generation int
	// shared: an earlier receive has no outcome yet. It may have been lost, or its
	// holder may be at work still on a lease that has ended.
	shared bool
	// alone: it is suspected, and the only one of these that is POSTed now.
	alone bool
	// give says how long before its expiry the message is held no longer.
	give margins
	// grant is told how far the message is.
	grant *admission.Grant
	// heldRows are deliveries that are held, until a record takes them along; mu guards them.
	mu       sync.Mutex
	heldRows []tables.Delivery
	// replay is the dead letter that is being replayed, nil otherwise.
	replay *tables.DeadLetter
	// underWay is how many POSTs are under way, and last the record of the one that ended
	// last: it goes with the outcome. mu guards both.
	underWay int
	last     []tables.Record
}

// errStaleReplay: the pointer's dead letter is gone, or its replay was finished or
// asked for anew.
var errStaleReplay = errors.New("replay pointer without a replay")

// open decodes a message. An error that wraps queue.ErrUndecodable, queue.ErrNewer or
// errStaleReplay concerns this message; any other means that storage could not be
// asked.
func (d *Dispatcher) open(ctx context.Context, queueName string, m *queue.Message) (*parcel, error) {
	p := &parcel{
		m: m, receivedAt: time.Now(), text: m.Text, insertedAt: m.InsertedAt,
		key:     tables.MessageKey{Queue: queueName, MessageID: m.ID, Day: m.InsertedAt},
		setting: d.o.Encoding(queueName),
	}
	var err error
	if p.body, err = queue.Decode(p.setting, m.Text); err != nil {
		p.hash = bodyHash(m.Text)
		return p, fmt.Errorf("decode: %w", err)
	}
	if p.body.Replay != nil {
		if err := d.openReplay(ctx, p, *p.body.Replay); err != nil {
			return p, err
		}
	}
	if p.body.ContentType == "" {
		p.body.ContentType = queue.DefaultContentType(p.body.Bytes)
	}
	p.hash = bodyHash(p.body.Bytes)
	p.content = webhook.ReadContent(p.body.Bytes, p.body.ContentType)
	p.event = d.eventOf(p)
	return p, nil
}

// openReplay loads what a replay pointer stands for: the original text under the
// original id, as a new generation, for the dead letter's webhook only.
func (d *Dispatcher) openReplay(ctx context.Context, p *parcel, r queue.Replay) error {
	owner, _, ok := tables.SplitDeadLetterID(r.DeadLetter)
	if !ok || owner != p.key.Queue {
		return errStaleReplay
	}
	row, err := retry.Get(ctx, retry.Call, func(ctx context.Context) (tables.DeadLetter, error) {
		return d.o.Store.GetDeadLetter(ctx, r.DeadLetter)
	})
	if errors.Is(err, tables.ErrNotFound) {
		return errStaleReplay
	}
	if err != nil {
		return fmt.Errorf("load dead letter %s: %w", r.DeadLetter, err)
	}
	if row.ReplayToken == "" || subtle.ConstantTimeCompare([]byte(row.ReplayToken), []byte(r.Token)) != 1 {
		return errStaleReplay
	}
	p.replay = &row
	p.key.MessageID = row.MessageID // Day stays the pointer's: the original's records may have expired
	p.generation = row.Generation + row.Replays
	p.text, p.insertedAt = row.Text, row.InsertedAt
	if setting, err := queue.ParseEncoding(row.Encoding); err == nil && row.Reason != policy.Undecodable {
		// The same bytes as before, whatever the queue is set to by now. What could
		// not be read is replayed because the setting was put right.
		p.setting = setting
	}
	if p.body, err = queue.Decode(p.setting, row.Text); err != nil {
		p.hash = bodyHash(row.Text)
		return fmt.Errorf("decode: %w", err)
	}
	return nil
}

// owns reports whether a record under the parcel's key can be about it. One message
// may have several dead letters, each replayed on its own, and what came of one
// replay says nothing about another: only the same pointer was inserted at the same
// time.
func (p *parcel) owns(del tables.Delivery) bool {
	return p.replay == nil || del.Day.UnixMilli() == p.key.Day.UnixMilli()
}

// overtaken reports whether a later replay, of another dead letter of the message, has the
// record of the same delivery by now: the stores keep one for each day. What comes of this
// replay would be forgotten each time, so that it would never end.
func (p *parcel) overtaken(del tables.Delivery) bool {
	return p.replay != nil && del.WebhookID != "" && del.Day.UnixMilli() > p.key.Day.UnixMilli()
}

// origin is what an event that is made of this parcel says about it.
func (p *parcel) origin() webhook.Origin {
	return webhook.Origin{MessageID: p.key.MessageID, Queue: p.key.Queue, InsertedAt: p.insertedAt}
}

// parent is the span that the event names, or else the publish. What is malformed counts
// as absent.
func (p *parcel) parent() trace.SpanContext {
	if e := p.content.Event; e != nil && e.Parent.IsValid() {
		return e.Parent
	}
	return webhook.ParentOf(p.body.TraceParent, p.body.TraceState)
}

// newDelivery is a delivery of this parcel that has seen nothing yet.
func (p *parcel) newDelivery(webhookID, instance string) tables.Delivery {
	return tables.Delivery{
		MessageKey: p.key, WebhookID: webhookID, Generation: p.generation, State: tables.Pending,
		ExpiresAt: p.m.ExpiresAt, Encoding: string(p.body.Encoding), Size: len(p.body.Bytes), BodyHash: p.hash,
		Instance: instance,
	}
}

// deadLetter makes the dead letter of a delivery that was given up.
func (p *parcel) deadLetter(del tables.Delivery, description string) tables.DeadLetter {
	return tables.DeadLetter{
		ID: del.DeadLetterID, MessageKey: p.key, WebhookID: del.WebhookID, Generation: del.Generation,
		Status: tables.Waiting, Reason: del.Reason, Description: description,
		Attempts: del.Attempts, LastStatus: del.LastStatus, LastErrorClass: del.LastErrorClass,
		FirstAt: del.FirstAt, LastAt: del.LastAt, DeadLetteredAt: del.UpdatedAt,
		Text: p.text, Encoding: string(p.setting), Size: del.Size, BodyHash: del.BodyHash,
		DequeueCount: p.m.DequeueCount, InsertedAt: p.insertedAt, Instance: del.Instance,
	}
}

// giveUp marks a delivery as dead-lettering. Its row is written by settle.
func giveUp(del *tables.Delivery, reason policy.Reason, now time.Time) {
	now = now.UTC().Truncate(time.Millisecond)
	del.State, del.Reason, del.UpdatedAt, del.NextAt = tables.DeadLettering, reason, now, time.Time{}
	del.DeadLetterID = tables.DeadLetterID(del.MessageKey, del.WebhookID, del.Generation, now)
}

// beforeExpiry gives up a delivery that was cut short by us when the message would
// be gone before it can be tried again. The policy has seen to all others. One whose
// lease was lost is its new holder's to decide about.
func (p *parcel) beforeExpiry(del tables.Delivery, now time.Time) tables.Delivery {
	if p.m.ExpiresAt.IsZero() || del.State.Terminal() || actionOf(del) != policy.NoVerdict || del.Reason == policy.LeaseLost {
		return del
	}
	at := del.NextAt
	if at.Before(now) {
		at = now
	}
	if p.m.ExpiresAt.Sub(at) >= policy.ExpiryMargin {
		return del
	}
	giveUp(&del, policy.MessageExpiring, now)
	return del
}

// bodyHash is the first 16 hex digits of the SHA-256: enough to tell two bodies
// apart, too little to confirm a guess of a secret one by its full digest.
func bodyHash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}
