package dispatcher

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/pushlease/pushlease/dispatcher/internal/meter"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// maxLabels bounds the webhook ids that get a series of their own; what comes later
// counts under "other".
const maxLabels = 500

// metrics are the dispatcher's instruments. Labels are bounded: queue names, webhook
// ids up to maxLabels, and closed sets. Never a URL, an address or a message id.
type metrics struct {
	receivedN, requeued, duplicates, settledN, deadletteredN  metric.Int64Counter
	receiveErrors, renewals, leasesLost, lookups              metric.Int64Counter
	deferred, lost, copiesRefused, attempts                   metric.Int64Counter
	deletes, atRisk, conflicts, unfinished, postponedN, turns metric.Int64Counter
	processing, attemptTime, utilization                      metric.Float64Histogram
	leaseLength                                               metric.Float64Gauge

	// tally is for the API.
	tally *meter.Tally

	mu       sync.Mutex
	webhooks map[string]bool

	series seriesCache
}

func newMetrics(m metric.Meter) (*metrics, error) {
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
	ms := &metrics{
		webhooks:      map[string]bool{},
		tally:         meter.NewTally(),
		receivedN:     counter("messages.received", "Messages received under a lease, redeliveries included, by queue."),
		requeued:      counter("messages.requeued", "Messages received more than once (dequeue count above 1), by queue."),
		duplicates:    counter("messages.duplicate", "Messages deleted without a POST, by queue and kind: redelivery is one that came back after it was delivered, event one whose event was delivered with another message."),
		settledN:      counter("messages.settled", "Messages settled, by queue, action, reason and what storage answered."),
		deadletteredN: counter("messages.deadlettered", "Dead letters written, by queue and reason."),
		receiveErrors: counter("receive.errors", "Receives that failed, by queue."),
		renewals:      counter("lease.renewals", "Lease renewals, by queue and result."),
		leasesLost:    counter("lease.lost", "Leases lost while a message was handled, by queue and kind."),
		lookups:       counter("dedup.lookup.failures", "Messages delivered although earlier deliveries, or their event, could not be looked up, by queue."),
		conflicts:     counter("dedup.conflicts", "Messages delivered although another one with the same event, and another body, was met before, by queue."),
		unfinished:    counter("dedup.claims.unfinished", "Claims on events that could not be kept or ended; they lapse, and another message with the event is delivered then."),
		atRisk:        counter("lease.at_risk", "Messages that took more than 80 % of their lease, by queue."),
		deletes:       counter("messages.deleted", "Deletes of messages, by queue and result; unverified is a message that came back after it was delivered."),
		postponedN:    counter("webhook.postponed", "Deliveries that were held because the webhook could not be sent to, by queue, webhook and reason."),
		turns:         counter("webhook.breaker.changes", "Changes of the breaker of a webhook, by webhook and the state it went into."),
		deferred:      counter("records.deferred", "Records kept in memory because the store did not take them, by queue."),
		lost:          counter("records.lost", "Records that had to be dropped from memory unwritten."),
		copiesRefused: counter("poison.copies.refused", "Copies that the poison queue definitively refused; the dead letter is kept, by queue."),
		attempts:      counter("webhook.attempts", "POSTs, by queue, webhook, outcome (status class or error class), decision and reason."),
		processing: histogram("messaging.process.duration", "s", "From receiving a message to settling it, by queue.",
			.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300),
		attemptTime: histogram("webhook.attempt.duration", "s", "One POST from dial to answer, by queue and webhook.",
			.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300),
		utilization: histogram("lease.utilization", "1", "Share of the granted lease that handling a message took, by queue; above 0.8 is at risk.",
			.05, .1, .2, .4, .6, .8, .9, 1, 2, 4),
	}
	var err error
	ms.leaseLength, err = m.Float64Gauge("lease.length", metric.WithUnit("s"),
		metric.WithDescription("Lease that the last receive asked for, by queue."))
	return ms, errors.Join(append(errs, err)...)
}

func queueAttr(name string) attribute.KeyValue { return attribute.String("queue", name) }

func (ms *metrics) add(c metric.Int64Counter, l labels) {
	c.Add(context.Background(), 1, ms.series.of(l).add...)
}

func (ms *metrics) observe(h metric.Float64Histogram, value float64, l labels) {
	h.Record(context.Background(), value, ms.series.of(l).record...)
}

func (ms *metrics) received(queueName string, m *queue.Message) {
	ms.add(ms.receivedN, labels{queue: queueName})
	if m.DequeueCount > 1 {
		ms.add(ms.requeued, labels{queue: queueName})
	}
}

func (ms *metrics) receiveError(queueName string)   { ms.add(ms.receiveErrors, labels{queue: queueName}) }
func (ms *metrics) lookupFailed(queueName string)   { ms.add(ms.lookups, labels{queue: queueName}) }
func (ms *metrics) recordDeferred(queueName string) { ms.add(ms.deferred, labels{queue: queueName}) }
func (ms *metrics) recordLost()                     { ms.add(ms.lost, labels{}) }
func (ms *metrics) claimUnfinished()                { ms.add(ms.unfinished, labels{}) }
func (ms *metrics) dedupConflict(queueName string)  { ms.add(ms.conflicts, labels{queue: queueName}) }
func (ms *metrics) poisonCopyRefused(queueName string) {
	ms.add(ms.copiesRefused, labels{queue: queueName})
}

func (ms *metrics) postponed(queueName, webhookID string, reason policy.Reason) {
	ms.add(ms.postponedN, labels{queue: queueName, webhook: ms.label(webhookID), reason: string(reason)})
}

func (ms *metrics) turned(webhookID string, phase policy.BreakerPhase) {
	ms.add(ms.turns, labels{webhook: ms.label(webhookID), state: string(phase)})
}

func (ms *metrics) duplicate(queueName, kind string) {
	ms.add(ms.duplicates, labels{queue: queueName, kind: kind})
}

func (ms *metrics) deadLettered(queueName string, reason policy.Reason) {
	ms.add(ms.deadletteredN, labels{queue: queueName, reason: string(reason)})
}

func (ms *metrics) leaseLost(queueName, kind string) {
	ms.add(ms.leasesLost, labels{queue: queueName, kind: kind})
}

func (ms *metrics) leaseAtRisk(queueName string) { ms.add(ms.atRisk, labels{queue: queueName}) }

func (ms *metrics) leaseAsked(queueName string, lease time.Duration) {
	ms.leaseLength.Record(context.Background(), lease.Seconds(), ms.series.of(labels{queue: queueName}).record...)
}

func (ms *metrics) deleted(queueName, result string) {
	ms.add(ms.deletes, labels{queue: queueName, result: result})
}

func (ms *metrics) renewed(queueName string, err error) {
	result := "renewed"
	switch {
	case errors.Is(err, queue.ErrLeaseLost):
		result = "lost"
	case err != nil:
		result = "failed"
	}
	ms.add(ms.renewals, labels{queue: queueName, result: result})
}

func (ms *metrics) settled(queueName string, dec Decision, result string, took, granted time.Duration) {
	ms.add(ms.settledN, labels{queue: queueName, action: string(dec.Action), reason: string(dec.Reason), result: result})
	if dec.Action == policy.Complete && result == "deleted" {
		ms.tally.Add(queueName, len(dec.DeadLetters) > 0)
	}
	ms.observe(ms.processing, took.Seconds(), labels{queue: queueName})
	if granted > 0 {
		ms.observe(ms.utilization, took.Seconds()/granted.Seconds(), labels{queue: queueName})
	}
}

func (ms *metrics) attempted(queueName, webhookID string, a *tables.Attempt) {
	outcome := string(a.ErrorClass)
	if a.Status != 0 {
		outcome = string('0'+rune(min(a.Status/100, 9))) + "xx"
	}
	id := ms.label(webhookID)
	ms.add(ms.attempts, labels{
		queue: queueName, webhook: id, outcome: outcome, decision: string(a.Action), reason: string(a.Reason),
	})
	ms.observe(ms.attemptTime, a.Duration.Seconds(), labels{queue: queueName, webhook: id})
}

func (ms *metrics) label(webhookID string) string {
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
