package delivery

import (
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/pushlease/pushlease/dispatcher/internal/admission"
	"github.com/pushlease/pushlease/dispatcher/internal/claims"
	"github.com/pushlease/pushlease/dispatcher/internal/journal"
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
	// untold is how many of its earlier receives no record tells of, of a parcel for one webhook: each may have been a POST.
	untold int
	// alone: it is suspected, and the only one of these that is POSTed now.
	alone bool
	// terms are those of whoever received it.
	terms Terms
	// behind: the webhooks were changed, and can't be read since.
	behind bool
	// slack is how much earlier its last look has to be than where its queue is polled.
	slack time.Duration
	// grant is told how far the message is.
	grant *admission.Grant
	// targets are the webhooks that it is due to.
	targets []target
	// heldRows are deliveries that are held, until a record takes them along, ended are those that were given up without a POST, and
	// posted is how many POSTs were begun with this receive; mu guards them.
	mu       sync.Mutex
	heldRows []tables.Delivery
	ended    []tables.Delivery
	posted   int
	// due are deliveries that nobody could tell of any more once another one of the message is on record (see name). mu guards it.
	due []tables.Delivery
	// replay is the dead letter that is being replayed, nil otherwise.
	replay *tables.DeadLetter
	// copyOf is the dead letter of which the message is the copy on a poison queue, nil otherwise.
	copyOf *tables.DeadLetter
	// underWay is how many POSTs are under way, and last the record of the one that ended
	// last: it goes with the outcome. mu guards both.
	underWay int
	last     []tables.Record
}

// isNew reports whether the message has no history. The dequeue count of its first receive proves that nobody
// ever had it, lost answers included, so storage is not asked; but for a replay, which may share its record
// with another one (ADR 0029), and on a poison queue, where a record says of which dead
// letter a message is the copy.
func (p *parcel) isNew() bool {
	return p.m.DequeueCount <= 1 && p.replay == nil && !strings.HasSuffix(p.key.Queue, tables.PoisonSuffix)
}

// owns reports whether a record under the parcel's key can be about it. One message
// may have several dead letters, each replayed on its own, and what came of one
// replay says nothing about another: only the same pointer was inserted at the same
// time.
func (p *parcel) owns(del tables.Delivery) bool { return p.replay == nil || p.isOwn(del) }

// ofAnotherReplay reports whether a record is of a webhook that this replay was not asked for. Replays of one
// message for two webhooks may have been asked for in one second, which is all that storage tells of the
// time: then they are alike but for that.
func (p *parcel) ofAnotherReplay(del tables.Delivery) bool {
	return p.replay != nil && p.replay.WebhookID != "" && del.WebhookID != p.replay.WebhookID
}

// isOwn reports whether a record is about this very queue message, and not about the original
// or a replay of it: another one was inserted at another time.
func (p *parcel) isOwn(del tables.Delivery) bool {
	return del.Day.UnixMilli() == p.key.Day.UnixMilli()
}

// overtaken reports whether a later replay, of another dead letter of the message, has the
// record of the same delivery by now: the stores keep one for each day. What comes of this
// replay would be forgotten each time, so that it would never end.
func (p *parcel) overtaken(del tables.Delivery) bool {
	return p.replay != nil && del.WebhookID != "" && del.Day.UnixMilli() > p.key.Day.UnixMilli()
}

// origin is what an event that is made of this parcel says about it.
func (p *parcel) origin() content.Origin {
	id := p.key.MessageID
	if p.copyOf != nil {
		id = p.copyOf.MessageID
	}
	return content.Origin{MessageID: id, Queue: p.key.Queue, InsertedAt: p.insertedAt}
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
	named := ""
	if p.copyOf != nil {
		named = p.copyOf.ID
	}
	return tables.Delivery{
		DeadLetterID: named, MessageKey: p.key, WebhookID: webhookID, Generation: p.generation, State: tables.Pending,
		UpdatedAt: p.key.Day, ExpiresAt: p.m.ExpiresAt, Encoding: string(p.body.Encoding), Size: len(p.body.Bytes), BodyHash: p.hash,
		Instance: p.instance,
	}
}

// deadLetter makes the dead letter of a delivery that was given up.
func (p *parcel) deadLetter(del tables.Delivery, description string) tables.DeadLetter {
	if del.Reason != policy.Undecodable && del.BodyHash != p.hash && p.hash != "" { // it was read by another setting before
		del.Size, del.BodyHash = len(p.body.Bytes), p.hash
	}
	return tables.DeadLetter{
		ID: del.DeadLetterID, MessageKey: p.key, WebhookID: del.WebhookID, Generation: del.Generation,
		Status: tables.Waiting, Reason: del.Reason, Description: description,
		Attempts: del.Attempts, LastStatus: del.LastStatus, LastErrorClass: del.LastErrorClass,
		FirstAt: del.FirstAt, LastAt: del.LastAt, DeadLetteredAt: del.UpdatedAt,
		Text: p.text, Encoding: string(p.setting), Size: del.Size, BodyHash: del.BodyHash,
		DequeueCount: p.m.DequeueCount, InsertedAt: p.insertedAt, Instance: del.Instance,
	}
}

// giveUp marks a delivery as dead-lettering. Its row is written by the completer. A copy is dead-lettered at
// once: its own dead letter is there, and goes on waiting.
func (p *parcel) giveUp(del *tables.Delivery, reason policy.Reason, now time.Time) {
	now = now.UTC().Truncate(time.Millisecond)
	del.State, del.Reason, del.UpdatedAt, del.NextAt = tables.DeadLettering, reason, now, time.Time{}
	if p.copyOf != nil {
		del.State, del.DeadLetterID = tables.DeadLettered, p.copyOf.ID
		return
	}
	del.DeadLetterID = tables.DeadLetterID(del.MessageKey, del.WebhookID, del.Generation, now)
}

// ends reports whether nobody can have the message before its life is over: it is about to expire under
// our lease, or has expired. On Azure it is gone then, and so is what has not had its turn.
func (p *parcel) ends(now time.Time) bool {
	return p.expires(now) && (!p.m.Lease.Over(now) || !now.Before(p.m.ExpiresAt))
}

// expires reports whether so little is left of the message's life that nobody may be there to receive it again.
func (p *parcel) expires(now time.Time) bool {
	return !p.m.ExpiresAt.IsZero() && p.m.ExpiresAt.Sub(now) < policy.ExpiryMargin
}

// lastLookIsOver reports whether so little is left that whoever looks at the message's queue may not see it again.
func (p *parcel) lastLookIsOver(now time.Time) bool { return p.expires(now.Add(p.slack)) }

// hold lets a delivery wait for delay, or gives it up when less than margin of the message's
// life is left. The wait never goes past the middle of what is left, nor into margin: it is
// looked at again while something can still come of it.
func (p *parcel) hold(del *tables.Delivery, reason policy.Reason, delay, margin time.Duration) {
	now := time.Now().UTC().Truncate(time.Millisecond)
	if !p.m.ExpiresAt.IsZero() {
		left := p.m.ExpiresAt.Sub(now)
		if left < margin {
			p.giveUp(del, reason, now)
			return
		}
		delay = min(delay, max(min(left/2, left-margin), time.Second))
	}
	del.State, del.Reason, del.NextAt, del.UpdatedAt = tables.Held, reason, now.Add(delay), now
}

// keepHeld keeps the record of a delivery that gets no POST now: the record of a POST takes it along, and else the
// end of this receive. One webhook's POST waits for no record about another, and costs no transaction more beside it. One that is given
// up is the outcome's: whether it stands is decided when that is settled.
func (p *parcel) keepHeld(del tables.Delivery) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if del.State.Terminal() && del.State != tables.Withdrawn {
		p.ended = append(p.ended, del)
		return
	}
	p.heldRows = append(p.heldRows, del)
}

// name lays beside rec, the first record about one of the message's webhooks, that the message is due to the others. Else nobody could
// tell later that one of these that was registered after the message was inserted had it with this receive.
func (p *parcel) name(rec *tables.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.due) == 0 || rec.Deliveries[0].WebhookID == "" {
		return
	}
	others := p.dueBeside(rec.Deliveries)
	n := min(len(others), journal.MaxRows-len(rec.Deliveries)-len(rec.Attempts))
	rec.Deliveries, p.due = append(rec.Deliveries, others[:n]...), others[n:]
}

// named are records in which the message's webhooks are named.
func (p *parcel) named(list []tables.Record) []tables.Record {
	for i := range list {
		p.name(&list[i])
	}
	return list
}

// dueBeside are those that are due and not in the list. p.mu is held.
func (p *parcel) dueBeside(list []tables.Delivery) (others []tables.Delivery) {
	for _, d := range p.due {
		if !slices.ContainsFunc(list, func(own tables.Delivery) bool { return own.WebhookID == d.WebhookID }) {
			others = append(others, d)
		}
	}
	return others
}

// lastLook is when the last look at the message that is sure to come must begin; the zero time where
// it lives for ever.
func (p *parcel) lastLook() time.Time {
	if p.m.ExpiresAt.IsZero() {
		return time.Time{}
	}
	return p.m.ExpiresAt.Add(-PostponeMargin(p.m) - p.slack)
}

// begins notes that t's POST begins, and over that it has ended.
func (p *parcel) begins(t *target) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t.begun = time.Now()
	p.posted++
}

func (p *parcel) over(t *target) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t.begun = time.Time{}
}

// notPosted notes that t's POST, which was over before its first byte, is none.
func (p *parcel) notPosted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.posted--
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
