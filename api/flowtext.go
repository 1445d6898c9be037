package api

import (
	"fmt"
	"strings"
	"time"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/tables"
)

// flowText says how a webhook fares for a person who was woken by it: why, what happens
// next and when, and what can be done.
type flowText struct {
	reg      tables.Registration
	s        status.Webhook
	instance string
	// late: the dispatcher has not read yet that it was enabled or disabled.
	late bool
	// may: the caller may enable it.
	may bool
}

// String puts the sentences together.
func (t flowText) String() string {
	parts := []string{t.why(), t.refusing(), t.failing(), t.cure()}
	switch {
	case t.late && t.reg.Enabled:
		parts = []string{"It was enabled; " + t.who() + " has not read that yet, and does so within its registry_refresh."}
	case t.late:
		parts = append(parts, t.who()+" has not read that yet, and may send to it for a moment.")
	}
	var said []string
	for _, p := range parts {
		if p != "" {
			said = append(said, strings.ToUpper(p[:1])+p[1:])
		}
	}
	return strings.Join(said, " ")
}

func (t flowText) who() string {
	if t.instance == "" {
		return "this instance"
	}
	return "instance " + t.instance
}

// why says what is the case, and what comes next.
func (t flowText) why() string {
	s := t.s
	switch s.State {
	case status.Disabled:
		return t.disabled()
	case status.NoToken:
		return t.noToken()
	case status.Paused:
		return "It asked for a pause, with 429 or 503 and a wait, or by saying that nothing is left of its limit: nothing is sent to it until " + web.Stamp(s.Until) + "."
	case status.Failing, status.Probing:
		return t.broken()
	case status.Limited:
		return t.limited()
	case status.Busy:
		if !s.Until.IsZero() {
			return fmt.Sprintf("Its rate of %v a second is used up: the next POST may begin at %s.", t.reg.Flow.OrDefault().Rate, web.Stamp(s.Until))
		}
		return fmt.Sprintf("%d POSTs are in flight, as many as it may get now; its window can grow to %d.", s.InFlight, s.Concurrency)
	}
	return "It is sent to as messages come."
}

// noToken says why there is no token to show it, and when that is tried again.
func (t flowText) noToken() string {
	next := "with the next message, or one that is under way"
	if !t.s.Until.IsZero() {
		next = "at " + web.Stamp(t.s.Until) + " with the next message"
	}
	return "No token can be had to show it: " + t.s.Why + ". Nothing is sent to it. A token is asked for again " + next + ", and at least once a minute while there are messages; when one comes all are sent."
}

// broken says since when nothing but probes is sent, and why.
func (t flowText) broken() string {
	s := t.s
	why := "It mostly fails"
	switch {
	case s.Throttles:
		why = "It answers 429, or asks for waits, as where a quota is used up"
	case s.Refusing:
		why = "It refuses every message alike, whatever is in it"
	}
	if s.State == status.Failing {
		return fmt.Sprintf("%s, and its breaker has been open since %s: nothing is sent to it. A probe is due at %s with the next message; when one succeeds a few more are let through, and then all. "+
			"Probes become rarer the longer it lasts, down to one in %s.", why, web.Stamp(s.Breaker.Since), web.Stamp(s.Until), time.Duration(t.reg.Flow.OrDefault().Breaker.ProbeMax))
	}
	return fmt.Sprintf("%s, and its breaker has been open since %s: the next message, or one that is under way, is the probe. If it succeeds a few more are let through, and then all.", why, web.Stamp(s.Breaker.Since))
}

// limited says what was learned, and what to set by one who knows better.
func (t flowText) limited() string {
	s, flow := t.s, t.reg.Flow.OrDefault()
	text := fmt.Sprintf("It throttles what is beyond a limit (429, 503, a refusal such as 403 that names a wait, or what a rule calls throttled): %d POSTs since %s, as seen by %s. "+
		"%s that costs a message no attempt while others are taken. Nothing has to be done.",
		s.Pace.Refused, web.Stamp(s.Pace.Since), t.who(), t.sent())
	if s.Pace.Noise > 0 {
		text += fmt.Sprintf(" About %.0f %% are throttled whatever the rate, at random or for what is in them, and do not lower it.", 100*s.Pace.Noise)
	}
	if flow.Rate == 0 {
		text += " If you know its limit, set flow.rate to that, divided by the number of instances (pushlease webhooks update " + t.reg.ID + " --rate N): then nothing is throttled."
	} else {
		text += fmt.Sprintf(" Its flow.rate of %v a second, the most that it is ever sent, is higher than what it takes; lower it, and nothing is throttled.", flow.Rate)
	}
	return text + fmt.Sprintf(" POST /api/v1/webhooks/%s/enable forgets what was learned.", t.reg.ID)
}

// sent says how much it is sent, and by whom: of several instances one sends most of what a limit allows.
func (t flowText) sent() string {
	text := fmt.Sprintf("It is sent about %s, as was learned from that, and more now and then;", paceText(t.s.PaceOfAll))
	if t.s.Leader != "" {
		text += fmt.Sprintf(" instance %s sends most of it, and this one about %s, since all instances share its limit;", t.s.Leader, paceText(t.s.Pace.Rate))
	}
	return text
}

// paceText says a rate, which may be one POST in minutes.
func paceText(rate float64) string {
	if rate > 0 && rate < 1 {
		return fmt.Sprintf("one POST in %s", time.Duration(float64(time.Second)/rate).Round(time.Second))
	}
	return fmt.Sprintf("%v a second", roundedRate(rate))
}

func (t flowText) disabled() string {
	at := ""
	if !t.reg.DisabledAt.IsZero() {
		at = " at " + web.Stamp(t.reg.DisabledAt)
	}
	switch t.reg.DisabledReason {
	case "operator":
		return "An operator disabled it" + at + "."
	case "gone":
		return "It answered 410 Gone, and was disabled" + at + "."
	case "failing":
		return fmt.Sprintf("It had failed for %s without one 2xx, and was disabled%s.", t.reg.Flow.OrDefault().AutoDisableAfter, at)
	case "receiver":
		return "It asked for it in an answer, and was disabled" + at + "."
	case "rule":
		return "A rule of its policy disabled it" + at + "."
	}
	return "It is disabled" + at + "."
}

// refusing says that messages are not taken by a webhook that looks healthy otherwise.
func (t flowText) refusing() string {
	s := t.s
	if s.RecentRefused == 0 || s.State == status.Disabled {
		return ""
	}
	return fmt.Sprintf("It refused %d of the %d POSTs that %s made to it in the last one to two hours, by an answer such as 400. That counts as the message's fault and keeps nothing from it; "+
		"mostly such a message becomes a dead letter at once. GET /api/v1/attempts?webhook=%s shows the answers.", s.RecentRefused, s.RecentPosts, t.who(), t.reg.ID)
}

// failing says since when it only fails, and when that disables it.
func (t flowText) failing() string {
	st, flow := t.s.Failing, t.reg.Flow.OrDefault()
	if st.FailingSince.IsZero() || t.s.State == status.Disabled {
		return ""
	}
	text := fmt.Sprintf("No 2xx was seen by %s since %s, while attempts of %s failed.", t.who(), web.Stamp(st.FailingSince), messagesOf(st.FailedMessages))
	if after := time.Duration(flow.AutoDisableAfter); after > 0 {
		text += fmt.Sprintf(" If that goes on, it is disabled at %s or when those of %d messages have failed, whichever is later.", web.Stamp(st.FailingSince.Add(after)), flow.AutoDisableMinFailures)
	}
	return text
}

// cure says where its messages are and what can be done.
func (t flowText) cure() string {
	if t.s.State == status.Healthy || t.s.State == status.Busy || t.s.State == status.Limited {
		return ""
	}
	text := "Its messages wait, with no attempt charged (GET /api/v1/queues/" + t.reg.Queue + " counts them); one that would expire becomes a dead letter. "
	enable := "POST /api/v1/webhooks/" + t.reg.ID + "/enable (pushlease webhooks enable " + t.reg.ID + ")"
	if !t.may {
		enable += ", with a key that may operate,"
	}
	switch {
	case t.s.State == status.NoToken:
		return text + "Mend what the token endpoint says (POST /api/v1/webhooks/" + t.reg.ID + "/test asks it); a change of the webhook, or " + enable + ", asks at once."
	case t.s.State == status.Paused:
		return text + enable + " ends the pause at once."
	case t.s.State == status.Disabled && t.reg.DisabledReason == "operator":
		return text + enable + " sends to it again."
	case t.s.State == status.Disabled:
		return text + "Mend the receiver (POST /api/v1/webhooks/" + t.reg.ID + "/test tries it); then " + enable + " sends to it again."
	}
	if t.s.Throttles {
		return text + "Nothing has to be done unless that lasts; " + enable + " begins anew at once."
	}
	return text + "Mend the receiver; " + enable + " begins anew at once."
}

// messagesOf says a number of messages.
func messagesOf(n int) string {
	if n == 1 {
		return "1 message"
	}
	return fmt.Sprintf("%d messages", n)
}
