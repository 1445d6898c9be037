package dispatcher

import (
	"context"
	"slices"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/flow"
	"github.com/pushlease/pushlease/dispatcher/internal/settle"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

const (
	// holdDelay is how long a held message is given back for before it is looked at
	// again.
	holdDelay = 10 * time.Minute
	// heldMargin is how long before its expiry a held message is dead-lettered.
	heldMargin = time.Minute
)

// target is one webhook that the parcel is due to.
type target struct {
	// registration is the registry's, which nobody changes; unregistered where the webhook
	// is not there.
	registration *tables.Registration
	delivery     tables.Delivery
	// flow is its webhook's, while a POST is due that may be made or waited for; ticket is
	// the right to it.
	flow   *flow.Flow
	ticket *flow.Ticket
	// noted: the store holds a note that a POST began (see beginSuspect).
	noted bool
	// took is how long the attempt that was made now took, from dial to record, if it
	// tells how long the webhook takes; zero otherwise.
	took time.Duration
	// why explains the decision about the attempt that was made now; empty without one.
	why string
	// answered: its POST is over.
	answered bool
}

// unregistered is the registration of a target whose webhook is not there.
var unregistered = &tables.Registration{}

// gone is a target whose webhook is not there: nothing is sent, but its delivery is settled.
func gone(del tables.Delivery) target { return target{registration: unregistered, delivery: del} }

// some reports whether test holds for one of the targets.
func some(targets []target, test func(*target) bool) bool {
	for i := range targets {
		if test(&targets[i]) {
			return true
		}
	}
	return false
}

// due reports whether a POST may be made now.
func (t *target) due(now time.Time) bool {
	del := &t.delivery
	return t.registration.Enabled && !del.State.Terminal() &&
		(del.State == tables.Held && !flow.CannotBeSentTo(del) || !del.NextAt.After(now))
}

// disabled reports whether the delivery waits for its webhook to be enabled.
func (t *target) disabled() bool {
	return !t.registration.Enabled && t.registration.ID != "" && !t.delivery.State.Terminal()
}

// targets finds the webhooks that the parcel is due to: those it was due to before,
// and every other one on the queue that was registered when the message was
// inserted, or that sees it with the first receive. Dead letters that are owed for
// deleted ones come along. Without any, or where one is missing that had the message
// before, the registry is re-read first: a stale one must never decide that nobody
// wants a message.
//
// refused is true when there is none because of the filters: an enabled webhook is
// there, and no row is unreadable that could be one that takes the message.
func (d *Dispatcher) targets(ctx context.Context, p *parcel, h history) (found []target, refused bool) {
	d.registry.CatchUp(ctx)
	found, _ = d.targetsNow(p, h)
	if len(found) > 0 && (!h.anyWebhook() || len(absent(h, found)) == 0) {
		return found, false
	}
	return d.targetsAnew(ctx, p, h, found)
}

// targetsAnew is targets where the registry is re-read first.
func (d *Dispatcher) targetsAnew(ctx context.Context, p *parcel, h history, found []target) (_ []target, refused bool) {
	certain := d.registry.Fresh(ctx, p.receivedAt)
	if certain {
		found, refused = d.targetsNow(p, h)
		refused = refused && len(found) == 0 && !h.anyWebhook() && d.registry.Whole()
	}
	if len(found) == 0 {
		if certain && d.registry.Whole() {
			if found = d.handedOn(p, h); len(found) == 0 {
				found = ended(h)
			}
		}
		return found, refused
	}
	begins := anyDue(found)
	for _, del := range absent(h, found) {
		found = append(found, gone(d.orphaned(ctx, p, del, certain && d.registry.Whole(), begins)))
	}
	return found, refused
}

// handedOn gives a message to the webhooks that are registered now, where all that it was due to
// were deleted and none took it: who deletes a webhook and registers it anew means the same
// receiver. A replay that was asked for one webhook is for that one alone. The deliveries to
// the deleted ones are withdrawn in the record that the new ones begin with.
func (d *Dispatcher) handedOn(p *parcel, h history) (found []target) {
	if p.replay != nil && p.replay.WebhookID != "" {
		return nil
	}
	for _, del := range h.deliveries {
		if del.WebhookID != "" && del.State.Terminal() && del.State != tables.DeadLettered {
			return nil
		}
	}
	missing := absent(h, nil)
	if len(missing) == 0 {
		return nil
	}
	if found, _ = d.targetsAmong(p, h, true); len(found) == 0 {
		return nil
	}
	for _, del := range missing {
		del = withdrawn(del)
		p.heldRows = append(p.heldRows, del)
		found = append(found, gone(del))
		d.log.Warn("a webhook was deleted before it got the message; those that are registered now get it",
			"queue", p.key.Queue, "message", p.key.MessageID, "webhook", del.WebhookID)
	}
	return found
}

// ended are the deliveries of a message that every webhook was done with before they were
// all deleted: one took it, and only its delete is missing. None while anything is under way.
func ended(h history) (list []target) {
	taken := false
	for id, del := range h.deliveries {
		switch {
		case id == "":
			continue
		case !del.State.Terminal():
			return nil
		}
		taken = taken || del.State == tables.Delivered
		list = append(list, gone(del))
	}
	if !taken {
		return nil
	}
	return list
}

// absent are the deliveries under way whose webhook is not among those found.
func absent(h history, found []target) []tables.Delivery {
	var list []tables.Delivery
	for id, del := range h.deliveries {
		known := some(found, func(t *target) bool { return t.delivery.WebhookID == id })
		if id != "" && !known && !del.State.Terminal() {
			list = append(list, del)
		}
	}
	return list
}

// orphaned decides about a delivery whose webhook is not there, of a message that
// others take too. Where the webhook was surely deleted the delivery is withdrawn, and
// the others settle the message. Where its registration may only be unreadable, or
// unknown to this process so far, the message must not be completed without it. Where a
// POST to another webhook begins with this receive, that one is what kills the process, if
// anything does: then the receive is not excused.
func (d *Dispatcher) orphaned(ctx context.Context, p *parcel, del tables.Delivery, deleted, begins bool) tables.Delivery {
	if !deleted {
		del.Reason, del.UpdatedAt = policy.StorageFault, time.Now().UTC().Truncate(time.Millisecond)
		del.NextAt = del.UpdatedAt.Add(settle.OwnFaultDelay(p.m))
		if !begins {
			del.Excused++
		}
		d.journal.Record(d.writing(ctx), tables.Record{Deliveries: []tables.Delivery{del}})
		return del
	}
	del = withdrawn(del)
	d.journal.Record(d.writing(ctx), tables.Record{Deliveries: []tables.Delivery{del}})
	d.log.Warn("a webhook was deleted before it got the message; the others settle it",
		"queue", p.key.Queue, "message", p.key.MessageID, "webhook", del.WebhookID)
	return del
}

// withdrawn ends a delivery whose webhook was deleted, and that others take the message from.
func withdrawn(del tables.Delivery) tables.Delivery {
	del.State, del.Reason, del.NextAt = tables.Withdrawn, policy.WebhookDeleted, time.Time{}
	del.UpdatedAt = time.Now().UTC().Truncate(time.Millisecond)
	return del
}

// targetsNow finds the targets in the registry as it was last read.
func (d *Dispatcher) targetsNow(p *parcel, h history) (found []target, refused bool) {
	return d.targetsAmong(p, h, !h.anyWebhook())
}

// targetsAmong asks the filters about new deliveries only: what is under way goes on when
// a filter is changed, and a replay goes to the webhook that it was asked for. first counts
// the webhooks in that were registered after the message was inserted.
func (d *Dispatcher) targetsAmong(p *parcel, h history, first bool) (found []target, refused bool) {
	all := d.registry.Of(p.key.Queue)
	for i := range all {
		r := &all[i]
		if p.replay != nil && p.replay.WebhookID != "" && p.replay.WebhookID != r.ID {
			continue
		}
		if _, known := h.deliveries[r.ID]; !known {
			// For a replay it counts when that was asked for: a message that no webhook
			// took is replayed to those that were registered since.
			if !first && r.CreatedAt.After(p.dueUntil(h)) {
				continue
			}
			takes, _ := r.Filter.Match(p.content)
			if !takes && (p.replay == nil || p.replay.WebhookID == "") {
				refused = refused || r.Enabled
				continue
			}
		}
		found = slices.Grow(found, 1)[:len(found)+1]
		d.meet(p, h, r, &found[len(found)-1])
	}
	if h.anyWebhook() {
		found = append(found, unfinished(h, found)...)
	}
	return found, refused
}

// meet makes t the target of a webhook that the parcel is due to.
func (d *Dispatcher) meet(p *parcel, h history, r *tables.Registration, t *target) {
	t.registration = r
	var known bool
	if t.delivery, known = h.deliveries[r.ID]; !known {
		t.delivery = p.newDelivery(r.ID, d.o.Instance)
		t.delivery.Generation = max(p.generation, h.generations[r.ID])
	}
	d.flows.Released(&t.delivery)
}

// dueUntil is when a webhook had to be registered at the latest to get a message that was
// received before. Storage may tell whole seconds only, so the second in which the message
// was inserted counts in full. Whoever made the first attempt had all webhooks that were
// registered by then to deliver to; that nothing is recorded for one of them means that
// the process ended before it could be. Webhooks that the message was withdrawn from do not
// count: it was handed on later.
func (p *parcel) dueUntil(h history) time.Time {
	until := p.m.InsertedAt.Truncate(time.Second).Add(time.Second)
	first := time.Time{}
	for _, del := range h.deliveries {
		if del.State != tables.Withdrawn && !del.FirstAt.IsZero() && (first.IsZero() || del.FirstAt.Before(first)) {
			first = del.FirstAt
		}
	}
	if first.After(until) {
		return first
	}
	return until
}

// unfinished are the deliveries that were given up without a dead letter so far, and
// whose webhook was deleted since: their dead letters are still owed.
func unfinished(h history, found []target) []target {
	var owed []target
	for id, del := range h.deliveries {
		if id != "" && del.State == tables.DeadLettering &&
			!some(found, func(t *target) bool { return t.registration.ID == id }) {
			owed = append(owed, gone(del))
		}
	}
	return owed
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

// nobody decides about a message that no webhook takes.
func (d *Dispatcher) nobody(ctx context.Context, p *parcel, h history) Outcome {
	reason := policy.NoWebhook
	if h.anyWebhook() || p.replay != nil && p.replay.WebhookID != "" || d.registry.LeftWith(p.key.Queue, p.m.InsertedAt) {
		reason = policy.WebhookDeleted
	}
	return d.holdWhole(ctx, p, h, reason, holdDelay, "no webhook takes the message")
}

// newerDelay is how long a message waits that only a newer version can read: in a rolling
// deployment such an instance is there already, or in a moment.
const newerDelay = time.Minute

// newer decides about a message that a newer version wrote. It is never POSTed as it stands.
func (d *Dispatcher) newer(ctx context.Context, p *parcel, h history) Outcome {
	return d.holdWhole(ctx, p, h, policy.Undecodable, newerDelay,
		"the message was written by a newer version of pushlease, which has to receive it: update this instance")
}

// holdWhole holds a message that can go to no webhook now, near its end as a dead letter.
func (d *Dispatcher) holdWhole(ctx context.Context, p *parcel, h history, reason policy.Reason, delay time.Duration, why string) Outcome {
	del := d.wholeMessage(p, h)
	if reason == policy.Undecodable { // nothing but its text is known
		del.Size, del.Encoding, del.BodyHash = len(p.text), string(p.setting), p.hash
	}
	p.hold(&del, reason, delay, p.give.held)
	if del.State == tables.DeadLettering && h.anyEnded() {
		return d.giveUpRest(ctx, p, h, nil, reason)
	}
	d.excuse(d.writing(ctx), del) // once per receive
	d.log.Warn(why, "queue", p.key.Queue, "message", p.key.MessageID,
		"state", del.State, "reason", reason, "next", del.NextAt)
	return d.foldWhole(p, h, del)
}

// unmatched decides about a message that every webhook's filter refuses.
func (d *Dispatcher) unmatched(ctx context.Context, p *parcel, h history) Outcome {
	if d.o.KeepUnmatched(p.key.Queue) {
		return d.giveUpMessage(ctx, p, h, nil, policy.Unmatched)
	}
	del := d.wholeMessage(p, h)
	del.State, del.Reason, del.NextAt = tables.Unmatched, policy.Unmatched, time.Time{}
	del.UpdatedAt = time.Now().UTC().Truncate(time.Millisecond)
	d.journal.Record(d.writing(ctx), tables.Record{Deliveries: []tables.Delivery{del}})
	d.log.Info("no webhook's filter takes the message; it is deleted", "queue", p.key.Queue, "message", p.key.MessageID)
	return d.foldWhole(p, h, del)
}

// wholeMessage is the record about the message itself, as far as it has come.
func (d *Dispatcher) wholeMessage(p *parcel, h history) tables.Delivery {
	del, ok := h.deliveries[""]
	if !ok || del.State == tables.Published {
		return p.newDelivery("", d.o.Instance)
	}
	if del.BodyHash == "" { // noted before anybody had received it
		del.Size, del.BodyHash, del.Encoding = len(p.body.Bytes), p.hash, string(p.body.Encoding)
	}
	return del
}
