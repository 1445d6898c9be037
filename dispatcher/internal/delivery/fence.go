package delivery

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// fenceMax is how many messages are remembered that were waited for.
const fenceMax = 4096

// fence remembers, by the id of a message on its queue, for how many receives without an
// outcome this process has waited.
type fence struct {
	mu     sync.Mutex
	waited map[string]int64
}

// passes is false when the message has more of these than were waited for.
func (f *fence) passes(id string, open int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return open <= f.waited[id]
}

func (f *fence) wait(id string, open int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.waited) >= fenceMax { // who is forgotten waits once more
		f.waited = map[string]int64{}
	}
	f.waited[id] = open
}

// awaitOutcome waits, where an earlier receive of the message has no outcome on record, for as
// long as whoever received it may take to write one, and looks again (docs/adr/0058): the
// webhook may have taken the message, and the answer of its holder's last renewal may have
// been lost. The message keeps its lease, and its webhooks' room is left to others meanwhile.
// It is for queues and records that are kept apart: in one file a record comes with the delete,
// and no answer is lost. Nor is it for a host's invocation: the host hides for minutes what a handler
// had in hand, and waiting would keep its few slots. A message without that much life is POSTed: rather twice than never.
// The outcome is there when the wait was cut short.
func (s historian) awaitOutcome(ctx context.Context, p *parcel, h history) (history, *Outcome) {
	bound := retry.Delivered.Longest()
	if !s.Apart || !postBy(ctx).IsZero() || !h.known || h.open == 0 || s.fence.passes(p.m.ID, h.open) || s.allEnded(p, h) || endsWithin(p.m, bound+doubtMargin) {
		return h, nil
	}
	s.Log.Info("an earlier receive of the message has no outcome on record; waiting for one before it is POSTed",
		"queue", p.key.Queue, "message", p.key.MessageID, "delivery_count", p.m.DequeueCount, "wait", bound)
	p.grant.Asked()
	if !retry.Sleep(ctx, bound) {
		return h, &Outcome{Action: policy.NoVerdict, Reason: interruption(ctx)}
	}
	s.fence.wait(p.m.ID, h.open)
	return s.lookUp(ctx, p), nil
}

// allEnded is whether no POST is left to be made.
func (s historian) allEnded(p *parcel, h history) bool {
	if whole, ok := h.deliveries[""]; ok && whole.State.Terminal() {
		return true
	}
	return !slices.ContainsFunc(s.Registry.Of(p.key.Queue), func(r tables.Registration) bool {
		return !h.deliveries[r.ID].State.Terminal()
	})
}

// endsWithin is whether the message's life ends within a time.
func endsWithin(m *queue.Message, within time.Duration) bool {
	return !m.ExpiresAt.IsZero() && time.Until(m.ExpiresAt) <= within
}
