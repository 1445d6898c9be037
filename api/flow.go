package api

import (
	"context"
	"math"
	"net/http"
	"time"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

// statusView is how a webhook fares in the process that answers.
type statusView struct {
	Instance       string           `json:"instance"`
	State          status.FlowState `json:"state"`
	Until          time.Time        `json:"until,omitzero"`
	Text           string           `json:"text"`
	Window         int              `json:"window"`
	Concurrency    int              `json:"concurrency"`
	InFlight       int              `json:"in_flight"`
	Waiting        int              `json:"waiting"`
	RatePerSecond  float64          `json:"rate_per_second"`
	Latency        policy.Duration  `json:"latency,omitzero"`
	Delivered      int64            `json:"delivered"`
	Refused        int64            `json:"refused"`
	Failed         int64            `json:"failed"`
	Postponed      int64            `json:"postponed"`
	RecentPosts    int              `json:"recent_posts"`
	RecentRefused  int              `json:"recent_refused"`
	Breaker        breakerView      `json:"breaker"`
	LearnedRate    *learnedView     `json:"learned_rate,omitempty"`
	FailingSince   time.Time        `json:"failing_since,omitzero"`
	FailedMessages int              `json:"failed_messages"`
	LastSuccessAt  time.Time        `json:"last_success_at,omitzero"`
	LastFailureAt  time.Time        `json:"last_failure_at,omitzero"`
}

// learnedView is the rate that was learned from refusals: of all instances, and of the one that answers.
type learnedView struct {
	PerSecond    float64   `json:"per_second"`
	OwnPerSecond float64   `json:"own_per_second"`
	Leader       string    `json:"leader,omitempty"`
	Since        time.Time `json:"since"`
	Throttled    int64     `json:"throttled"`
}

func learnedOf(s status.Webhook) *learnedView {
	if s.Pace.Rate == 0 {
		return nil
	}
	return &learnedView{
		PerSecond: roundedRate(s.PaceOfAll), OwnPerSecond: roundedRate(s.Pace.Rate), Leader: s.Leader, Since: web.UTC(s.Pace.Since), Throttled: s.Pace.Refused,
	}
}

// roundedRate keeps three digits.
func roundedRate(rate float64) float64 {
	for _, unit := range []float64{1, 10, 100, 1000} {
		if rate*unit >= 100 || unit == 1000 {
			return math.Round(rate*unit) / unit
		}
	}
	return rate
}

type breakerView struct {
	State     policy.BreakerPhase `json:"state"`
	Since     time.Time           `json:"since,omitzero"`
	NextProbe time.Time           `json:"next_probe,omitzero"`
	Samples   int                 `json:"samples"`
	Failures  int                 `json:"failures"`
}

// status tells how a webhook fares here; nil when the dispatcher has not met it yet. What
// the registration says about being enabled wins: the dispatcher may not have read it.
func (a *API) status(r *http.Request, reg tables.Registration) *statusView {
	s, ok := a.Dispatcher.Webhook(reg.ID)
	if !ok {
		return nil
	}
	late := s.State == status.Disabled && reg.Enabled || s.State != status.Disabled && !reg.Enabled
	if !reg.Enabled {
		s.State, s.Until = status.Disabled, time.Time{}
	}
	text := flowText{reg: reg, s: s, instance: a.Instance, late: late, may: a.may(r, ScopeOperate)}.String()
	if end := certificateEnd(reg); reg.Enabled && !end.IsZero() && time.Now().After(end) {
		s.Why = "a certificate of its own has expired"
	}
	if reg.Enabled && s.State != status.Disabled && s.State != status.NoToken && s.Why != "" {
		text += " But no request can be made to it from its registration: " + s.Why + ". Its messages wait, and nothing is counted."
	}
	return &statusView{
		Instance: a.Instance, State: s.State, Until: web.UTC(s.Until), Text: text,
		Window: s.Window, Concurrency: s.Concurrency, InFlight: s.InFlight, Waiting: s.Waiting,
		RatePerSecond: rounded(s.Rate), Latency: policy.Duration(s.Latency.Round(10 * time.Microsecond)),
		Delivered: s.Delivered, Refused: s.Refused, Failed: s.Failed, Postponed: s.Postponed,
		RecentPosts: s.RecentPosts, RecentRefused: s.RecentRefused,
		Breaker: breakerView{
			State: s.Breaker.Phase, Since: web.UTC(s.Breaker.Since), NextProbe: web.UTC(s.Breaker.NextProbe),
			Samples: s.Breaker.Samples, Failures: s.Breaker.Failures,
		},
		LearnedRate:  learnedOf(s),
		FailingSince: web.UTC(s.Failing.FailingSince), FailedMessages: s.Failing.FailedMessages,
		LastSuccessAt: web.UTC(s.Failing.LastSuccess), LastFailureAt: web.UTC(s.LastFailureAt),
	}
}

// forgetHealth removes what the instances have stored about how a webhook fares. When that
// fails, ResetAt makes it count no more all the same, and the rows are removed by age.
func (a *API) forgetHealth(ctx context.Context, id string) {
	if err := a.Healths.DeleteHealth(ctx, id); err != nil && ctx.Err() == nil {
		a.Logger.Warn("what is stored about a webhook's health could not be removed; it counts no more all the same", "webhook", id, "error", err)
	}
}
