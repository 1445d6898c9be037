package delivery

import (
	"errors"
	"slices"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// wholes decide about messages as a whole, of which no POST is made.
type wholes struct{ *Options }

// newerDelay is how long a message waits at first that only a newer version can read: in a rolling
// deployment such an instance is there already, or in a moment. Where it was rolled back there may be many such
// messages for long: the wait doubles up to holdDelay.
const newerDelay = time.Minute

// unreadable decides about a message whose text can't be read. What a newer version wrote is
// never POSTed as it stands.
func (w wholes) unreadable(p *parcel, h history, err error) *Outcome {
	if errors.Is(err, queue.ErrNewer) {
		return w.holdWhole(p, h, policy.Undecodable, retry.Backoff(int(min(p.m.DequeueCount, 30)), newerDelay, holdDelay),
			"the message was written by a newer version of pushlease, which has to receive it: update this instance")
	}
	return w.giveUpMessage(p, h, nil, policy.Undecodable)
}

// untaken decides about a message that no webhook takes; refused says that it is because of
// their filters.
func (w wholes) untaken(p *parcel, h history, refused bool) *Outcome {
	if refused {
		return w.unmatched(p, h)
	}
	if del := p.whole(h); h.endsWith(&del) { // what a replay came to before its webhook was deleted
		return foldWhole(p, h, del)
	}
	reason := policy.NoWebhook
	if h.anyWebhook() || p.replay != nil && p.replay.WebhookID != "" || w.Registry.LeftWith(p.key.Queue, p.m.InsertedAt) {
		reason = policy.WebhookDeleted
	}
	return w.holdWhole(p, h, reason, holdFor(w.Flows.Held(), w.Hosted(p.key.Queue)), "no webhook takes the message")
}

// holdWhole holds a message that can go to no webhook now, near its end as a dead letter.
func (w wholes) holdWhole(p *parcel, h history, reason policy.Reason, delay time.Duration, why string) *Outcome {
	del := p.whole(h)
	if reason == policy.Undecodable { // nothing but its text is known
		del.Size, del.Encoding, del.BodyHash = len(p.text), string(p.setting), p.hash
	}
	p.hold(&del, reason, delay, p.terms.Held)
	if del.State.Terminal() && h.anyEnded() {
		return w.giveUpRest(p, h, nil, reason)
	}
	p.keepHeld(del)
	w.Log.Warn(why, "queue", p.key.Queue, "message", p.key.MessageID,
		"state", del.State, "reason", reason, "next", del.NextAt)
	return foldWhole(p, h, del)
}

// unmatched decides about a message that every webhook's filter refuses. Where somebody asked for it
// with a replay it is kept, whatever the queue says.
func (w wholes) unmatched(p *parcel, h history) *Outcome {
	if w.KeepUnmatched(p.key.Queue) || p.replay != nil {
		return w.giveUpMessage(p, h, nil, policy.Unmatched)
	}
	del := p.whole(h)
	del.State, del.Reason, del.NextAt = tables.Unmatched, policy.Unmatched, time.Time{}
	del.UpdatedAt = time.Now().UTC().Truncate(time.Millisecond)
	w.Log.Info("no webhook's filter takes the message; it is deleted", "queue", p.key.Queue, "message", p.key.MessageID)
	return recorded(foldWhole(p, h, del), del)
}

// endedBefore decides about a message that was given up before, as a whole; nil where it
// was not.
func endedBefore(p *parcel, h history) *Outcome {
	if len(h.deliveries) == 0 {
		return nil
	}
	whole, ok := h.deliveries[""]
	if !ok || !h.endsWith(&whole) {
		return nil
	}
	return foldWhole(p, h, whole)
}

// giveUpMessage dead-letters the message as a whole, without a POST; where it has ended for
// some webhook already, for each of the others.
func (w wholes) giveUpMessage(p *parcel, h history, targets []target, reason policy.Reason) *Outcome {
	if h.anyEnded() {
		return w.giveUpRest(p, h, targets, reason)
	}
	del := p.newDelivery("")
	if p.replay != nil && p.replay.WebhookID != "" {
		del = p.whole(h)
	}
	p.giveUp(&del, reason, time.Now())
	del.Size, del.Encoding = len(p.text), string(p.setting)
	return recorded(foldWhole(p, h, del), del)
}

// giveUpRest dead-letters what is unfinished of a message: the targets, and the deliveries
// of webhooks that are not there.
func (w wholes) giveUpRest(p *parcel, h history, targets []target, reason policy.Reason) *Outcome {
	rest := slices.Clone(targets)
	for id, del := range h.deliveries {
		if id != "" && !some(rest, func(t *target) bool { return t.delivery.WebhookID == id }) {
			rest = append(rest, gone(del))
		}
	}
	for i := range rest {
		if del := &rest[i].delivery; !del.State.Terminal() {
			p.giveUp(del, reason, time.Now())
			p.keepHeld(*del)
		}
	}
	p.targets = rest
	return fold(p, h, rest)
}
