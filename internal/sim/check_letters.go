package sim

import (
	"fmt"
	"slices"
	"time"
)

// causes: each dead letter has a reason for which somebody gave cause.
func (k *checker) causes() {
	for key, letters := range k.dead {
		for _, d := range letters {
			if why := k.without(key, d); why != "" {
				k.violate("dead letters", fmt.Sprintf("m%d was given up for %s in generation %d for the reason %s after %d attempts, but %s", key.n, key.webhook, d.Generation, d.Reason, d.Attempts, why))
			}
		}
	}
}

// without says which cause a dead letter lacks, or nothing.
func (k *checker) without(key delivery, d deadLetter) string {
	m, at := k.byID[d.MessageID], d.DeadLetteredAt.Sub(k.begin)
	switch d.Reason {
	case "MaxDeliveryCountExceeded":
		return k.tooFew(key, d)
	case "BlockedAddress":
		if why := k.tooFew(key, d); why != "" {
			return why
		}
		if !slices.ContainsFunc(k.plan.Webhooks, func(spec Webhook) bool { return spec.Name == key.webhook && spec.Mix.Inward > 0 }) {
			return "its name never led inwards"
		}
	case "NonRetryableError":
		return k.notAnswered(key, d, "final")
	case "WebhookGone":
		return k.notAnswered(key, d, "gone")
	case "Undecodable":
		if !m.newer {
			return "it can be read"
		}
		return k.notYet(m, d, at)
	case "PoisonMessage":
		if k.unrecorded(key, at) < 3 {
			return "no three POSTs of it are without a record"
		}
	case "MaxAgeExceeded":
		const most = 24*time.Hour - 10*time.Minute
		if at-m.sent < most {
			return "it is no day old"
		}
	case "Unmatched":
		return k.notRefused(m, at)
	case "WebhookDisabled":
		if !k.didTo(key, m, doDisable, at) && k.notAnswered(delivery{-1, key.webhook}, d, "gone") != "" {
			return "nobody disabled it"
		}
		return k.notYet(m, d, at)
	case "WebhookDeleted", "NoWebhook":
		if !k.didTo(key, m, doDelete, at) {
			return "nobody deleted it"
		}
		return k.notYet(m, d, at)
	case "MessageExpiring", "Expired", "WebhookBusy", "WebhookPaused", "WebhookFailing", "EventInWork":
		return k.notYet(m, d, at)
	default:
		return "that is no reason for a dead letter here"
	}
	return ""
}

// didTo is whether an operator did something to the webhook of a delivery, or to one of its queue's where it is about
// the message as a whole.
func (k *checker) didTo(key delivery, m *message, what string, at time.Duration) bool {
	return slices.ContainsFunc(k.plan.Webhooks, func(spec Webhook) bool {
		return spec.Queue == m.queue && (key.webhook == "" || key.webhook == spec.Name) && k.did(spec.Name, what, at)
	})
}

// tooFew says that fewer attempts of a generation were charged than the webhook allows. Those on record are
// compared with what was seen (attempts), and one that is not on record may have been charged.
func (k *checker) tooFew(key delivery, d deadLetter) string {
	charged := k.unrecorded(key, d.DeadLetteredAt.Sub(k.begin))
	for _, a := range k.recorded[key] {
		if a.Charged && a.generation == d.Generation {
			charged++
		}
	}
	for _, spec := range k.plan.Webhooks {
		if spec.Name == key.webhook && charged < spec.Attempts {
			return fmt.Sprintf("%d of them were charged, of %d", charged, spec.Attempts)
		}
	}
	return ""
}

// unrecorded is how many POSTs of a delivery, until a time, are not on record, so that nobody knows their generation.
func (k *checker) unrecorded(key delivery, until time.Duration) (n int) {
	for _, p := range k.posts[key] {
		if k.parts[p] == nil && p.at <= until {
			n++
		}
	}
	return n
}

// notAnswered says that a webhook did not answer a message in a way, in the generation of a dead letter; for
// message -1 that it never answered one so.
func (k *checker) notAnswered(key delivery, d deadLetter, way string) string {
	if slices.ContainsFunc(k.world.posts, func(p *post) bool {
		part := k.parts[p]
		return (p.webhook == key.webhook || key.webhook == "") && p.answer == way && (key.n < 0 || p.n == key.n && (part == nil || part.generation == d.Generation))
	}) {
		return ""
	}
	return "its answer was none of these"
}

// notRefused says that a webhook's filter took a message.
func (k *checker) notRefused(m *message, at time.Duration) string {
	refused := 0
	for _, spec := range k.plan.Webhooks {
		switch {
		case spec.Queue != m.queue:
		case spec.Picky || k.did(spec.Name, doFilter, at):
			refused++
		case !spec.Late && !k.did(spec.Name, doDelete, at):
			return spec.Name + " takes it"
		}
	}
	if refused == 0 {
		return "no filter refuses it"
	}
	return ""
}

// notYet says that a message was not about to expire: it has more than half of its life, or of an hour, or a
// minute and a half of what is tried again. A replay has a life of its own, of days.
func (k *checker) notYet(m *message, d deadLetter, at time.Duration) string {
	left, slack := m.expires-at, 5*time.Second+k.plan.Skew.Abs()
	lastLook := 30 * time.Second
	if !k.plan.File { // clocks may differ from the account's
		lastLook += min(m.ttl/4, time.Minute)
	}
	most := max(min(m.ttl/2, time.Hour), min(lastLook, 3*m.ttl/4)) + slack
	switch d.Reason {
	case "MessageExpiring":
		most = lastLook + 5*time.Second + slack
	case "Expired":
		most = slack
	}
	if m.ttl == 0 || d.Generation > 0 || left > most {
		return fmt.Sprintf("it had %s to live", left)
	}
	return ""
}
