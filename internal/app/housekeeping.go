package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/pushlease/pushlease/internal/config"
	"github.com/pushlease/pushlease/tables"
)

const (
	// housekeepingEvery is how often expired records are removed.
	housekeepingEvery = time.Hour
	// housekeepingBound bounds the removing of one kind of records in one round.
	housekeepingBound = time.Minute
	// healthRetention is how long what an instance wrote about a webhook counts after it
	// has written last: instances whose names are made anew leave their rows behind.
	healthRetention = 10 * 24 * time.Hour
)

// housekeeping removes what is older than its retention.
type housekeeping struct {
	retention time.Duration // of records
	tables    tables.Store
	relist    func(context.Context) ([]string, error) // see stores
	sas       *sasWatch
	replays   *lostReplays
	expiry    *deadLetterExpiry
	clock     *steadyClock
	log       *slog.Logger
}

func newHousekeeping(cfg config.Config, s *stores, log *slog.Logger, expired func(queueName, status string, n int)) *housekeeping {
	return &housekeeping{
		retention: cfg.Retention, tables: s.tables, relist: s.relist, sas: &sasWatch{end: s.sasEnd, log: log}, log: log,
		replays: &lostReplays{store: s.tables, queues: s.queues, log: log},
		clock:   newSteadyClock(s.clockAhead, s.queues),
		expiry:  &deadLetterExpiry{store: s.tables, replayed: cfg.Retention, others: cfg.DeadLetterRetention, log: log, expired: expired},
	}
}

// run keeps house by the hour, once the clock may be trusted.
func (h *housekeeping) run(ctx context.Context) {
	h.sas.look(time.Now())
	if err := h.relistQueues(ctx); err != nil && ctx.Err() == nil { // no clock decides that
		h.log.Warn("queues that were taken off the list of those with dead letters can't be looked for; trying again with the first round", "error", err)
	}
	first := clockSettles
	if h.clock.ahead != nil {
		first = clockAsked
	}
	t := time.NewTimer(first)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		next := housekeepingEvery
		switch err := h.round(ctx); {
		case errors.Is(err, errDoubtedClock):
			next = clockSettles
			h.log.Warn("nothing is removed by its age now, since the clock here may be wrong; looking again in ten minutes", "error", err)
		case err != nil && ctx.Err() == nil:
			h.log.Warn("what has expired could not be removed; trying again in an hour", "error", err)
		}
		t.Reset(next)
	}
}

// round looks at when the storage's signature ends, removes records, claims, health, instances, the history, the audit and dead
// letters that are older than their retention, and ends the replays whose message is gone. It may be repeated and run at the
// same time elsewhere.
func (h *housekeeping) round(ctx context.Context) error {
	h.sas.look(time.Now())
	relistErr := h.relistQueues(ctx)
	if err := h.clock.doubt(ctx, time.Now()); err != nil {
		return errors.Join(err, relistErr)
	}
	before := time.Now().Add(-h.retention)
	var n int64
	err := h.each(ctx,
		func(ctx context.Context) (err error) { n, err = h.tables.Expire(ctx, before); return err },
		func(ctx context.Context) error { _, err := h.tables.ExpireClaims(ctx, time.Now()); return err },
		func(ctx context.Context) error {
			_, err := h.tables.ExpireHealth(ctx, time.Now().Add(-healthRetention))
			return err
		},
		func(ctx context.Context) error { return expireInstances(ctx, h.tables, time.Now()) },
		func(ctx context.Context) error { return expireRollups(ctx, h.tables, time.Now()) },
		func(ctx context.Context) error {
			_, err := h.tables.ExpireAudits(ctx, time.Now().Add(-tables.AuditsRetention))
			return err
		},
	)
	if n > 0 {
		h.log.Info("expired records removed", "rows", n, "before", before.UTC().Format(time.DateOnly))
	}
	h.expiry.run(ctx, time.Now()) // before the next one, which reads all dead letters that are left
	h.replays.run(ctx, time.Now())
	if err != nil {
		err = fmt.Errorf("remove expired records, claims, health, history and audit: %w", err)
	}
	return errors.Join(err, relistErr)
}

// each does all of them, whatever becomes of one: what may not be removed keeps nothing else.
func (h *housekeeping) each(ctx context.Context, steps ...func(context.Context) error) (err error) {
	for _, step := range steps {
		callCtx, cancel := context.WithTimeout(ctx, housekeepingBound)
		err = errors.Join(err, step(callCtx))
		cancel()
	}
	return err
}

// relistQueues finds the dead letters that no list shows, since another program has taken their queue off the list of queues.
func (h *housekeeping) relistQueues(ctx context.Context) error {
	if h.relist == nil {
		return nil
	}
	callCtx, cancel := context.WithTimeout(ctx, housekeepingBound)
	defer cancel()
	queues, err := h.relist(callCtx)
	for _, name := range queues {
		h.log.Error("a queue was not on the list of those with dead letters, though it has some: another program has taken it off. No list, count or expiry over all queues knew them; it is on the list again", "queue", name)
	}
	return err
}
