package dispatcher

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

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
	tally *tally

	mu       sync.Mutex
	webhooks map[string]bool
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
		tally:         newTally(),
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

func add(c metric.Int64Counter, attrs ...attribute.KeyValue) {
	c.Add(context.Background(), 1, metric.WithAttributes(attrs...))
}

func (ms *metrics) received(queueName string, m *queue.Message) {
	add(ms.receivedN, queueAttr(queueName))
	if m.DequeueCount > 1 {
		add(ms.requeued, queueAttr(queueName))
	}
}

func (ms *metrics) receiveError(queueName string)      { add(ms.receiveErrors, queueAttr(queueName)) }
func (ms *metrics) lookupFailed(queueName string)      { add(ms.lookups, queueAttr(queueName)) }
func (ms *metrics) recordDeferred(queueName string)    { add(ms.deferred, queueAttr(queueName)) }
func (ms *metrics) recordLost()                        { add(ms.lost) }
func (ms *metrics) claimUnfinished()                   { add(ms.unfinished) }
func (ms *metrics) dedupConflict(queueName string)     { add(ms.conflicts, queueAttr(queueName)) }
func (ms *metrics) poisonCopyRefused(queueName string) { add(ms.copiesRefused, queueAttr(queueName)) }

func (ms *metrics) postponed(queueName, webhookID string, reason policy.Reason) {
	add(ms.postponedN, queueAttr(queueName), attribute.String("webhook", ms.label(webhookID)), attribute.String("reason", string(reason)))
}

func (ms *metrics) turned(webhookID string, phase policy.BreakerPhase) {
	add(ms.turns, attribute.String("webhook", ms.label(webhookID)), attribute.String("state", string(phase)))
}

func (ms *metrics) duplicate(queueName, kind string) {
	add(ms.duplicates, queueAttr(queueName), attribute.String("kind", kind))
}

func (ms *metrics) deadLettered(queueName string, reason policy.Reason) {
	add(ms.deadletteredN, queueAttr(queueName), attribute.String("reason", string(reason)))
}

func (ms *metrics) leaseLost(queueName, kind string) {
	add(ms.leasesLost, queueAttr(queueName), attribute.String("kind", kind))
}

func (ms *metrics) leaseAtRisk(queueName string) { add(ms.atRisk, queueAttr(queueName)) }

func (ms *metrics) leaseAsked(queueName string, lease time.Duration) {
	ms.leaseLength.Record(context.Background(), lease.Seconds(), metric.WithAttributes(queueAttr(queueName)))
}

func (ms *metrics) deleted(queueName, result string) {
	add(ms.deletes, queueAttr(queueName), attribute.String("result", result))
}

func (ms *metrics) renewed(queueName string, err error) {
	result := "renewed"
	switch {
	case errors.Is(err, queue.ErrLeaseLost):
		result = "lost"
	case err != nil:
		result = "failed"
	}
	add(ms.renewals, queueAttr(queueName), attribute.String("result", result))
}

func (ms *metrics) settled(queueName string, dec Decision, result string, took, granted time.Duration) {
	add(ms.settledN, queueAttr(queueName), attribute.String("action", string(dec.Action)),
		attribute.String("reason", string(dec.Reason)), attribute.String("result", result))
	if dec.Action == policy.Complete && result == "deleted" {
		ms.tally.add(queueName, len(dec.DeadLetters) > 0)
	}
	at := metric.WithAttributes(queueAttr(queueName))
	ms.processing.Record(context.Background(), took.Seconds(), at)
	if granted > 0 {
		ms.utilization.Record(context.Background(), took.Seconds()/granted.Seconds(), at)
	}
}

func (ms *metrics) attempted(queueName, webhookID string, a tables.Attempt) {
	outcome := string(a.ErrorClass)
	if a.Status != 0 {
		outcome = string('0'+rune(min(a.Status/100, 9))) + "xx"
	}
	id := attribute.String("webhook", ms.label(webhookID))
	add(ms.attempts, queueAttr(queueName), id, attribute.String("outcome", outcome),
		attribute.String("decision", string(a.Action)), attribute.String("reason", string(a.Reason)))
	ms.attemptTime.Record(context.Background(), a.Duration.Seconds(), metric.WithAttributes(queueAttr(queueName), id))
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
