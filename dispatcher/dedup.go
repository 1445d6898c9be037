package dispatcher

import (
	"context"
	"errors"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

const (
	// claimMargin is how long a claim on an event outlasts the work that it is for, so
	// that settling and the clocks of others have room.
	claimMargin = time.Minute
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

// claimed is a claim on an event, to be ended when its message is settled.
type claimed struct {
	tables.Claim
	// delivered: a webhook has taken the event, so another message with it is a
	// duplicate. Otherwise the event may be published again.
	delivered bool
	expiresAt time.Time // the message
	// replay: it is a replay's, which does not know who else has got the event. It is
	// never released, but lapses.
	replay bool
}

// lasting is the claim as the store keeps it. Once a webhook has taken the event, no copy
// may be POSTed to it while the message waits for its others, however long no process is
// there to keep the claim: it lasts as long as the message does. Memory does not know it
// for so long, since another process may end it.
func (c claimed) lasting() tables.Claim {
	until := c.expiresAt
	if until.IsZero() {
		until = c.At.Add(tables.ClaimWindow)
	}
	if c.delivered && until.After(c.Until) {
		c.Until = until
	}
	return c.Claim
}

// claimEvent is the claim on the parcel's event by its message. Until leaves room for the
// slowest of the POSTs that are due.
func (p *parcel) claimEvent(targets []target) *claimed {
	longest, delivered := time.Duration(0), false
	for i := range targets {
		longest = max(longest, targets[i].registration.Longest())
		delivered = delivered || targets[i].delivery.State == tables.Delivered
	}
	c := &claimed{delivered: delivered, expiresAt: p.m.ExpiresAt, Claim: tables.Claim{
		Key: p.event, Owner: p.key.MessageID, At: p.insertedAt, MessageID: p.key.MessageID, BodyHash: p.hash,
		Until: time.Now().Add(longest + p.m.Lease.Granted() + claimMargin),
	}}
	if p.replay != nil {
		// An owner of its own, since the original may be under way for other webhooks, and
		// must not take the replay's end for its own; the same for all of the message's
		// replays, so that none is kept from the claim by one that failed. The claim is
		// kept from when the replay was asked for.
		c.replay, c.Owner, c.At = true, p.key.MessageID+" replayed", p.m.InsertedAt
	}
	return c
}

// otherCopy decides about a message whose event another message has: other is true when
// it must not be POSTed now. Otherwise the event is this message's from here on. Where
// the store can't be asked, and where the bodies differ, the message is delivered and
// that is counted: nothing is lost for the sake of deduplication.
func (d *Dispatcher) otherCopy(ctx context.Context, p *parcel, h history, targets []target) (decision Decision, other bool) {
	if p.event == "" {
		return Decision{}, false
	}
	now := time.Now()
	mine := p.claimEvent(targets)
	if !anyDue(targets) {
		if anyAttempt(targets) { // it was claimed then, and settling ends or keeps the claim
			p.claim = mine
		}
		return Decision{}, false
	}
	current, won := d.events.begin(mine.Claim, now)
	if p.replay != nil {
		p.claim = mine
		d.claimForReplay(ctx, p, won)
		return Decision{}, false
	}
	if won {
		p.claim = mine
		_, err := retryWrite(ctx, func(ctx context.Context) (_ struct{}, err error) {
			current, won, err = d.o.Store.Claim(ctx, mine.lasting(), now)
			return struct{}{}, err
		})
		if err != nil {
			d.log.Error("the message's event can't be looked up; delivering anyway", "queue", p.key.Queue, "message", p.key.MessageID, "error", err)
			d.metrics.lookupFailed(p.key.Queue)
			return Decision{}, false
		}
		d.events.learn(mine.Claim, current, won)
	}
	if won && current.State != tables.Done {
		return Decision{}, false
	}
	p.claim = nil
	switch {
	case won: // finished before by this very message
		d.reappeared(p.key.Queue, p.key.MessageID)
		return d.duplicate(ctx, p, h, targets, "redelivery", ""), true
	case current.BodyHash != p.hash:
		d.log.Warn("two messages with the same event have different bodies; both are delivered",
			"queue", p.key.Queue, "message", p.key.MessageID, "other", current.MessageID)
		d.metrics.dedupConflict(p.key.Queue)
		return Decision{}, false
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

// claimForReplay keeps copies from the event of a replay while it is delivered, if nobody
// has the event: a replay is always POSTed, since somebody asked for it. That nobody else in
// this process has it says free.
func (d *Dispatcher) claimForReplay(ctx context.Context, p *parcel, free bool) {
	if !free {
		return
	}
	mine := p.claim
	callCtx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	current, won, err := d.o.Store.Claim(callCtx, mine.lasting(), time.Now())
	if err != nil {
		d.log.Warn("the event of a replay could not be claimed; another message with the event may be delivered meanwhile",
			"queue", p.key.Queue, "message", p.key.MessageID, "error", err)
		d.metrics.lookupFailed(p.key.Queue)
		return
	}
	d.events.learn(mine.Claim, current, won)
}

// duplicate ends a message whose event was delivered with another one, or with itself. It
// is recorded on the message, and on what was under way for single webhooks. other is the
// message that had the event.
func (d *Dispatcher) duplicate(ctx context.Context, p *parcel, h history, targets []target, kind, other string) Decision {
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
	d.recordAll(d.writing(ctx), list)
	d.metrics.duplicate(p.key.Queue, kind)
	return Decision{Action: policy.Complete, Reason: policy.Duplicate}
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

// endEvent ends the claim on an event before its message is deleted. Where a webhook has
// taken the event the claim is made a lasting one, since nothing else tells later; when
// that can't be written the message is deleted all the same, which is counted. Otherwise
// the event may be published again.
func (d *Dispatcher) endEvent(ctx context.Context, c *claimed) {
	if c == nil || c.replay && !c.delivered {
		return
	}
	end, write := d.events.forget, d.o.Store.ReleaseClaim
	if c.delivered {
		end, write = d.events.finish, d.finishClaim
	}
	end(c.Claim)
	_, err := retryWrite(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, write(ctx, c.Claim) })
	if err == nil || errors.Is(err, tables.ErrNotFound) || errors.Is(err, tables.ErrConflict) {
		return // noted; older than the window by now; or taken over, because it had lapsed
	}
	d.metrics.claimUnfinished()
	d.log.Warn("the claim on an event could not be ended; it lapses, and another message with the event is delivered then",
		"message", c.MessageID, "until", c.Until, "delivered", c.delivered, "error", err)
}

// finishClaim finishes a claim also where it is not there: because the store could not be
// asked before the POST, or because it had lapsed, and so has that of who took it over.
func (d *Dispatcher) finishClaim(ctx context.Context, c tables.Claim) error {
	err := d.o.Store.FinishClaim(ctx, c)
	if !errors.Is(err, tables.ErrNotFound) && !errors.Is(err, tables.ErrConflict) {
		return err
	}
	if _, won, err := d.o.Store.Claim(ctx, c, time.Now()); err != nil || !won {
		return err
	}
	return d.o.Store.FinishClaim(ctx, c)
}

// keepEvent keeps others from the event while its message is given back for delay.
func (d *Dispatcher) keepEvent(ctx context.Context, c *claimed, delay, lease time.Duration) {
	if c == nil {
		return
	}
	c.Until = time.Now().Add(delay + lease + claimMargin)
	d.events.keep(c.Claim)
	callCtx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	if _, _, err := d.o.Store.Claim(callCtx, c.lasting(), time.Now()); err != nil {
		d.metrics.claimUnfinished()
		d.log.Warn("the claim on an event could not be kept; another message with the event may be delivered too", "message", c.MessageID, "error", err)
	}
}
