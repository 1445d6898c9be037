package delivery

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/settle"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

// finder finds the webhooks that a parcel is due to.
type finder struct{ *Options }

// targets finds the webhooks that the parcel is due to: those it was due to before,
// and every other one on the queue that was registered when the message was
// inserted, or that sees it with the first receive. Dead letters that are owed for
// deleted ones come along. Without any, or where one is missing that had the message
// before, the registry is re-read first: a stale one must never decide that nobody
// wants a message.
//
// Webhooks of which nothing is known, since their rows can't be read, are waited for: others
// get the message, and it is not completed. So are those that were told of and can't be read yet.
//
// refused is true when there is none because of the filters: an enabled webhook is
// there, and no row is unreadable that could be one that takes the message.
func (f finder) targets(ctx context.Context, p *parcel, h history) (found []target, refused bool) {
	p.behind = !f.Registry.CatchUp(ctx)
	found, _ = f.targetsAmong(p, h, !h.anyWebhook())
	if len(found) > 0 && (!h.anyWebhook() || len(absent(h, found)) == 0) {
		return f.withUnknown(ctx, p, h, found), false
	}
	return f.targetsAnew(ctx, p, h, found)
}

// withUnknown adds the webhooks of which nothing is known. What comes of the deliveries is
// decided when their rows can be read again, or are deleted.
func (f finder) withUnknown(ctx context.Context, p *parcel, h history, found []target) []target {
	for _, id := range f.Registry.Unknown(p.key.Queue) {
		if _, known := h.deliveries[id]; known || p.replay != nil && p.replay.WebhookID != "" && p.replay.WebhookID != id {
			continue
		}
		del := p.newDelivery(id)
		del.Generation = max(p.generation, h.generations[id])
		found = append(found, gone(f.orphaned(ctx, p, del, false)))
	}
	return found
}

// targetsAnew is targets where the registry is re-read first.
func (f finder) targetsAnew(ctx context.Context, p *parcel, h history, found []target) (_ []target, refused bool) {
	certain := f.Registry.Fresh(ctx, p.receivedAt)
	whole := len(f.Registry.Unknown(p.key.Queue)) == 0
	if certain {
		found, refused = f.targetsAmong(p, h, !h.anyWebhook())
		refused = refused && len(found) == 0 && !h.anyWebhook() && whole
	}
	if len(found) == 0 {
		if certain && whole {
			found = f.withoutThem(p, h)
		}
		return found, refused
	}
	for _, del := range absent(h, found) {
		found = append(found, gone(f.orphaned(ctx, p, del, certain && whole)))
	}
	return f.withUnknown(ctx, p, h, found), refused
}

// withoutThem are the targets of a message whose webhooks were all deleted.
func (f finder) withoutThem(p *parcel, h history) []target {
	if list := underWayOfDeleted(h); len(list) > 0 {
		return list
	}
	if list := f.handedOn(p, h); len(list) > 0 {
		return list
	}
	return ended(h)
}

// underWayOfDeleted are the deliveries that another holder is POSTing, to webhooks that were deleted
// meanwhile. Before they are over nobody knows whether the message has to be handed on.
func underWayOfDeleted(h history) (list []target) {
	now := time.Now()
	for id, del := range h.deliveries {
		if id != "" && isUnderWay(&del, now) {
			list = append(list, gone(del))
		}
	}
	return list
}

// handedOn gives a message to the webhooks that are registered now, where all that it was due to
// were deleted and none took it: who deletes a webhook and registers it anew means the same
// receiver. A replay that was asked for one webhook is for that one alone. The deliveries to
// the deleted ones are withdrawn with the record of this receive, whatever it comes to; the next
// one hands the message on again while nobody has begun with it.
func (f finder) handedOn(p *parcel, h history) (found []target) {
	if p.replay != nil && p.replay.WebhookID != "" {
		return nil
	}
	before := false
	for _, del := range h.deliveries {
		switch {
		case del.WebhookID == "":
		case del.State == tables.Withdrawn:
			before = true
		case del.State.Terminal() && del.State != tables.DeadLettered:
			return nil
		}
	}
	missing := absent(h, nil)
	if len(missing) == 0 && !before {
		return nil
	}
	if found, _ = f.targetsAmong(p, h, true); len(found) == 0 {
		return nil
	}
	for _, del := range missing {
		del = withdrawn(del)
		p.keepHeld(del)
		found = append(found, gone(del))
		f.Log.Warn("a webhook was deleted before it got the message; those that are registered now get it",
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
// unknown to this process so far, the message must not be completed without it.
func (f finder) orphaned(ctx context.Context, p *parcel, del tables.Delivery, deleted bool) tables.Delivery {
	if isUnderWay(&del, time.Now()) {
		return del
	}
	if !deleted {
		del.Reason, del.UpdatedAt = policy.StorageFault, time.Now().UTC().Truncate(time.Millisecond)
		del.NextAt = del.UpdatedAt.Add(settle.OwnFaultDelay(p.m))
		return del
	}
	del = withdrawn(del)
	f.Journal.Record(f.writing(ctx), tables.Record{Deliveries: []tables.Delivery{del}})
	f.Log.Warn("a webhook was deleted before it got the message, or its filter does not take it after all; the others settle it",
		"queue", p.key.Queue, "message", p.key.MessageID, "webhook", del.WebhookID)
	return del
}

// withdrawn ends a delivery whose webhook was deleted, and that others take the message from.
func withdrawn(del tables.Delivery) tables.Delivery {
	del.State, del.Reason, del.NextAt = tables.Withdrawn, policy.WebhookDeleted, time.Time{}
	del.UpdatedAt = time.Now().UTC().Truncate(time.Millisecond)
	return del
}

// targetsAmong asks the filters about new deliveries only: what is under way goes on when
// a filter is changed, and a replay goes to the webhook that it was asked for. first counts
// the webhooks in that were registered after the message was inserted. A webhook that was
// deleted and is there again under its own id is due what was withdrawn from it.
func (f finder) targetsAmong(p *parcel, h history, first bool) (found []target, refused bool) {
	all, until := f.Registry.Of(p.key.Queue), tables.DueUntil(p.m.InsertedAt, maps.Values(h.deliveries))
	for i := range all {
		r := &all[i]
		if p.replay != nil && p.replay.WebhookID != "" && p.replay.WebhookID != r.ID {
			continue
		}
		del, known := h.deliveries[r.ID]
		// For a replay it counts when that was asked for: a message that no webhook
		// took is replayed to those that were registered since.
		late := !known && r.CreatedAt.After(until)
		if !known || del.State == tables.Withdrawn || unasked(&del) {
			if late && !first {
				continue
			}
			takes, _ := r.Filter.Match(p.content)
			if !takes && (p.replay == nil || p.replay.WebhookID == "") {
				refused = refused || r.Enabled
				continue
			}
		}
		found = slices.Grow(found, 1)[:len(found)+1]
		t := &found[len(found)-1]
		f.meet(p, h, r, t)
		t.late = late
	}
	if h.anyWebhook() {
		found = append(found, unfinished(h, found)...)
	}
	return found, refused
}

// unasked reports whether the delivery may be one to a webhook whose registration could not
// be read, so that its filter was not asked.
func unasked(del *tables.Delivery) bool {
	return del.Attempts == 0 && del.State == tables.Pending && del.Reason == policy.StorageFault
}

// meet makes t the target of a webhook that the parcel is due to.
func (f finder) meet(p *parcel, h history, r *tables.Registration, t *target) {
	t.registration = r
	var known bool
	if t.delivery, known = h.deliveries[r.ID]; !known || t.delivery.State == tables.Withdrawn {
		before := t.delivery
		t.delivery = p.newDelivery(r.ID)
		t.delivery.Generation = max(p.generation, h.generations[r.ID])
		if known { // nothing of the same generation follows what was withdrawn
			t.delivery.Generation = before.Generation + 1
			t.delivery.Excused = before.Attempts + before.Excused // its receives are explained all the same
		}
	}
	f.Flows.MakeDue(&t.delivery)
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
