package meter

import (
	"sync"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

// maxBorn bounds the queues and webhooks that are remembered to have their series.
const maxBorn = 10_000

// known are the queues and webhooks that have their series. The zero value is empty; safe for
// concurrent use.
type known struct {
	mu    sync.Mutex
	names map[string]bool
}

// add reports whether name was not there yet.
func (k *known) add(name string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.names[name] || len(k.names) >= maxBorn {
		return false
	}
	if k.names == nil {
		k.names = map[string]bool{}
	}
	k.names[name] = true
	return true
}

// Known makes the series of a queue and of one of its webhooks at 0, those that alerts look at. A
// counter whose first value is not 0 has never risen, as rate and increase see it: an alert on
// it misses its first event. What is known already costs next to nothing.
func (ms *Instruments) Known(queueName, webhookID string) {
	queueLabel, label := ms.series.queue(queueName), ms.Label(webhookID)
	if ms.born.add("queue " + queueLabel) {
		ms.queueBorn(queueLabel)
	}
	if ms.born.add("webhook " + queueLabel + " " + label) {
		ms.webhookBorn(queueLabel, label)
	}
}

func (ms *Instruments) queueBorn(queueName string) {
	l := Labels{Queue: queueName}
	for _, c := range []Counter{
		ms.received, ms.requeued, ms.ReceiveErrors, ms.LookupsFailed, ms.RecordsDeferred, ms.Conflicts, ms.LeasesAtRisk, ms.PutOff, ms.unmatched, ms.expired, ms.RecordsUnfinished, ms.CopiesRefused,
	} {
		c.AddN(0, l)
	}
	ms.settled.AddN(0, Labels{Queue: queueName, Action: "complete", Reason: "Delivered", Result: "deleted"})
	ms.settled.AddN(0, Labels{Queue: queueName, Action: string(policy.NoVerdict), Reason: string(policy.InternalFault), Result: "abandoned"})
	for _, result := range []string{done, deadLettered} {
		ms.finished.AddN(0, Labels{Queue: queueName, Result: result})
	}
	for _, status := range []tables.DeadLetterStatus{tables.Waiting, tables.Replayed} {
		ms.DeadLettersExpired.AddN(0, Labels{Queue: queueName, Status: string(status)})
	}
	for _, reason := range policy.DeadLetterReasons() {
		ms.deadLetters.AddN(0, Labels{Queue: queueName, Reason: string(reason)})
	}
	for _, kind := range []string{"redelivery", "event", "copy"} {
		ms.Duplicates.AddN(0, Labels{Queue: queueName, Kind: kind})
	}
	for _, result := range []string{"deleted", "failed", "lease_lost", unverified} {
		ms.deletes.AddN(0, Labels{Queue: queueName, Result: result})
	}
	for _, result := range []string{"renewed", "failed", "lost"} {
		ms.Renewals.AddN(0, Labels{Queue: queueName, Result: result})
	}
	for _, kind := range []string{"lost", "silent", "receipt_unknown", "fenced", "received_again", "expired"} {
		ms.LeasesLost.AddN(0, Labels{Queue: queueName, Kind: kind})
	}
}

// webhookBorn makes the two series of attempts that are met first; with one for every way to
// fail, the webhooks of a large installation would be over the bound of an instrument.
func (ms *Instruments) webhookBorn(queueName, label string) {
	ms.attempts.AddN(0, Labels{Queue: queueName, Webhook: label, Outcome: "2xx", Decision: "complete", Reason: "Delivered"})
	ms.attempts.AddN(0, Labels{Queue: queueName, Webhook: label, Outcome: "5xx", Decision: "abandon", Reason: "RetryableError"})
	ms.blocked.AddN(0, Labels{Queue: queueName, Webhook: label})
	for _, reason := range []policy.Reason{policy.WebhookBusy, policy.WebhookPaused, policy.WebhookFailing, policy.NoToken} {
		ms.postponed.AddN(0, Labels{Queue: queueName, Webhook: label, Reason: string(reason)})
	}
	for _, state := range []string{"open", "closed"} {
		ms.BreakerTurns.AddN(0, Labels{Webhook: label, State: state})
	}
}
