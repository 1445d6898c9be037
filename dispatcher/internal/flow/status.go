package flow

import (
	"time"

	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/policy"
)

// Status is how the webhook fares now.
func (f *Flow) Status(now time.Time) status.Webhook {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := status.Webhook{
		State: status.Healthy, Window: f.limit(), Concurrency: f.settings.Concurrency, InFlight: f.inFlight, Waiting: f.waiting,
		Rate: f.meter.Rate(now), Latency: f.meter.Latency(), Delivered: f.delivered, Refused: f.refused, Failed: f.failed, Postponed: f.postponed,
		Breaker: f.breaker.State(now), Refusing: f.refusing, Throttles: f.tooMany > 0, Pace: f.pacer.State(), PaceOfAll: f.pacer.All(), Leader: f.pacer.Leader(), Failing: f.auto.State(), LastFailureAt: f.lastFailure,
	}
	s.RecentPosts, s.RecentRefused = f.answers.Sums(now)
	s.Why = f.unfit.Told(now)
	token := f.bucket.Next(f.settings, now)
	switch pause := f.pause.Until(now); {
	case !f.enabled:
		s.State, s.Why = status.Disabled, f.why
	case f.token.Told(now) != "":
		s.State, s.Why, s.Until = status.NoToken, f.token.Told(now), f.token.Until(now)
	case !pause.IsZero():
		s.State, s.Until = status.Paused, pause
	case s.Breaker.Phase == policy.BreakerOpen && s.Breaker.NextProbe.After(now):
		s.State, s.Until = status.Failing, s.Breaker.NextProbe
	case s.Breaker.Phase != policy.BreakerClosed:
		s.State = status.Probing
	case f.pacer.Limited() && (f.settings.Rate == 0 || f.pacer.Rate() < f.settings.Rate): // otherwise that is what bounds it
		s.State = status.Limited
	case f.inFlight >= s.Window:
		s.State = status.Busy
	case token.After(now):
		s.State, s.Until = status.Busy, token
	}
	return s
}
