// Package policy turns what a webhook answered into what happens to the
// message. It is pure: the time, the random number and everything else it
// decides from are arguments, and it imports nothing of pushlease.
package policy

import "time"

// Action is what happens to a delivery.
type Action string

// The actions.
const (
	// Complete: the webhook has taken the message.
	Complete Action = "complete"
	// Abandon: try again after a delay.
	Abandon Action = "abandon"
	// DeadLetter: give up and keep the message as a dead letter.
	DeadLetter Action = "dead-letter"
	// Hold: park the delivery, attempts untouched, until something outside
	// changes (a webhook is enabled, an operator acts).
	Hold Action = "hold"
	// NoVerdict: the try was cut short by us, or could not be made by this process;
	// nothing is charged to anybody and the message is given back.
	NoVerdict Action = "no-verdict"
)

// Reason says why. The set is closed, so that it can label a metric.
type Reason string

// The reasons of a decision.
const (
	// Delivered: the webhook answered 2xx or steered to complete, or a rule
	// takes its answer as complete.
	Delivered Reason = "Delivered"
	// RetryableError: the answer is worth another try.
	RetryableError Reason = "RetryableError"
	// ReceiverBusy: 429 or 503 that named a wait, or a refusal that is not the message's
	// fault (Try.NotItsFault); not charged. (Beyond MaxWaits, of the latter 40 where that is more, it is charged, and a
	// RetryableError; a probe never is.)
	ReceiverBusy Reason = "ReceiverBusy"
	// NonRetryableError: the answer will not get better.
	NonRetryableError Reason = "NonRetryableError"
	// MaxDeliveryCountExceeded: the attempts have run out.
	MaxDeliveryCountExceeded Reason = "MaxDeliveryCountExceeded"
	// MaxAgeExceeded: the time for attempts has run out.
	MaxAgeExceeded Reason = "MaxAgeExceeded"
	// MessageExpiring: the next try would fall after the message's expiry.
	MessageExpiring Reason = "MessageExpiring"
	// Expired: the message's life ended before a webhook had taken it, and the store kept it; or the message of a replay was gone
	// before this one of its webhooks had.
	Expired Reason = "Expired"
	// PoisonMessage: received over and over with no outcome ever recorded.
	PoisonMessage Reason = "PoisonMessage"
	// Undecodable: the text is not what the queue's encoding promises.
	Undecodable Reason = "Undecodable"
	// BlockedAddress: the address guard refused the webhook's address, or all that its host
	// name led to at every attempt.
	BlockedAddress Reason = "BlockedAddress"
	// WebhookGone: the webhook answered 410 and is disabled.
	WebhookGone Reason = "WebhookGone"
	// ReceiverAsked: the receiver steered to dead-letter or disable.
	ReceiverAsked Reason = "ReceiverAsked"
	// WebhookDisabled: the delivery waits until the webhook is enabled.
	WebhookDisabled Reason = "WebhookDisabled"
	// WebhookDeleted: the delivery's webhook is not registered any more.
	WebhookDeleted Reason = "WebhookDeleted"
	// WebhookBusy: as much is in flight to the webhook, or was sent lately, as it may get.
	WebhookBusy Reason = "WebhookBusy"
	// WebhookPaused: the webhook has asked not to be sent anything for a while.
	WebhookPaused Reason = "WebhookPaused"
	// WebhookFailing: the webhook mostly fails, so only a probe is sent now and then.
	WebhookFailing Reason = "WebhookFailing"
	// NoToken: no token can be had that the webhook is to be shown.
	NoToken Reason = "NoToken"
	// NoWebhook: no webhook of the queue takes the message.
	NoWebhook Reason = "NoWebhook"
	// Unmatched: the queue has webhooks, and none of their filters takes the message.
	Unmatched Reason = "Unmatched"
	// Duplicate: the message's event was delivered with another message.
	Duplicate Reason = "Duplicate"
	// EventInWork: another message with the same event is being delivered, or it can't be
	// told; this one waits for what becomes of it.
	EventInWork Reason = "EventInWork"
	// ReplayEnded: a replay pointer whose replay was finished, asked for anew, or
	// whose dead letter was deleted; there is nothing left to send.
	ReplayEnded Reason = "ReplayEnded"
	// LeaseLost: storage said that the lease has ended.
	LeaseLost Reason = "LeaseLost"
	// Stopping: the process is shutting down.
	Stopping Reason = "Stopping"
	// StorageFault: our own storage could not be asked.
	StorageFault Reason = "StorageFault"
	// InternalFault: a fault inside pushlease, or a registration that this process can't make a request
	// from.
	InternalFault Reason = "InternalFault"
)

// Actions and Reasons list the closed sets, for documentation tests and metrics.
func Actions() []Action {
	return []Action{Complete, Abandon, DeadLetter, Hold, NoVerdict}
}

// Reasons lists every Reason.
func Reasons() []Reason {
	return []Reason{
		Delivered, RetryableError, ReceiverBusy, NonRetryableError, MaxDeliveryCountExceeded,
		MaxAgeExceeded, MessageExpiring, Expired, PoisonMessage, Undecodable, BlockedAddress, WebhookGone,
		ReceiverAsked, WebhookDisabled, WebhookDeleted, WebhookBusy, WebhookPaused, WebhookFailing, NoToken, NoWebhook, Unmatched, Duplicate, EventInWork, ReplayEnded, LeaseLost, Stopping, StorageFault,
		InternalFault,
	}
}

// DeadLetterReasons lists the reasons that a dead letter may have.
func DeadLetterReasons() []Reason {
	return []Reason{
		NonRetryableError, MaxDeliveryCountExceeded, MaxAgeExceeded, MessageExpiring, Expired, PoisonMessage, Undecodable,
		BlockedAddress, WebhookGone, ReceiverAsked, WebhookDisabled, WebhookDeleted, WebhookBusy, WebhookPaused,
		WebhookFailing, NoToken, NoWebhook, Unmatched,
	}
}

// ErrorClass names how a POST failed without a usable answer; empty when there
// was an answer.
type ErrorClass string

// The classes of failure without an answer.
const (
	ClassTimeout  ErrorClass = "timeout"  // the whole-exchange deadline passed
	ClassConnect  ErrorClass = "connect"  // refused, unreachable
	ClassDNS      ErrorClass = "dns"      // the name did not resolve
	ClassTLS      ErrorClass = "tls"      // handshake or certificate
	ClassReset    ErrorClass = "reset"    // the connection died before an answer
	ClassProtocol ErrorClass = "protocol" // not HTTP, or a malformed answer
	ClassBlocked  ErrorClass = "blocked"  // refused by the address guard
	ClassRequest  ErrorClass = "request"  // this process could make no request from the registration
	ClassToken    ErrorClass = "token"    // no token could be had that the receiver is to be shown
	ClassCanceled ErrorClass = "canceled" // cut short by us: no verdict
)

// ErrorClasses lists every ErrorClass.
func ErrorClasses() []ErrorClass {
	return []ErrorClass{ClassTimeout, ClassConnect, ClassDNS, ClassTLS, ClassReset, ClassProtocol, ClassBlocked, ClassRequest, ClassToken, ClassCanceled}
}

// Response is what came back from one POST.
type Response struct {
	// Status is the HTTP status; 0 when there was none.
	Status int
	// Class is set when there was no usable answer.
	Class ErrorClass
	// NameBlocked, beside ClassBlocked, says that the refused addresses are what the URL's
	// host name led to.
	NameBlocked bool
	// Cause says in words why there was no usable answer, and Redirect to which host a 3xx pointed. Both are for
	// people, and neither decides.
	Cause    string
	Redirect string
	// StaleConn says that it may have been the connection alone that was dead: it had been
	// used before, and not a byte came back.
	StaleConn bool
	// RetryAfter, RateLimit, Steering and Date are the values of the answer's headers
	// Retry-After, RateLimit, pushlease-decision and Date; empty when absent. Those of
	// several lines Retry-After are joined by commas.
	RetryAfter string
	RateLimit  string
	Steering   string
	Date       string
	// Body is the beginning of the answer's body, for rules that match on text.
	Body string
}

// Try is what Decide decides from.
type Try struct {
	// Now is when the answer arrived.
	Now time.Time
	// Charged counts the charged attempts before this one.
	Charged int
	// Waits counts the uncharged waits (ReceiverBusy) before this one.
	Waits int
	// FirstAt is when the delivery's first attempt began, of those for which a request could be made.
	FirstAt time.Time
	// PreviousStatus is what the attempt before this one was answered, and PreviousAt when it
	// began; zero when there was none, or no answer.
	PreviousStatus int
	PreviousAt     time.Time
	// LastOK is when the webhook last answered 2xx to anything; zero when that is unknown.
	LastOK time.Time
	// NotItsFault says that the webhook refuses messages whatever they are: it takes others
	// and is sent more than its limit, or it refuses all of them alike. This one is charged
	// for neither, as long as no rule decides.
	NotItsFault bool
	// Quota says that a quota of the webhook may be used up: it took others within the hour and none lately. NotItsFault, this one
	// is tried again as late as if it were charged.
	Quota bool
	// Probe says that the POST was to find out whether a webhook which refuses everything takes messages again. NotItsFault,
	// it counts in nothing.
	Probe bool
	// ExpiresAt is when the message vanishes; zero means never.
	ExpiresAt time.Time
	// LookSlack is how long before that somebody has to look at the message at the
	// latest, besides ExpiryMargin, where nobody does all the time.
	LookSlack time.Duration
	// Random is uniform in [0, 1).
	Random float64
	// Response is the answer.
	Response Response
}

// Decision says what happens next, and why.
type Decision struct {
	Action Action
	Reason Reason
	// Delay until the next try, in whole seconds; for Abandon and Hold.
	Delay time.Duration
	// NextAt is Now + Delay; zero unless Action is Abandon or Hold. Decide
	// itself never holds.
	NextAt time.Time
	// Charged is whether the try counts against MaxAttempts.
	Charged bool
	// Probed is whether it counts in nothing, as what a webhook refused that takes none now (Try.Probe).
	Probed bool
	// Disable asks that the webhook be disabled.
	Disable bool
	// Pause asks that nothing be sent to the webhook for so long: what a 429 or
	// 503 asked for, whatever becomes of this message, or what an answer said that took the last of
	// a limit; up to PauseCap.
	Pause time.Duration
	// Explanation is one sentence for a person. It never holds anything that
	// the receiver or the message chose, but for numbers.
	Explanation string
}
