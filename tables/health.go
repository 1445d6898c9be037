package tables

import (
	"context"
	"time"

	"github.com/pushlease/pushlease/policy"
)

// Health is how one webhook does as one instance sees it: what has to survive a
// restart of that instance, and what it shows to the others. It is never about what
// becomes of a message.
type Health struct {
	WebhookID string
	// Queue is that of the webhook; empty in rows of before it was noted.
	Queue string
	// Instance tells the processes apart. Only the instance itself writes its rows.
	Instance string

	Breaker policy.BreakerState
	// Refusing says that the breaker is not closed because the webhook refuses every message
	// alike (policy.Refusals).
	Refusing bool
	// Throttles says that its last answer was that it is sent too much.
	Throttles   bool
	PausedUntil time.Time
	// Pace is the rate that was learned, to a thousandth of a POST a second, its noise to one, and its window to a millisecond.
	Pace    policy.PaceState
	Failing policy.AutoDisableState
	// LastFailureAt is when the receiver last failed (policy.Sign.Failed).
	LastFailureAt time.Time

	// Window and InFlight are what may be, and what was, in flight at UpdatedAt.
	Window   int
	InFlight int
	// Delivered, Failed and Postponed count POSTs that were answered 2xx, POSTs that
	// failed, and deliveries that had to wait for the webhook, since StartedAt.
	Delivered int64
	Failed    int64
	Postponed int64
	StartedAt time.Time
	UpdatedAt time.Time
}

// Healths remembers the health of webhooks, a row for each webhook and instance. Times
// are kept to the millisecond. Safe for concurrent use.
type Healths interface {
	// PutHealth writes rows, each over the earlier one of its webhook and instance; of
	// two of the same in one call the last counts. Up to 100 rows are written together,
	// so it is cheap to gather them. It may be repeated.
	PutHealth(ctx context.Context, rows ...Health) error

	// ListHealth returns all rows in ascending order of webhook and instance.
	ListHealth(ctx context.Context) ([]Health, error)

	// WebhookHealth returns the rows of one webhook in ascending order of instance.
	WebhookHealth(ctx context.Context, webhookID string) ([]Health, error)

	// DeleteHealth removes the rows of a webhook, those of all instances: it was
	// enabled, deleted, or has another URL. None need be there. An instance that does
	// not know of it yet may write its row once more; see policy.Together.
	DeleteHealth(ctx context.Context, webhookID string) error

	// ExpireHealth removes rows that were last written before that time, which their
	// instances have left behind, and returns how many; and the traces of webhooks that were deleted
	// TraceOutlives before that.
	ExpireHealth(ctx context.Context, before time.Time) (int64, error)
}
