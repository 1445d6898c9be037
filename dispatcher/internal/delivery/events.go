package delivery

import (
	"context"
	"errors"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/claims"
	"github.com/pushlease/pushlease/dispatcher/internal/meter"
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

// claimEvent is the claim on the parcel's event by its message. Until leaves room for the
// slowest of the POSTs that are due, as often as they take turns where places are few.
func (p *parcel) claimEvent(targets []target) *claims.Claim {
	longest, delivered := time.Duration(0), false
	for i := range targets {
		longest = max(longest, targets[i].registration.Longest())
		delivered = delivered || targets[i].delivery.State == tables.Delivered
	}
	c := &claims.Claim{Delivered: delivered, ExpiresAt: p.m.ExpiresAt, Claim: tables.Claim{
		Key: p.event, Owner: p.key.MessageID, At: p.insertedAt, MessageID: p.key.MessageID, BodyHash: p.hash,
		Until: time.Now().Add(longest*time.Duration(max(1, (dueNow(targets)+postsOfOwn-1)/postsOfOwn)) + p.m.Lease.Granted() + claims.Margin),
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

// events keep messages with the same event apart.
type events struct {
	*Options
	wholes wholes
}

// otherCopy decides about a message whose event another message has, where it must not be
// POSTed now; otherwise it returns nil, and the event is this message's from here on. Where
// the store can't be asked about a message that nobody can have POSTed without a record, and where the bodies
// differ, the message is delivered and that is counted: nothing is lost for the sake of deduplication. A claim of
// another message that another program has changed may be that of a delivered event: every copy waits until it is mended.
func (e events) otherCopy(ctx context.Context, p *parcel, h history, targets []target) *Outcome {
	now, replay := time.Now(), p.replay != nil
	if anyDue(targets) || anyAttempt(targets) { // it was claimed then, and settling ends or keeps the claim
		p.claim = p.claimEvent(targets)
	}
	if !anyDue(targets) {
		return nil
	}
	current, won, err := e.Claims.Take(ctx, *p.claim, now)
	if err != nil {
		e.Meter.LookupsFailed.Add(meter.Labels{Queue: p.key.Queue})
	}
	switch {
	case replay && err == nil: // which is always POSTed, since somebody asked for it
		return nil
	case !replay && errors.Is(err, tables.ErrDamaged):
		p.claim = nil
		e.Log.Error("another program has changed the claim on the message's event; the message waits, since it may have been delivered with another one",
			"queue", p.key.Queue, "message", p.key.MessageID, "error", err)
		return e.wait(p, h, targets, "", otherCopyDelay(p.m, otherCopyMax))
	case !replay && err != nil && p.shared: // it was received before without an outcome on record
		if outcome := untilAsked(p.m, p.slack); outcome != nil {
			e.PutOffs.Remember(p.key.Queue, p.m.ID, p.m.DequeueCount)
			e.Log.Error("the message's event can't be looked up; the message waits, since it may have been delivered", "queue", p.key.Queue, "message", p.key.MessageID, "error", err)
			p.claim = nil
			return outcome
		}
		fallthrough
	case err != nil:
		e.Log.Error("the message's event can't be looked up; delivering anyway", "queue", p.key.Queue, "message", p.key.MessageID, "error", err)
		return nil
	}
	if won && current.State != tables.Done || !won && current.MessageID == p.key.MessageID { // its replay to one webhook says nothing of the others
		return nil
	}
	p.claim = nil
	switch {
	case won: // finished before by this very message
		e.Meter.Reappeared(p.key.Queue, p.key.MessageID)
		return e.duplicate(p, h, targets, "redelivery", "")
	case current.BodyHash != p.hash:
		e.Log.Warn("two messages with the same event have different bodies; both are delivered",
			"queue", p.key.Queue, "message", p.key.MessageID, "other", current.MessageID)
		e.Meter.Conflicts.Add(meter.Labels{Queue: p.key.Queue})
		return nil
	case current.State == tables.Done:
		e.Log.Info("another message with the same event was delivered; this one is deleted without a POST",
			"queue", p.key.Queue, "message", p.key.MessageID, "other", current.MessageID)
		return e.duplicate(p, h, targets, "event", current.MessageID)
	}
	e.Log.Info("another message with the same event is being delivered; this one waits for what becomes of it",
		"queue", p.key.Queue, "message", p.key.MessageID, "other", current.MessageID)
	return e.wait(p, h, targets, current.MessageID, otherCopyDelay(p.m, current.Until.Sub(now)))
}

// wait lets a message wait for what becomes of its event with the message other, empty where that
// can't be told.
func (e events) wait(p *parcel, h history, targets []target, other string, delay time.Duration) *Outcome {
	del := p.whole(h)
	del.SameEventAs = other
	p.hold(&del, policy.EventInWork, delay, PostponeMargin(p.m)+p.slack)
	if del.State.Terminal() && h.anyEnded() {
		return e.wholes.giveUpRest(p, h, targets, del.Reason)
	}
	p.keepHeld(del)
	return foldWhole(p, h, del)
}

// duplicate ends a message whose event was delivered with another one, or with itself. It
// is recorded on the message, and on what was under way for single webhooks. other is the
// message that had the event.
func (e events) duplicate(p *parcel, h history, targets []target, kind, other string) *Outcome {
	list := []tables.Delivery{p.whole(h)}
	for i := range targets {
		t := &targets[i]
		if _, known := h.deliveries[t.delivery.WebhookID]; known && !t.delivery.State.Terminal() {
			list = append(list, t.delivery)
		}
	}
	return endAsDuplicate(list, kind, other)
}

// endAsDuplicate ends the deliveries as duplicates of the message other.
func endAsDuplicate(list []tables.Delivery, kind, other string) *Outcome {
	now := time.Now().UTC().Truncate(time.Millisecond)
	for i := range list {
		del := &list[i]
		del.State, del.Reason, del.NextAt, del.UpdatedAt, del.SameEventAs = tables.Duplicate, policy.Duplicate, time.Time{}, now, other
	}
	return recorded(&Outcome{Action: policy.Complete, Reason: policy.Duplicate, Duplicate: kind}, list...)
}

// otherCopyDelay is how long a message waits for the outcome of another one: no longer
// than that one's claim lasts.
func otherCopyDelay(m *queue.Message, left time.Duration) time.Duration {
	delay := retry.Backoff(int(min(m.DequeueCount, 30)), otherCopyMin, otherCopyMax)
	return min(delay, max(left+time.Second, time.Second))
}
