package web

import (
	"regexp"
	"strings"
	"time"
)

// TimeCure says how a time is written.
const TimeCure = `write it as RFC 3339 with a zone, such as 2026-01-31T15:04:05Z or 2026-01-31T16:04:05+01:00 (in a query a + is written %2B)`

// The bounds between which everything is that is kept here. A store is asked for no other time:
// what is before the first or after the last is the same as that.
var (
	firstTime = time.Unix(0, 0).UTC()
	lastTime  = time.Date(9998, time.December, 31, 23, 59, 59, 0, time.UTC)
)

// rfc3339 is its form; time.Parse takes others too.
var rfc3339 = regexp.MustCompile(`^(\d{4}-\d\d-\d\dT\d\d:\d\d:)(\d\d)((?:\.\d+)?(?:Z|[+-]\d\d:\d\d))$`)

// ParseTime reads any time of RFC 3339: of the years 0 to 9999, with t and z in either case, and
// with a leap second, which is the second after it.
func ParseTime(text string) (time.Time, bool) {
	parts := rfc3339.FindStringSubmatch(strings.ToUpper(text))
	if parts == nil {
		return time.Time{}, false
	}
	var leap time.Duration
	if parts[2] == "60" {
		parts[2], leap = "59", time.Second
	}
	t, err := time.Parse(time.RFC3339, parts[1]+parts[2]+parts[3])
	return t.Add(leap).UTC(), err == nil
}

// ReadSpan reads from and until, which are empty where they are not given and zero times then.
func ReadSpan(from, until string) (since, before time.Time, problems []FieldError) {
	since, okFrom := ParseTime(from)
	before, okUntil := ParseTime(until)
	switch {
	case from != "" && !okFrom:
		problems = append(problems, FieldError{"from", "is not a time", TimeCure})
	case okFrom && okUntil && !since.Before(before):
		problems = append(problems, FieldError{"until", "is not after from", "from is inclusive and until exclusive; give a later until"})
	}
	if until != "" && !okUntil {
		problems = append(problems, FieldError{"until", "is not a time", TimeCure})
	}
	return sinceBound(since), beforeBound(before, okUntil), problems
}

// sinceBound is from as stores are asked for it. The year 1, which some clients write for none, is none:
// it must not pass for a filter.
func sinceBound(t time.Time) time.Time {
	switch {
	case !t.After(firstTime):
		return time.Time{}
	case t.After(lastTime):
		return lastTime
	}
	return t
}

// beforeBound is until as stores are asked for it.
func beforeBound(t time.Time, given bool) time.Time {
	switch {
	case !given || t.After(lastTime):
		return time.Time{}
	case t.Before(firstTime):
		return firstTime
	}
	return t
}
