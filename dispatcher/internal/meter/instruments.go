// Package meter counts. It takes names, numbers and what policies call them, and never sees a message.
package meter

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

// Instruments are what the dispatcher counts with. What each of them counts stands in New.
type Instruments struct {
	Duplicates, ReceiveErrors, Renewals, LeasesLost, LookupsFailed, Conflicts, ClaimsUnfinished,
	LeasesAtRisk, PutOff, BreakerTurns, RecordsDeferred, RecordsLost, RecordsUnfinished, CopiesRefused, DeadLettersExpired Counter

	received, requeued, settled, finished, expired, deletes, attempts, blocked, unmatched, deadLetters, postponed Counter
	processing, attemptTime, utilization, deliveryTime, firstAttemptDelay                                         metric.Float64Histogram
	leaseLength                                                                                                   metric.Float64Gauge

	// Queues is for the API, and Tallies for the history.
	Queues  Queues
	Tallies Tallies

	series seriesCache
	born   known
}

// Counter counts events by their labels.
type Counter struct {
	c      metric.Int64Counter
	series *seriesCache
}

// Add counts one event.
func (c Counter) Add(l Labels) { c.AddN(1, l) }

// AddN counts n events.
func (c Counter) AddN(n int, l Labels) {
	c.c.Add(context.Background(), int64(n), c.series.of(l).add...)
}

// New makes the instruments.
func New(m metric.Meter) (*Instruments, error) {
	var errs []error
	ms := &Instruments{}
	counter := func(name, help string) Counter {
		c, err := m.Int64Counter(name, metric.WithDescription(help))
		errs = append(errs, err)
		return Counter{c, &ms.series}
	}
	histogram := func(name, unit, help string, bounds ...float64) metric.Float64Histogram {
		h, err := m.Float64Histogram(name, metric.WithDescription(help), metric.WithUnit(unit), metric.WithExplicitBucketBoundaries(bounds...))
		errs = append(errs, err)
		return h
	}
	ms.received = counter("pushlease.messages.received", "Messages received under a lease, redeliveries included, by queue.")
	ms.requeued = counter("pushlease.messages.requeued", "Messages received more than once (dequeue count above 1), by queue.")
	ms.Duplicates = counter("pushlease.messages.duplicate", "Messages deleted without a POST, by queue and kind: redelivery is one that came back after it was delivered, event one whose event was delivered with another message.")
	ms.settled = counter("pushlease.messages.settled", "Messages settled, by queue, action, reason and what storage answered.")
	ms.finished = counter("pushlease.messages.finished", "Messages finished with, by queue and result: dead_lettered where the last handling, or the end of their life, made a dead letter, else done.")
	ms.expired = counter("pushlease.messages.expired", "Messages whose life ended before they were settled, by queue. On a SQLite file what a webhook was still due is a dead letter, with the reason Expired; on Azure they are gone, expired or taken by another program.")
	ms.deadLetters = counter("pushlease.messages.deadlettered", "Dead letters written, by queue and reason.")
	ms.ReceiveErrors = counter("pushlease.receive.errors", "Receives that failed, by queue.")
	ms.Renewals = counter("pushlease.lease.renewals", "Lease renewals, by queue and result.")
	ms.LeasesLost = counter("pushlease.lease.lost", "Leases lost while a message was handled, by queue and kind.")
	ms.LookupsFailed = counter("pushlease.dedup.lookup.failures", "Look-ups that failed: of what was done about a message before, which waits then, or of its event, by queue.")
	ms.Conflicts = counter("pushlease.dedup.conflicts", "Messages delivered although another one with the same event, and another body, was met before, by queue.")
	ms.ClaimsUnfinished = counter("pushlease.dedup.claims.unfinished", "Claims on events that could not be kept or ended; what a webhook has taken is written later, and until then another message with the event may be delivered too.")
	ms.LeasesAtRisk = counter("pushlease.lease.at_risk", "Messages that took more than 80 % of their lease, by queue.")
	ms.PutOff = counter("pushlease.messages.put_off", "Messages that a host brought while as many were in hand as may be, and that were given back for later, by queue.")
	ms.deletes = counter("pushlease.messages.deleted", "Deletes of messages, by queue and result; unverified is a message that came back after it was delivered.")
	ms.postponed = counter("pushlease.webhook.postponed", "Deliveries that were held because the webhook could not be sent to, by queue, webhook and reason.")
	ms.BreakerTurns = counter("pushlease.webhook.breaker.changes", "Changes of the breaker of a webhook, by webhook and the state it went into.")
	ms.RecordsDeferred = counter("pushlease.records.deferred", "Records kept in memory because the store did not take them, by queue.")
	ms.RecordsLost = counter("pushlease.records.lost", "Records that had to be dropped from memory unwritten.")
	ms.RecordsUnfinished = counter("pushlease.records.unfinished", "Messages without an outcome, though their life was over, whose records were removed because of their age, by queue; on Azure.")
	ms.CopiesRefused = counter("pushlease.poison.copies.refused", "Copies that the poison queue definitively refused; the dead letter is kept, by queue.")
	ms.attempts = counter("pushlease.webhook.attempts", "POSTs, by queue, webhook, outcome (status class or error class), decision and reason.")
	ms.blocked = counter("pushlease.webhook.blocked", "POSTs that were not made because the webhook's address is a forbidden one, by queue and webhook.")
	ms.DeadLettersExpired = counter("pushlease.deadletters.expired", "Dead letters removed because of their age, by queue and status.")
	ms.processing = histogram("pushlease.message.process.duration", "s", "From receiving a message to settling it, by queue.",
		.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300)
	ms.attemptTime = histogram("pushlease.webhook.attempt.duration", "s", "One POST from dial to answer, by queue and webhook.",
		.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300)
	ms.unmatched = counter("pushlease.messages.unmatched", "Messages that no webhook's filter took, by queue.")
	ms.deliveryTime = histogram("pushlease.message.delivery.duration", "s", "From the insertion of a message in its queue to the 2xx of a webhook, an asked delay included, by queue.",
		.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600, 21600, 86400)
	ms.firstAttemptDelay = histogram("pushlease.message.first_attempt.delay", "s", "From the insertion of a message in its queue to its first POST to a webhook, an asked delay included, by queue.",
		.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600, 21600, 86400)
	ms.utilization = histogram("pushlease.lease.utilization", "1", "Share of the granted lease that handling a message took, by queue; above 0.8 is at risk.",
		.05, .1, .2, .4, .6, .8, .9, 1, 2, 4)
	var err error
	ms.leaseLength, err = m.Float64Gauge("pushlease.lease.length", metric.WithUnit("s"),
		metric.WithDescription("Lease that the last receive asked for, by queue."))
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	for _, c := range []Counter{ms.RecordsLost, ms.ClaimsUnfinished} {
		c.AddN(0, Labels{})
	}
	return ms, nil
}

// observe records a value; the span of ctx becomes its exemplar, where it is sampled.
func (ms *Instruments) observe(ctx context.Context, h metric.Float64Histogram, value float64, l Labels) {
	h.Record(ctx, value, ms.series.of(l).record...)
}

// Received counts a receive of a message; again says that it is not the first one.
func (ms *Instruments) Received(queueName string, again bool) {
	ms.received.Add(Labels{Queue: queueName})
	if again {
		ms.requeued.Add(Labels{Queue: queueName})
	}
}

// LeaseAsked records the length of a lease that is asked for.
func (ms *Instruments) LeaseAsked(queueName string, lease time.Duration) {
	ms.leaseLength.Record(context.Background(), lease.Seconds(), ms.series.of(Labels{Queue: queueName}).record...)
}

// Deleted counts a delete, and how it ended; class is that of the error of one that failed.
func (ms *Instruments) Deleted(queueName, messageID, result, class string) {
	ms.deletes.Add(Labels{Queue: queueName, Result: result})
	ms.Queues.deleted(queueName, status.DeletionFailure{MessageID: messageID, Error: class, At: time.Now()})
}

// Reappeared counts a message that is there again although its delivery was recorded. Looking
// after a delete would prove nothing: a leased message can't be seen anyway.
func (ms *Instruments) Reappeared(queueName, messageID string) {
	ms.Deleted(queueName, messageID, unverified, unverified)
}

// Settlement is how handling a message ended.
type Settlement struct {
	Queue, Action, Reason, Result string
	DeadLettered                  bool // with a dead letter at least
	Took, Granted                 time.Duration
}

// Settled counts a message that was handled.
func (ms *Instruments) Settled(ctx context.Context, s Settlement) {
	ms.settled.Add(Labels{Queue: s.Queue, Action: s.Action, Reason: s.Reason, Result: s.Result})
	if s.Reason == string(policy.Unmatched) {
		ms.unmatched.Add(Labels{Queue: s.Queue})
	}
	if s.Action == string(policy.Complete) && s.Result == "deleted" {
		ms.finish(s.Queue, 1, s.DeadLettered)
	}
	ms.observe(ctx, ms.processing, s.Took.Seconds(), Labels{Queue: s.Queue})
	if s.Granted > 0 {
		ms.observe(ctx, ms.utilization, s.Took.Seconds()/s.Granted.Seconds(), Labels{Queue: s.Queue})
	}
}

// The results of messages that are finished with.
const (
	done         = "done"
	deadLettered = "dead_lettered"
)

// finish counts messages that are finished with.
func (ms *Instruments) finish(queueName string, messages int, asDeadLetters bool) {
	result := done
	if asDeadLetters {
		result = deadLettered
	}
	ms.finished.AddN(messages, Labels{Queue: queueName, Result: result})
	ms.Queues.change(queueName, func(q *perQueue) {
		for range messages {
			q.lately.Add(asDeadLetters, time.Now())
		}
	})
}

// Expired counts messages whose life ended before they were settled; asDeadLetters are those of
// which it made dead letters, which are counted apart.
func (ms *Instruments) Expired(queueName string, messages, asDeadLetters int) {
	ms.ExpiredUnseen(queueName, messages)
	ms.finish(queueName, messages-asDeadLetters, false)
	ms.finish(queueName, asDeadLetters, true)
}

// ExpiredUnseen counts messages whose life ended before they were settled.
func (ms *Instruments) ExpiredUnseen(queueName string, messages int) {
	ms.expired.AddN(messages, Labels{Queue: queueName})
	ms.Queues.change(queueName, func(q *perQueue) { q.expired += messages })
}

// Attempted counts an attempt; first says that the message had no POST to the webhook before.
func (ms *Instruments) Attempted(ctx context.Context, a *tables.Attempt, first bool) {
	outcome := string(a.ErrorClass)
	if a.Status != 0 {
		outcome = string('0'+rune(min(a.Status/100, 9))) + "xx"
	}
	ms.attempts.Add(Labels{Queue: a.Queue, Webhook: a.WebhookID, Outcome: outcome, Decision: string(a.Action), Reason: string(a.Reason)})
	if a.ErrorClass == policy.ClassBlocked {
		ms.blocked.Add(Labels{Queue: a.Queue, Webhook: a.WebhookID})
	}
	ms.Tallies.change(a.Queue, a.WebhookID, func(t *tables.Tally) { addTo(t, a, outcome) })
	ms.observe(ctx, ms.attemptTime, a.Duration.Seconds(), Labels{Queue: a.Queue, Webhook: a.WebhookID})
	if a.Day.IsZero() {
		return
	}
	waited := waited(a)
	if first {
		ms.observe(ctx, ms.firstAttemptDelay, waited.Seconds(), Labels{Queue: a.Queue})
	}
	if a.Status/100 == 2 {
		ms.observe(ctx, ms.deliveryTime, (waited + a.Duration).Seconds(), Labels{Queue: a.Queue})
	}
}

// waited is how long the message was in its queue before the attempt. The two clocks are storage's and ours, so that the
// difference may be negative.
func waited(a *tables.Attempt) time.Duration { return max(a.StartedAt.Sub(a.Day), 0) }

// addTo counts an attempt in a tally.
func addTo(t *tables.Tally, a *tables.Attempt, outcome string) {
	if t.Attempts == nil {
		t.Attempts = map[string]int64{}
	}
	t.Attempts[outcome]++
	t.Took.Add(a.Duration)
	if a.Action != policy.Complete {
		return
	}
	t.Delivered++
	if !a.Day.IsZero() {
		t.Delay.Add(waited(a) + a.Duration)
	}
}

// DeadLettered counts a dead letter that was written; webhookID is empty for one of a whole message.
func (ms *Instruments) DeadLettered(queueName, webhookID, reason string) {
	ms.deadLetters.Add(Labels{Queue: queueName, Reason: reason})
	ms.Tallies.change(queueName, webhookID, func(t *tables.Tally) { t.DeadLetters++ })
}

// Held counts a delivery that has to wait for its webhook.
func (ms *Instruments) Held(queueName, webhookID, reason string) {
	ms.postponed.Add(Labels{Queue: queueName, Webhook: webhookID, Reason: reason})
	ms.Tallies.change(queueName, webhookID, func(t *tables.Tally) { t.Held++ })
}

// Label is a webhook's id as it stands in labels: itself, or "other" beyond maxLabels.
func (ms *Instruments) Label(webhookID string) string { return ms.series.webhook(webhookID) }
