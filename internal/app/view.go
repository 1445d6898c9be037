package app

import (
	"context"
	"sort"
	"strings"
	"time"

	"github.com/pushlease/pushlease/api"
	"github.com/pushlease/pushlease/dispatcher"
)

// view is what the API sees of the dispatcher.
type view struct{ d *dispatcher.Dispatcher }

func (v view) Wake(queueName string) { v.d.Wake(queueName) }
func (v view) RegistryChanged()      { v.d.RegistryChanged() }

func (v view) Queue(name string) (api.QueueState, bool) {
	s := v.d.Queue(name)
	state := api.QueueState{
		Polling: s.Polling, InFlight: s.InFlight, Lease: s.Lease, LeaseFixed: s.LeaseFixed,
		Recommended: s.Recommended, Processing: api.Processing(s.Processing), Deletions: deletions(s.Deletions),
		LastPollAt: s.LastPollAt, LastErrorAt: s.LastErrorAt, Webhooks: s.Enabled,
		Handled: s.Handled, DeadLettered: s.DeadLettered, LeftAt: s.LeftAt,
	}
	if s.LastError != nil {
		state.LastError = s.LastError.Error()
	}
	return state, s.Webhooks > 0 || s.Polling || !s.LeftAt.IsZero()
}

func (v view) Webhook(id string) (api.WebhookState, bool) {
	s, ok := v.d.Webhook(id)
	return api.WebhookState{
		State: api.FlowState(s.State), Until: s.Until, Window: s.Window, Concurrency: s.Concurrency,
		InFlight: s.InFlight, Waiting: s.Waiting, Rate: s.Rate, Latency: s.Latency,
		Delivered: s.Delivered, Refused: s.Refused, Failed: s.Failed, Postponed: s.Postponed,
		RecentPosts: s.RecentPosts, RecentRefused: s.RecentRefused,
		Breaker: s.Breaker, Refusing: s.Refusing, Pace: s.Pace, Failing: s.Failing, LastFailureAt: s.LastFailureAt,
	}, ok
}

func deletions(d dispatcher.Deletions) api.Deletions {
	counts := api.Deletions{Total: d.Total, Successful: d.Successful, Failed: d.Failed, Unverified: d.Unverified}
	for _, f := range d.LastFailures {
		counts.LastFailures = append(counts.LastFailures, api.DeletionFailure(f))
	}
	return counts
}

// ready makes the checks behind /readyz from what the dispatcher last saw: asking
// storage again for every probe would cost a transaction each.
func (a *App) ready(ctx context.Context) []api.Check {
	checks := []api.Check{{Name: "draining", OK: !a.draining.Load()}}
	if !checks[0].OK {
		checks[0].Detail = "the process is stopping"
	}
	if a.stores.clockAhead != nil {
		checks = append(checks, clockCheck(a.stores.clockAhead()))
	}
	checks = append(checks, storageCheck(ctx, a.stores.fault))
	if a.stores.sasFaults != nil {
		if c := sasCheck(a.stores.sasFaults(time.Now())); !c.OK {
			checks = append(checks, c)
		}
	}
	checks = append(checks, healthChecks(a.dispatcher.Health())...)
	sort.Slice(checks, func(i, j int) bool { return checks[i].Name < checks[j].Name })
	return checks
}

// queueCheck begins the name of the check of a queue.
const queueCheck = "queue "

// healthChecks are the checks of what the dispatcher saw. A queue that can't be received
// from degrades the process, since its API is served all the same: the lack is most often
// the queue's own, and every replica has it. Only when that is so of every queue does
// storage as a whole seem to be away.
func healthChecks(health map[string]error) []api.Check {
	var checks []api.Check
	queues, failing := 0, 0
	for name, err := range health {
		c := api.Check{Name: name, OK: err == nil}
		if strings.HasPrefix(name, queueCheck) {
			queues++
			c.Degrades = err != nil
		}
		if err != nil {
			c.Detail = err.Error()
		}
		if c.Degrades {
			failing++
		}
		checks = append(checks, c)
	}
	for i := range checks {
		checks[i].Degrades = checks[i].Degrades && failing < queues
	}
	return checks
}
