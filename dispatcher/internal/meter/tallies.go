package meter

import (
	"sync"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

// maxTallies bounds the webhooks and queues that are counted apart until the next Take: what a store
// keeps of it has to fit into a row. The other webhooks of a queue are counted together.
const maxTallies = 300

// Tallies counts for the history what the metrics count for ever. The zero value is empty; safe for
// concurrent use.
type Tallies struct {
	mu    sync.Mutex
	byKey map[tallyKey]*tables.Tally
}

type tallyKey struct{ queue, webhook string }

// Take returns what was counted since the last one.
func (ts *Tallies) Take() []tables.Tally {
	ts.mu.Lock()
	taken := ts.byKey
	ts.byKey = nil
	ts.mu.Unlock()
	list := make([]tables.Tally, 0, len(taken))
	for _, t := range taken {
		list = append(list, *t)
	}
	return list
}

// change changes what was counted of a webhook; of the queue alone where webhook is empty.
func (ts *Tallies) change(queueName, webhookID string, f func(*tables.Tally)) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for _, k := range [...]tallyKey{{queueName, webhookID}, {queueName, tables.OtherWebhooks}} {
		if t := ts.byKey[k]; t != nil {
			f(t)
			return
		}
		if len(ts.byKey) < maxTallies {
			if ts.byKey == nil {
				ts.byKey = map[tallyKey]*tables.Tally{}
			}
			t := &tables.Tally{Queue: k.queue, WebhookID: k.webhook}
			ts.byKey[k] = t
			f(t)
			return
		}
	}
	// Neither the webhook nor the others of its queue have a place: there are as many queues as tallies.
	k := tallyKey{tables.OtherWebhooks, tables.OtherWebhooks}
	t := ts.byKey[k]
	if t == nil {
		t = &tables.Tally{Queue: k.queue, WebhookID: k.webhook}
		ts.byKey[k] = t
	}
	f(t)
}

// attempted counts an attempt whose outcome is a status class or an error class.
func (ts *Tallies) attempted(a *Attempt, outcome string) {
	ts.change(a.Queue, a.Webhook, func(t *tables.Tally) {
		if t.Attempts == nil {
			t.Attempts = map[string]int64{}
		}
		t.Attempts[outcome]++
		t.Took.Add(a.Took)
		if a.Decision != string(policy.Complete) {
			return
		}
		t.Delivered++
		if !a.InsertedAt.IsZero() {
			t.Delay.Add(max(a.StartedAt.Sub(a.InsertedAt), 0) + a.Took)
		}
	})
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
