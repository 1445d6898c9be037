// Package status is what one process tells of itself: how its queues and its webhooks fare. The
// dispatcher knows it, and the API shows it. Counters are since the start of the process.
package status

import (
	"time"

	"github.com/pushlease/pushlease/policy"
)

// Work is what a process is at work on.
type Work struct {
	// InFlight counts messages, and Leases the leases that are kept, those of messages in hand that wait too.
	InFlight, Leases int
	// Polled are the queues that it receives from, in ascending order.
	Polled []string
}

// Queue is how one queue fares.
type Queue struct {
	// Polling is whether messages are being received from it.
	Polling bool
	// InFlight counts the messages that the process is at work on, whoever received them.
	InFlight int
	// Lease is what the next receive asks for: fixed by a setting, or by measured time.
	Lease      time.Duration
	LeaseFixed bool
	// Recommended is the lease that measured time, or the estimate, asks for.
	Recommended policy.Recommendation
	Processing  Processing
	Deletions   Deletions
	// Handled counts the messages that the process finished with in the last one to two
	// hours, and DeadLettered those of them that became dead letters.
	Handled, DeadLettered int
	// Expired counts the messages whose life ended before they were settled, as far as the process knew of them.
	Expired int
	// LastPollAt is when storage last answered a receive.
	LastPollAt time.Time
	// LastError is the last error of a receive while it lasts, without a secret; empty when
	// receiving works.
	LastError   string
	LastErrorAt time.Time
	// GoneAt is when the queue, which had been there, was missed first: about when somebody
	// deleted it. Zero while it is there.
	GoneAt time.Time
	// GoneText says it in a sentence, with how many messages waited for another attempt then, as far as
	// that is on record; empty while the queue is there.
	GoneText string
	// Webhooks counts the enabled webhooks.
	Webhooks int
	// LeftAt is when the queue's last webhook was deleted, while what was on the queue
	// then is watched over; zero otherwise.
	LeftAt time.Time
}

// Processing are percentiles of the time that recent messages took, from receiving to
// settling; zero without samples.
type Processing struct {
	Samples       int
	P50, P95, P99 time.Duration
}

// Deletions counts what became of the deletes of one queue's messages.
type Deletions struct {
	// Total is Successful and Failed. A delete counts once, however often it was
	// tried; one that could not be made because the lease was lost has failed.
	Total, Successful, Failed int64
	// Unverified counts the messages that were received again after their delivery was
	// recorded: their delete failed, was never made, or did not last.
	Unverified int64
	// LastFailures are the newest ones, newest first.
	LastFailures []DeletionFailure
}

// DeletionFailure is one message that could not be deleted. It comes back, and is
// deleted then without a POST.
type DeletionFailure struct {
	MessageID string
	// Error is "lease_lost", "unverified", or the class of the last error: "busy",
	// "denied", "timeout" or "storage".
	Error string
	At    time.Time
}

// FlowState says whether a webhook is sent to (docs/flow-control.md).
type FlowState string

// The flow states of a webhook, the first that fits.
const (
	// Disabled: nothing is sent until it is enabled.
	Disabled FlowState = "disabled"
	// NoToken: no token can be had that it is to be shown.
	NoToken FlowState = "no_token"
	// Paused: it asked not to be sent anything for a while.
	Paused FlowState = "paused"
	// Failing: it mostly fails; nothing is sent until the next probe.
	Failing FlowState = "failing"
	// Probing: a probe is due or under way.
	Probing FlowState = "probing"
	// Limited: it refuses what is more than its limit, and is sent what it takes.
	Limited FlowState = "limited"
	// Busy: as much is in flight, or was sent lately, as it may get.
	Busy FlowState = "busy"
	// Healthy: it is sent to as messages come.
	Healthy FlowState = "healthy"
)

// FlowStates lists every FlowState.
func FlowStates() []FlowState {
	return []FlowState{Disabled, NoToken, Paused, Failing, Probing, Limited, Busy, Healthy}
}

// Standing is which state a webhook is in.
type Standing struct {
	Queue string
	State FlowState
	// Why it is disabled.
	Why string
	// Rate is the learned rate of a limited one, of all instances together.
	Rate float64
}

// Webhook is how one webhook fares.
type Webhook struct {
	State FlowState
	// Why it is disabled, why no token can be had, or of any other state why no request could be made to it lately; empty else.
	Why string
	// Until is when a state that ends by itself does: the next request for a token, the end of a pause, the next probe,
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
	// Throttles: its last answer said that it is sent too much, or asked for a wait.
	Throttles bool
	// Pace is the rate that this instance has learned from its refusals, PaceOfAll that of all instances together, and Leader the
	// one that sends most of it; empty where that is this one.
	Pace      policy.PaceState
	PaceOfAll float64
	Leader    string
	// Failing is since when it only fails, as far as this process has seen.
	Failing       policy.AutoDisableState
	LastFailureAt time.Time
}
