package policy

import (
	"cmp"
	"fmt"
	"strconv"
	"time"
)

// ExpiryMargin is how long before a message's expiry its last attempt may begin:
// enough to send, to record the outcome and to write a dead letter while the
// message is still there.
const ExpiryMargin = 30 * time.Second

// Decide says what the answer of one try means for its delivery.
//
// Who decides, first to last: a try that we cut short ourselves gives no verdict, and
// neither does a registration that this process can't make a request from, which its
// operator can mend; a token that can't be had holds the delivery; then the address guard, which ends the delivery when it is the URL that
// holds the address; then the receiver's steering header if it is allowed, the rules, and
// the default table. A status decides even when the answer's body broke off.
//
// An abandoned delivery is tried again after the schedule's delay or the wait
// that the receiver asked for, whichever is longer. It becomes a dead letter
// instead when its attempts are used up, when the next one would begin later than
// MaxAge after the first (unless only the webhook kept the message away: Try.NotItsFault), or when it would begin later than ExpiryMargin and LookSlack
// before the message's expiry. In the last case a delay that only the schedule asks for
// is shortened first, so that the time that is left is still used. A wait that the
// receiver asked for spends at most a third of the time that is left, see waitLimit.
//
// A no-verdict decision has the reason InternalFault: only the caller, who may have cut
// the try short, knows a truer one (Stopping, LeaseLost), and puts it there.
func (p Policy) Decide(t Try) Decision {
	r := t.Response.settled()
	switch r.Class {
	case ClassCanceled:
		why := ""
		if r.Cause != "" {
			why = " (" + r.Cause + ")"
		}
		return Decision{
			Action: NoVerdict, Reason: InternalFault,
			Explanation: "The attempt was cut short by pushlease itself" + why + ", so it says nothing about the webhook and is not counted.",
		}
	case ClassRequest:
		return Decision{
			Action: NoVerdict, Reason: InternalFault,
			Explanation: "This process can't make a request from the webhook's registration, so nothing was sent and nothing is counted." + r.why(),
		}
	case ClassToken:
		return Decision{
			Action: Hold, Reason: NoToken,
			Explanation: "There was no token to show the webhook, so the message was not taken, and nothing is counted." + r.why(),
		}
	}
	asked, hasAsked := p.askedWait(&r, t.Now)
	v := p.judge(&r, &t, asked)
	d := Decision{Action: v.action, Reason: v.reason, Charged: true, Disable: v.disable}
	if busy(r.Status) && hasAsked {
		d.Pause = p.pause(asked)
	}
	switch v.action {
	case Complete:
		d.Explanation = r.completed(v.because)
		if wait := p.spent(&r); wait > 0 {
			d.Pause = p.pause(wait)
			d.Explanation += fmt.Sprintf(" It said that nothing is left of its limit, so nothing else is sent to it for %s.", d.Pause)
		}
	case DeadLetter:
		d.Explanation = fmt.Sprintf("%s: the message is dead-lettered after attempt %d%s.", r.subject(), t.attempt(), v.because)
	default:
		d.Probed = v.spared && t.Probe
		if d.Pause > 0 && t.Waits < p.MaxWaits || v.spared && t.Waits < p.spares() || d.Probed {
			d.Reason, d.Charged = ReceiverBusy, false
		}
		p.again(&d, &t, &v, r.subject(), asked)
	}
	return d
}

// again completes d for a try that is worth another one: when, or why not.
func (p *Policy) again(d *Decision, t *Try, v *verdict, subject string, asked time.Duration) {
	n := t.attempt()
	if d.Charged && n >= p.MaxAttempts {
		d.deadLetter(cmp.Or(v.atEnd, MaxDeliveryCountExceeded), "%s: attempt %d of %d failed, so the attempts are used up.", subject, n, p.MaxAttempts)
		return
	}
	delay, most := p.delay(t, v, asked)
	if delay > p.ageLeft(t) && (d.Charged || !v.spared) { // what only the webhook's limit kept away is no older for it
		d.deadLetter(cmp.Or(v.atEnd, MaxAgeExceeded), "%s: the next attempt would be due in %s, later than %s after the first one.", subject, delay, p.MaxAge)
		return
	}
	if !t.ExpiresAt.IsZero() {
		usable := t.usable().Truncate(time.Second)
		if usable < time.Second {
			d.deadLetter(MessageExpiring, "%s: the next attempt would be due in %s, but the message expires in %s%s.",
				subject, delay, max(t.ExpiresAt.Sub(t.Now), 0).Truncate(time.Second), unseen(t.LookSlack))
			return
		}
		delay = min(delay, usable)
	}
	d.Delay, d.NextAt = delay, t.Now.Add(delay)
	if d.Charged {
		d.Explanation = fmt.Sprintf("%s: attempt %d of %d failed, and the next one is due in %s%s%s.", subject, n, p.MaxAttempts, delay, most, v.because)
		return
	}
	if d.Probed {
		d.Explanation = fmt.Sprintf("%s as it does to any message now: the next attempt is due in %s%s, and this one, which was to find out whether it takes messages again, counts in nothing.",
			subject, delay, most)
		return
	}
	why, waits := "and asked for a wait", p.MaxWaits
	if v.spared {
		why, waits = "as it does to any message now", p.spares()
	}
	d.Explanation = fmt.Sprintf("%s %s: the next attempt is due in %s%s, and this one is not counted (wait %d of %d).",
		subject, why, delay, most, max(t.Waits, 0)+1, waits)
}

// minSpares is how many refusals that are not the message's fault go uncharged at least: more than
// the learner of a slow limit needs until it keeps it, shared among few messages.
const minSpares = 40

// spares is how many such refusals go uncharged, also where no attempt is repeated.
func (p *Policy) spares() int {
	return max(p.MaxWaits, minSpares)
}

// delay is the time until the next try: the schedule's, or the wait that was asked for if
// that is longer. most says that it is less than was asked for.
func (p *Policy) delay(t *Try, v *verdict, asked time.Duration) (delay time.Duration, most string) {
	failed := t.attempt() - 1
	if v.spared && t.Quota && asked == 0 { // a wait that was asked for is the receiver's own word
		failed += max(t.Waits, 0)
	}
	scheduled := p.Backoff.base(failed)
	if v.delay > 0 {
		scheduled = v.delay
	}
	limit := p.waitLimit(t)
	if asked > limit { // spread below the limit, since all that ask for too much would come back at it
		asked = time.Duration(float64(limit) / (1 + share(p.Backoff.Jitter)))
		most = ", which is the most that it may ask for"
	}
	if scheduled >= asked {
		return jittered(scheduled, p.Backoff.Jitter, t.Random), ""
	}
	return max(min(jittered(asked, p.Backoff.Jitter, t.Random), limit.Truncate(time.Second)), time.Second), most
}

// waitLimit is the longest wait that the receiver can ask for, jitter included:
// RetryAfterCap, and a third of the time that is left for attempts, so that two further ones
// fit even if the next answer asks for as much again.
func (p *Policy) waitLimit(t *Try) time.Duration {
	left := p.ageLeft(t)
	if !t.ExpiresAt.IsZero() {
		left = min(left, t.usable())
	}
	return max(min(time.Duration(p.RetryAfterCap), MaxDelay, left/3), 0)
}

// ageLeft is how long from now on an attempt may begin, as far as MaxAge goes.
func (p *Policy) ageLeft(t *Try) time.Duration {
	if t.FirstAt.IsZero() {
		return time.Duration(p.MaxAge)
	}
	return t.FirstAt.Add(time.Duration(p.MaxAge)).Sub(t.Now)
}

// usable is how long from now on an attempt may begin, as far as the message's life goes.
func (t *Try) usable() time.Duration { return t.ExpiresAt.Add(-ExpiryMargin - t.LookSlack).Sub(t.Now) }

// unseen says why the end of a message's life can't be used.
func unseen(slack time.Duration) string {
	if slack <= 0 {
		return ""
	}
	return fmt.Sprintf(", and nobody may look at it in its last %s", slack.Truncate(time.Second))
}

func (d *Decision) deadLetter(reason Reason, format string, args ...any) {
	d.Action, d.Reason = DeadLetter, reason
	d.Explanation = fmt.Sprintf(format, args...)
}

// attempt is the number of this try among the charged ones, from 1.
func (t *Try) attempt() int { return max(t.Charged, 0) + 1 }

// askedWait is the wait that the answer names; the longer one when both headers name one.
// With RetryAfterCap 0 a receiver can't ask for any.
func (p *Policy) askedWait(r *Response, now time.Time) (time.Duration, bool) {
	if p.RetryAfterCap <= 0 {
		return 0, false
	}
	after, ok := ParseRetryAfter(r.RetryAfter, receiverClock(r.Date, now))
	reset, limited := ParseRateLimit(r.RateLimit)
	return max(after, reset), ok || limited
}

// pause is for how long nothing is sent to a webhook that asked for that wait.
func (p *Policy) pause(asked time.Duration) time.Duration {
	return max(ceilSecond(min(asked, time.Duration(p.RetryAfterCap), time.Duration(p.PauseCap))), time.Second)
}

// spentLeast is the shortest reset by which a webhook that takes a message stops the next one. Resets are whole seconds: one of a
// second may be some milliseconds away, and what is refused until then teaches more.
const spentLeast = 2 * time.Second

// spent is how long nothing is left of a limit by an answer that took the last of it.
func (p *Policy) spent(r *Response) time.Duration {
	if p.RetryAfterCap <= 0 {
		return 0
	}
	if reset, _ := ParseRateLimit(r.RateLimit); reset >= spentLeast {
		return reset
	}
	return 0
}

// verdict is what the answer means before attempts, age and expiry are looked at.
type verdict struct {
	action  Action
	reason  Reason
	disable bool
	because string // ends the explanation; says who decided when it was not the table
	// Of Abandon only: delay takes the place of the schedule's, and atEnd is the reason of the
	// dead letter when attempts or age are used up; zero for the usual ones.
	delay time.Duration
	atEnd Reason
	// throttled: a rule calls it a limit of the webhook's.
	throttled bool
	// spared: the refusal is not the message's fault, and not charged.
	spared bool
}

func (p *Policy) judge(r *Response, t *Try, asked time.Duration) verdict {
	switch {
	case r.Class != ClassBlocked:
	case r.NameBlocked: // what a resolver says can heal
		return verdict{action: Abandon, reason: RetryableError, atEnd: BlockedAddress}
	default:
		return verdict{action: DeadLetter, reason: BlockedAddress}
	}
	if v, ok := p.told(r); ok {
		v.spared = t.NotItsFault && v.throttled
		return v
	}
	return byDefault(r, t, asked)
}

// Told is whether an answer of this status is meant by its receiver or the policy: by a steering header, by a rule for this status, or by
// one by which it is a delivery. One for more than this status says nothing of it.
func (p *Policy) Told(r Response) bool {
	r = r.settled()
	if v, ok := p.told(&r); !ok || v.action == Complete {
		return ok
	}
	i, byRule := match(p.Rules, r)
	_, steers := steered(r.Steering)
	return p.AllowSteering && steers || byRule && p.Rules[i].Match == strconv.Itoa(r.Status)
}

// told is what the webhook asked for or a rule says, before the default table.
func (p *Policy) told(r *Response) (verdict, bool) {
	if p.AllowSteering && r.Class == "" {
		if v, ok := steered(r.Steering); ok {
			return v, true
		}
	}
	if i, ok := match(p.Rules, *r); ok {
		return p.Rules[i].verdict(i), true
	}
	return verdict{}, false
}

// byDefault is the default table.
func byDefault(r *Response, t *Try, asked time.Duration) verdict {
	switch {
	case r.Class != "":
	case class(r.Status) == 2:
		return verdict{action: Complete, reason: Delivered}
	case r.Status == 410:
		return verdict{action: DeadLetter, reason: WebhookGone, disable: true, because: ", and the webhook is disabled"}
	case final(r.Status) && t.NotItsFault:
		return verdict{action: Abandon, reason: RetryableError, atEnd: NonRetryableError, spared: true}
	case final(r.Status) && asked >= time.Second:
		return verdict{action: Abandon, reason: RetryableError, atEnd: NonRetryableError, because: ", since the answer names a wait"}
	case final(r.Status):
		if delay, ok := t.away(r.Status); ok {
			return verdict{action: Abandon, reason: RetryableError, atEnd: NonRetryableError, delay: delay, because: ", since it took messages lately"}
		}
		return verdict{action: DeadLetter, reason: NonRetryableError, because: ", since another one would not change the answer"}
	}
	return verdict{action: Abandon, reason: RetryableError, spared: t.NotItsFault && busy(r.Status)}
}

// final tells whether a status will not get better by trying again.
func final(status int) bool {
	switch status {
	case 400, 401, 403, 404, 405, 409, 411, 413, 414, 415, 422, 431, 501, 505:
		return true
	}
	return false
}

// A webhook that took a message within awayWithin and now answers 403, 404 or 405 is, most
// likely, being deployed, or stopped for a moment, which a gateway may answer with 403. The message is tried again after awayFirst, and then after
// awayNext; the answer stands when the try before, at least awayFinal ago, had it too.
const (
	awayWithin = time.Hour
	awayFirst  = 15 * time.Second
	awayNext   = 4 * time.Minute
	awayFinal  = 2 * time.Minute
)

// away tells whether such an answer means that the webhook is not there at the moment, and
// when to look again.
func (t *Try) away(status int) (time.Duration, bool) {
	switch {
	case !notThere(status), t.LastOK.IsZero(), t.Now.Sub(t.LastOK) > awayWithin:
		return 0, false
	case !notThere(t.PreviousStatus):
		return awayFirst, true
	case t.Now.Sub(t.PreviousAt) < awayFinal:
		return awayNext, true
	}
	return 0, false
}

func notThere(status int) bool { return status == 403 || status == 404 || status == 405 }

// busy tells whether a status, together with a wait, says that the whole webhook
// is to be left alone for that long.
func busy(status int) bool { return status == 429 || status == 503 }

// class is the first digit of a final status, 2 to 5; 0 for everything else.
func class(status int) int {
	if status < 200 || status > 599 {
		return 0
	}
	return status / 100
}

// settled resolves an answer that has both a status and an error class: a final
// status decides, since the failure then came after it; otherwise the class does.
// An informational status is never an answer.
func (r Response) settled() Response {
	switch {
	case class(r.Status) != 0:
		r.Class = ""
	case r.Class != "":
		r.Status = 0
	}
	return r
}

// subject begins an explanation: what came back, and why, as far as that is known.
func (r *Response) subject() string {
	switch {
	case r.Class != "" && r.Cause != "":
		return r.kind() + " (" + r.Cause + ")"
	case class(r.Status) == 3 && r.Redirect != "":
		return r.kind() + ", a redirect to " + r.Redirect + " (redirects are never followed)"
	case class(r.Status) == 3:
		return r.kind() + " (redirects are never followed)"
	}
	return r.kind()
}

// kind is what came back.
func (r *Response) kind() string {
	switch r.Class {
	case ClassTimeout:
		return "The webhook did not answer in time"
	case ClassConnect:
		return "No connection to the webhook could be made"
	case ClassDNS:
		return "The webhook's host name did not resolve"
	case ClassTLS:
		return "No TLS session with the webhook could be made"
	case ClassReset:
		return "The connection broke before the webhook answered"
	case ClassProtocol:
		return "The webhook's answer was not valid HTTP"
	case ClassBlocked:
		if r.NameBlocked {
			return "The webhook's host name leads only to addresses that may not be sent to"
		}
		return "The webhook's address is not one that may be sent to"
	case "":
		if r.Status != 0 {
			return "The webhook answered " + strconv.Itoa(r.Status)
		}
	}
	return "The webhook gave no answer"
}

// why tells the cause in a sentence of its own, as far as it is known.
func (r *Response) why() string {
	if r.Cause == "" {
		return ""
	}
	return " Why: " + r.Cause + "."
}

// completed explains a decision that completes a delivery.
func (r *Response) completed(because string) string {
	if i := r.Status - 200; r.Class == "" && because == "" && i >= 0 && i < len(explanations2xx) {
		return explanations2xx[i]
	}
	return r.subject() + ", so the message is complete for this webhook" + because + "."
}

// explanations2xx are nearly all that are ever given, made once.
var explanations2xx = func() (texts [100]string) {
	for i := range texts {
		texts[i] = "The webhook answered " + strconv.Itoa(200+i) + ", so the message is complete for this webhook."
	}
	return texts
}()
