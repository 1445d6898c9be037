package dispatcher

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

const (
	// poisonMargin is how many receives without a recorded outcome are allowed on top
	// of the policy's attempts before a message is suspected: lost answers of storage
	// and killed processes cause them too.
	poisonMargin = 7
	// poisonProofs is how many POSTs must then have begun and left no outcome.
	poisonProofs = 3
	// suspectWait is how long a suspected message waits for others before it is given
	// back: they may be slow, and it takes up a place.
	suspectWait = 15 * time.Second
)

// history is what was done about a parcel before.
type history struct {
	// deliveries of this generation, by webhook id; message-level ones under "".
	deliveries map[string]tables.Delivery
	// generations are those, by webhook id, that a replay begins instead of its own, above
	// that of an earlier replay of the day, so that its records replace those of that one.
	generations map[string]int
	// explained counts the receives with a recorded outcome.
	explained int
	// known is false when the store could not be asked.
	known bool
	// doubt is whether the message may have been delivered to a webhook without this process
	// knowing it: the store could not be asked, and what is remembered here does not account
	// for every webhook and every receive.
	doubt bool
}

// claim finds out what was done about the parcel before. The lease itself keeps
// others away, so there is nothing to write. A message received for the first
// time has no history: its dequeue count proves that nobody ever had it, lost
// answers included, so storage is not asked. What follows when the store can't be
// asked is inDoubt's to say.
func (d *Dispatcher) claim(ctx context.Context, p *parcel) history {
	if p.m.DequeueCount <= 1 {
		return history{known: true}
	}
	return d.lookUp(ctx, p)
}

// lookUp is claim for a message that was received before.
func (d *Dispatcher) lookUp(ctx context.Context, p *parcel) history {
	h := history{deliveries: map[string]tables.Delivery{}, generations: map[string]int{}, known: true}
	ids := []string{""}
	for _, r := range d.registry.Of(p.key.Queue) {
		ids = append(ids, r.ID)
	}
	known, err := d.journal.Load(ctx, retry.Call, p.key, ids)
	h.known = err == nil
	if err != nil && ctx.Err() == nil {
		d.log.Error("what was done about the message before can't be looked up",
			"queue", p.key.Queue, "message", p.key.MessageID, "error", err)
		d.metrics.LookupFailed(p.key.Queue)
	}
	receives := 0 // with an outcome, at least: each adds one to a delivery at most
	for _, del := range known {
		if p.overtaken(del) {
			d.log.Info("another replay of the message to this webhook came since; this one leaves it to that",
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
		h.explained += del.Attempts + del.Excused
		receives = max(receives, del.Attempts+del.Excused)
		switch {
		case del.Generation == p.generation, del.Generation > p.generation && p.replay != nil:
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

const (
	// doubtMargin is how much of a message's life is left when it is POSTed although nobody
	// knows whether it was delivered: time for a look, a POST and its record.
	doubtMargin = 2 * time.Minute
	// doubtDelayMax bounds the time between two looks at such a message.
	doubtDelayMax = 30 * time.Second
)

// inDoubt decides about a message of which nobody knows whether it was delivered: a POST may
// be a second one, and a wait costs nobody anything while the message lives (C55). Nothing is
// charged. Near the end of its life it is POSTed all the same, rather twice than never: nil.
func (h history) inDoubt(m *queue.Message) *Outcome {
	if !h.doubt || !m.ExpiresAt.IsZero() && time.Until(m.ExpiresAt) <= doubtMargin {
		return nil
	}
	decision := ownFault(m, policy.StorageFault)
	decision.Delay = min(decision.Delay, doubtDelayMax)
	return &decision
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
func (h history) anyWebhook() bool {
	for id := range h.deliveries {
		if id != "" {
			return true
		}
	}
	return false
}

// anyEnded reports whether the message has ended for one of its webhooks, which has it or a
// dead letter of its own. Then no dead letter may be about the message as a whole, since the
// replay of one goes to all webhooks.
func (h history) anyEnded() bool {
	for id, del := range h.deliveries {
		if id != "" && del.State.Terminal() {
			return true
		}
	}
	return false
}

// suspect reports whether the message was received over and over with no outcome
// ever recorded: something about it may kill whoever handles it.
func (h history) suspect(m *queue.Message, targets []target) bool {
	if !h.known {
		return false
	}
	limit := int64(0)
	for i := range targets {
		limit = max(limit, int64(targets[i].registration.Policy.MaxAttempts))
	}
	return m.DequeueCount-1-int64(h.explained) > limit+poisonMargin
}

// isPoison tells a message that kills its process from one whose receives were in
// vain because of us. The count of receives only raises the suspicion: from then on
// a POST is noted before it begins, and its outcome takes the note back. Notes that
// stay are the proof.
func (d *Dispatcher) isPoison(p *parcel, h history, targets []target) bool {
	if !h.suspect(p.m, targets) {
		return false
	}
	now := time.Now()
	return some(targets, func(t *target) bool {
		return t.due(now) && t.delivery.MissingRecords >= poisonProofs
	})
}

// beginSuspect notes that POSTs begin, if the message is suspected. Suspected messages
// are POSTed one at a time: what died with the one that killed the process would have
// the same notes. It returns false when it is not this one's turn for long. A note that
// can't be written keeps no message back. endSuspect must follow.
func (d *Dispatcher) beginSuspect(ctx context.Context, p *parcel, h history, targets []target) bool {
	now := time.Now().UTC().Truncate(time.Millisecond)
	due := func(t *target) bool { return t.due(now) }
	if !h.suspect(p.m, targets) || !some(targets, due) {
		return true
	}
	turn := time.NewTimer(suspectWait)
	defer turn.Stop()
	select {
	case d.suspects <- struct{}{}:
		p.alone = true
	case <-ctx.Done():
		return true // no POST begins any more
	case <-turn.C:
		d.log.Info("other messages that were received many times without an outcome come first",
			"queue", p.key.Queue, "message", p.key.MessageID, "delivery_count", p.m.DequeueCount)
		return false
	}
	var notes []tables.Delivery
	for i := range targets {
		t := &targets[i]
		if !due(t) {
			continue
		}
		t.delivery.UpdatedAt, t.noted = now, true
		note := t.delivery
		note.MissingRecords++
		notes = append(notes, note)
	}
	d.log.Warn("the message was received many times without an outcome; this attempt is noted before it begins",
		"queue", p.key.Queue, "message", p.key.MessageID, "delivery_count", p.m.DequeueCount)
	if err := d.journal.Note(ctx, notes); err != nil {
		d.log.Error("the attempt could not be noted", "queue", p.key.Queue, "message", p.key.MessageID, "error", err)
	}
	return true
}

// endSuspect lets the next suspected message begin.
func (d *Dispatcher) endSuspect(p *parcel) {
	if p.alone {
		p.alone = false
		<-d.suspects
	}
}

// excuse records that a receive ended without an attempt through no fault of the
// message, so that the poison guard leaves it out.
func (d *Dispatcher) excuse(ctx context.Context, del tables.Delivery) {
	del.Excused++
	d.journal.Record(ctx, tables.Record{Deliveries: []tables.Delivery{del}})
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
