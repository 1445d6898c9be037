package app

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pushlease/pushlease/api"
	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/tables"
)

const (
	// beatEvery is how often an instance says that it is there, and looks who else is, but for changes of its readiness: two storage
	// transactions a minute, $0.01 a month on Azure.
	beatEvery = time.Minute
	// changesEvery is how often changes of the readiness are told at most: a check that comes and goes, as of a queue
	// that is throttled, would cost storage twelve times as much, just then.
	changesEvery = 30 * time.Second
	// beatTimeout bounds one round.
	beatTimeout = 15 * time.Second
	// instanceRetention is how long one that was not dropped is told of after it was last seen.
	instanceRetention = 24 * time.Hour
)

// heartbeat writes a row of this instance once a minute, so that every instance can tell of all.
// Nothing that delivers depends on it, but for how often a queue without messages is looked at.
type heartbeat struct {
	store   tables.Instances
	about   tables.Instance // what never changes
	checks  func(context.Context) []api.Check
	atWork  func() status.Work
	clock   func() (ahead time.Duration, known bool) // nil where it is storage's own
	lanes   func() (underWay int, stalls int64)      // nil where there are none
	worst   func() (lastError string, at time.Time)
	log     *slog.Logger
	failing bool
	written bool
	// namesake is when another process of the same name was found last, in ms; zero for never.
	namesake atomic.Int64
	// ready and trouble are what was told, or to be told, last.
	ready   bool
	trouble string
	// pollers is how many instances poll, this one included, as was seen last.
	pollers atomic.Int64
}

// newHeartbeat makes the heartbeat of this process.
func newHeartbeat(s *stores, name, version string, hosted bool, atWork func() status.Work, worst func() (string, time.Time), log *slog.Logger) *heartbeat {
	about := tables.Instance{Name: name, Version: version, Mode: "serve", StartedAt: time.Now().UTC().Truncate(time.Millisecond)}
	if hosted {
		about.Mode = "hosted"
	}
	return &heartbeat{store: s.tables, about: about, atWork: atWork, worst: worst, clock: s.clockAhead, lanes: s.lanes, log: log}
}

// run beats until ctx ends, and when the readiness has changed, as it does soon after the start. Then it takes
// the row away: who has stopped is not missed.
func (h *heartbeat) run(ctx context.Context) {
	tick, look := time.NewTicker(beatEvery), time.NewTicker(readinessEvery)
	defer tick.Stop()
	defer look.Stop()
	var told time.Time // the last change
	for {
		err := h.beat(ctx)
		if err != nil && !h.failing && ctx.Err() == nil {
			h.log.Warn("this instance can't say that it is there; trying again every minute", "error", err)
		}
		h.failing = err != nil
		for due := false; !due; {
			select {
			case <-ctx.Done():
				last, cancel := context.WithTimeout(context.WithoutCancel(ctx), beatTimeout/5)
				defer cancel()
				if err := h.drop(last); err != nil {
					h.log.Warn("this instance is told of for a day, although it has stopped", "error", err)
				}
				return
			case <-tick.C:
				due = true
			case <-look.C:
				ready, what := trouble(h.checks(ctx))
				if due = (ready != h.ready || what != h.trouble) && time.Since(told) >= changesEvery; due {
					told = time.Now()
				}
			}
		}
	}
}

func (h *heartbeat) beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	now := h.about
	now.SeenAt = time.Now().UTC().Truncate(time.Millisecond)
	now.Ready, now.Trouble = trouble(h.checks(ctx))
	h.ready, h.trouble = now.Ready, now.Trouble // a write that fails is due in a minute
	h.look(&now)
	list, unknown := h.store.ListInstances(ctx) // first: who else goes by this name has written over what this process wrote
	if h.written && slices.ContainsFunc(list, h.isNamesake) {
		h.namesake.Store(time.Now().UnixMilli())
	}
	if err := h.store.PutInstance(ctx, now); err != nil {
		return err
	}
	h.written = true
	if unknown == nil {
		h.count(list)
	}
	return unknown
}

// look notes what the process is at work on.
func (h *heartbeat) look(now *tables.Instance) {
	w := h.atWork()
	now.InFlight, now.Leases, now.Queues = w.InFlight, w.Leases, len(w.Polled)
	now.Polled = w.Polled[:min(len(w.Polled), tables.MaxPolled)]
	if h.lanes != nil {
		now.Lanes, now.LaneStalls = h.lanes()
	}
	text, at := h.worst()
	now.LastError, now.LastErrorAt = tables.CutText(text, 200), at.UTC().Truncate(time.Millisecond)
	if h.clock != nil {
		if ahead, known := h.clock(); known {
			now.ClockAhead = ahead.Truncate(time.Millisecond)
		}
	}
}

// isNamesake reports whether a row that has this process's name is another's.
func (h *heartbeat) isNamesake(i tables.Instance) bool {
	return i.Name == h.about.Name && !i.StartedAt.IsZero() && !i.StartedAt.Equal(h.about.StartedAt)
}

// drop takes the row of this process away.
func (h *heartbeat) drop(ctx context.Context) error {
	list, err := h.store.ListInstances(ctx)
	switch {
	case err != nil:
		return err
	case slices.ContainsFunc(list, h.isNamesake):
		return nil // there is no row of this process
	case !h.nameCheck(time.Now()).OK: // the next beat of the other one says that it is there
		return errors.New("another process of this name wrote the row less than three minutes ago, and may be there still")
	}
	return h.store.DropInstance(ctx, h.about.Name)
}

// nameCheck fails while another process goes by the same name.
func (h *heartbeat) nameCheck(now time.Time) api.Check {
	c := api.Check{Name: "instance", OK: now.Sub(time.UnixMilli(h.namesake.Load())) >= missedAfter}
	if !c.OK {
		c.Degrades = true
		c.Detail = "another process is called " + h.about.Name + " too, so that the records of one replace those of the other: give each its own setting instance, or none"
	}
	return c
}

// missedAfter is how long ago an instance said last that it is there when it is taken for gone. Until
// then the others look more rarely, as if it still polled.
const missedAfter = 5 * beatEvery / 2

// count counts how many instances poll.
func (h *heartbeat) count(list []tables.Instance) {
	n := int64(1)
	for _, i := range list {
		if i.Name != h.about.Name && i.Queues > 0 && tables.Heard(i.SeenAt, time.Now(), missedAfter) {
			n++
		}
	}
	h.pollers.Store(n)
}

// expireInstances takes away those that were not seen for instanceRetention.
func expireInstances(ctx context.Context, store tables.Instances, now time.Time) error {
	list, err := store.ListInstances(ctx)
	for _, i := range list {
		if err == nil && !tables.Heard(i.SeenAt, now, instanceRetention) {
			err = store.DropInstance(ctx, i.Name)
		}
	}
	return err
}

// trouble says whether checks make ready, and which fail.
func trouble(checks []api.Check) (ready bool, failing string) {
	ready = true
	var names []string
	for _, c := range checks {
		if !c.OK {
			ready = ready && c.Degrades
			names = append(names, c.Name)
		}
	}
	slices.Sort(names)
	return ready, tables.CutText(strings.Join(names, ", "), 200)
}
