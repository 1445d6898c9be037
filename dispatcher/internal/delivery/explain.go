package delivery

import (
	"fmt"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

// describe says in one sentence why a delivery was given up.
func describe(del tables.Delivery) string {
	last := fmt.Sprintf("the last answer was %d", del.LastStatus)
	if del.LastStatus == 0 {
		last = fmt.Sprintf("the last attempt ended without an answer (%s)", del.LastErrorClass)
	}
	switch del.Reason {
	case policy.NonRetryableError:
		return fmt.Sprintf("After %s %s, which the webhook's policy does not retry.", attemptsText(del.Attempts), last)
	case policy.MaxDeliveryCountExceeded:
		return fmt.Sprintf("All %d attempts are used up; %s.", del.Charged, last)
	case policy.MaxAgeExceeded:
		return fmt.Sprintf("The time for attempts is used up after %s; %s.", attemptsText(del.Attempts), last)
	case policy.MessageExpiring:
		return fmt.Sprintf("The next attempt would fall after the message's expiry; %s.", last)
	case policy.BlockedAddress:
		return "The webhook's address is one that must not be reached; no connection was made."
	case policy.WebhookGone:
		return "The webhook answered 410 Gone and was disabled."
	case policy.ReceiverAsked:
		return fmt.Sprintf("The receiver asked for it; %s.", last)
	case policy.PoisonMessage:
		return "The message was received over and over with no outcome ever recorded, so it was not sent again."
	case policy.Undecodable:
		return "The text is not what the queue's encoding promises, or was written by a newer version of pushlease; it is kept as it was received. Set the queue's encoding to what its producers write, or update every instance, and replay it."
	case policy.Unidentified:
		return "The Functions host did not surely say which message this is, and the text is too long to be sent anew."
	case policy.WebhookDisabled, policy.WebhookDeleted, policy.NoWebhook:
		return "No webhook took the message before it would have expired."
	case policy.WebhookBusy, policy.WebhookPaused, policy.WebhookFailing:
		return "The webhook could not be sent to before the message would have expired; its flow says why."
	case policy.EventInWork:
		return "Another message with the same event was still being delivered when this one was about to expire."
	case policy.Unmatched:
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
