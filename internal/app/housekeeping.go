package app

import (
	"context"
	"fmt"
	"time"

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

// housekeeping keeps house by the hour.
func (a *App) housekeeping(ctx context.Context) {
	t := time.NewTicker(housekeepingEvery)
	defer t.Stop()
	for {
		if err := a.keepHouse(ctx); err != nil && ctx.Err() == nil {
			a.log.Warn("what has expired could not be removed; trying again in an hour", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// keepHouse removes what is older than its retention, and looks at when the storage's
// signature ends. It may be repeated and run at the same time elsewhere.
func (a *App) keepHouse(ctx context.Context) error {
	a.sas.look(time.Now())
	return a.expire(ctx)
}

// expire removes records, claims, health, instances, the history, the audit and dead letters that are older than their
// retention, and ends the replays whose message is gone.
// It may be repeated and run at the same time elsewhere.
func (a *App) expire(ctx context.Context) error {
	before := time.Now().Add(-a.cfg.Retention)
	callCtx, cancel := context.WithTimeout(ctx, housekeepingBound)
	defer cancel()
	n, err := a.stores.tables.Expire(callCtx, before)
	if err == nil {
		_, err = a.stores.tables.ExpireClaims(callCtx, time.Now())
	}
	if err == nil {
		_, err = a.stores.tables.ExpireHealth(callCtx, time.Now().Add(-healthRetention))
	}
	if err == nil {
		err = expireInstances(callCtx, a.stores.tables, time.Now())
	}
	if err == nil {
		err = expireRollups(callCtx, a.stores.tables, time.Now())
	}
	if err == nil {
		_, err = a.stores.tables.ExpireAudits(callCtx, time.Now().Add(-tables.AuditsRetention))
	}
	if n > 0 {
		a.log.Info("expired records removed", "rows", n, "before", before.UTC().Format(time.DateOnly))
	}
	if relistErr := a.relist(ctx); err == nil {
		err = relistErr
	}
	a.replays.run(ctx, time.Now())
	a.expiry.run(ctx, time.Now())
	if err != nil {
		return fmt.Errorf("remove expired records, claims, health, history and audit: %w", err)
	}
	return nil
}

// relist finds the dead letters that no list shows, since another program has taken their queue off the list of queues.
func (a *App) relist(ctx context.Context) error {
	if a.stores.relist == nil {
		return nil
	}
	callCtx, cancel := context.WithTimeout(ctx, housekeepingBound)
	defer cancel()
	queues, err := a.stores.relist(callCtx)
	for _, name := range queues {
		a.log.Error("a queue was not on the list of those with dead letters, though it has some: another program has taken it off. No list, count or expiry over all queues knew them; it is on the list again", "queue", name)
	}
	return err
}
