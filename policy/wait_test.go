package policy_test

import (
	"math"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
)

func TestParseRetryAfter(t *testing.T) {
	now := time.Date(1994, 11, 6, 8, 48, 37, 500_000_000, time.UTC)
	const longest = math.MaxInt64 / time.Second * time.Second
	minute := 59*time.Second + 500*time.Millisecond
	tests := []struct {
		value string
		want  time.Duration
		ok    bool
	}{
		{"0", 0, true},
		{"120", 120 * time.Second, true},
		{" 120\t", 120 * time.Second, true},
		{"007", 7 * time.Second, true},
		{"9223372036", 9223372036 * time.Second, true},
		{"9223372037", longest, true},
		{"9223372036854775808", longest, true},
		{"99999999999999999999999999999999999999999999", longest, true},
		{"Sun, 06 Nov 1994 08:49:37 GMT", minute, true},
		{"Sunday, 06-Nov-94 08:49:37 GMT", minute, true},
		{"Sun Nov  6 08:49:37 1994", minute, true},
		{" Sun, 06 Nov 1994 08:49:37 GMT ", minute, true},
		{"Sun, 06 Nov 1994 08:48:37 GMT", 0, true},
		{"Thu, 01 Jan 1970 00:00:00 GMT", 0, true},
		{"Fri, 31 Dec 9999 23:59:59 GMT", math.MaxInt64, true},
		{"", 0, false},
		{" ", 0, false},
		{"-1", 0, false},
		{"+5", 0, false},
		{"1.5", 0, false},
		{"1e3", 0, false},
		{"0x10", 0, false},
		{"10s", 0, false},
		{"1 0", 0, false},
		{"10, 20", 20 * time.Second, true}, // several lines, longest first, last or alone
		{"60,10", 60 * time.Second, true},
		{"junk, 60", 60 * time.Second, true},
		{"60, -5,", 60 * time.Second, true},
		{",, 60", 60 * time.Second, true},
		{"10, Sun, 06 Nov 1994 08:49:37 GMT", minute, true},
		{"Sunday, 06-Nov-94 08:49:37 GMT, 10", minute, true},
		{"Sun, 06 Nov 1994 08:49:37 GMT, Sun Nov  6 08:50:37 1994, Sun, 06 Nov 1994 08:49:47 GMT", minute + time.Minute, true},
		{"Sun, 120", 120 * time.Second, true},
		{"junk, nonsense", 0, false},
		{"Sun,", 0, false},
		{"١٢", 0, false},
		{"soon", 0, false},
		{"Sun, 06 Nov 1994 08:49:37 PST", 0, false},
		{"Sun, 06 Nov 1994 08:49:37", 0, false},
		{"Sunday, 06-Nov-94 08:49:37 CET", 0, false},
		{"1994-11-06T08:49:37Z", 0, false},
		{"Sun, 31 Feb 1994 08:49:37 GMT", 0, false},
		{"12\x00", 0, false},
	}
	for _, tt := range tests {
		got, ok := policy.ParseRetryAfter(tt.value, now)
		if got != tt.want || ok != tt.ok {
			t.Errorf("%q: %s, %v; want %s, %v", tt.value, got, ok, tt.want, tt.ok)
		}
	}
}

func TestParseRateLimit(t *testing.T) {
	const longest = math.MaxInt64 / time.Second * time.Second
	tests := []struct {
		value string
		want  time.Duration
		ok    bool
	}{
		{`"p";r=0;t=30`, 30 * time.Second, true},
		{` "p" ; r=0 ; t=30 `, 30 * time.Second, true},
		{`p;r=0;t=30`, 30 * time.Second, true},
		{`"p";t=30;r=0`, 30 * time.Second, true},
		{`"p";r=0;t=30;pk=:cHI=:`, 30 * time.Second, true},
		{`"p";r=0;t=30;flag`, 30 * time.Second, true},
		{`"p";r=1;t=30`, 0, false},
		{`"p";r=0`, 0, false},
		{`"p";t=30`, 0, false},
		{`"p"`, 0, false},
		{`"a";r=0;t=30, "b";r=0;t=90, "c";r=5;t=3600`, 90 * time.Second, true},
		{`"a";r=5;t=30,"b";r=7;t=90`, 0, false},
		{`"a, b;r=9\"";r=0;t=30`, 30 * time.Second, true},
		{`"limit=1, remaining=0, reset=5";r=3;t=9`, 0, false},
		{`"a";r=0;t=99999999999999999999`, longest, true},
		{`"a";r=0;t=-5`, 0, false},
		{`"a";r=-0;t=5`, 0, false},
		{`"a";r="0";t=5`, 0, false},
		{`"a;r=0;t=30`, 0, false},
		{`"a";r=0;t=30,`, 0, false},
		{`"a";;r=0;t=30`, 0, false},
		{`limit=100, remaining=0, reset=30`, 30 * time.Second, true},
		{`limit=100,remaining=0,reset=30`, 30 * time.Second, true},
		{`reset=30, remaining=0`, 30 * time.Second, true},
		{`limit=100;w=60, remaining=0, reset=30`, 30 * time.Second, true},
		{`limit=100, remaining=1, reset=30`, 0, false},
		{`limit=100, reset=30`, 0, false},
		{`remaining=0`, 0, false},
		{`100`, 0, false},
		{``, 0, false},
		{`,`, 0, false},
		{`;`, 0, false},
		{`=`, 0, false},
		{`"\`, 0, false},
	}
	for _, tt := range tests {
		got, ok := policy.ParseRateLimit(tt.value)
		if got != tt.want || ok != tt.ok {
			t.Errorf("%s: %s, %v; want %s, %v", tt.value, got, ok, tt.want, tt.ok)
		}
	}
}

func FuzzParseRetryAfter(f *testing.F) {
	for _, s := range []string{"120", "Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994", "-1", "99999999999999999999"} {
		f.Add(s, int64(784111777))
	}
	p := preset(f, "standard")
	f.Fuzz(func(t *testing.T, value string, unix int64) {
		now := time.Unix(unix%(1<<40), 0)
		got, ok := policy.ParseRetryAfter(value, now)
		if got < 0 || !ok && got != 0 {
			t.Fatalf("%q: %s, %v", value, got, ok)
		}
		d := p.Decide(policy.Try{Now: now, FirstAt: now, Response: policy.Response{Status: 503, RetryAfter: value}})
		checkBounds(t, p, d, now, time.Time{})
	})
}

func FuzzParseRateLimit(f *testing.F) {
	for _, s := range []string{`"p";r=0;t=30`, `"a";r=0;t=30, "b";r=5;t=100`, `limit=100, remaining=0, reset=30`, `"a, \"b";r=0;t=1`, `"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		got, ok := policy.ParseRateLimit(value)
		if got < 0 || !ok && got != 0 {
			t.Fatalf("%q: %s, %v", value, got, ok)
		}
		// A further policy of which something is left changes nothing.
		if again, still := policy.ParseRateLimit(value + `, "more";r=1;t=99`); ok && (again != got || !still) {
			t.Fatalf("%q: %s, with one more policy %s, %v", value, got, again, still)
		}
	})
}
