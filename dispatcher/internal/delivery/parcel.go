package delivery

import (
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/pushlease/pushlease/dispatcher/internal/admission"
	"github.com/pushlease/pushlease/dispatcher/internal/claims"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook/content"
)

// parcel is one received message, opened: what to POST, and under which name it is
// remembered.
type parcel struct {
	m   *queue.Message
	key tables.MessageKey
	// instance is this process, and receivedAt when it received the message.
	instance   string
	receivedAt time.Time
	// setting is the encoding setting, and text the stored text that it reads; for a
	// replay both are the dead letter's.
	setting queue.Encoding
	text    []byte
	body    queue.Body
	hash    string
	// content is the body as filters and formats see it.
	content content.Content
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
	// terms are those of whoever received it.
	terms Terms
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
func (p *parcel) origin() content.Origin {
	return content.Origin{MessageID: p.key.MessageID, Queue: p.key.Queue, InsertedAt: p.insertedAt}
}

// parent is the span that the event names, or else the publish. What is malformed counts
// as absent.
func (p *parcel) parent() trace.SpanContext {
	if e := p.content.Event; e != nil && e.Parent.IsValid() {
		return e.Parent
	}
	return content.ParentOf(p.body.TraceParent, p.body.TraceState)
}

// newDelivery is a delivery of this parcel that has seen nothing yet.
func (p *parcel) newDelivery(webhookID string) tables.Delivery {
	return tables.Delivery{
		MessageKey: p.key, WebhookID: webhookID, Generation: p.generation, State: tables.Pending,
		ExpiresAt: p.m.ExpiresAt, Encoding: string(p.body.Encoding), Size: len(p.body.Bytes), BodyHash: p.hash,
		Instance: p.instance,
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

// giveUp marks a delivery as dead-lettering. Its row is written by the completer.
func giveUp(del *tables.Delivery, reason policy.Reason, now time.Time) {
	now = now.UTC().Truncate(time.Millisecond)
	del.State, del.Reason, del.UpdatedAt, del.NextAt = tables.DeadLettering, reason, now, time.Time{}
	del.DeadLetterID = tables.DeadLetterID(del.MessageKey, del.WebhookID, del.Generation, now)
}

// hold lets a delivery wait for delay, or gives it up when less than margin of the
// message's life is left.
func (p *parcel) hold(del *tables.Delivery, reason policy.Reason, delay, margin time.Duration) {
	now := time.Now().UTC().Truncate(time.Millisecond)
	if !p.m.ExpiresAt.IsZero() && now.Add(margin).After(p.m.ExpiresAt) {
		giveUp(del, reason, now)
		return
	}
	del.State, del.Reason, del.NextAt, del.UpdatedAt = tables.Held, reason, now.Add(delay), now
}

// keepLast keeps the record of the POST that ends as the last one of the message, which the
// outcome takes along. With false the record is to be written now: others are still under way, or
// a note about the message has to be taken back before the next suspected one's turn.
func (p *parcel) keepLast(rec tables.Record) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.underWay--; p.underWay > 0 || p.alone {
		return false
	}
	p.last = []tables.Record{rec}
	return true
}

// takeLast returns the record that keepLast kept, if any.
func (p *parcel) takeLast() []tables.Record {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.last
	p.last = nil
	return last
}

// bodyHash is the first 16 hex digits of the SHA-256: enough to tell two bodies
// apart, too little to confirm a guess of a secret one by its full digest.
func bodyHash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}
