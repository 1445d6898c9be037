package lease

import (
	"fmt"
	"sync"
	"time"

	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
)

const (
	// measureEvery is how often a queue's lease is worked out at most.
	measureEvery = time.Second
	// riskLogEvery is how often a queue's long messages are logged at most.
	riskLogEvery = time.Minute
	// hostedMost is the longest lease of a message that a host received, however long messages take.
	// A host stops processes as it likes, and such a message is in work again, or delivered, 90 s
	// later: renewing carries a long POST, and costs little beside its invocation.
	hostedMost = time.Minute
)

// Measure keeps how long the messages of each queue take, and says how long their
// leases should be. It is this process's own: instances measure
// alone, and forget when they stop. Safe for concurrent use.
//
// The base is the average of the slowest webhook, because a message is held until
// its last POST has ended: over all messages, one whose slow webhook is not due would
// hide how long that one takes.
type Measure struct {
	fixed    time.Duration // asked for whatever was measured; zero means by measurement
	estimate func(queueName string) policy.Estimate
	hosted   func(queueName string) bool

	mu     sync.Mutex
	queues map[string]*queueTimes
}

// queueTimes is what was measured on one queue.
type queueTimes struct {
	messages policy.Times
	webhooks map[string]*policy.Times

	// lease was worked out at leaseAt.
	lease   time.Duration
	leaseAt time.Time
	// floor is the lease that one long message asked for; it holds until floorUntil.
	floor      time.Duration
	floorUntil time.Time

	riskLoggedAt time.Time
	riskUnlogged int
}

// Posted is one POST that tells how long its webhook takes.
type Posted struct {
	Webhook string
	Took    time.Duration
}

// NewMeasure makes one that has measured nothing. fixed is the lease to ask for whatever was
// measured; zero means by measurement. hosted says whether a host receives from a queue.
func NewMeasure(fixed time.Duration, estimate func(string) policy.Estimate, hosted func(string) bool) *Measure {
	return &Measure{fixed: fixed, estimate: estimate, hosted: hosted, queues: map[string]*queueTimes{}}
}

func (ms *Measure) of(queueName string) *queueTimes {
	q := ms.queues[queueName]
	if q == nil {
		q = &queueTimes{webhooks: map[string]*policy.Times{}}
		ms.queues[queueName] = q
	}
	return q
}

// Length is what to ask for now, at a receive and at a renewal.
func (ms *Measure) Length(queueName string) time.Duration {
	switch {
	case ms.fixed > 0:
		return ms.fixed
	case ms.hosted(queueName):
		return min(ms.fitting(queueName), hostedMost)
	}
	return ms.fitting(queueName)
}

// Fits is the lease by which it is judged whether a message took too much of the one that was
// granted: where leases are kept short, the one that it would have had.
func (ms *Measure) Fits(queueName string, m *queue.Message) time.Duration {
	granted, length := m.Lease.Granted(), ms.Length(queueName)
	switch {
	case ms.fixed == 0 && ms.hosted(queueName):
		return max(ms.fitting(queueName), granted)
	case Within(m, length) < length:
		return max(length, granted)
	}
	return granted
}

// fitting is the lease that fits the time that messages take.
func (ms *Measure) fitting(queueName string) time.Duration {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	q, now := ms.of(queueName), time.Now()
	if q.leaseAt.IsZero() || now.Sub(q.leaseAt) >= measureEvery {
		rec := policy.RecommendLease(ms.estimate(queueName), q.measured(now))
		q.lease, q.leaseAt = time.Duration(rec.Lease), now
	}
	return q.withFloor(q.lease, now)
}

// Status is what the API shows: the lease in force, the recommended one with its
// reasoning, and how long messages take.
func (ms *Measure) Status(queueName string) (time.Duration, policy.Recommendation, status.Processing) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	now := time.Now()
	q := ms.queues[queueName]
	if q == nil {
		q = &queueTimes{}
	}
	rec := policy.RecommendLease(ms.estimate(queueName), q.measured(now))
	lease := q.withFloor(time.Duration(rec.Lease), now)
	switch {
	case ms.fixed > 0:
		lease = ms.fixed
		rec.Reasoning += fmt.Sprintf(" The setting lease fixes it at %s.", lease)
	case lease > time.Duration(rec.Lease):
		rec.Reasoning += fmt.Sprintf(" Leases are %s until %s, because a message took more than %.0f %% of its lease.",
			lease, q.floorUntil.UTC().Format(time.RFC3339), policy.UtilisationTooHigh*100)
	}
	if ms.fixed == 0 && ms.hosted(queueName) && lease > hostedMost {
		lease = hostedMost
		rec.Reasoning += fmt.Sprintf(" Under the Functions host leases are %s at most, and renewed.", hostedMost)
	}
	times := q.messages.Fresh(now)
	return lease, rec, status.Processing{
		Samples: len(times), P50: policy.Percentile(times, .50), P95: policy.Percentile(times, .95), P99: policy.Percentile(times, .99),
	}
}

// Took notes how long a message took, and what its POSTs tell about their
// webhooks. A message that was not POSTed says nothing about the work.
func (ms *Measure) Took(queueName string, posts []Posted, took, granted time.Duration) {
	if len(posts) == 0 {
		return
	}
	slowest := time.Duration(0)
	for _, p := range posts {
		slowest = max(slowest, p.Took)
	}
	around := max(took-slowest, 0) // reading, records and settling: each POST needs them
	ms.mu.Lock()
	defer ms.mu.Unlock()
	q, now := ms.of(queueName), time.Now()
	q.messages.Add(now, took)
	for _, p := range posts {
		r := q.webhooks[p.Webhook]
		if r == nil {
			r = &policy.Times{}
			q.webhooks[p.Webhook] = r
		}
		r.Add(now, p.Took+around)
	}
	if longer := policy.LengthenLease(took, granted); longer > granted && longer >= q.withFloor(0, now) {
		q.floor, q.floorUntil = longer, now.Add(policy.MeasuredAge)
	}
}

// AtRisk notes a message that took too much of its lease, and reports whether that
// is to be logged, with the number of those that were not.
func (ms *Measure) AtRisk(queueName string) (unlogged int, log bool) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	q, now := ms.of(queueName), time.Now()
	if !q.riskLoggedAt.IsZero() && now.Sub(q.riskLoggedAt) < riskLogEvery {
		q.riskUnlogged++
		return 0, false
	}
	unlogged, q.riskUnlogged, q.riskLoggedAt = q.riskUnlogged, 0, now
	return unlogged, true
}

// withFloor is lease, or the longer one that a long message asked for lately.
func (q *queueTimes) withFloor(lease time.Duration, now time.Time) time.Duration {
	if now.Before(q.floorUntil) {
		return max(lease, q.floor)
	}
	return lease
}

// measured is about the slowest of the webhooks that were measured often enough, or
// of all where none was. Webhooks that were not used lately are forgotten.
func (q *queueTimes) measured(now time.Time) policy.Measured {
	var slowest policy.Measured
	for id, r := range q.webhooks {
		m := r.Measured(now)
		if m.Samples == 0 {
			delete(q.webhooks, id)
			continue
		}
		enough, had := m.Samples >= policy.EnoughSamples, slowest.Samples >= policy.EnoughSamples
		if enough && !had || enough == had && m.Average > slowest.Average {
			slowest = m
		}
	}
	return slowest
}
