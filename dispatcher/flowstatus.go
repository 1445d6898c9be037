package dispatcher

import (
	"time"

	"github.com/pushlease/pushlease/policy"
)

// FlowState says whether a webhook is sent to by this process.
type FlowState string

// The flow states of a webhook, the first that fits.
const (
	// FlowDisabled: nothing is sent until it is enabled.
	FlowDisabled FlowState = "disabled"
	// FlowPaused: it asked not to be sent anything for a while.
	FlowPaused FlowState = "paused"
	// FlowFailing: it mostly fails; nothing is sent until the next probe.
	FlowFailing FlowState = "failing"
	// FlowProbing: a probe is due or under way.
	FlowProbing FlowState = "probing"
	// FlowBusy: as much is in flight, or was sent lately, as it may get.
	FlowBusy FlowState = "busy"
	// FlowOpen: it is sent to as messages come.
	FlowOpen FlowState = "open"
)

// FlowStates lists every FlowState.
func FlowStates() []FlowState {
	return []FlowState{FlowDisabled, FlowPaused, FlowFailing, FlowProbing, FlowBusy, FlowOpen}
}

// WebhookStatus is how one webhook fares in this process. Counters are since its start.
type WebhookStatus struct {
	State FlowState
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
	// Failing is since when it only fails, as far as this process has seen.
	Failing       policy.AutoDisableState
	LastFailureAt time.Time
}

// Webhook returns the status of a webhook; false when it is not known here.
func (d *Dispatcher) Webhook(id string) (WebhookStatus, bool) {
	f := d.flows.get(id)
	if f == nil {
		return WebhookStatus{}, false
	}
	return f.status(time.Now()), true
}

func (f *flow) status(now time.Time) WebhookStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := WebhookStatus{
		State: FlowOpen, Window: f.limit(), Concurrency: f.settings.Concurrency, InFlight: f.inFlight, Waiting: f.waiting,
		Rate: f.meter.Rate(now), Latency: f.meter.Latency(), Delivered: f.delivered, Refused: f.refused, Failed: f.failed, Postponed: f.postponed,
		Breaker: f.breaker.State(now), Failing: f.auto.State(), LastFailureAt: f.lastFailure,
	}
	s.RecentPosts, s.RecentRefused = f.answers.sums(now)
	token := f.bucket.Next(f.settings, now)
	switch pause := f.pause.Until(now); {
	case !f.enabled:
		s.State = FlowDisabled
	case !pause.IsZero():
		s.State, s.Until = FlowPaused, pause
	case s.Breaker.Phase == policy.BreakerOpen && s.Breaker.NextProbe.After(now):
		s.State, s.Until = FlowFailing, s.Breaker.NextProbe
	case s.Breaker.Phase != policy.BreakerClosed:
		s.State = FlowProbing
	case f.inFlight >= s.Window:
		s.State = FlowBusy
	case token.After(now):
		s.State, s.Until = FlowBusy, token
	}
	return s
}
