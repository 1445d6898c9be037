package dispatcher

import (
	"context"
	"errors"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// poisonMargin is how many receives without a recorded outcome are allowed on top
// of the policy's attempts: lost answers of storage and killed processes cause
// them too.
const poisonMargin = 10

// history is what was done about a parcel before.
type history struct {
	// deliveries of this generation, by webhook id; message-level ones under "".
	deliveries map[string]tables.Delivery
	// explained counts the receives with a recorded outcome.
	explained int
	// known is false when the store could not be asked.
	known bool
}

// claim finds out what was done about the parcel before. The lease itself keeps
// others away, so there is nothing to write. A message received for the first
// time has no history: its dequeue count proves that nobody ever had it, lost
// answers included, so storage is not asked. When the store can't be asked the
// message is delivered anyway, which is counted.
func (d *Dispatcher) claim(ctx context.Context, p *parcel) history {
	h := history{deliveries: map[string]tables.Delivery{}, known: true}
	if p.m.DequeueCount <= 1 {
		return h
	}
	stored, err := retryWrite(ctx, func(ctx context.Context) ([]tables.Delivery, error) {
		return d.o.Store.Load(ctx, p.key)
	})
	h.known = err == nil
	if err != nil && ctx.Err() == nil {
		d.log.Error("earlier deliveries can't be looked up; delivering anyway",
			"queue", p.key.Queue, "message", p.key.MessageID, "error", err)
		d.metrics.lookupFailed(p.key.Queue)
	}
	ids := []string{""}
	for _, r := range d.registry.of(p.key.Queue) {
		ids = append(ids, r.ID)
	}
	receives := 0 // with an outcome, at least: each adds one to a delivery at most
	for _, del := range d.memory.merge(p.key, stored, ids) {
		h.explained += del.Attempts + del.Excused
		receives = max(receives, del.Attempts+del.Excused)
		if del.Generation == p.generation {
			h.deliveries[del.WebhookID] = del
		}
		if del.Generation > p.generation {
			// A replay came after this one: its generation is over, whatever is left of
			// its queue message.
			del.State = tables.DeadLettered
			h.deliveries[del.WebhookID] = del
		}
	}
	p.shared = !h.known || int64(receives) < p.m.DequeueCount-1
	return h
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

// isPoison reports whether the message was received over and over with no outcome
// ever recorded: then something about it kills whoever handles it.
func (h history) isPoison(m *queue.Message, targets []target) bool {
	if !h.known {
		return false
	}
	limit := int64(0)
	for _, t := range targets {
		limit = max(limit, int64(t.registration.Policy.MaxAttempts))
	}
	return m.DequeueCount-1-int64(h.explained) > limit+poisonMargin
}

// excuse records that a receive ended without an attempt through no fault of the
// message, so that the poison guard leaves it out.
func (d *Dispatcher) excuse(ctx context.Context, del tables.Delivery) {
	del.Excused++
	d.record(ctx, tables.Record{Deliveries: []tables.Delivery{del}})
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
