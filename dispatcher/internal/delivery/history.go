package delivery

import (
	"context"
	"slices"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/meter"
	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// history is what was done about a parcel before.
type history struct {
	// deliveries of this generation, by webhook id; message-level ones under "".
	deliveries map[string]tables.Delivery
	// generations are those, by webhook id, that a replay begins instead of its own, above
	// that of an earlier replay of the day, so that its records replace those of that one.
	generations map[string]int
	// recorded counts the receives with a recorded outcome, and explained those that were put off too, or since.
	recorded, explained int
	// known is false when the store could not be asked.
	known bool
	// doubt is whether the message may have been delivered to a webhook without this process
	// knowing it: the store could not be asked, and what is remembered here does not account
	// for every webhook and every receive.
	doubt bool
}

// historian knows what was done about messages before.
type historian struct{ *Options }

// lookUp finds out what was done about the parcel before. The lease itself keeps others away, so there is
// nothing to write. What follows when the store can't be asked is inDoubt's to say.
func (s historian) lookUp(ctx context.Context, p *parcel) history {
	h := history{deliveries: map[string]tables.Delivery{}, generations: map[string]int{}, known: true}
	ids := []string{""}
	for _, r := range s.Registry.Of(p.key.Queue) {
		ids = append(ids, r.ID)
	}
	known, err := s.Journal.Load(ctx, retry.Call, p.key, ids)
	h.known = err == nil
	if err != nil && ctx.Err() == nil {
		s.Log.Error("what was done about the message before can't be looked up",
			"queue", p.key.Queue, "message", p.key.MessageID, "error", err)
		s.Meter.LookupsFailed.Add(meter.Labels{Queue: p.key.Queue})
	}
	now := time.Now().UTC().Truncate(time.Millisecond)
	receives := 0 // with an outcome, at least: each adds one to a delivery at most
	for _, del := range known {
		if p.ofAnotherReplay(del) {
			continue
		}
		notAhead(&del, now)
		if p.overtaken(del) {
			s.Log.Info("another replay of the message to this webhook came since; this one leaves it to that",
				"queue", p.key.Queue, "message", p.key.MessageID, "webhook", del.WebhookID)
			del.State = tables.DeadLettered
			h.deliveries[del.WebhookID] = del
			continue
		}
		if !p.owns(del) {
			if del.Generation >= p.generation && del.WebhookID != "" {
				h.generations[del.WebhookID] = del.Generation + 1
			}
			continue
		}
		h.recorded += del.Attempts + del.Excused
		receives = max(receives, del.Attempts+del.Excused)
		switch {
		case del.Generation == p.generation, del.Generation > p.generation && p.isOwn(del):
			h.deliveries[del.WebhookID] = del
		case del.Generation > p.generation:
			// A replay came after this one: its generation is over, whatever is left of
			// its queue message.
			del.State = tables.DeadLettered
			h.deliveries[del.WebhookID] = del
		}
	}
	unexplained := int64(receives) < p.m.DequeueCount-1
	p.shared = !h.known || unexplained
	h.doubt = !h.known && ctx.Err() == nil && (unexplained || !h.accountsFor(ids))
	return h
}

// notAhead is for a record that is dated further ahead than clocks may differ: whoever wrote it had a wrong clock. What it waits for has
// come, since the queue hid the message for that time, and its age begins now.
func notAhead(del *tables.Delivery, now time.Time) {
	if del.UpdatedAt.Sub(now) <= tables.ClocksApart {
		return
	}
	if !del.NextAt.Before(del.UpdatedAt) { // else a right clock has said it since
		del.NextAt = now
	}
	if del.FirstAt.After(now) {
		del.FirstAt = now
	}
}

// whole is the record about the message itself, as far as it has come. A replay that was asked for
// one webhook is nothing but a delivery to that one: other webhooks may have the message, and what
// is about all of them is replayed to all of them.
func (p *parcel) whole(h history) tables.Delivery {
	id := ""
	if p.replay != nil {
		id = p.replay.WebhookID
	}
	del, ok := h.deliveries[id]
	if !ok || del.State == tables.Published {
		del = p.newDelivery(id)
		del.Generation = max(p.generation, h.generations[id])
		return del
	}
	if del.BodyHash == "" { // noted before anybody had received it
		del.Size, del.BodyHash, del.Encoding = len(p.body.Bytes), p.hash, string(p.body.Encoding)
	}
	return del
}

const (
	// doubtMargin is how much of a message's life is left when it is POSTed although nobody
	// knows whether it was delivered: time for a look, a POST and its record; half of its life if
	// that is less.
	doubtMargin = 2 * time.Minute
	// doubtDelayMax bounds the time between two looks at such a message.
	doubtDelayMax = 30 * time.Second
)

// inDoubt decides about a message of which nobody knows whether it was delivered: a POST may
// be a second one, and a wait costs nobody anything while the message lives (C55). Nothing is
// charged. Near the end of its life it is POSTed all the same, rather twice than never: nil.
func (h history) inDoubt(m *queue.Message, slack time.Duration) *Outcome {
	if !h.doubt {
		return nil
	}
	return untilAsked(m, slack)
}

// untilAsked gives a message back until storage can be asked about it; nil near the end of its life.
func untilAsked(m *queue.Message, slack time.Duration) *Outcome {
	outcome := ownFault(m, policy.StorageFault)
	outcome.Delay = min(outcome.Delay, doubtDelayMax)
	if m.ExpiresAt.IsZero() {
		return outcome
	}
	left := time.Until(m.ExpiresAt) - LastOfLife(m.InsertedAt, m.ExpiresAt, doubtMargin) - slack
	if left <= 0 {
		return nil
	}
	outcome.Delay = min(outcome.Delay, max(left.Truncate(time.Second), time.Second))
	return outcome
}

// accountsFor reports whether there is a delivery for each of the webhooks.
func (h history) accountsFor(ids []string) bool {
	return !slices.ContainsFunc(ids, func(id string) bool {
		_, ok := h.deliveries[id]
		return id != "" && !ok
	})
}

// anyWebhook reports whether the message was due to any webhook before. A record about
// the message alone (published, held without a webhook) does not count.
func (h history) anyWebhook() bool { return h.anyOf(func(tables.State) bool { return true }) }

// anyEnded reports whether the message has ended for one of its webhooks, which has it or a
// dead letter of its own. Then no dead letter may be about the message as a whole, since the
// replay of one goes to all webhooks. A webhook that was deleted before it got the message ends
// nothing.
func (h history) anyEnded() bool {
	return h.anyOf(func(s tables.State) bool { return s.Terminal() && s != tables.Withdrawn })
}

// endsWith reports whether a message of which whole is on record has ended for its webhooks, too.
func (h history) endsWith(whole *tables.Delivery) bool {
	return whole.State.EndsAll(h.anyTaken(), h.anyEnded())
}

// anyTaken reports whether a webhook is on record that has taken the message on, and from which it was not withdrawn.
func (h history) anyTaken() bool {
	return h.anyOf(func(s tables.State) bool { return s != tables.Withdrawn })
}

// anyOf reports whether a delivery to a webhook is in such a state.
func (h history) anyOf(is func(tables.State) bool) bool {
	for id, del := range h.deliveries {
		if id != "" && is(del.State) {
			return true
		}
	}
	return false
}

// copyOf is the dead letter of which the message is the copy; empty where no record says so.
func (h history) copyOf() string {
	for _, del := range h.deliveries {
		if id := del.CopyOf(); id != "" {
			return id
		}
	}
	return ""
}
