package delivery

import (
	"cmp"
	"slices"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/flow"
	"github.com/pushlease/pushlease/dispatcher/internal/journal"
	"github.com/pushlease/pushlease/dispatcher/internal/lease"
	"github.com/pushlease/pushlease/dispatcher/internal/settle"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

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
	copied = copied || some(targets, func(t *target) bool { return t.delivery.State == tables.DeadLettered }) // by another holder, just now
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
			if copied = true; outcome.Action == policy.Complete && (p.copyOf != nil || del.Reason == policy.ReplayEnded) {
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
			del.DeadLetterID = del.OwedLetter()
			outcome.DeadLetters = append(outcome.DeadLetters,
				settle.DeadLetter{Row: p.deadLetter(del, t.describe(del)), Delivery: del})
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
	oneCopy(outcome.DeadLetters, !copied && p.replay == nil)
	if next.IsZero() {
		outcome.ReplayEnds = p.replayed(delivered, copied || len(outcome.DeadLetters) > 0)
	} else {
		outcome.Delay = min(max(next.Sub(now), 0), queue.MaxDelay)
		if outcome.Reason == policy.LeaseLost { // the POST of another holder may be over long before it has to be
			outcome.Delay = min(outcome.Delay, doubtDelayMax)
		}
	}
	return outcome
}

// oneCopy lets one of a message's dead letters be copied to the poison queue, where it is to have a copy: the same one each time that
// they are made, since a process may die when it has made the copy.
func oneCopy(letters []settle.DeadLetter, wanted bool) {
	if len(letters) == 0 {
		return
	}
	first := &letters[0]
	for i := range letters {
		dl := &letters[i]
		dl.Copy = false
		if cmp.Or(dl.Delivery.UpdatedAt.Compare(first.Delivery.UpdatedAt), cmp.Compare(dl.Delivery.WebhookID, first.Delivery.WebhookID)) < 0 {
			first = dl
		}
	}
	letters[0], *first = *first, letters[0] // once another one is made, the message has its copy
	letters[0].Copy = wanted
}

// recorded adds verdicts about deliveries to the records of an outcome.
func recorded(o *Outcome, verdicts ...tables.Delivery) *Outcome {
	o.Records = append(records(verdicts), o.Records...)
	return o
}

// records are those of deliveries without attempts: a queue may have more webhooks than rows go together.
func records(list []tables.Delivery) (all []tables.Record) {
	for some := range slices.Chunk(list, journal.MaxRows) {
		all = append(all, tables.Record{Deliveries: some})
	}
	return all
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

// replayed is the dead letter whose replay ends with the message: with a replay whatever it came to, and
// with a copy where every webhook that it was due to took it.
func (p *parcel) replayed(delivered, givenUp bool) *tables.DeadLetter {
	if p.copyOf == nil {
		return p.replay
	}
	if !delivered || givenUp || p.copyOf.Damaged != nil {
		return nil
	}
	return p.copyOf
}
