package policy

import "fmt"

// Tried is what was tried for a delivery that was given up.
type Tried struct {
	// Attempts counts all attempts, Charged those that count.
	Attempts, Charged int
	// LastStatus and LastClass are what the last one ended with.
	LastStatus int
	LastClass  ErrorClass
}

// Explain says in one sentence why a delivery was given up for the reason.
func (r Reason) Explain(t Tried) string {
	last := fmt.Sprintf("the last answer was %d", t.LastStatus)
	if t.LastStatus == 0 {
		last = fmt.Sprintf("the last attempt ended without an answer (%s)", t.LastClass)
	}
	switch r {
	case NonRetryableError:
		return fmt.Sprintf("After %s %s, which the webhook's policy does not retry.", attemptsText(t.Attempts), last)
	case MaxDeliveryCountExceeded:
		return fmt.Sprintf("All %d attempts are used up; %s.", t.Charged, last)
	case MaxAgeExceeded:
		return fmt.Sprintf("The time for attempts is used up after %s; %s.", attemptsText(t.Attempts), last)
	case MessageExpiring:
		return fmt.Sprintf("The next attempt would fall after the message's expiry; %s.", last)
	case BlockedAddress:
		return "The webhook's address is one that must not be reached; no connection was made."
	case WebhookGone:
		return "The webhook answered 410 Gone and was disabled."
	case ReceiverAsked:
		return fmt.Sprintf("The receiver asked for it; %s.", last)
	case PoisonMessage:
		return "The message was received over and over with no outcome ever recorded, so it was not sent again."
	case Undecodable:
		return "The text is not what the queue's encoding promises, or was written by a newer version of pushlease; it is kept as it was received. Set the queue's encoding to what its producers write, or update every instance, and replay it."
	case WebhookDisabled, WebhookDeleted, NoWebhook:
		return "No webhook took the message before it would have expired."
	case NoToken:
		return "No token could be had to show the webhook before the message would have expired; the webhook's status says why."
	case WebhookBusy, WebhookPaused, WebhookFailing:
		return "The webhook could not be sent to before the message would have expired; its flow says why."
	case EventInWork:
		return "Another message with the same event was still being delivered, or another program had changed what tells, when this one was about to expire."
	case Unmatched:
		return "Every filter of the queue's webhooks refuses the message, and the queue keeps such messages as dead letters."
	}
	return "The delivery was given up."
}

// attemptsText says a number of attempts.
func attemptsText(n int) string {
	if n == 1 {
		return "1 attempt"
	}
	return fmt.Sprintf("%d attempts", n)
}
