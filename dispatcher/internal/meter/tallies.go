package meter

import (
	"sync"

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
