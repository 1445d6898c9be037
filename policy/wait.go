package policy

import (
	"math"
	"strings"
	"time"
)

// The forms of an HTTP date (RFC 9110 section 5.6.7). The zone is part of the
// text: another one is not an HTTP date.
var httpDates = []string{
	"Mon, 02 Jan 2006 15:04:05 GMT",
	"Monday, 02-Jan-06 15:04:05 GMT",
	"Mon Jan _2 15:04:05 2006",
}

// maxSeconds is the longest time that a Duration holds in whole seconds.
const maxSeconds = int64(math.MaxInt64 / time.Second)

// maxClockDifference is how far a receiver's clock may be off for its dates to be read
// against it: any zone mistaken for another one, and no answer that a cache kept for days.
const maxClockDifference = 24 * time.Hour

// receiverClock is what the receiver's clock showed when it answered: the answer's Date
// where that is plausible, our own time otherwise.
func receiverClock(date string, now time.Time) time.Time {
	if date == "" {
		return now
	}
	if at, ok := parseDate(strings.Trim(date, " \t")); ok && at.Sub(now).Abs() <= maxClockDifference {
		return at
	}
	return now
}

// ParseRetryAfter reads the header Retry-After (RFC 9110 section 10.2.3): a
// number of seconds, or a date, which is a wait of 0 when it has passed. Numbers
// too large for a Duration give the longest one. Anything else, signs and
// fractions included, is no wait. Of several values, joined by commas as proxies do it,
// the longest wait counts.
func ParseRetryAfter(value string, now time.Time) (longest time.Duration, found bool) {
	if value == "" { // nearly always: each layout that does not fit makes an error
		return 0, false
	}
	for rest, more := value, true; more; {
		var part string
		part, rest, more = strings.Cut(rest, ",")
		wait, ok := parseWait(part, now)
		if !ok && more { // two forms of a date have a comma
			end, after, further := strings.Cut(rest, ",")
			if wait, ok = parseWait(part+","+end, now); ok {
				rest, more = after, further
			}
		}
		if ok {
			longest, found = max(longest, wait), true
		}
	}
	return longest, found
}

// parseWait reads one value of Retry-After.
func parseWait(value string, now time.Time) (time.Duration, bool) {
	value = strings.Trim(value, " \t")
	if s, ok := parseSeconds(value); ok {
		return s, true
	}
	at, ok := parseDate(value)
	return max(at.Sub(now), 0), ok // Sub saturates
}

func parseDate(value string) (time.Time, bool) {
	for _, layout := range httpDates {
		if at, err := time.Parse(layout, value); err == nil {
			return at, true
		}
	}
	return time.Time{}, false
}

// ParseRateLimit reads the header RateLimit and returns how long nothing is left
// of a quota. It knows the structured field of the IETF draft
// ("policy";r=0;t=30, several policies in a list) and its older form
// (limit=100, remaining=0, reset=30). Only a policy of which nothing remains
// asks for a wait; the longest one counts. A value that is neither form is
// ignored whole.
func ParseRateLimit(value string) (time.Duration, bool) {
	if value == "" { // nearly always
		return 0, false
	}
	var longest time.Duration
	var found bool
	old := map[string]string{}
	for rest, more := value, true; more; {
		var member string
		var ok bool
		if member, rest, more, ok = cutOutsideQuotes(rest, ','); !ok {
			return 0, false
		}
		name, params, ok := parseMember(member)
		if !ok {
			return 0, false
		}
		if key, v, isPair := strings.Cut(name, "="); isPair && !strings.HasPrefix(name, `"`) {
			old[key] = v
			continue
		}
		if wait, ok := quotaWait(params["r"], params["t"]); ok {
			longest, found = max(longest, wait), true
		}
	}
	if wait, ok := quotaWait(old["remaining"], old["reset"]); ok {
		longest, found = max(longest, wait), true
	}
	return longest, found
}

// quotaWait is reset when nothing remains.
func quotaWait(remaining, reset string) (time.Duration, bool) {
	left, ok := parseSeconds(remaining)
	if !ok || left != 0 {
		return 0, false
	}
	return parseSeconds(reset)
}

// parseMember splits a list member such as "policy";r=0;t=30 into what comes
// first and the parameters. A parameter without a value is empty.
func parseMember(member string) (name string, params map[string]string, ok bool) {
	params = map[string]string{}
	for rest, more, first := member, true, true; more; first = false {
		var part string
		part, rest, more, _ = cutOutsideQuotes(rest, ';') // the quotes are even, or it were no member
		part = strings.Trim(part, " \t")
		if part == "" {
			return "", nil, false
		}
		if first {
			name = part
			continue
		}
		key, v, _ := strings.Cut(part, "=")
		params[key] = v
	}
	return name, params, true
}

// cutOutsideQuotes is strings.Cut around the first sep that is not inside a quoted
// string; ok is false when a quote is left open.
func cutOutsideQuotes(s string, sep byte) (before, after string, found, ok bool) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch {
		case quoted && s[i] == '\\':
			i++
		case s[i] == '"':
			quoted = !quoted
		case s[i] == sep && !quoted:
			return s[:i], s[i+1:], true, true
		}
	}
	return s, "", false, !quoted
}

// parseSeconds reads decimal digits, and nothing else, as seconds.
func parseSeconds(s string) (time.Duration, bool) {
	if s == "" {
		return 0, false
	}
	var n int64
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = min(n*10+int64(s[i]-'0'), maxSeconds) // maxSeconds × 10 fits
	}
	return time.Duration(n) * time.Second, true
}
