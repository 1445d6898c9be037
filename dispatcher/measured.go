package dispatcher

import (
	"context"
	"fmt"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
)

// timedAttempt makes one attempt. One that the receiver answered, or that timed out,
// tells how long the webhook takes; one that never reached it does not.
func (d *Dispatcher) timedAttempt(ctx context.Context, p *parcel, t *target) {
	if !d.waitToEnter(ctx, p, t) {
		return
	}
	before, start := t.delivery.Attempts, time.Now()
	d.attempt(ctx, p, t)
	if del := &t.delivery; del.Attempts > before && (del.LastStatus != 0 || del.LastErrorClass == policy.ClassTimeout) {
		t.took = max(time.Since(start), 1)
	}
}

// tookTime notes how long a message took: for the lease of the next ones, and as a
// warning when it was too much of its own and is renewed here. Time after Deliver counts up to one
// settling call, so that an outage of storage does not look like slow work.
func (d *Dispatcher) tookTime(queueName string, m *queue.Message, decision *Outcome, delivering, settling time.Duration, renewed bool) {
	took, granted := delivering+settling, m.Lease.Granted()
	d.measure.Took(queueName, decision.Posts, delivering+min(settling, retry.Timeout), granted)
	share := policy.Utilisation(took, granted)
	if !renewed || share <= policy.UtilisationAtRisk {
		return
	}
	d.metrics.LeaseAtRisk(queueName)
	if unlogged, log := d.measure.AtRisk(queueName); log {
		_, rec, _ := d.measure.Status(queueName)
		d.log.Warn("a message took too much of its lease; it was held by renewing it", "queue", queueName, "message", m.ID,
			"took", took.Round(time.Millisecond), "lease", granted, "utilisation", fmt.Sprintf("%.2f", share),
			"recommended_lease", time.Duration(rec.Lease), "unlogged_before", unlogged)
	}
}
