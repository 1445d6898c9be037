package app

import (
	"context"
	"log/slog"
	"time"

	"github.com/pushlease/pushlease/tables"
)

const (
	// expiryPage is how many dead letters are looked at in one step.
	expiryPage = 200
	// expiryBound bounds one round; what is left is for the next, an hour later.
	expiryBound = 10 * time.Minute
)

// deadLetterExpiry removes dead letters by age. Replayed ones are history like other
// records, and go with them; the others are kept for ever when others is zero.
type deadLetterExpiry struct {
	store            tables.DeadLetters
	replayed, others time.Duration
	log              *slog.Logger
	// expired counts dead letters that were removed.
	expired func(queueName, status string, n int)
}

// run makes one round.
func (e *deadLetterExpiry) run(ctx context.Context, now time.Time) {
	ctx, cancel := context.WithTimeout(ctx, expiryBound)
	defer cancel()
	e.remove(ctx, tables.Replayed, now.Add(-e.replayed))
	if e.others > 0 {
		e.remove(ctx, tables.Waiting, now.Add(-e.others)) // those whose replay was lost wait again
	}
}

// remove deletes what has the status and was dead-lettered before that time, and,
// once replayed, was replayed before it too.
func (e *deadLetterExpiry) remove(ctx context.Context, status tables.DeadLetterStatus, before time.Time) {
	filter := tables.DeadLetterFilter{Status: status, Until: before}
	spare := func(d tables.DeadLetter) bool { return !d.ReplayedAt.Before(before) }
	page, removed := tables.Page{Limit: expiryPage}, 0
	for {
		p, err := tables.PurgeDeadLetters(ctx, e.store, filter, page, spare)
		for name, n := range p.Deleted {
			e.expired(name, string(status), n)
		}
		removed += p.Total()
		if err != nil && ctx.Err() == nil {
			e.log.Warn("dead letters could not be removed by age; trying again in an hour", "status", status, "error", err)
		}
		if err != nil || p.Next == "" {
			break
		}
		page.After = p.Next
	}
	if removed > 0 {
		e.log.Info("dead letters removed by age", "rows", removed, "status", status, "before", before.UTC().Format(time.RFC3339))
	}
}
