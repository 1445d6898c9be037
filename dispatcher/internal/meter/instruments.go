package meter

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"
)

// maxLabels bounds the webhook ids that get a series of their own; what comes later
// counts under "other".
const maxLabels = 500

// Instruments are what the dispatcher counts with. Labels are bounded: queue names, webhook
// ids up to maxLabels, and closed sets. Never a URL, an address or a message id.
type Instruments struct {
	receivedN, requeued, duplicates, settledN, deadletteredN  metric.Int64Counter
	receiveErrors, renewals, leasesLost, lookups              metric.Int64Counter
	deferred, lost, copiesRefused, attempts                   metric.Int64Counter
	deletes, atRisk, conflicts, unfinished, postponedN, turns metric.Int64Counter
	processing, attemptTime, utilization                      metric.Float64Histogram
	leaseLength                                               metric.Float64Gauge

	// Lately is for the API.
	Lately *Tally

	mu       sync.Mutex
	webhooks map[string]bool

	series seriesCache
}

// New makes the instruments.
func New(m metric.Meter) (*Instruments, error) {
	var errs []error
	counter := func(name, help string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithDescription(help))
		errs = append(errs, err)
		return c
	}
	histogram := func(name, unit, help string, bounds ...float64) metric.Float64Histogram {
		opts := []metric.Float64HistogramOption{metric.WithDescription(help), metric.WithUnit(unit)}
		if len(bounds) > 0 {
			opts = append(opts, metric.WithExplicitBucketBoundaries(bounds...))
		}
		h, err := m.Float64Histogram(name, opts...)
		errs = append(errs, err)
		return h
	}
	ms := &Instruments{
		webhooks:      map[string]bool{},
		Lately:        NewTally(),
		receivedN:     counter("pushlease.messages.received", "Messages received under a lease, redeliveries included, by queue."),
		requeued:      counter("pushlease.messages.requeued", "Messages received more than once (dequeue count above 1), by queue."),
		duplicates:    counter("pushlease.messages.duplicate", "Messages deleted without a POST, by queue and kind: redelivery is one that came back after it was delivered, event one whose event was delivered with another message."),
		settledN:      counter("pushlease.messages.settled", "Messages settled, by queue, action, reason and what storage answered."),
		deadletteredN: counter("pushlease.messages.deadlettered", "Dead letters written, by queue and reason."),
		receiveErrors: counter("pushlease.receive.errors", "Receives that failed, by queue."),
		renewals:      counter("pushlease.lease.renewals", "Lease renewals, by queue and result."),
		leasesLost:    counter("pushlease.lease.lost", "Leases lost while a message was handled, by queue and kind."),
		lookups:       counter("pushlease.dedup.lookup.failures", "Messages delivered although earlier deliveries, or their event, could not be looked up, by queue."),
		conflicts:     counter("pushlease.dedup.conflicts", "Messages delivered although another one with the same event, and another body, was met before, by queue."),
		unfinished:    counter("pushlease.dedup.claims.unfinished", "Claims on events that could not be kept or ended; they lapse, and another message with the event is delivered then."),
		atRisk:        counter("pushlease.lease.at_risk", "Messages that took more than 80 % of their lease, by queue."),
		deletes:       counter("pushlease.messages.deleted", "Deletes of messages, by queue and result; unverified is a message that came back after it was delivered."),
		postponedN:    counter("pushlease.webhook.postponed", "Deliveries that were held because the webhook could not be sent to, by queue, webhook and reason."),
		turns:         counter("pushlease.webhook.breaker.changes", "Changes of the breaker of a webhook, by webhook and the state it went into."),
		deferred:      counter("pushlease.records.deferred", "Records kept in memory because the store did not take them, by queue."),
		lost:          counter("pushlease.records.lost", "Records that had to be dropped from memory unwritten."),
		copiesRefused: counter("pushlease.poison.copies.refused", "Copies that the poison queue definitively refused; the dead letter is kept, by queue."),
		attempts:      counter("pushlease.webhook.attempts", "POSTs, by queue, webhook, outcome (status class or error class), decision and reason."),
		processing: histogram("pushlease.message.process.duration", "s", "From receiving a message to settling it, by queue.",
			.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300),
		attemptTime: histogram("pushlease.webhook.attempt.duration", "s", "One POST from dial to answer, by queue and webhook.",
			.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300),
		utilization: histogram("pushlease.lease.utilization", "1", "Share of the granted lease that handling a message took, by queue; above 0.8 is at risk.",
			.05, .1, .2, .4, .6, .8, .9, 1, 2, 4),
	}
	var err error
	ms.leaseLength, err = m.Float64Gauge("pushlease.lease.length", metric.WithUnit("s"),
		metric.WithDescription("Lease that the last receive asked for, by queue."))
	return ms, errors.Join(append(errs, err)...)
}

func (ms *Instruments) add(c metric.Int64Counter, l labels) {
	c.Add(context.Background(), 1, ms.series.of(l).add...)
}

func (ms *Instruments) observe(h metric.Float64Histogram, value float64, l labels) {
	h.Record(context.Background(), value, ms.series.of(l).record...)
}

// Received counts a receive of a message; again says that it is not the first one.
func (ms *Instruments) Received(queueName string, again bool) {
	ms.add(ms.receivedN, labels{queue: queueName})
	if again {
		ms.add(ms.requeued, labels{queue: queueName})
	}
}

// ReceiveError counts a receive that failed.
func (ms *Instruments) ReceiveError(queueName string) {
	ms.add(ms.receiveErrors, labels{queue: queueName})
}

// LookupFailed counts a look-up of a message's history that failed.
func (ms *Instruments) LookupFailed(queueName string) { ms.add(ms.lookups, labels{queue: queueName}) }

// RecordDeferred counts a record that is written later.
func (ms *Instruments) RecordDeferred(queueName string) {
	ms.add(ms.deferred, labels{queue: queueName})
}

// RecordsLost counts records that will never be written.
func (ms *Instruments) RecordsLost(n int) {
	if n > 0 {
		ms.lost.Add(context.Background(), int64(n))
	}
}

// ClaimUnfinished counts a claim on an event whose end could not be written.
func (ms *Instruments) ClaimUnfinished() { ms.add(ms.unfinished, labels{}) }

// DedupConflict counts an event that came again with another body.
func (ms *Instruments) DedupConflict(queueName string) {
	ms.add(ms.conflicts, labels{queue: queueName})
}

// PoisonCopyRefused counts a copy that the poison queue did not take.
func (ms *Instruments) PoisonCopyRefused(queueName string) {
	ms.add(ms.copiesRefused, labels{queue: queueName})
}

// Postponed counts a delivery that was put off without a POST.
func (ms *Instruments) Postponed(queueName, webhookID string, reason string) {
	ms.add(ms.postponedN, labels{queue: queueName, webhook: ms.Label(webhookID), reason: reason})
}

// Turned counts a change of a webhook's breaker.
func (ms *Instruments) Turned(webhookID string, phase string) {
	ms.add(ms.turns, labels{webhook: ms.Label(webhookID), state: phase})
}

// Duplicate counts a message that was deleted without a POST, as its kind says.
func (ms *Instruments) Duplicate(queueName, kind string) {
	ms.add(ms.duplicates, labels{queue: queueName, kind: kind})
}

// DeadLettered counts a dead letter.
func (ms *Instruments) DeadLettered(queueName string, reason string) {
	ms.add(ms.deadletteredN, labels{queue: queueName, reason: reason})
}

// LeaseLost counts a lease that ended early, and how.
func (ms *Instruments) LeaseLost(queueName, kind string) {
	ms.add(ms.leasesLost, labels{queue: queueName, kind: kind})
}

// LeaseAtRisk counts a message that took most of its lease.
func (ms *Instruments) LeaseAtRisk(queueName string) { ms.add(ms.atRisk, labels{queue: queueName}) }

// LeaseAsked records the length of a lease that is asked for.
func (ms *Instruments) LeaseAsked(queueName string, lease time.Duration) {
	ms.leaseLength.Record(context.Background(), lease.Seconds(), ms.series.of(labels{queue: queueName}).record...)
}

// Deleted counts a delete and how it ended.
func (ms *Instruments) Deleted(queueName, result string) {
	ms.add(ms.deletes, labels{queue: queueName, result: result})
}

// Renewed counts a renewal: renewed, lost or failed.
func (ms *Instruments) Renewed(queueName, result string) {
	ms.add(ms.renewals, labels{queue: queueName, result: result})
}

// Settlement is how handling a message ended.
type Settlement struct {
	Queue, Action, Reason, Result string
	// Gone: it was completed, and is deleted. DeadLettered: with a dead letter at least.
	Gone, DeadLettered bool
	Took, Granted      time.Duration
}

// Settled counts a message that was handled.
func (ms *Instruments) Settled(s Settlement) {
	ms.add(ms.settledN, labels{queue: s.Queue, action: s.Action, reason: s.Reason, result: s.Result})
	if s.Gone {
		ms.Lately.Add(s.Queue, s.DeadLettered)
	}
	ms.observe(ms.processing, s.Took.Seconds(), labels{queue: s.Queue})
	if s.Granted > 0 {
		ms.observe(ms.utilization, s.Took.Seconds()/s.Granted.Seconds(), labels{queue: s.Queue})
	}
}

// Attempt is a POST and what was decided about it.
type Attempt struct {
	Queue, Webhook, ErrorClass, Decision, Reason string
	Status                                       int
	Took                                         time.Duration
}

// Attempted counts an attempt.
func (ms *Instruments) Attempted(a Attempt) {
	outcome := a.ErrorClass
	if a.Status != 0 {
		outcome = string('0'+rune(min(a.Status/100, 9))) + "xx"
	}
	id := ms.Label(a.Webhook)
	ms.add(ms.attempts, labels{queue: a.Queue, webhook: id, outcome: outcome, decision: a.Decision, reason: a.Reason})
	ms.observe(ms.attemptTime, a.Took.Seconds(), labels{queue: a.Queue, webhook: id})
}

// Label is a webhook's id as it stands in labels: itself, or "other" beyond maxLabels.
func (ms *Instruments) Label(webhookID string) string {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if !ms.webhooks[webhookID] {
		if len(ms.webhooks) >= maxLabels {
			return "other"
		}
		ms.webhooks[webhookID] = true
	}
	return webhookID
}
