package meter

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/policy"
)

// keptFailures bounds the failed deletions that are remembered for one queue.
const keptFailures = 20

// unverified is the result of a delete after which the message is there again.
const unverified = "unverified"

// Queues is what the API tells of each queue without the metrics, which count for ever and are
// for others to read. A queue that was met once stays. Safe for concurrent use.
type Queues struct {
	mu     sync.Mutex
	byName map[string]*perQueue
}

type perQueue struct {
	inFlight  int
	lately    policy.Lately // messages finished with, and those of them that became dead letters
	deletions status.Deletions
	expired   int
}

// change changes what is known of a queue.
func (qs *Queues) change(name string, f func(*perQueue)) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.byName[name]
	if q == nil {
		if qs.byName == nil {
			qs.byName = map[string]*perQueue{}
		}
		q = &perQueue{}
		qs.byName[name] = q
	}
	f(q)
}

// Enter counts a message that this process is at work on until Leave, whoever
// received it: a poller, one that was stopped meanwhile, a guard, or a host.
func (qs *Queues) Enter(name string) { qs.change(name, func(q *perQueue) { q.inFlight++ }) }

// Leave ends what Enter began.
func (qs *Queues) Leave(name string) { qs.change(name, func(q *perQueue) { q.inFlight-- }) }

// InFlight is how many messages this process is at work on.
func (qs *Queues) InFlight() (n int) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for _, q := range qs.byName {
		n += q.inFlight
	}
	return n
}

// deleted counts a delete. The failure has no Error where it succeeded.
func (qs *Queues) deleted(name string, failure status.DeletionFailure) {
	qs.change(name, func(q *perQueue) {
		d := &q.deletions
		switch failure.Error {
		case "":
			d.Total++
			d.Successful++
		case unverified:
			d.Unverified++
		default:
			d.Total++
			d.Failed++
		}
		if failure.Error != "" {
			d.LastFailures = slices.Insert(d.LastFailures, 0, failure)
			d.LastFailures = d.LastFailures[:min(len(d.LastFailures), keptFailures)]
		}
	})
}

// Tell fills in what is known of the queue.
func (qs *Queues) Tell(s *status.Queue, name string) {
	qs.change(name, func(q *perQueue) {
		s.InFlight, s.Deletions, s.Expired = q.inFlight, q.deletions, q.expired
		s.Deletions.LastFailures = slices.Clone(q.deletions.LastFailures)
		s.Handled, s.DeadLettered = q.lately.Sums(time.Now())
	})
}

// MeasureInFlight makes the gauge of what this process is at work on. Storage can't tell
// it from what is merely delayed, and an autoscaler must not take a process away that
// is at work. idle names queues that have a value too when nothing of them is in flight.
func (qs *Queues) MeasureInFlight(m metric.Meter, idle func() []string) error {
	_, err := m.Int64ObservableGauge("pushlease.messages.in_flight",
		metric.WithDescription("Messages that this process is at work on, by queue."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			for _, name := range idle() {
				qs.change(name, func(*perQueue) {})
			}
			qs.mu.Lock()
			defer qs.mu.Unlock()
			for name, q := range qs.byName {
				o.Observe(int64(q.inFlight), metric.WithAttributes(attribute.String("queue", name)))
			}
			return nil
		}))
	if err != nil {
		return fmt.Errorf("gauge of messages in flight: %w", err)
	}
	return nil
}

// MeasurePlaces makes the gauge of what is taken of each bound on the work of this process. What is
// taken while nothing is in flight, and no receive is under way, was never given back.
func MeasurePlaces(m metric.Meter, taken func() map[string]int) error {
	_, err := m.Int64ObservableGauge("pushlease.places.taken",
		metric.WithDescription("What is taken of the bounds on messages and POSTs in work, by of (messages, slots, lingering, settling, leases, posts)."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			for of, n := range taken() {
				o.Observe(int64(n), metric.WithAttributes(attribute.String("of", of)))
			}
			return nil
		}))
	if err != nil {
		return fmt.Errorf("gauge of places taken: %w", err)
	}
	return nil
}
