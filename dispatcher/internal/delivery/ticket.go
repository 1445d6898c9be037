package delivery

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/flow"
	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// tickets ask webhooks whether they may be sent to.
type tickets struct{ *Options }

// enter asks each webhook that is due whether it may be sent to, up to as many as there are places; the
// others are asked when one of these has answered. Those that may not, and
// those that are disabled, have their delivery held and are charged nothing.
func (k tickets) enter(p *parcel, targets []target, places int) {
	now := time.Now()
	for i := range targets {
		t := &targets[i]
		switch {
		case isUnderWay(&t.delivery, now): // it stands until that POST is over, whatever becomes of the webhook
			k.PutOffs.Remember(p.key.Queue, p.m.ID, p.m.DequeueCount)
		case t.due(now):
			t.flow = k.Flows.Of(t.registration)
			if t.later = places == 0; t.later {
				continue
			}
			var refused *flow.Refusal
			if t.ticket, refused = t.flow.Enter(now); refused != nil {
				k.postpone(p, t, refused)
			} else {
				places--
			}
		case t.disabled():
			k.holdDisabled(p, t)
		case flow.CannotBeSentTo(&t.delivery): // looked at before its time
			t.delivery.UpdatedAt = now.UTC().Truncate(time.Millisecond)
			p.keepHeld(t.delivery)
		case t.unread():
			p.keepHeld(t.delivery)
		}
	}
	p.grant.Asked()
}

// takeHeld takes the records of what is held and went with no POST's record, and of what was given up without one.
func (k tickets) takeHeld(ctx context.Context, p *parcel) []tables.Record {
	return records(slices.Concat(k.takeAllHeld(ctx, p), p.ended))
}

// takeAllHeld takes what is held. Where this receive made no POST it is
// excused: of a message that is POSTed to others, that POST is what ends the process, if anything does (ADR 0006).
func (k tickets) takeAllHeld(ctx context.Context, p *parcel) []tables.Delivery {
	held := k.takeSomeHeld(ctx, p, math.MaxInt)
	if p.posted == 0 {
		for i := range held {
			held[i].Excused++
		}
	}
	return held
}

// takeSomeHeld takes up to n deliveries that are held and not recorded yet. The POSTs of one
// message end side by side. When the lease is over, or was, none that is unfinished is left: someone else may have
// sent to those webhooks meanwhile, and what came of that stands.
func (k tickets) takeSomeHeld(ctx context.Context, p *parcel, n int) []tables.Delivery {
	some := k.someHeld(ctx, p, n)
	first := slices.ContainsFunc(some, func(del tables.Delivery) bool { return del.Attempts+del.Excused == 0 })
	if first && k.replayDeleted(ctx, p) { // the deletion found no record of it that it could end
		for i := range some {
			p.endReplay(&some[i])
		}
	}
	return some
}

func (k tickets) someHeld(ctx context.Context, p *parcel, n int) []tables.Delivery {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.heldRows) > 0 && k.Leases.MayBeElsewhere(ctx, p.key.Queue, p.m) {
		p.heldRows = slices.DeleteFunc(p.heldRows, func(del tables.Delivery) bool { return del.State != tables.Withdrawn })
	}
	n = min(n, len(p.heldRows))
	some := p.heldRows[:n:n]
	p.heldRows = p.heldRows[n:]
	return some
}

// waitToEnter waits for the ticket of a target that has none yet, and holds its delivery when
// it gets none.
func (k tickets) waitToEnter(ctx context.Context, p *parcel, t *target) (ok bool) {
	var refused *flow.Refusal
	if t.later {
		if ctx.Err() != nil {
			k.notBegun(ctx, p, t)
			return false
		}
		if !k.asItIsNow(p, t) {
			return false
		}
		t.ticket, refused = t.flow.Enter(time.Now())
	}
	if t.ticket == nil && refused == nil {
		t.ticket, refused = t.flow.Wait(ctx)
	}
	if refused == nil { // it has a place by its webhook's rate
		refused = t.ticket.Begin(ctx)
	}
	if refused == nil {
		return true
	}
	t.ticket.Unused()
	if ctx.Err() != nil {
		k.notBegun(ctx, p, t)
		return false
	}
	k.postpone(p, t, refused)
	return false
}

// asItIsNow takes the registration of a webhook whose turn has come as it is now: it may have another address
// or secret. It reports whether the webhook may be sent to. That of one that was disabled meanwhile is held, and
// one that was deleted is left to the next receive.
func (k tickets) asItIsNow(p *parcel, t *target) bool {
	all := k.Registry.Of(p.key.Queue)
	i := slices.IndexFunc(all, func(r tables.Registration) bool { return r.ID == t.registration.ID })
	if i < 0 {
		k.Log.Info("a webhook was deleted before its turn", "queue", p.key.Queue, "message", p.key.MessageID, "webhook", t.registration.ID)
		t.delivery.Reason = policy.WebhookDeleted
		t.afterNote(t.delivery.UpdatedAt)
		p.keepHeld(t.delivery)
		return false
	}
	t.registration, t.flow = &all[i], k.Flows.Of(&all[i])
	if t.registration.Enabled {
		return true
	}
	k.holdDisabled(p, t)
	return false
}

// holdDisabled holds a delivery until its webhook is enabled.
func (k tickets) holdDisabled(p *parcel, t *target) {
	p.hold(&t.delivery, policy.WebhookDisabled, holdFor(k.Flows.Held(), k.Hosted(p.key.Queue)), p.terms.Held)
	p.keepHeld(t.delivery)
}

// postpone holds a delivery whose webhook can't be sent to now.
func (k tickets) postpone(p *parcel, t *target, refused *flow.Refusal) {
	k.Meter.Held(p.key.Queue, t.registration.ID, string(refused.Reason))
	now, noted := time.Now(), t.delivery.UpdatedAt
	until := k.hostsLook(p.key.Queue, t.delivery.Excused, refused, now)
	p.hold(&t.delivery, refused.Reason, max(until.Sub(now), time.Second), p.terms.Postponed)
	t.afterNote(noted)
	p.keepHeld(t.delivery)
	t.flow = nil
}

const (
	// hostLookMin is the shortest wait of a message of a host's that is made longer because
	// the message was held before, and hostLookMax the longest that it is made.
	hostLookMin = time.Minute
	hostLookMax = 30 * time.Minute
)

// hostsLook is when a message that was held so often before is looked at again. A host
// receives from a queue though nothing can be sent, and each look is an invocation: where
// nothing at all gets through to the webhook for long, or no token can be had, the waits double. One that is
// merely busy has its turn, which others would take, and a short pause delays nothing for long.
func (k tickets) hostsLook(queueName string, held int, r *flow.Refusal, now time.Time) time.Time {
	brief := r.Reason == policy.WebhookBusy || r.Reason != policy.NoToken && r.Until.Sub(now) < hostLookMin
	if held == 0 || brief || !k.Hosted(queueName) {
		return r.Until
	}
	if at := now.Add(retry.Backoff(held, hostLookMin, hostLookMax)); at.After(r.Until) {
		return at
	}
	return r.Until
}

// notBegun is the outcome when no POST may start: nothing is charged. A note that one begins, or is under way, is
// taken back: three notes that stay make a poison message, and others wait for a POST that is under way. Where the message may be someone
// else's that counts while nobody went on with it.
func (k tickets) notBegun(ctx context.Context, p *parcel, t *target) {
	if now := time.Now(); ctx.Err() == nil && p.ends(now) {
		k.Log.Info("no POST was begun before the message's end", "queue", p.key.Queue, "message", p.key.MessageID, "webhook", t.registration.ID)
		p.giveUp(&t.delivery, policy.MessageExpiring, now)
		p.keepHeld(t.delivery) // settling writes it, where nobody else has ended it meanwhile
		return
	}
	reason := policy.LeaseLost
	switch {
	case ctx.Err() != nil:
		reason = interruption(ctx)
	case !p.leaseEnds() && !fairTime(ctx, &t.registration.Webhook):
		reason = policy.Stopping
		if now := time.Now(); t.delivery.NextAt.After(now) { // it was shown for this, and the next invocation may have the time
			t.delivery.NextAt = now
		}
	}
	k.Log.Info("no POST was begun", "queue", p.key.Queue, "message", p.key.MessageID,
		"webhook", t.registration.ID, "reason", reason)
	t.delivery.Reason = reason
	t.afterNote(t.delivery.UpdatedAt)
	switch ours := reason != policy.LeaseLost || ctx.Err() == nil && p.leased(); {
	case !t.noted && !t.told:
	case ours:
		k.Journal.Record(k.writing(ctx), p.named([]tables.Record{{Deliveries: []tables.Delivery{t.delivery}}})[0])
	default:
		if err := k.Journal.Note(k.writing(ctx), func() []tables.Delivery { return []tables.Delivery{t.delivery} }); err != nil {
			k.Log.Warn("nobody could be told that a POST was not begun", "queue", p.key.Queue, "message", p.key.MessageID, "error", err)
		}
	}
}

// interruption says why work on a message was cut short.
func interruption(ctx context.Context) policy.Reason {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, queue.ErrLeaseLost):
		return policy.LeaseLost
	case errors.Is(cause, ErrStopping):
		return policy.Stopping
	}
	return policy.InternalFault
}
