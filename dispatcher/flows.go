package dispatcher

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

const (
	// healthEvery is how often the health of webhooks that has changed is written, and
	// that of failing ones compared with what the other instances have seen.
	healthEvery = time.Minute
	// healthSoon is how often it is written at most because a breaker has turned, or a
	// webhook has asked for a pause.
	healthSoon = time.Second
	// healthTimeout bounds one reading or writing of health.
	healthTimeout = 10 * time.Second
)

// flows are the flows of all webhooks. Safe for concurrent use.
type flows struct {
	store    tables.Healths
	instance string
	started  time.Time
	log      *slog.Logger

	mu      sync.Mutex
	byID    map[string]*flow
	byQueue map[string][]*flow
	rooms   map[string]chan struct{} // by queue: holds one when room may have been made
	outage  policy.Outage
	turned  chan struct{} // holds one when a breaker has, or a pause was asked for
	// released is told when the held messages of a webhook can go on; it may be nil.
	released func(webhookID string)
	// stored is the health that was read at the start, of webhooks not met so far; nil
	// until it was read.
	stored map[string][]tables.Health
}

func newFlows(store tables.Healths, instance string, log *slog.Logger) *flows {
	return &flows{
		store: store, instance: instance, started: time.Now(), log: log,
		byID: map[string]*flow{}, byQueue: map[string][]*flow{}, rooms: map[string]chan struct{}{},
		turned: make(chan struct{}, 1),
	}
}

// load reads what was known before the restart, once. When it can't, webhooks begin anew.
func (fs *flows) load(ctx context.Context) {
	fs.mu.Lock()
	loaded := fs.stored != nil
	fs.mu.Unlock()
	if loaded {
		return
	}
	callCtx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	rows, err := fs.store.ListHealth(callCtx)
	if err != nil {
		if ctx.Err() == nil {
			fs.log.Warn("how the webhooks did before the start can't be read; they begin anew", "error", err)
		}
		rows = nil
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.stored = map[string][]tables.Health{}
	for _, h := range rows {
		fs.stored[h.WebhookID] = append(fs.stored[h.WebhookID], h)
	}
}

// sync takes in the registrations as they are now.
func (fs *flows) sync(ctx context.Context, all []tables.Registration) {
	fs.load(ctx)
	fs.mu.Lock()
	defer fs.mu.Unlock()
	byID, byQueue := make(map[string]*flow, len(all)), map[string][]*flow{}
	for _, r := range all {
		f := fs.byID[r.ID]
		switch {
		case f == nil:
			f = fs.make(r)
		case f.update(r):
			fs.log.Info("the webhook was enabled or has another URL: what was known of it counts no more", "webhook", r.ID)
		}
		byID[r.ID] = f
		byQueue[r.Queue] = append(byQueue[r.Queue], f)
	}
	fs.byID, fs.byQueue = byID, byQueue
	for queueName := range fs.rooms {
		fs.signalLocked(queueName)
	}
}

// make makes the flow of a webhook that was not met before. fs.mu is held.
func (fs *flows) make(r tables.Registration) *flow {
	f := newFlow(r)
	f.told = fs.released
	now := time.Now()
	var newest tables.Health
	var seen []policy.AutoDisableState
	own := 0
	for _, h := range fs.stored[r.ID] {
		if h.UpdatedAt.Before(f.since) { // what it says counts no more
			continue
		}
		if h.UpdatedAt.After(newest.UpdatedAt) {
			newest = h
		}
		seen = append(seen, h.Failing)
		if h.Instance == fs.instance {
			own = h.Failing.FailedMessages
		}
	}
	delete(fs.stored, r.ID)
	if newest.Breaker.Since.After(f.since) {
		f.breaker.Restore(newest.Breaker)
	}
	f.pause.Restore(newest.PausedUntil, now)
	f.lastFailure = newest.LastFailureAt
	// Since when it fails goes on; the messages that others counted stay in their rows.
	failing := policy.Together(f.since, seen...)
	failing.FailedMessages = min(failing.FailedMessages, own)
	f.auto.Restore(failing)
	return f
}

// of returns the flow of a registration; one that sync has not seen yet is made.
func (fs *flows) of(r *tables.Registration) *flow {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f := fs.byID[r.ID]
	if f == nil {
		f = fs.make(*r)
		fs.byID[r.ID] = f
		fs.byQueue[r.Queue] = append(fs.byQueue[r.Queue], f)
	}
	return f
}

// get returns the flow of a webhook; nil when it is not known.
func (fs *flows) get(id string) *flow {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.byID[id]
}

// report takes in a sign for the question whether it is us who fail.
func (fs *flows) report(id string, s policy.Sign, now time.Time) (ours bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.outage.Report(id, s, now)
	return s.Failed && fs.outage.Ours(now)
}

// saveSoon has health written at once, or with what else is written in this second.
func (fs *flows) saveSoon() {
	select {
	case fs.turned <- struct{}{}:
	default:
	}
}

// room is how many messages of a queue can be started now, of which onTheWay are not with
// their webhooks yet: as many as the webhook with the most room can take, since each gets
// its own. With none, next is when it is worth asking again, if that is known.
func (fs *flows) room(queueName string, onTheWay, most int, now time.Time) (n int, next time.Time) {
	fs.mu.Lock()
	list := fs.byQueue[queueName]
	fs.mu.Unlock()
	for _, f := range list {
		room, at := f.room(onTheWay, most, now)
		n = max(n, room)
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return n, next
}

// signal tells a queue's poller that there may be room; rooms is where it hears that.
func (fs *flows) signal(queueName string) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.signalLocked(queueName)
}

func (fs *flows) signalLocked(queueName string) {
	select {
	case fs.rooms[queueName] <- struct{}{}:
	default:
	}
}

// listen makes c the channel of a queue's poller, and forget drops it.
func (fs *flows) listen(queueName string, c chan struct{}) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.rooms[queueName] = c
}

func (fs *flows) forget(queueName string, c chan struct{}) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.rooms[queueName] == c {
		delete(fs.rooms, queueName)
	}
}

// all returns the flows.
func (fs *flows) all() []*flow {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	list := make([]*flow, 0, len(fs.byID))
	for _, f := range fs.byID {
		list = append(list, f)
	}
	return list
}

// save writes the health that has changed, for the next start and for other instances.
func (fs *flows) save(ctx context.Context) error {
	var rows []tables.Health
	var changed []*flow
	for _, f := range fs.all() {
		if h, ok := f.takeChange(); ok {
			h.Instance, h.StartedAt = fs.instance, fs.started
			rows = append(rows, h)
			changed = append(changed, f)
		}
	}
	if len(rows) == 0 {
		return nil
	}
	if err := fs.store.PutHealth(ctx, rows...); err != nil {
		for _, f := range changed {
			f.markChanged()
		}
		return fmt.Errorf("save the health of webhooks: %w", err)
	}
	return nil
}

// overdue are the webhooks that have failed for too long, by what all instances have seen
// together. It asks the store only while a webhook is failing.
func (fs *flows) overdue(ctx context.Context, now time.Time) ([]*flow, error) {
	var failing []*flow
	for _, f := range fs.all() {
		if f.isFailing() {
			failing = append(failing, f)
		}
	}
	if len(failing) == 0 {
		return nil, nil
	}
	rows, err := fs.store.ListHealth(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the health of webhooks: %w", err)
	}
	others := map[string][]policy.AutoDisableState{}
	for _, h := range rows {
		if h.Instance != fs.instance {
			others[h.WebhookID] = append(others[h.WebhookID], h.Failing)
		}
	}
	var due []*flow
	for _, f := range failing {
		if f.overdue(others[f.id], now) {
			due = append(due, f)
		}
	}
	return due, nil
}

// watchHealth saves health and disables what has failed for too long, until ctx ends.
func (d *Dispatcher) watchHealth(ctx context.Context) {
	t := time.NewTicker(healthEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.flows.turned:
			d.saveHealth(ctx)
			waitFor(ctx.Done(), healthSoon) // what turns meanwhile goes together
		case <-t.C:
			d.tendHealth(ctx)
		}
	}
}

func (d *Dispatcher) saveHealth(ctx context.Context) {
	callCtx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	if err := d.flows.save(callCtx); err != nil && ctx.Err() == nil {
		d.log.Warn("trying again in a minute", "error", err)
	}
}

func (d *Dispatcher) tendHealth(ctx context.Context) {
	d.saveHealth(ctx)
	callCtx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	due, err := d.flows.overdue(callCtx, time.Now())
	if len(due) > 0 { // nobody is disabled by a registry that is behind: it may have been enabled elsewhere
		if !d.registry.fresh(callCtx, time.Now()) {
			return
		}
		due, err = d.flows.overdue(callCtx, time.Now())
	}
	if err != nil && ctx.Err() == nil {
		d.log.Warn("trying again in a minute", "error", err)
	}
	for _, f := range due {
		d.disable(ctx, f.id, f.begun(), policy.WebhookFailing)
	}
}
