package flow

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

// Options are what Flows needs of others. Fresh and Disable are called without a lock held.
type Options struct {
	Store    tables.Healths
	Instance string
	Log      *slog.Logger
	// Turned counts that a breaker went into another phase.
	Turned func(webhookID string, phase policy.BreakerPhase)
	// Shown tells that a held message of the queue is visible again.
	Shown func(queueName, messageID string)
	// Fresh reads the registrations again unless that was done since, and reports whether
	// they are as new as that.
	Fresh func(ctx context.Context, since time.Time) bool
	// Disable switches a webhook off that has failed for too long, unless it has begun anew
	// since it had this resetAt.
	Disable func(ctx context.Context, webhookID string, resetAt time.Time)
}

// Flows are the flows of all webhooks. Safe for concurrent use. Its lock may be held when
// that of a Flow is taken, never the other way round. Under its own lock
// held messages are told of a new registration; under a Flow's nothing else is called.
type Flows struct {
	o       Options
	started time.Time
	held    *held
	tell    *listeners

	mu      sync.Mutex
	byID    map[string]*Flow
	byQueue map[string][]*Flow
	rooms   map[string]chan struct{} // by queue: holds one when room may have been made
	outage  policy.Outage
	turned  chan struct{} // holds one when a breaker has, or a pause was asked for
	// stored is the health that was read at the start, of webhooks not met so far; nil
	// until it was read.
	stored map[string][]tables.Health
	// loadedAt is when it was tried to read it.
	loadedAt time.Time
}

// New makes the flows; it knows no webhook yet.
func New(o Options) *Flows {
	fs := &Flows{
		o: o, started: time.Now(), held: newHeld(),
		byID: map[string]*Flow{}, byQueue: map[string][]*Flow{}, rooms: map[string]chan struct{}{},
		turned: make(chan struct{}, 1),
	}
	fs.tell = &listeners{
		log: o.Log, turned: o.Turned, room: fs.Signal, released: fs.held.release, save: fs.saveSoon, ours: fs.report,
	}
	return fs
}

// Sync takes in the registrations as they are now.
func (fs *Flows) Sync(ctx context.Context, all []tables.Registration) {
	fs.load(ctx)
	for _, id := range fs.takeIn(all) {
		fs.held.release(id)
	}
}

// takeIn is Sync; it names the webhooks whose held messages can go on.
func (fs *Flows) takeIn(all []tables.Registration) (released []string) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	byID, byQueue := make(map[string]*Flow, len(all)), map[string][]*Flow{}
	var added []tables.Registration
	for _, r := range all {
		f := fs.byID[r.ID]
		if f == nil {
			f = fs.make(r)
			added = append(added, r)
		} else {
			reset, more := f.update(r)
			if reset {
				fs.o.Log.Info("the webhook was enabled or has another URL: what was known of it counts no more", "webhook", r.ID)
			}
			if more {
				released = append(released, r.ID)
			}
		}
		byID[r.ID] = f
		byQueue[r.Queue] = append(byQueue[r.Queue], f)
	}
	fs.byID, fs.byQueue = byID, byQueue
	for _, r := range added {
		if fs.held.inherit(r.Queue, r.ID, func(id string) bool { return byID[id] == nil }) {
			released = append(released, r.ID)
		}
	}
	for queueName := range fs.rooms {
		fs.signalLocked(queueName)
	}
	return released
}

// make makes the flow of a webhook that was not met before. fs.mu is held.
func (fs *Flows) make(r tables.Registration) *Flow {
	f := newFlow(fs.tell, r)
	f.peers = policy.Peers{Self: fs.o.Instance, ClocksApart: tables.ClocksApart}
	now := time.Now()
	var newest tables.Health
	var seen []policy.AutoDisableState
	var told []policy.PeerRow
	own, rows := 0, slices.DeleteFunc(fs.stored[r.ID], func(h tables.Health) bool { return h.UpdatedAt.Before(f.since) }) // what they say counts no more
	for _, h := range rows {
		if h.UpdatedAt.After(newest.UpdatedAt) {
			newest = h
		}
		seen, told = append(seen, h.Failing), append(told, peerRow(h))
		if h.Instance == fs.o.Instance {
			own = h.Failing.FailedMessages
		}
	}
	delete(fs.stored, r.ID)
	if newest.Breaker.Since.After(f.since) && f.settings.Breaker.Enabled {
		f.breaker.Restore(newest.Breaker)
		open := newest.Breaker.Phase != policy.BreakerClosed
		if f.refusing = open && newest.Refusing; open && newest.Throttles {
			f.tooMany = 1
		}
	}
	if pace := fs.restored(rows, f.since); pace.Since.After(f.since) && f.settings.Adaptive {
		f.pacer.Restore(pace, now)
	}
	f.hear(told, now)
	f.pause.Restore(newest.PausedUntil)
	f.lastFailure, f.savedAt = newest.LastFailureAt, newest.UpdatedAt
	// Since when it fails goes on; the messages that others counted stay in their rows.
	failing := policy.Together(f.since, seen...)
	failing.FailedMessages = min(failing.FailedMessages, own)
	f.auto.Restore(failing)
	if failing.LastSuccess.After(f.since) {
		f.lastOK, f.savedOK = failing.LastSuccess, failing.LastSuccess
	}
	return f
}

// Of returns the flow of a registration; one that Sync has dropped since is made again.
func (fs *Flows) Of(r *tables.Registration) *Flow {
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

// Get returns the flow of a webhook; nil when it is not known.
func (fs *Flows) Get(id string) *Flow {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.byID[id]
}

// report takes in a sign for the question whether it is us who fail.
func (fs *Flows) report(id string, s policy.Sign, now time.Time) (ours bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.outage.Report(id, s, now)
	return s.Failed && fs.outage.Ours(now)
}

// Room is how many messages of a queue can be started now, of which onTheWay are not with
// their webhooks yet: as many as the webhook with the most room can take, since each gets
// its own. Up to ahead of them may wait for POSTs to end, where those end soon. With none, next is
// when it is worth asking again, if that is known.
func (fs *Flows) Room(queueName string, onTheWay, ahead, most int, now time.Time) (n int, next time.Time) {
	fs.mu.Lock()
	list := fs.byQueue[queueName]
	fs.mu.Unlock()
	for _, f := range list {
		room, at := f.room(onTheWay, ahead, most, now)
		n = max(n, room)
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return n, next
}

// Signal tells a queue's poller that there may be room; Listen says where it hears that.
func (fs *Flows) Signal(queueName string) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.signalLocked(queueName)
}

func (fs *Flows) signalLocked(queueName string) {
	select {
	case fs.rooms[queueName] <- struct{}{}:
	default:
	}
}

// Listen makes c the channel of a queue's poller, and Forget drops it.
func (fs *Flows) Listen(queueName string, c chan struct{}) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.rooms[queueName] = c
}

// Forget ends what a queue was told of through c.
func (fs *Flows) Forget(queueName string, c chan struct{}) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.rooms[queueName] == c {
		delete(fs.rooms, queueName)
	}
}

// All returns the flows.
func (fs *Flows) All() []*Flow {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return slices.Collect(maps.Values(fs.byID))
}
