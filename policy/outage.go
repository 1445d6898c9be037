package policy

import "time"

// An outage is ours when so many webhooks, and such a share of all that were tried
// within OutageWindow, gave no answer at all.
const (
	OutageWindow      = time.Minute
	OutageMinWebhooks = 3
	OutageShare       = 0.8
)

const (
	// outageMemory takes the place of OutageWindow during an outage: breakers are open
	// then, and a webhook is tried no more than once in a quarter of an hour.
	outageMemory = time.Hour
	// outageRefresh is how long a verdict is kept, since it looks at every webhook.
	outageRefresh = time.Second
)

// Outage tells from the answers of all webhooks together whether it is our own network
// or name resolution that fails: then nothing is charged to a webhook's health. The
// zero Outage is ready. It remembers only webhooks that were tried lately.
type Outage struct {
	webhooks map[string]lastTries
	judged   time.Time
	verdict  bool
}

type lastTries struct{ answered, failed time.Time }

// Report takes in the sign of a POST to a webhook. One that says nothing is ignored.
func (o *Outage) Report(webhookID string, s Sign, now time.Time) {
	if s == (Sign{}) {
		return
	}
	if o.webhooks == nil {
		o.webhooks = make(map[string]lastTries)
	}
	t := o.webhooks[webhookID]
	if s.Answered {
		t.answered = now
	} else {
		t.failed = now
	}
	o.webhooks[webhookID] = t
}

// Ours tells whether it is us. It may be out of date by a second. It ends when more
// than the rest of OutageShare have answered again.
func (o *Outage) Ours(now time.Time) bool {
	if age := now.Sub(o.judged); age >= 0 && age < outageRefresh {
		return o.verdict
	}
	window := OutageWindow
	if o.verdict {
		window = outageMemory
	}
	silent := 0
	for id, t := range o.webhooks {
		switch {
		case now.Sub(t.answered).Abs() < window:
		case now.Sub(t.failed).Abs() < window:
			silent++
		default:
			delete(o.webhooks, id)
		}
	}
	o.judged = now
	o.verdict = silent >= OutageMinWebhooks && float64(silent) >= OutageShare*float64(len(o.webhooks))
	return o.verdict
}
