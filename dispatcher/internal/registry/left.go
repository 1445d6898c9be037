package registry

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pushlease/pushlease/tables"
)

const (
	// leftRefresh is how often the notes about left queues are read again. They are
	// read at once when a queue has lost its last webhook.
	leftRefresh = 10 * time.Minute
)

// RefreshLeft reads the notes about left queues when that is due, and forgets the health of webhooks that are gone. What can't
// be read stays as it was; what failed is done again with the next reading of the webhooks.
func (r *Registry) RefreshLeft(ctx context.Context) {
	r.mu.RLock()
	due := r.leftDue || time.Since(r.leftReadAt) >= leftRefresh
	r.mu.RUnlock()
	if !due {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, registryTimeout)
	defer cancel()
	failure := "which queues have lost their webhooks can't be read; going on with those known"
	list, err := r.store.ListLeftQueues(ctx)
	if err == nil {
		list, err = r.noteLost(ctx, list)
	}
	if err == nil {
		r.knowLeft(list)
		failure = "the health of a webhook that is gone can't be removed: until it is, each start tells again that the webhook is gone"
		err = r.forgetRemoved(ctx)
	}
	if err == nil {
		failure = ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil && r.leftFailure != failure && ctx.Err() == nil {
		r.log.Warn(failure, "error", err)
	}
	r.leftDue, r.leftFailure = err != nil, failure
}

// knowLeft takes over the notes that were read.
func (r *Registry) knowLeft(list []tables.LeftQueue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left, r.leftReadAt = map[string]tables.LeftQueue{}, time.Now()
	for _, l := range list {
		r.left[l.Queue] = l
	}
}

// Removed takes a webhook that is gone from storage for deleted: what waits on its queue is guarded if it was the last one, and
// its health is forgotten, so that no later start misses it again.
func (r *Registry) Removed(id, queueName string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removed[id], r.leftDue = true, true
	if queueName != "" {
		r.lost[queueName] = time.Now()
	}
}

// forgetRemoved forgets the health of those.
func (r *Registry) forgetRemoved(ctx context.Context) error {
	r.mu.RLock()
	ids := slices.Collect(maps.Keys(r.removed))
	r.mu.RUnlock()
	for _, id := range ids {
		if err := r.store.DeleteHealth(ctx, id); err != nil {
			return fmt.Errorf("forget the health of webhook %s: %w", id, err)
		}
		r.mu.Lock()
		delete(r.removed, id)
		r.mu.Unlock()
	}
	return nil
}

// noteLost writes the notes that are missing: whoever deletes a webhook through pushlease leaves
// one first, and what another program deletes is a deletion like any other. Otherwise nobody
// would guard what waits on the queue, and it would expire unseen.
func (r *Registry) noteLost(ctx context.Context, notes []tables.LeftQueue) ([]tables.LeftQueue, error) {
	r.mu.RLock()
	lost := maps.Clone(r.lost)
	maps.DeleteFunc(lost, func(name string, _ time.Time) bool { return r.readAt.IsZero() || len(r.byQueue[name]) > 0 }) // the next reading tells
	r.mu.RUnlock()
	for name, seenAt := range lost {
		noted := slices.ContainsFunc(notes, func(l tables.LeftQueue) bool {
			return l.Queue == name && l.After(seenAt)
		})
		if !noted {
			l := tables.LeftQueue{Queue: name, At: time.Now().UTC().Truncate(time.Millisecond)}
			if err := r.store.PutLeftQueue(ctx, l); err != nil {
				return nil, fmt.Errorf("note that queue %s has lost its webhooks: %w", name, err)
			}
			notes = append(slices.DeleteFunc(notes, func(l tables.LeftQueue) bool { return l.Queue == name }), l)
			r.log.Error("the webhooks of a queue are gone from storage, and nobody deleted them through pushlease: what waits there is held until one is registered",
				"queue", name)
		}
		r.mu.Lock()
		delete(r.lost, name)
		r.mu.Unlock()
	}
	return notes, nil
}

// LeftQueue returns the note about a queue that has no webhook any more.
func (r *Registry) LeftQueue(name string) (tables.LeftQueue, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	l, ok := r.left[name]
	return l, ok && len(r.byQueue[name]) == 0 && !r.hasUnknown(name)
}

// LeftWith reports whether a message that was inserted then was on the queue when
// its last webhook was deleted.
func (r *Registry) LeftWith(name string, insertedAt time.Time) bool {
	l, ok := r.LeftQueue(name)
	return ok && Before(l, insertedAt)
}

// Before reports whether a message was there when the webhook was deleted. Later ones
// are not ours: somebody else may read the queue by now.
func Before(l tables.LeftQueue, insertedAt time.Time) bool {
	return !insertedAt.After(l.At.Add(tables.LeftSkew))
}

// Forget ends the note, here and in the store.
func (r *Registry) Forget(ctx context.Context, l tables.LeftQueue) error {
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
	r.Tell()
	return nil
}
