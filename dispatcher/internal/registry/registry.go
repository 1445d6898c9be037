// Package registry knows the registered webhooks as they were last read, and the queues whose
// last webhook was deleted.
package registry

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/tables"
)

// registryTimeout bounds one reading of the registered webhooks.
const registryTimeout = 15 * time.Second

// Store is what the registry reads.
type Store interface {
	tables.Webhooks
	tables.LeftQueues
	DeleteHealth(ctx context.Context, webhookID string) error
}

// Registry is the last known state of the registered webhooks, by queue. A store
// that can't be asked leaves it as it was.
type Registry struct {
	store   Store
	log     *slog.Logger
	Changed chan struct{} // holds one when the webhooks were changed, or are to be read again
	// onRead is told of each reading before anybody goes by it.
	onRead func(context.Context, []tables.Registration)

	mu      sync.RWMutex
	byQueue map[string][]tables.Registration
	readAt  time.Time // start of the last successful reading
	askedAt time.Time // when a change was last told of
	// listedAt is when a list was last read, also one in which all are missed (tables.VanishedError).
	listedAt time.Time
	lastErr  error
	damaged  map[string]damaged // by webhook: what the last reading could not read

	// What is noted about queues that webhooks were deleted from (see RefreshLeft).
	left       map[string]tables.LeftQueue
	leftReadAt time.Time
	leftDue    bool
	// leftFailure is what RefreshLeft could not do last, as it was told; empty where it could.
	leftFailure string
	// lost are queues that had webhooks, at this time for the last time, and have none; who
	// deleted those is not known yet (see noteLost).
	lost map[string]time.Time
	// removed are webhooks that were taken for deleted, and whose health is to be forgotten.
	removed map[string]bool

	reading chan struct{} // holds one: Fresh, which waits for it, is content with a reading that began after it asked
}

// New makes one that has read nothing. onRead is told of each reading before anybody goes by it.
func New(store Store, log *slog.Logger, onRead func(context.Context, []tables.Registration)) *Registry {
	return &Registry{store: store, log: log, onRead: onRead, Changed: make(chan struct{}, 1), reading: make(chan struct{}, 1), lost: map[string]time.Time{}, removed: map[string]bool{}, leftDue: true}
}

// Refresh reads the registered webhooks, and reports whether it could; Status has the error.
func (r *Registry) Refresh(ctx context.Context) bool {
	_, whole := r.readUnless(ctx, func() bool { return false })
	return whole
}

// readUnless reads the registered webhooks, unless that is needless, or another reading makes it so: there is one
// at a time, since one that ended late would bring back what was known before. What is needless waits for none.
func (r *Registry) readUnless(ctx context.Context, needless func() bool) (listed, whole bool) {
	if needless() {
		return true, true
	}
	select {
	case r.reading <- struct{}{}:
		defer func() { <-r.reading }()
	case <-ctx.Done():
		is := needless()
		return is, is
	}
	if needless() {
		return true, true
	}
	return r.read(ctx)
}

// read is for one that holds reading. listed is whether what is there was read, whole whether nothing is missed.
func (r *Registry) read(ctx context.Context) (listed, whole bool) {
	ctx, cancel := context.WithTimeout(ctx, registryTimeout)
	defer cancel()
	start := time.Now()
	all, rowErrs, err := r.store.ListWebhooks(ctx)
	var gone *tables.VanishedError
	if errors.As(err, &gone) { // all that there were: those that are missed stay in force, and who was deleted does not
		rowErrs = gone.Missed
	}
	var unread map[string]damaged
	if err == nil || gone != nil {
		all, unread = r.inForce(all, rowErrs)
		r.onRead(ctx, all)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		if r.lastErr == nil && ctx.Err() == nil {
			r.log.Error("the registered webhooks can't be read; going on with those known", "error", err)
		}
		r.lastErr = err
		if gone != nil { // what is there was read
			r.know(all, unread)
			r.listedAt = start
		}
		return gone != nil, false
	}
	if r.lastErr != nil {
		r.log.Info("the registered webhooks can be read again")
	}
	r.know(all, unread)
	r.readAt, r.listedAt, r.lastErr = start, start, nil
	return true, true
}

// know takes over what is registered, and what could not be read. r.mu is held.
func (r *Registry) know(all []tables.Registration, unread map[string]damaged) {
	for id, d := range unread {
		if _, told := r.damaged[id]; !told {
			r.log.Error("a registered webhook can't be read: what was known of it stays in force, and where nothing was its messages wait",
				"webhook", id, "queue", d.Queue, "known", d.known, "error", d.Err)
		}
	}
	byQueue := map[string][]tables.Registration{}
	for _, reg := range all {
		byQueue[reg.Queue] = append(byQueue[reg.Queue], reg)
	}
	for name := range r.byQueue {
		if byQueue[name] == nil {
			r.lost[name] = r.readAt
		}
	}
	for name := range byQueue {
		delete(r.lost, name)
	}
	for id, d := range r.damaged { // one that could not be read was deleted, which leaves a note
		if _, still := unread[id]; !still && !d.known && byQueue[d.Queue] == nil {
			r.leftDue = true
		}
	}
	r.leftDue = r.leftDue || len(r.lost) > 0
	r.byQueue, r.damaged = byQueue, unread
}

// Tell notes that the registered webhooks have changed.
func (r *Registry) Tell() {
	r.mu.Lock()
	r.askedAt = time.Now()
	r.mu.Unlock()
	select {
	case r.Changed <- struct{}{}:
	default:
	}
}

// CatchUp re-reads the registry when a change was told of that it does not show yet:
// who has registered a webhook may publish at once. It reports whether no such change is left.
func (r *Registry) CatchUp(ctx context.Context) bool {
	if !r.behind() {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, retry.Timeout) // a store that is away delays nothing for longer
	defer cancel()
	listed, _ := r.readUnless(ctx, func() bool { return !r.behind() })
	return listed
}

// behind reports whether a change was told of that no list shows yet.
func (r *Registry) behind() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return !r.askedAt.IsZero() && !r.listedAt.After(r.askedAt)
}

// Of returns the registrations on a queue, enabled or not.
func (r *Registry) Of(queueName string) []tables.Registration {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.byQueue[queueName]
}

// Fresh re-reads the registry unless that was done since start, and
// reports whether it is known to be as new as that.
func (r *Registry) Fresh(ctx context.Context, start time.Time) bool {
	_, whole := r.readUnless(ctx, func() bool {
		readAt, _ := r.Status()
		return readAt.After(start)
	})
	return whole
}

// ToPoll names the queues that have an enabled webhook.
func (r *Registry) ToPoll() map[string]bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	names := map[string]bool{}
	for name, regs := range r.byQueue {
		for _, reg := range regs {
			if reg.Enabled {
				names[name] = true
				break
			}
		}
	}
	return names
}

// ToGuard names the queues that have webhooks, and none that is known to be enabled, and
// those whose last webhook was deleted.
func (r *Registry) ToGuard() map[string]bool {
	polled := r.ToPoll()
	r.mu.RLock()
	defer r.mu.RUnlock()
	names := map[string]bool{}
	for name := range r.byQueue {
		if !polled[name] {
			names[name] = true
		}
	}
	for _, d := range r.damaged {
		if !d.known && d.Queue != "" && !polled[d.Queue] {
			names[d.Queue] = true
		}
	}
	for name := range r.left {
		if !polled[name] {
			names[name] = true
		}
	}
	return names
}

// Status says whether the registry was ever read and what the last error was.
func (r *Registry) Status() (readAt time.Time, err error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.readAt, r.lastErr
}
