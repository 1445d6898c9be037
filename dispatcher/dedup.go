package dispatcher

import (
	"context"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/claims"
	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

const (
	// The wait of a message whose event another one is being delivered for, from first
	// to last look.
	otherCopyMin = 2 * time.Second
	otherCopyMax = 5 * time.Minute
)

// eventOf names the event that a parcel carries, for deduplication; empty when it is told
// apart by its message id alone.
//
// The event's own id counts before the publisher's idempotency key: the same event may
// also come by another way. The key counts on every queue, since its publisher asked for it.
func (d *Dispatcher) eventOf(p *parcel) string {
	switch {
	case d.o.ByEvent(p.key.Queue) && p.content.Event != nil:
		return tables.ClaimKey("event", p.key.Queue, p.content.Event.Key())
	case p.body.IdempotencyKey != "":
		return tables.ClaimKey("idempotency key", p.key.Queue, p.body.IdempotencyKey)
	}
	return ""
}

// claimEvent is the claim on the parcel's event by its message. Until leaves room for the
// slowest of the POSTs that are due.
func (p *parcel) claimEvent(targets []target) *claims.Claim {
	longest, delivered := time.Duration(0), false
	for i := range targets {
		longest = max(longest, targets[i].registration.Longest())
		delivered = delivered || targets[i].delivery.State == tables.Delivered
	}
	c := &claims.Claim{Delivered: delivered, ExpiresAt: p.m.ExpiresAt, Claim: tables.Claim{
		Key: p.event, Owner: p.key.MessageID, At: p.insertedAt, MessageID: p.key.MessageID, BodyHash: p.hash,
		Until: time.Now().Add(longest + p.m.Lease.Granted() + claims.Margin),
	}}
	if p.replay != nil {
		// An owner of its own, since the original may be under way for other webhooks, and
		// must not take the replay's end for its own; the same for all of the message's
		// replays, so that none is kept from the claim by one that failed. The claim is
		// kept from when the replay was asked for.
		c.Replay, c.Owner, c.At = true, p.key.MessageID+" replayed", p.m.InsertedAt
	}
	return c
}

// otherCopy decides about a message whose event another message has: other is true when
// it must not be POSTed now. Otherwise the event is this message's from here on. Where
// the store can't be asked, and where the bodies differ, the message is delivered and
// that is counted: nothing is lost for the sake of deduplication.
func (d *Dispatcher) otherCopy(ctx context.Context, p *parcel, h history, targets []target) (decision Outcome, other bool) {
	if p.event == "" {
		return Outcome{}, false
	}
	now := time.Now()
	mine := p.claimEvent(targets)
	if !anyDue(targets) {
		if anyAttempt(targets) { // it was claimed then, and settling ends or keeps the claim
			p.claim = mine
		}
		return Outcome{}, false
	}
	if p.replay != nil {
		p.claim = mine
		d.claimForReplay(ctx, p)
		return Outcome{}, false
	}
	p.claim = mine
	current, won, err := d.claims.Take(ctx, *mine, now)
	if err != nil {
		d.log.Error("the message's event can't be looked up; delivering anyway", "queue", p.key.Queue, "message", p.key.MessageID, "error", err)
		d.metrics.LookupFailed(p.key.Queue)
		return Outcome{}, false
	}
	if won && current.State != tables.Done {
		return Outcome{}, false
	}
	p.claim = nil
	switch {
	case won: // finished before by this very message
		d.completer.Reappeared(p.key.Queue, p.key.MessageID)
		return d.duplicate(ctx, p, h, targets, "redelivery", ""), true
	case current.BodyHash != p.hash:
		d.log.Warn("two messages with the same event have different bodies; both are delivered",
			"queue", p.key.Queue, "message", p.key.MessageID, "other", current.MessageID)
		d.metrics.DedupConflict(p.key.Queue)
		return Outcome{}, false
	case current.State == tables.Done:
		d.log.Info("another message with the same event was delivered; this one is deleted without a POST",
			"queue", p.key.Queue, "message", p.key.MessageID, "other", current.MessageID)
		return d.duplicate(ctx, p, h, targets, "event", current.MessageID), true
	}
	del := d.wholeMessage(p, h)
	del.SameEventAs = current.MessageID
	p.hold(&del, policy.EventInWork, otherCopyDelay(p.m, current.Until.Sub(now)),
		lastOfLife(p.m.InsertedAt, p.m.ExpiresAt, policy.ExpiryMargin))
	if del.State == tables.DeadLettering && h.anyEnded() {
		return d.giveUpRest(ctx, p, h, targets, del.Reason), true
	}
	d.excuse(d.writing(ctx), del)
	d.log.Info("another message with the same event is being delivered; this one waits for what becomes of it",
		"queue", p.key.Queue, "message", p.key.MessageID, "other", current.MessageID, "next", del.NextAt)
	return d.fold(p, h, []target{gone(del)}), true
}

// claimForReplay claims the event of a replay for as long as it is delivered.
func (d *Dispatcher) claimForReplay(ctx context.Context, p *parcel) {
	if err := d.claims.TakeForReplay(ctx, *p.claim); err != nil {
		d.log.Warn("the event of a replay could not be claimed; another message with the event may be delivered meanwhile",
			"queue", p.key.Queue, "message", p.key.MessageID, "error", err)
		d.metrics.LookupFailed(p.key.Queue)
	}
}

// duplicate ends a message whose event was delivered with another one, or with itself. It
// is recorded on the message, and on what was under way for single webhooks. other is the
// message that had the event.
func (d *Dispatcher) duplicate(ctx context.Context, p *parcel, h history, targets []target, kind, other string) Outcome {
	now := time.Now().UTC().Truncate(time.Millisecond)
	list := []tables.Delivery{d.wholeMessage(p, h)}
	for i := range targets {
		t := &targets[i]
		if _, known := h.deliveries[t.delivery.WebhookID]; known && !t.delivery.State.Terminal() {
			list = append(list, t.delivery)
		}
	}
	for i := range list {
		del := &list[i]
		del.State, del.Reason, del.NextAt, del.UpdatedAt, del.SameEventAs = tables.Duplicate, policy.Duplicate, time.Time{}, now, other
	}
	d.journal.RecordAll(d.writing(ctx), list)
	d.metrics.Duplicate(p.key.Queue, kind)
	return Outcome{Action: policy.Complete, Reason: policy.Duplicate}
}

// otherCopyDelay is how long a message waits for the outcome of another one: no longer
// than that one's claim lasts, and never past the middle of its own remaining life.
func otherCopyDelay(m *queue.Message, left time.Duration) time.Duration {
	delay := retry.Backoff(int(min(m.DequeueCount, 30)), otherCopyMin, otherCopyMax)
	delay = min(delay, max(left+time.Second, time.Second))
	if !m.ExpiresAt.IsZero() {
		delay = min(delay, max(time.Until(m.ExpiresAt)/2, time.Second))
	}
	return delay
}

func anyAttempt(targets []target) bool {
	return some(targets, func(t *target) bool { return t.delivery.Attempts > 0 })
}

func anyDue(targets []target) bool {
	now := time.Now()
	return some(targets, func(t *target) bool { return t.due(now) })
}
