package app

import (
	"context"
	"sort"

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
		Breaker: s.Breaker, Failing: s.Failing, LastFailureAt: s.LastFailureAt,
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
	if a.stores.fault != nil {
		checks = append(checks, storageCheck(ctx, a.stores.fault))
	}
	for name, err := range a.dispatcher.Health() {
		c := api.Check{Name: name, OK: err == nil}
		if err != nil {
			c.Detail = err.Error()
		}
		checks = append(checks, c)
	}
	sort.Slice(checks, func(i, j int) bool { return checks[i].Name < checks[j].Name })
	return checks
}
