package receive

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/delivery"
	"github.com/pushlease/pushlease/dispatcher/internal/registry"
	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

const (
	// leftHidden is how long a message may be hidden: a left queue that shows none of
	// its messages for longer has none.
	leftHidden = queue.MaxDelay + 24*time.Hour
)

// ownOnly leaves out what was sent to a left queue later, notes what is held there, and
// ends the note about the queue when nothing is left of it. Other queues are looked at
// as they are.
func (g *guard) ownOnly(ctx context.Context, peeked []queue.Peeked) ([]queue.Peeked, error) {
	l, left := g.Registry.LeftQueue(g.q.Name())
	if !left {
		return peeked, nil
	}
	own := slices.DeleteFunc(slices.Clone(peeked), func(p queue.Peeked) bool { return !registry.Before(l, p.InsertedAt) })
	g.noteHeld(ctx, own)
	if len(own) > 0 || time.Since(l.At) <= tables.LeftSkew {
		return own, nil
	}
	if time.Since(l.At) <= leftHidden { // some may be hidden
		if len(peeked) > 0 {
			return nil, nil
		}
		depth, err := g.q.Depth(ctx)
		if err != nil && !errors.Is(err, queue.ErrQueueNotFound) {
			return nil, fmt.Errorf("count what is hidden: %w", err)
		}
		if depth.Total > 0 {
			return nil, nil
		}
	}
	g.Log.Info("nothing is left of what was on the queue when its last webhook was deleted", "queue", l.Queue)
	return nil, g.Registry.Forget(ctx, l)
}

// noteHeld records what waits on a left queue, once for each message: no webhook makes
// anybody receive it, so nothing else tells an operator of it. It is looked at, not
// received.
func (g *guard) noteHeld(ctx context.Context, waiting []queue.Peeked) {
	noted := map[string]bool{}
	for _, p := range waiting {
		if !g.noted[p.ID] {
			if err := g.noteHeldOne(ctx, p); err != nil {
				g.Log.Warn("what waits on a queue without a webhook can't be noted now; trying again",
					"queue", g.q.Name(), "message", p.ID, "error", err)
				break
			}
		}
		noted[p.ID] = true
	}
	g.noted = noted
}

// noteHeldOne writes that the message is held, unless that is known, or it has ended.
func (g *guard) noteHeldOne(ctx context.Context, p queue.Peeked) error {
	key := tables.MessageKey{Queue: g.q.Name(), MessageID: p.ID, Day: p.InsertedAt}
	known, err := g.Journal.Load(ctx, retry.Once, key, []string{""})
	if err != nil {
		return fmt.Errorf("look up what is known: %w", err)
	}
	held := tables.Delivery{MessageKey: key, Instance: g.Instance}
	webhooks, ended := 0, 0
	for _, del := range known {
		switch {
		case del.WebhookID != "":
			webhooks++
			if del.State.Terminal() {
				ended++
			}
		case del.State.Terminal(), del.State == tables.Held && del.Reason == policy.WebhookDeleted:
			return nil
		case del.State == tables.Held:
			held = del
		default: // published: its own record, which tells its size, and of what it is the copy
			held.Size, held.BodyHash, held.Encoding, held.DeadLetterID = del.Size, del.BodyHash, del.Encoding, del.CopyOf()
		}
	}
	if webhooks > 0 && webhooks == ended {
		return nil
	}
	held.State, held.Reason, held.ExpiresAt = tables.Held, policy.WebhookDeleted, p.ExpiresAt
	held.UpdatedAt = time.Now().UTC().Truncate(time.Millisecond)
	if held.NextAt = (time.Time{}); !p.ExpiresAt.IsZero() {
		held.NextAt = p.ExpiresAt.Add(-delivery.LastOfLife(p.InsertedAt, p.ExpiresAt, guardMargin))
	}
	g.Journal.Record(g.Write, tables.Record{Deliveries: []tables.Delivery{held}})
	return nil
}
