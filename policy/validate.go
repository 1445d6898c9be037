package policy

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"
)

// The limits of a Policy. They are far beyond what makes sense and keep a record
// of one small.
const (
	MaxMaxAttempts  = 1000
	MaxMaxAge       = 30 * 24 * time.Hour
	MaxMaxWaits     = 1000
	MaxFactor       = 1000
	MaxDelays       = 100
	MaxRules        = 100
	MaxBodyContains = 256 // bytes
)

// FieldError says what is wrong with one setting. Field is its path in JSON, such
// as rules[2].match; Cure says what to write instead. With names the settings that it does not go
// with: any of them may be the one that was just changed.
type FieldError struct {
	Field   string
	Problem string
	Cure    string
	With    []string
}

func (e FieldError) Error() string { return e.Field + ": " + e.Problem + "; " + e.Cure }

// FieldErrors lists the FieldErrors that err joins, for an answer that names each
// field.
func FieldErrors(err error) []FieldError {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []FieldError
		for _, e := range joined.Unwrap() {
			all = append(all, FieldErrors(e)...)
		}
		return all
	}
	if e, ok := errors.AsType[FieldError](err); ok {
		return []FieldError{e}
	}
	return nil
}

// problems collects FieldErrors.
type problems []error

func (ps *problems) add(field, cure, problem string, args ...any) {
	ps.addWith(nil, field, cure, problem, args...)
}

func (ps *problems) addWith(with []string, field, cure, problem string, args ...any) {
	*ps = append(*ps, FieldError{Field: field, Problem: fmt.Sprintf(problem, args...), Cure: cure, With: with})
}

// Validate returns everything that is wrong with p, joined: each a FieldError.
// It refuses what cannot be meant, too: settings that contradict each other and
// rules that can never decide.
func (p Policy) Validate() error {
	var ps problems
	if _, err := Preset(p.Preset); err != nil {
		ps = append(ps, err)
	}
	ps.checkCount("max_attempts", p.MaxAttempts, 1, MaxMaxAttempts)
	ps.checkCount("max_waits", p.MaxWaits, 0, MaxMaxWaits)
	if p.MaxAge <= 0 || p.MaxAge > Duration(MaxMaxAge) {
		ps.add("max_age", fmt.Sprintf("use more than 0s and at most %s", MaxMaxAge), "%s is out of range", p.MaxAge)
	}
	if p.RetryAfterCap < 0 || p.RetryAfterCap > Duration(MaxDelay) {
		ps.add("retry_after_cap", fmt.Sprintf("use 0s to %s", MaxDelay), "%s is out of range", p.RetryAfterCap)
	}
	if p.PauseCap < Duration(time.Second) || p.PauseCap > Duration(MaxPause) {
		ps.add("pause_cap", fmt.Sprintf("use 1s to %s", MaxPause), "%s is out of range", p.PauseCap)
	}
	p.Backoff.check(&ps)
	if len(ps) == 0 && p.MaxAttempts > 1 && p.Backoff.Delay(0, 0) > time.Duration(p.MaxAge) {
		ps.addWith([]string{"backoff.delays", "backoff.initial", "backoff.jitter", "max_attempts", "preset"}, "max_age", "use a longer max_age, a shorter first delay, or max_attempts 1",
			"no second attempt can begin within the max_age of %s, since the first delay is %s", p.MaxAge, p.Backoff.Delay(0, 0))
	}
	checkRules(&ps, p.Rules)
	return errors.Join(ps...)
}

func (ps *problems) checkCount(field string, n, low, high int) {
	if n < low || n > high {
		ps.add(field, fmt.Sprintf("use %d to %d", low, high), "%d is out of range", n)
	}
}

func (ps *problems) checkDelay(field string, d Duration) {
	if d <= 0 || d > Duration(MaxDelay) {
		ps.add(field, fmt.Sprintf("use more than 0s and at most %s, the longest that a queue can hide a message", MaxDelay), "%s is out of range", d)
	}
}

func (b Backoff) check(ps *problems) {
	if !(b.Jitter >= 0 && b.Jitter <= 1) { // not so when it is NaN
		ps.add("backoff.jitter", "use a share from 0 to 1, such as 0.3", "%v is out of range", b.Jitter)
	}
	if len(b.Delays) > 0 {
		b.checkList(ps)
		return
	}
	ps.checkDelay("backoff.initial", b.Initial)
	ps.checkDelay("backoff.max", b.Max)
	if !(b.Factor >= 1 && b.Factor <= MaxFactor) {
		ps.add("backoff.factor", fmt.Sprintf("use 1 (constant delays) to %d, such as 2", MaxFactor), "%v is out of range", b.Factor)
	}
	if b.Initial > 0 && b.Max > 0 && b.Max < b.Initial {
		ps.addWith([]string{"backoff.initial"}, "backoff.max", "use a backoff.max of at least backoff.initial", "the longest delay, %s, is shorter than the first one, %s", b.Max, b.Initial)
	}
}

func (b Backoff) checkList(ps *problems) {
	const cure = "leave it out, or leave out backoff.delays"
	if b.Initial != 0 {
		ps.add("backoff.initial", cure, "it has no effect beside backoff.delays")
	}
	if b.Factor != 0 || math.IsNaN(b.Factor) {
		ps.add("backoff.factor", cure, "it has no effect beside backoff.delays")
	}
	if b.Max != 0 {
		ps.add("backoff.max", cure, "it has no effect beside backoff.delays")
	}
	if len(b.Delays) > MaxDelays {
		ps.add("backoff.delays", fmt.Sprintf("use at most %d; the last one repeats", MaxDelays), "there are %d delays", len(b.Delays))
		return
	}
	for i, d := range b.Delays {
		ps.checkDelay(fmt.Sprintf("backoff.delays[%d]", i), d)
	}
}

func checkRules(ps *problems, rules []Rule) {
	if len(rules) > MaxRules {
		ps.add("rules", fmt.Sprintf("use at most %d; one rule can match a whole class, such as 4xx", MaxRules), "there are %d rules", len(rules))
		return
	}
	for i, rule := range rules {
		if !rule.check(ps, fmt.Sprintf("rules[%d]", i)) {
			continue
		}
		for j, earlier := range rules[:i] {
			if earlier.covers(rule) {
				ps.add(fmt.Sprintf("rules[%d].match", i), "leave it out, or move it before that rule",
					"the rule never decides, since rules[%d] takes every answer that it could take", j)
				break
			}
		}
	}
}

// check tells whether the rule's match and text are sound.
func (rule Rule) check(ps *problems, path string) bool {
	switch rule.Action {
	case string(Complete), string(Abandon), string(DeadLetter), actionDisable, actionThrottle:
	default:
		ps.add(path+".action", "use complete, abandon, throttle, dead-letter or disable", "%.40q is no action", rule.Action)
	}
	before := len(*ps)
	_, _, isStatus := statusRange(rule.Match)
	isClass := matchableClass(ErrorClass(rule.Match))
	if !isStatus && !isClass && rule.Match != matchAny {
		ps.add(path+".match", "use a status from 200 to 599, a class such as 4xx, one of timeout, connect, dns, tls, reset, protocol, or *",
			"%.40q matches nothing", rule.Match)
	}
	switch text := rule.BodyContains; {
	case text == "":
	case len(text) > MaxBodyContains:
		ps.add(path+".body_contains", fmt.Sprintf("use at most %d bytes", MaxBodyContains), "the text is %d bytes long", len(text))
	case !utf8.ValidString(text):
		ps.add(path+".body_contains", "write it in UTF-8", "the text is not valid UTF-8")
	case strings.TrimSpace(text) == "":
		ps.add(path+".body_contains", "write the text to look for, or leave it out", "the text is blank")
	case isClass:
		ps.add(path+".body_contains", "leave it out, or match a status", "there is no answer to look at after %s", rule.Match)
	}
	return len(*ps) == before
}
