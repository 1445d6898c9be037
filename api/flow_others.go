package api

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

// otherView is how a webhook fares as another instance has told last.
type otherView struct {
	Instance       string           `json:"instance"`
	State          status.FlowState `json:"state"`
	Until          time.Time        `json:"until,omitzero"`
	Window         int              `json:"window"`
	Breaker        breakerView      `json:"breaker"`
	LearnedRate    float64          `json:"learned_rate,omitempty"`
	FailingSince   time.Time        `json:"failing_since,omitzero"`
	FailedMessages int              `json:"failed_messages"`
	LastSuccessAt  time.Time        `json:"last_success_at,omitzero"`
	LastFailureAt  time.Time        `json:"last_failure_at,omitzero"`
	AsOf           time.Time        `json:"as_of"`
}

// tellOthers adds to a webhook what the other instances that are alive have told of it. An instance that has met nothing
// worth telling has no row.
func (a *API) tellOthers(ctx context.Context, reg tables.Registration, view *webhookView) {
	if !reg.Enabled {
		return
	}
	v := view.Status
	if v == nil { // this instance has not met it; the others have
		v = &statusView{}
	}
	others, err := a.others(ctx, reg)
	if err != nil {
		a.Logger.Warn("how a webhook fares in other instances can't be read; it is left out", "webhook", reg.ID, "error", err)
		v.Text += " How it fares in other instances can't be read now."
		return
	}
	view.Others = others
	if n, worst := troubled(others); n > 0 && (v.State == status.Healthy || v.State == status.Busy) {
		v.Text += fmt.Sprintf(" Instance %s told at %s that it is %s there.", worst.Instance, web.Stamp(worst.AsOf), worst.State)
		if n > 1 {
			v.Text += fmt.Sprintf(" So did %d more.", n-1)
		}
	}
}

func (a *API) others(ctx context.Context, reg tables.Registration) (list []otherView, err error) {
	rows, err := a.Healths.WebhookHealth(ctx, reg.ID)
	if err != nil {
		return nil, fmt.Errorf("read the rows of the webhook: %w", err)
	}
	rows = slices.DeleteFunc(rows, func(h tables.Health) bool {
		return h.Instance == a.Instance || h.UpdatedAt.Before(reg.ResetAt.Add(-tables.ClocksApart))
	})
	if len(rows) == 0 {
		return nil, nil
	}
	all, err := a.Instances.ListInstances(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the instances: %w", err)
	}
	now := time.Now()
	for _, h := range rows {
		if slices.ContainsFunc(all, func(i tables.Instance) bool { return i.Name == h.Instance && tables.Heard(i.SeenAt, now, aliveFor) }) {
			list = append(list, otherOf(h, now))
		}
	}
	return list, nil
}

// troubled counts those that send nothing, and returns the first of them.
func troubled(others []otherView) (n int, first otherView) {
	for _, o := range others {
		if o.State == status.Failing || o.State == status.Probing || o.State == status.Paused {
			if n++; n == 1 {
				first = o
			}
		}
	}
	return n, first
}

func otherOf(h tables.Health, now time.Time) otherView {
	v := otherView{
		Instance: h.Instance, State: status.Healthy, Window: h.Window,
		Breaker:      breakerView{State: h.Breaker.Phase, Since: web.UTC(h.Breaker.Since), NextProbe: web.UTC(h.Breaker.NextProbe), Samples: h.Breaker.Samples, Failures: h.Breaker.Failures},
		LearnedRate:  roundedRate(h.Pace.Rate),
		FailingSince: web.UTC(h.Failing.FailingSince), FailedMessages: h.Failing.FailedMessages,
		LastSuccessAt: web.UTC(h.Failing.LastSuccess), LastFailureAt: web.UTC(h.LastFailureAt), AsOf: web.UTC(h.UpdatedAt),
	}
	switch {
	case h.PausedUntil.After(now):
		v.State, v.Until = status.Paused, web.UTC(h.PausedUntil)
	case h.Breaker.Phase == policy.BreakerOpen && h.Breaker.NextProbe.After(now):
		v.State, v.Until = status.Failing, v.Breaker.NextProbe
	case h.Breaker.Phase == policy.BreakerOpen, h.Breaker.Phase == policy.BreakerHalfOpen:
		v.State = status.Probing
	case h.Pace.Rate > 0:
		v.State = status.Limited
	}
	return v
}
