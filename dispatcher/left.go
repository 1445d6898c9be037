package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

const (
	// leftRefresh is how often the notes about left queues are read again. They are
	// read at once when a queue has lost its last webhook.
	leftRefresh = 10 * time.Minute
	// leftSkew is how far storage's clock, which inserts, may be ahead of the one that
	// noted when the webhook was deleted.
	leftSkew = 5 * time.Minute
	// leftHidden is how long a message may be hidden: a left queue that shows none of
	// its messages for longer has none.
	leftHidden = queue.MaxDelay + 24*time.Hour
)

// refreshLeft reads the notes about left queues when that is due. What can't be read
// stays as it was, and is asked for again with the next reading of the webhooks.
func (r *registry) refreshLeft(ctx context.Context) {
	r.mu.RLock()
	due := r.leftDue || time.Since(r.leftReadAt) >= leftRefresh
	r.mu.RUnlock()
	if !due {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, registryTimeout)
	defer cancel()
	list, err := r.store.ListLeftQueues(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		if !r.leftFailed && ctx.Err() == nil {
			r.log.Warn("which queues have lost their webhooks can't be read; going on with those known", "error", err)
		}
		r.leftFailed = true
		return
	}
	r.left = map[string]tables.LeftQueue{}
	for _, l := range list {
		r.left[l.Queue] = l
	}
	r.leftReadAt, r.leftDue, r.leftFailed = time.Now(), false, false
}

// leftQueue returns the note about a queue that has no webhook any more.
func (r *registry) leftQueue(name string) (tables.LeftQueue, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	l, ok := r.left[name]
	return l, ok && len(r.byQueue[name]) == 0
}

// newlyLeft names the queues that have lost their last webhook since it was called last.
// Whoever watches them for another reason is to look again at once.
func (r *registry) newlyLeft() (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := map[string]bool{}
	for name := range r.left {
		if len(r.byQueue[name]) > 0 {
			continue
		}
		now[name] = true
		if !r.leftTold[name] {
			names = append(names, name)
		}
	}
	r.leftTold = now
	return names
}

// leftWith reports whether a message that was inserted then was on the queue when
// its last webhook was deleted.
func (r *registry) leftWith(name string, insertedAt time.Time) bool {
	l, ok := r.leftQueue(name)
	return ok && before(l, insertedAt)
}

// before reports whether a message was there when the webhook was deleted. Later ones
// are not ours: somebody else may read the queue by now.
func before(l tables.LeftQueue, insertedAt time.Time) bool {
	return !insertedAt.After(l.At.Add(leftSkew))
}

// forget ends the note, here and in the store.
func (r *registry) forget(ctx context.Context, l tables.LeftQueue) error {
	ctx, cancel := context.WithTimeout(ctx, registryTimeout)
	defer cancel()
	if err := r.store.DropLeftQueue(ctx, l); err != nil {
		return fmt.Errorf("drop the note about a left queue: %w", err)
	}
	r.mu.Lock()
	if r.left[l.Queue] == l {
		delete(r.left, l.Queue)
	}
	r.mu.Unlock()
	r.tell()
	return nil
}

// ownOnly leaves out what was sent to a left queue later, notes what is held there, and
// ends the note about the queue when nothing is left of it. Other queues are looked at
// as they are.
func (g *guard) ownOnly(ctx context.Context, peeked []queue.Peeked) ([]queue.Peeked, error) {
	l, left := g.d.registry.leftQueue(g.q.Name())
	if !left {
		return peeked, nil
	}
	var own []queue.Peeked
	for _, p := range peeked {
		if before(l, p.InsertedAt) {
			own = append(own, p)
		}
	}
	g.noteHeld(ctx, own)
	if len(own) > 0 || time.Since(l.At) <= leftSkew {
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
	g.d.log.Info("nothing is left of what was on the queue when its last webhook was deleted", "queue", l.Queue)
	return nil, g.d.registry.forget(ctx, l)
}

// noteHeld records what waits on a left queue, once for each message: no webhook makes
// anybody receive it, so nothing else tells an operator of it. It is looked at, not
// received.
func (g *guard) noteHeld(ctx context.Context, waiting []queue.Peeked) {
	noted := map[string]bool{}
	for _, p := range waiting {
		if !g.noted[p.ID] {
			if err := g.d.noteHeld(ctx, g.q.Name(), p); err != nil {
				g.d.log.Warn("what waits on a queue without a webhook can't be noted now; trying again",
					"queue", g.q.Name(), "message", p.ID, "error", err)
				break
			}
		}
		noted[p.ID] = true
	}
	g.noted = noted
}

// noteHeld writes that the message is held, unless that is known, or it has ended.
func (d *Dispatcher) noteHeld(ctx context.Context, queueName string, p queue.Peeked) error {
	key := tables.MessageKey{Queue: queueName, MessageID: p.ID, Day: p.InsertedAt}
	stored, err := d.o.Store.Load(ctx, key)
	if err != nil {
		return fmt.Errorf("look up what is known: %w", err)
	}
	held := tables.Delivery{MessageKey: key, Instance: d.o.Instance}
	webhooks, ended := 0, 0
	for _, del := range d.memory.merge(key, stored, []string{""}) {
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
		default: // published: its own record, which tells its size
			held.Size, held.BodyHash, held.Encoding = del.Size, del.BodyHash, del.Encoding
		}
	}
	if webhooks > 0 && webhooks == ended {
		return nil
	}
	held.State, held.Reason, held.ExpiresAt = tables.Held, policy.WebhookDeleted, p.ExpiresAt
	held.UpdatedAt = time.Now().UTC().Truncate(time.Millisecond)
	if held.NextAt = (time.Time{}); !p.ExpiresAt.IsZero() {
		held.NextAt = p.ExpiresAt.Add(-lastOfLife(p.InsertedAt, p.ExpiresAt, guardMargin))
	}
	d.record(d.writing(ctx), tables.Record{Deliveries: []tables.Delivery{held}})
	return nil
}
