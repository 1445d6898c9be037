package flow

import (
	"time"

	"github.com/pushlease/pushlease/policy"
)

// State says whether a webhook is sent to by this process.
type State string

// The flow states of a webhook, the first that fits.
const (
	// Disabled: nothing is sent until it is enabled.
	Disabled State = "disabled"
	// Paused: it asked not to be sent anything for a while.
	Paused State = "paused"
	// Failing: it mostly fails; nothing is sent until the next probe.
	Failing State = "failing"
	// Probing: a probe is due or under way.
	Probing State = "probing"
	// Limited: it refuses what is more than its limit, and is sent what it takes.
	Limited State = "limited"
	// Busy: as much is in flight, or was sent meter.Lately, as it may get.
	Busy State = "busy"
	// Healthy: it is sent to as messages come.
	Healthy State = "healthy"
)

// States lists every State.
func States() []State {
	return []State{Disabled, Paused, Failing, Probing, Limited, Busy, Healthy}
}

// Status is how one webhook fares in this process. Counters are since its start.
type Status struct {
	State State
	// Until is when a state that ends by itself does: the end of a pause, the next probe,
	// the next POST that the rate allows. Zero otherwise.
	Until time.Time
	// Window is how many POSTs may be in flight now, Concurrency the most that may ever be.
	Window, Concurrency int
	// InFlight are the POSTs in flight, Waiting those that wait for one of them to end.
	InFlight, Waiting int
	// Rate is the POSTs a second that it took without failing over the last minute, and
	// Latency how long one takes on average; zero when there was none.
	Rate    float64
	Latency time.Duration
	// Delivered, Refused and Failed count POSTs that were answered 2xx, POSTs whose answer
	// says nothing about the receiver, a 400 for instance, and POSTs that failed; Postponed counts deliveries that were held because it could not be sent to.
	Delivered, Refused, Failed, Postponed int64
	// RecentPosts counts all three of the last one to two hours, RecentRefused the refused
	// ones of them.
	RecentPosts, RecentRefused int
	Breaker                    policy.BreakerState
	// Refusing: it refuses every message alike, and the breaker is open for that.
	Refusing bool
	// Pace is the rate that was learned from its refusals.
	Pace policy.PaceState
	// Failing is since when it only fails, as far as this process has seen.
	Failing       policy.AutoDisableState
	LastFailureAt time.Time
}

// Status is how the webhook fares now.
func (f *Flow) Status(now time.Time) Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := Status{
		State: Healthy, Window: f.limit(), Concurrency: f.settings.Concurrency, InFlight: f.inFlight, Waiting: f.waiting,
		Rate: f.meter.Rate(now), Latency: f.meter.Latency(), Delivered: f.delivered, Refused: f.refused, Failed: f.failed, Postponed: f.postponed,
		Breaker: f.breaker.State(now), Refusing: f.refusing, Pace: f.pacer.State(), Failing: f.auto.State(), LastFailureAt: f.lastFailure,
	}
	s.RecentPosts, s.RecentRefused = f.answers.Sums(now)
	token := f.bucket.Next(f.settings, now)
	switch pause := f.pause.Until(now); {
	case !f.enabled:
		s.State = Disabled
	case !pause.IsZero():
		s.State, s.Until = Paused, pause
	case s.Breaker.Phase == policy.BreakerOpen && s.Breaker.NextProbe.After(now):
		s.State, s.Until = Failing, s.Breaker.NextProbe
	case s.Breaker.Phase != policy.BreakerClosed:
		s.State = Probing
	case f.pacer.Limited():
		s.State = Limited
	case f.inFlight >= s.Window:
		s.State = Busy
	case token.After(now):
		s.State, s.Until = Busy, token
	}
	return s
}
