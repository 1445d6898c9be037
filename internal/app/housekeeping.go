package app

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/pushlease/pushlease/internal/config"
	"github.com/pushlease/pushlease/tables"
)

const (
	// housekeepingEvery is how often expired records are removed.
	housekeepingEvery = time.Hour
	// housekeepingBound bounds the removing of records in one round.
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
	log       *slog.Logger
}

func newHousekeeping(cfg config.Config, s *stores, log *slog.Logger, expired func(queueName, status string, n int)) *housekeeping {
	return &housekeeping{
		retention: cfg.Retention, tables: s.tables, relist: s.relist, sas: &sasWatch{end: s.sasEnd, log: log}, log: log,
		replays: &lostReplays{letters: s.tables, records: s.tables, queues: s.queues, log: log},
		expiry:  &deadLetterExpiry{store: s.tables, replayed: cfg.Retention, others: cfg.DeadLetterRetention, log: log, expired: expired},
	}
}

// run keeps house by the hour.
func (h *housekeeping) run(ctx context.Context) {
	t := time.NewTicker(housekeepingEvery)
	defer t.Stop()
	for {
		if err := h.round(ctx); err != nil && ctx.Err() == nil {
			h.log.Warn("what has expired could not be removed; trying again in an hour", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// round looks at when the storage's signature ends, removes records, claims, health, instances, the history, the audit and dead
// letters that are older than their retention, and ends the replays whose message is gone. It may be repeated and run at the
// same time elsewhere.
func (h *housekeeping) round(ctx context.Context) error {
	h.sas.look(time.Now())
	before := time.Now().Add(-h.retention)
	callCtx, cancel := context.WithTimeout(ctx, housekeepingBound)
	defer cancel()
	n, err := h.tables.Expire(callCtx, before)
	if err == nil {
		_, err = h.tables.ExpireClaims(callCtx, time.Now())
	}
	if err == nil {
		_, err = h.tables.ExpireHealth(callCtx, time.Now().Add(-healthRetention))
	}
	if err == nil {
		err = expireInstances(callCtx, h.tables, time.Now())
	}
	if err == nil {
		err = expireRollups(callCtx, h.tables, time.Now())
	}
	if err == nil {
		_, err = h.tables.ExpireAudits(callCtx, time.Now().Add(-tables.AuditsRetention))
	}
	if n > 0 {
		h.log.Info("expired records removed", "rows", n, "before", before.UTC().Format(time.DateOnly))
	}
	if relistErr := h.relistQueues(ctx); err == nil {
		err = relistErr
	}
	h.replays.run(ctx, time.Now())
	h.expiry.run(ctx, time.Now())
	if err != nil {
		return fmt.Errorf("remove expired records, claims, health, history and audit: %w", err)
	}
	return nil
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
