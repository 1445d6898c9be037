package policy

import (
	"fmt"
	"strconv"
	"strings"
)

// actionDisable is an action of rules and of the steering header only: it
// dead-letters the message and disables the webhook.
const actionDisable = "disable"

// actionThrottle is an action of rules only: as abandon, and the answer says that the webhook
// is sent more than it takes, as a 429 does.
const actionThrottle = "throttle"

// matchAny is the Match of a rule for everything that is not 2xx.
const matchAny = "*"

// match returns the first rule that takes r.
func match(rules []Rule, r Response) (int, bool) {
	body, lowered := "", false
	for i, rule := range rules {
		if !rule.takes(r) {
			continue
		}
		if rule.BodyContains == "" {
			return i, true
		}
		if !lowered { // the body may be long: once, and only if a rule asks
			body, lowered = strings.ToLower(r.Body), true
		}
		if strings.Contains(body, strings.ToLower(rule.BodyContains)) {
			return i, true
		}
	}
	return 0, false
}

// takes tells whether Match takes r; the body is not looked at.
func (rule Rule) takes(r Response) bool {
	switch {
	case rule.Match == matchAny:
		return class(r.Status) != 2
	case r.Class != "":
		return rule.Match == string(r.Class)
	}
	lo, hi, ok := statusRange(rule.Match)
	return ok && lo <= r.Status && r.Status <= hi
}

// statusRange reads a Match that names a status (404) or a class of statuses
// (4xx), from 200 to 599.
func statusRange(match string) (lo, hi int, ok bool) {
	if len(match) != 3 || match[0] < '2' || match[0] > '5' {
		return 0, 0, false
	}
	if match[1:] == "xx" {
		lo = int(match[0]-'0') * 100
		return lo, lo + 99, true
	}
	n, err := strconv.Atoi(match)
	return n, n, err == nil
}

// matchableClass tells whether a rule can match the error class: what the
// address guard, a faulty registration and our own stopping mean is not up to
// rules.
func matchableClass(c ErrorClass) bool {
	switch c {
	case ClassTimeout, ClassConnect, ClassDNS, ClassTLS, ClassReset, ClassProtocol:
		return true
	}
	return false
}

// covers tells whether rule takes every answer that later takes, so that later
// never decides.
func (rule Rule) covers(later Rule) bool {
	if !strings.Contains(strings.ToLower(later.BodyContains), strings.ToLower(rule.BodyContains)) {
		return false
	}
	if rule.Match == later.Match {
		return true
	}
	lo, hi, isStatus := statusRange(later.Match)
	if rule.Match == matchAny {
		return !isStatus || lo >= 300
	}
	from, to, ok := statusRange(rule.Match)
	return ok && isStatus && from <= lo && hi <= to
}

// verdict of the rule at index i; rules are counted from 1 for people.
func (rule Rule) verdict(i int) verdict {
	because := fmt.Sprintf(", as rule %d says", i+1)
	switch rule.Action {
	case string(Complete):
		return verdict{action: Complete, reason: Delivered, because: because}
	case string(DeadLetter):
		return verdict{action: DeadLetter, reason: NonRetryableError, because: because}
	case actionDisable:
		return verdict{action: DeadLetter, reason: NonRetryableError, disable: true, because: " and the webhook is disabled" + because}
	}
	return verdict{action: Abandon, reason: RetryableError, because: because, throttled: rule.Action == actionThrottle}
}

// steered reads the value of the header pushlease-decision; an unknown one is as
// good as none.
func steered(value string) (verdict, bool) {
	const because = ", as the webhook asked"
	switch strings.ToLower(strings.TrimSpace(value)) {
	case string(Complete):
		return verdict{action: Complete, reason: Delivered, because: because}, true
	case string(Abandon):
		return verdict{action: Abandon, reason: RetryableError, because: because}, true
	case string(DeadLetter):
		return verdict{action: DeadLetter, reason: ReceiverAsked, because: because}, true
	case actionDisable:
		return verdict{action: DeadLetter, reason: ReceiverAsked, disable: true, because: " and the webhook is disabled" + because}, true
	}
	return verdict{}, false
}
