package delivery

import (
	"context"
	"slices"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/admission"
	"github.com/pushlease/pushlease/dispatcher/internal/flow"
	"github.com/pushlease/pushlease/dispatcher/internal/lease"
	"github.com/pushlease/pushlease/dispatcher/internal/settle"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
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
// get the message, and it is not completed.
//
// refused is true when there is none because of the filters: an enabled webhook is
// there, and no row is unreadable that could be one that takes the message.
func (f finder) targets(ctx context.Context, p *parcel, h history) (found []target, refused bool) {
	f.Registry.CatchUp(ctx)
	found, _ = f.targetsNow(p, h)
	if len(found) > 0 && (!h.anyWebhook() || len(absent(h, found)) == 0) {
		return f.withUnknown(ctx, p, h, found), false
	}
	return f.targetsAnew(ctx, p, h, found)
}

// withUnknown adds the webhooks of which nothing is known. What comes of the deliveries is
// decided when their rows can be read again, or are deleted.
func (f finder) withUnknown(ctx context.Context, p *parcel, h history, found []target) []target {
	begins := anyDue(found)
	for _, id := range f.Registry.Unknown(p.key.Queue) {
		if _, known := h.deliveries[id]; known || p.replay != nil && p.replay.WebhookID != "" && p.replay.WebhookID != id {
			continue
		}
		del := p.newDelivery(id)
		del.Generation = max(p.generation, h.generations[id])
		found = append(found, gone(f.orphaned(ctx, p, del, false, begins)))
	}
	return found
}

// targetsAnew is targets where the registry is re-read first.
func (f finder) targetsAnew(ctx context.Context, p *parcel, h history, found []target) (_ []target, refused bool) {
	certain := f.Registry.Fresh(ctx, p.receivedAt)
	whole := len(f.Registry.Unknown(p.key.Queue)) == 0
	if certain {
		found, refused = f.targetsNow(p, h)
		refused = refused && len(found) == 0 && !h.anyWebhook() && whole
	}
	if len(found) == 0 {
		if certain && whole {
			found = f.withoutThem(p, h)
		}
		return found, refused
	}
	begins := anyDue(found)
	for _, del := range absent(h, found) {
		found = append(found, gone(f.orphaned(ctx, p, del, certain && whole, begins)))
	}
	return f.withUnknown(ctx, p, h, found), refused
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
		p.heldRows = append(p.heldRows, del)
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
// unknown to this process so far, the message must not be completed without it. Where a
// POST to another webhook begins with this receive, that one is what kills the process, if
// anything does: then the receive is not excused.
func (f finder) orphaned(ctx context.Context, p *parcel, del tables.Delivery, deleted, begins bool) tables.Delivery {
	if isUnderWay(&del, time.Now()) {
		return del
	}
	if !deleted {
		del.Reason, del.UpdatedAt = policy.StorageFault, time.Now().UTC().Truncate(time.Millisecond)
		del.NextAt = del.UpdatedAt.Add(settle.OwnFaultDelay(p.m))
		if !begins {
			del.Excused++
		}
		f.Journal.Record(f.writing(ctx), tables.Record{Deliveries: []tables.Delivery{del}})
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

// targetsNow finds the targets in the registry as it was last read.
func (f finder) targetsNow(p *parcel, h history) (found []target, refused bool) {
	return f.targetsAmong(p, h, !h.anyWebhook())
}

// targetsAmong asks the filters about new deliveries only: what is under way goes on when
// a filter is changed, and a replay goes to the webhook that it was asked for. first counts
// the webhooks in that were registered after the message was inserted. A webhook that was
// deleted and is there again under its own id is due what was withdrawn from it.
func (f finder) targetsAmong(p *parcel, h history, first bool) (found []target, refused bool) {
	all := f.Registry.Of(p.key.Queue)
	for i := range all {
		r := &all[i]
		if p.replay != nil && p.replay.WebhookID != "" && p.replay.WebhookID != r.ID {
			continue
		}
		if del, known := h.deliveries[r.ID]; !known || del.State == tables.Withdrawn || unasked(&del) {
			// For a replay it counts when that was asked for: a message that no webhook
			// took is replayed to those that were registered since.
			if !first && !known && r.CreatedAt.After(p.dueUntil(h)) {
				continue
			}
			takes, _ := r.Filter.Match(p.content)
			if !takes && (p.replay == nil || p.replay.WebhookID == "") {
				refused = refused || r.Enabled
				continue
			}
		}
		found = slices.Grow(found, 1)[:len(found)+1]
		f.meet(p, h, r, &found[len(found)-1])
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
	// later: its flow is asked when others of the message have answered.
	later bool
	// noted: the store holds a note that a POST began (see suspects).
	noted bool
	// took is how long the attempt that was made now took, from dial to record, if it
	// tells how long the webhook takes; zero otherwise.
	took time.Duration
	// why explains the decision about the attempt that was made now; empty without one.
	why string
	// answered: its POST is over.
	answered bool
	// begun is when the POST that is under way began; zero for none. The parcel's mu guards it.
	begun time.Time
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

// someEnded reports whether a webhook of the message is done with it.
func someEnded(targets []target) bool {
	return some(targets, func(t *target) bool { return t.delivery.State.Terminal() })
}

func allDelivered(targets []target) bool {
	return !some(targets, func(t *target) bool { return t.delivery.State != tables.Delivered })
}

func anyAttempt(targets []target) bool {
	return some(targets, func(t *target) bool { return t.delivery.Attempts > 0 })
}

func anyDue(targets []target) bool {
	now := time.Now()
	return some(targets, func(t *target) bool { return t.due(now) })
}

// posting reports whether a POST is made, or waited for, with this receive. Then nothing that
// is held excuses the receive: it is what kills the process, if anything does.
func posting(targets []target) bool {
	for i := range targets {
		if targets[i].flow != nil {
			return true
		}
	}
	return false
}

// underWay counts the POSTs that begin now.
func underWay(targets []target) (n int) {
	for i := range targets {
		if targets[i].flow != nil {
			n++
		}
	}
	return n
}

// noteAnswered says that t's POST is over, or won't be made; once for each, whoever says so.
func (t *target) noteAnswered(g *admission.Grant) {
	if !t.answered {
		t.answered = true
		g.Answered()
	}
}

// fold makes one outcome for the message from the states of its deliveries: it is
// completed when none is pending, and otherwise given back until the earliest
// next time.
func fold(p *parcel, h history, targets []target) *Outcome {
	outcome := &Outcome{Action: policy.Complete, Reason: policy.Delivered, Claim: p.claim}
	now, copied, delivered := time.Now(), false, false
	for _, del := range h.deliveries {
		copied = copied || del.State == tables.DeadLettered
		delivered = delivered || del.State == tables.Delivered
	}
	var next time.Time
	for i := range targets {
		t := &targets[i]
		del := p.beforeExpiry(t.delivery, now)
		if del.State != t.delivery.State { // before its dead letter, as any other
			outcome.Records = append(outcome.Records, tables.Record{Deliveries: []tables.Delivery{del}})
		}
		if t.took > 0 {
			outcome.Posts = append(outcome.Posts, lease.Posted{Webhook: del.WebhookID, Took: t.took})
		}
		switch del.State {
		case tables.Delivered:
			delivered = true
			continue
		case tables.Withdrawn:
			continue
		case tables.DeadLettered:
			if copied = true; p.copyOf != nil && outcome.Action == policy.Complete {
				outcome.Reason = del.Reason
			}
			continue
		case tables.Duplicate:
			outcome.Reason = policy.Duplicate
			continue
		case tables.Unmatched:
			outcome.Reason = policy.Unmatched
			continue
		case tables.DeadLettering:
			if outcome.Action == policy.Complete {
				outcome.Reason = del.Reason
			}
			outcome.DeadLetters = append(outcome.DeadLetters,
				settle.DeadLetter{Row: p.deadLetter(del, t.describe(del)), Delivery: del, Copy: !copied && p.replay == nil})
			copied = true
			continue
		}
		if waitsForItsWebhook(&del) {
			outcome.HeldFor = append(outcome.HeldFor, flow.Since{WebhookID: del.WebhookID, At: del.UpdatedAt})
		}
		at := del.NextAt
		if at.Before(now) {
			at = now
		}
		if next.IsZero() || at.Before(next) {
			next = at
			outcome.Action, outcome.Reason = actionOf(del), del.Reason
		}
	}
	if outcome.Claim != nil {
		outcome.Claim.Delivered = delivered
	}
	if next.IsZero() {
		outcome.ReplayEnds = p.replayed(delivered, copied)
	} else {
		outcome.Delay = min(max(next.Sub(now), 0), queue.MaxDelay)
		if outcome.Reason == policy.LeaseLost { // the POST of another holder may be over long before it has to be
			outcome.Delay = min(outcome.Delay, doubtDelayMax)
		}
	}
	return outcome
}

// foldWhole is fold for a message that is decided about as a whole.
func foldWhole(p *parcel, h history, del tables.Delivery) *Outcome {
	return fold(p, h, []target{gone(del)})
}

// actionOf says how a message with this unfinished delivery is given back.
func actionOf(del tables.Delivery) policy.Action {
	switch del.Reason {
	case policy.LeaseLost, policy.Stopping, policy.StorageFault, policy.InternalFault:
		return policy.NoVerdict
	}
	if del.State == tables.Held {
		return policy.Hold
	}
	return policy.Abandon
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
	if p.m.ExpiresAt.Sub(at) >= policy.ExpiryMargin+p.slack {
		return del
	}
	p.giveUp(&del, policy.MessageExpiring, now)
	return del
}

// waitsForItsWebhook reports whether a delivery waits until its webhook can be sent to, or a
// message until there is one.
func waitsForItsWebhook(del *tables.Delivery) bool {
	if del.State != tables.Held {
		return false
	}
	switch del.Reason {
	case policy.WebhookDisabled, policy.NoWebhook, policy.WebhookDeleted:
		return true
	}
	return flow.CannotBeSentTo(del)
}

// describe says why the target's delivery was given up, as del: in the words of the decision
// that gave it up, which name the rule, the limit or the answer; a later receive, which goes
// on with what was recorded, knows the reason only.
func (t *target) describe(del tables.Delivery) string {
	if t.why != "" && t.delivery.State == tables.DeadLettering {
		return t.why
	}
	return del.Reason.Explain(policy.Tried{
		Attempts: del.Attempts, Charged: del.Charged, LastStatus: del.LastStatus, LastClass: del.LastErrorClass,
	})
}
