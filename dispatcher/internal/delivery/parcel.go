package delivery

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/pushlease/pushlease/dispatcher/internal/admission"
	"github.com/pushlease/pushlease/dispatcher/internal/claims"
	"github.com/pushlease/pushlease/dispatcher/internal/retry"
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
	// slack is how much earlier its last look has to be than where its queue is polled.
	slack time.Duration
	// grant is told how far the message is.
	grant *admission.Grant
	// heldRows are deliveries that are held, until a record takes them along; mu guards them.
	mu       sync.Mutex
	heldRows []tables.Delivery
	// replay is the dead letter that is being replayed, nil otherwise.
	replay *tables.DeadLetter
	// copyOf is the dead letter of which the message is the copy on a poison queue, nil otherwise.
	copyOf *tables.DeadLetter
	// underWay is how many POSTs are under way, and last the record of the one that ended
	// last: it goes with the outcome. mu guards both.
	underWay int
	last     []tables.Record
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
		ExpiresAt: p.m.ExpiresAt, Encoding: string(p.body.Encoding), Size: len(p.body.Bytes), BodyHash: p.hash,
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
	end := p.m.ExpiresAt
	return !end.IsZero() && end.Sub(now) < policy.ExpiryMargin && (now.Before(p.m.Lease.Until()) || !now.Before(end))
}

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

// errStaleReplay: the pointer's dead letter is gone, or its replay was finished or
// asked for anew.
var errStaleReplay = errors.New("replay pointer without a replay")

// errAltered: another program has changed the pointer's dead letter since its replay was asked for.
var errAltered = errors.New("the dead letter is not what it was when its replay was asked for")

// opener decodes messages.
type opener struct{ *Options }

// parcel is a message that was not opened yet.
func (o opener) parcel(queueName string, m *queue.Message, terms Terms, grant *admission.Grant) *parcel {
	return &parcel{
		m: m, instance: o.Instance, receivedAt: time.Now(), text: m.Text, insertedAt: m.InsertedAt,
		key:     tables.MessageKey{Queue: queueName, MessageID: m.ID, Day: m.InsertedAt},
		setting: o.Encoding(queueName), terms: terms, slack: lookSlack(m, o.LookGap(queueName)), grant: grant,
	}
}

// open decodes a message. An error that wraps queue.ErrUndecodable, queue.ErrNewer,
// errStaleReplay or errAltered concerns this message; any other means that storage could not be
// asked.
func (o opener) open(ctx context.Context, p *parcel) (err error) {
	if p.body, err = queue.Decode(p.setting, p.text); err != nil {
		p.hash = tables.BodyHash(p.text)
		return fmt.Errorf("decode: %w", err)
	}
	if p.body.Replay != nil {
		if err := o.openReplay(ctx, p, *p.body.Replay); err != nil {
			return err
		}
	}
	p.body.ContentType = queue.ContentTypeOf(p.setting, p.body)
	p.hash = tables.BodyHash(p.body.Bytes)
	p.content = content.Read(p.body.Bytes, p.body.ContentType)
	p.event = o.eventOf(p)
	return nil
}

// openReplay loads what a replay pointer stands for: the original text under the
// original id, as a new generation, for the dead letter's webhook only.
func (o opener) openReplay(ctx context.Context, p *parcel, r queue.Replay) error {
	owner, _, ok := tables.SplitDeadLetterID(r.DeadLetter)
	if !ok || owner != p.key.Queue {
		return errStaleReplay
	}
	row, err := retry.Get(ctx, retry.Call, func(ctx context.Context) (tables.DeadLetter, error) {
		return o.DeadLetters.GetDeadLetter(ctx, r.DeadLetter)
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
	setting, err := queue.ParseEncoding(row.Encoding)
	if err != nil {
		setting = p.setting
	}
	setting = queue.SettingFor(setting, row.Text, row.Fits)
	if refused := unaltered(row, setting); refused != nil {
		if err := o.takeToken(ctx, row); err != nil {
			return fmt.Errorf("end the replay of %s, which is refused: %w", row.ID, err)
		}
		return refused
	}
	if row.Status == tables.Waiting {
		if row, err = o.showReplaying(ctx, row); err != nil {
			return err
		}
	}
	p.replay = &row
	p.key.MessageID = row.MessageID // Day stays the pointer's: the original's records may have expired
	p.generation = row.Generation + row.Replays
	p.text, p.insertedAt = row.Text, row.InsertedAt
	if row.Reason != policy.Undecodable {
		// The same bytes as before, whatever the queue is set to by now. What could
		// not be read is replayed because the setting was put right.
		p.setting = setting
	}
	if p.body, err = queue.Decode(p.setting, row.Text); err != nil {
		p.hash = tables.BodyHash(row.Text)
		return fmt.Errorf("decode: %w", err)
	}
	return nil
}

// unaltered refuses a dead letter that another program has changed. The API has looked when the
// replay was asked for, but what is held for a webhook may wait for days.
func unaltered(row tables.DeadLetter, setting queue.Encoding) error {
	body, err := queue.Decode(setting, row.Text)
	if err != nil {
		body.Bytes = nil
	}
	if columns := row.Altered(body.Bytes); columns != "" {
		return fmt.Errorf("%w: look at its columns %s", errAltered, columns)
	}
	if row.Damaged != nil {
		return fmt.Errorf("%w: %w", errAltered, row.Damaged)
	}
	if row.Misnamed() {
		return fmt.Errorf("%w: its id is not that of its columns", errAltered)
	}
	return nil
}

// takeToken ends a replay that is refused: by its missing token, its dead letter waits again within
// the hour.
func (o opener) takeToken(ctx context.Context, row tables.DeadLetter) error {
	if row.Damaged != nil {
		return nil //nolint:nilerr // a damaged row can't be written as it is
	}
	row.Status, row.ReplayToken = tables.Replaying, ""
	_, err := retry.Get(ctx, retry.Call, func(ctx context.Context) (tables.DeadLetter, error) {
		return o.DeadLetters.UpdateDeadLetter(ctx, row)
	})
	return err
}

// showReplaying says on a dead letter that its replay is under way, where who asked for it has not said so
// yet, or died before that. Until then another replay is let past this one when its reservation ends, and a purge
// takes the row away: nothing is POSTed before.
func (o opener) showReplaying(ctx context.Context, row tables.DeadLetter) (tables.DeadLetter, error) {
	saved, err := retry.Get(ctx, retry.Call, func(ctx context.Context) (tables.DeadLetter, error) {
		next := row
		next.Status = tables.Replaying
		saved, err := o.DeadLetters.UpdateDeadLetter(ctx, next)
		if !errors.Is(err, tables.ErrConflict) {
			return saved, err //nolint:wrapcheck // wrapped below
		}
		now, err := o.DeadLetters.GetDeadLetter(ctx, row.ID)
		if err == nil && now.ReplayToken == row.ReplayToken && now.Status != tables.Replaying {
			row, err = now, tables.ErrConflict // the next try is about the row as it is
		}
		return now, err
	})
	switch {
	case errors.Is(err, tables.ErrNotFound), err == nil && saved.ReplayToken != row.ReplayToken:
		return saved, errStaleReplay
	case err != nil:
		return saved, fmt.Errorf("mark dead letter %s as being replayed: %w", row.ID, err)
	}
	return saved, nil
}

// eventOf names the event that a parcel carries, for deduplication; empty when it is told
// apart by its message id alone.
//
// The event's own id counts before the publisher's idempotency key: the same event may
// also come by another way. The key counts on every queue, since its publisher asked for it.
func (o opener) eventOf(p *parcel) string {
	switch {
	case o.ByEvent(p.key.Queue) && p.content.Event != nil:
		return tables.ClaimKey("event", p.key.Queue, p.content.Event.Key())
	case p.body.IdempotencyKey != "":
		return tables.ClaimKey("idempotency key", p.key.Queue, p.body.IdempotencyKey)
	}
	return ""
}
