package api

import (
	"context"
	"time"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

// Attempted tells those who follow of an attempt that is on record. It never waits.
func (a *API) Attempted(t *tables.Attempt) {
	v := newAttemptView(*t)
	v.Snippet = "" // a receiver may answer with what it was sent, and what is followed ends in files
	a.stream.tell(streamEvent{streamAttempt, t.Queue, t.WebhookID, v})
}

// DeadLettered tells those who follow of a dead letter that is durable. It never waits.
func (a *API) DeadLettered(d tables.DeadLetter) {
	a.stream.tell(streamEvent{streamDeadLetter, d.Queue, d.WebhookID, newDeadLetterView(d)})
}

// webhookTurn is how a webhook fares from now on.
type webhookTurn struct {
	WebhookID string           `json:"webhook_id"`
	Queue     string           `json:"queue"`
	State     status.FlowState `json:"state"`
	// Was is empty of a webhook that was not known before.
	Was status.FlowState `json:"was,omitempty"`
	At  time.Time        `json:"at"`
}

// depthTold is one count of a queue.
type depthTold struct {
	Queue   string          `json:"queue"`
	Visible int64           `json:"visible"`
	Hidden  int64           `json:"hidden"`
	Oldest  policy.Duration `json:"oldest"`
	At      time.Time       `json:"at"`
}

// tellJob tells those who follow of a replay job as it was just stored: when it begins, at each beat, and when it ends.
func (a *API) tellJob(v replayJobView) {
	a.stream.tell(streamEvent{streamJob, v.Filter.Queue, v.Filter.Webhook, v})
}

// turnsEvery is how often it is looked for webhooks whose state has changed, while somebody follows.
const turnsEvery = time.Second

// turnsKept is for how long the last look is kept while nobody follows: who was cut off is back by then.
const turnsKept = time.Minute

// watchTurns tells those who follow of webhooks that fare otherwise than at the last look, until ctx ends. The
// first look after nobody has followed for long has nothing to compare with.
func (a *API) watchTurns(ctx context.Context) {
	tick := time.NewTicker(turnsEvery)
	defer tick.Stop()
	var before map[string]status.Standing
	var looked time.Time
	for waitOn(ctx, tick.C) {
		now := time.Now()
		if now.Sub(looked) > turnsKept {
			before = nil
		}
		if a.stream.followed() {
			before, looked = a.tellTurns(before, now), now
		}
	}
}

// tellTurns compares how webhooks fare with how they did, and returns it.
func (a *API) tellTurns(before map[string]status.Standing, now time.Time) map[string]status.Standing {
	states := a.Dispatcher.States()
	for id, s := range states {
		if s.State == status.Busy { // as most are for a moment, again and again
			s.State = status.Healthy
			states[id] = s
		}
		was, known := before[id]
		if before != nil && (!known || was.State != s.State) {
			a.stream.tell(streamEvent{streamWebhook, s.Queue, id, webhookTurn{WebhookID: id, Queue: s.Queue, State: s.State, Was: was.State, At: web.UTC(now)}})
		}
	}
	return states
}
