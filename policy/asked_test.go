package policy_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
)

// C44: some gateways throttle with 403, some with 413, and name the wait.
func TestRefusalThatNamesAWaitIsTriedAgainAfterIt(t *testing.T) {
	date := start.Add(time.Minute).Format(http.TimeFormat)
	for _, status := range []int{400, 401, 403, 404, 405, 409, 411, 413, 414, 415, 422, 431, 501, 505} {
		for _, r := range []policy.Response{{RetryAfter: "60"}, {RetryAfter: date}, {RateLimit: `"p";r=0;t=60`}, {RetryAfter: "0", RateLimit: `"p";r=0;t=60`}} {
			for _, random := range []float64{0, 0.5, 0.999999} {
				r.Status = status
				try := first(r)
				try.Random = random
				d := preset(t, "standard").Decide(try)
				if outcomeOf(d) != abandons || !d.Charged || d.Pause != 0 || d.Delay < time.Minute || d.Delay > 78*time.Second || !strings.Contains(d.Explanation, "names a wait") {
					t.Errorf("%+v: %+v", r, d)
				}
			}
		}
		for _, r := range []policy.Response{{}, {RetryAfter: "0"}, {RetryAfter: "-5"}, {RetryAfter: "abc"}, {RateLimit: `"p";r=1;t=60`}, {RateLimit: `"p";r=0;t=0`}} {
			r.Status = status
			if d := preset(t, "standard").Decide(first(r)); outcomeOf(d) != deadLetters {
				t.Errorf("%+v: %+v", r, d)
			}
		}
	}
	if d := preset(t, "standard").Decide(first(policy.Response{Status: 410, RetryAfter: "60"})); outcomeOf(d) != disables {
		t.Errorf("410 with a wait: %+v", d)
	}
}

func TestRefusalThatAlwaysNamesAWaitIsFinalAtTheEnd(t *testing.T) {
	r := policy.Response{Status: 403, RetryAfter: "60"}
	p := preset(t, "standard")
	p.MaxAttempts = 3
	var got []policy.Action
	for charged := range 3 {
		try := first(r)
		try.Charged = charged
		d := p.Decide(try)
		got = append(got, d.Action)
		if d.Action == policy.DeadLetter && d.Reason != policy.NonRetryableError {
			t.Errorf("%+v", d)
		}
	}
	if !slices.Equal(got, []policy.Action{policy.Abandon, policy.Abandon, policy.DeadLetter}) {
		t.Errorf("%v", got)
	}
	old := first(r)
	old.FirstAt = start.Add(-24 * time.Hour)
	if d := p.Decide(old); d.Action != policy.DeadLetter || d.Reason != policy.NonRetryableError {
		t.Errorf("after its age: %+v", d)
	}
	p.Rules = []policy.Rule{{Match: "403", Action: "dead-letter"}}
	if d := p.Decide(first(r)); outcomeOf(d) != deadLetters {
		t.Errorf("beside a rule: %+v", d)
	}
	p.Rules, p.RetryAfterCap = nil, 0
	if d := p.Decide(first(r)); outcomeOf(d) != deadLetters {
		t.Errorf("nobody may ask: %+v", d)
	}
}

// C52: one answer spends a third of what is left at most, with all jitter, so that a
// receiver that heals gets the message; others of the webhook wait 15 minutes at most.
func TestAbsurdWaitLeavesTimeForFurtherAttempts(t *testing.T) {
	for _, ask := range []string{"86400000", "999999999999", "99999999999999999999", "Fri, 31 Dec 9999 23:59:59 GMT"} {
		for _, name := range policy.PresetNames() {
			p := preset(t, name)
			for _, status := range []int{403, 429, 500, 503} {
				for _, expires := range []time.Time{{}, start.Add(10 * time.Minute)} {
					for _, random := range []float64{0, 0.999999} {
						posts, now := 1, start
						for ; posts < 3 && p.MaxAttempts > 2; posts++ {
							d := p.Decide(policy.Try{
								Now: now, FirstAt: start, ExpiresAt: expires, Random: random,
								Response: policy.Response{Status: status, RetryAfter: ask},
							})
							longest := p.Backoff.Delay(0, random)
							left := start.Add(time.Duration(p.MaxAge)).Sub(now)
							if !expires.IsZero() {
								left = min(left, expires.Add(-policy.ExpiryMargin).Sub(now))
							}
							if d.Action != policy.Abandon || d.Delay > max(left/3, longest) || d.Delay < min(left/5, left/3).Truncate(time.Second) && d.Delay < time.Minute || d.Pause > 15*time.Minute {
								t.Fatalf("%s, %s, %d, POST %d: %+v with %s left", ask, name, status, posts, d, left)
							}
							now = d.NextAt
						}
					}
				}
			}
		}
	}
}

// Those that are asked to wait for longer than they may do not all come back at the same time.
func TestAbsurdWaitsAreSpread(t *testing.T) {
	p := preset(t, "standard")
	shortest, longest := first(policy.Response{Status: 503, RetryAfter: "86400000"}), first(policy.Response{Status: 503, RetryAfter: "86400000"})
	longest.Random = 0.999999
	if a, b := p.Decide(shortest).Delay, p.Decide(longest).Delay; b < a*5/4 {
		t.Errorf("%s to %s", a, b)
	}
}

func TestJitterNeverPassesTheCapOfAskedWaits(t *testing.T) {
	p := preset(t, "standard")
	p.RetryAfterCap, p.PauseCap = policy.Duration(100*time.Second), policy.Duration(40*time.Second)
	for ask := range 300 {
		for _, random := range []float64{0, 0.3, 0.999999} {
			try := first(policy.Response{Status: 503, RetryAfter: strconv.Itoa(ask)})
			try.Random = random
			d := p.Decide(try)
			if asked := time.Duration(ask) * time.Second; d.Delay > 100*time.Second || asked <= 100*time.Second && d.Delay < asked || d.Pause != min(max(asked, time.Second), 40*time.Second) {
				t.Errorf("%d s asked: %+v", ask, d)
			}
		}
	}
}

func TestPolicyStoredWithoutAPauseCapHasTheDefault(t *testing.T) {
	var old, own policy.Policy
	if err := json.Unmarshal([]byte(`{"preset":"standard","max_attempts":8}`), &old); err != nil || old.PauseCap != policy.DefaultPauseCap || old.MaxAttempts != 8 {
		t.Errorf("%+v, %v", old, err)
	}
	if err := json.Unmarshal([]byte(`{"pause_cap":"1m0s"}`), &own); err != nil || own.PauseCap != policy.Duration(time.Minute) {
		t.Errorf("%+v, %v", own, err)
	}
}

// C61: a date is read against the receiver's own clock, which its answer shows.
func TestDatesAreReadAgainstTheReceiversClock(t *testing.T) {
	for name, c := range map[string]struct {
		date string
		at   time.Duration // of Retry-After, from our now
		want time.Duration
	}{
		"an hour ahead":    {start.Add(time.Hour).Format(http.TimeFormat), time.Hour + 90*time.Second, 90 * time.Second},
		"an hour behind":   {start.Add(-time.Hour).Format(http.TimeFormat), -time.Hour + 90*time.Second, 90 * time.Second},
		"right":            {start.Format(http.TimeFormat), 90 * time.Second, 90 * time.Second},
		"no Date":          {"", 90 * time.Second, 90 * time.Second},
		"no valid Date":    {"yesterday", 90 * time.Second, 90 * time.Second},
		"an absurd Date":   {"Thu, 01 Jan 1970 00:00:00 GMT", 90 * time.Second, 90 * time.Second},
		"a Date of 1 year": {start.Add(365 * 24 * time.Hour).Format(http.TimeFormat), 90 * time.Second, 90 * time.Second},
	} {
		d := preset(t, "standard").Decide(first(policy.Response{
			Status: 503, Date: c.date, RetryAfter: start.Add(c.at).Format(http.TimeFormat),
		}))
		if d.Delay != c.want || d.Pause != c.want || d.Reason != policy.ReceiverBusy {
			t.Errorf("%s: %+v, want %s", name, d, c.want)
		}
	}
	seconds := first(policy.Response{Status: 503, Date: start.Add(time.Hour).Format(http.TimeFormat), RetryAfter: "10, 60"})
	if d := preset(t, "standard").Decide(seconds); d.Delay != time.Minute {
		t.Errorf("the longest of two: %+v", d)
	}
}

// C42: what a resolver says about a name can heal; what the URL says can't.
func TestNameThatPointsInwardsIsRetriedAndEndsAsBlocked(t *testing.T) {
	p := preset(t, "standard")
	p.MaxAttempts, p.AllowSteering = 3, true
	for charged := range 3 {
		try := first(policy.Response{Class: policy.ClassBlocked, NameBlocked: true, Steering: "complete"})
		try.Charged = charged
		want := abandons
		if charged == 2 {
			want = outcome{policy.DeadLetter, policy.BlockedAddress, false}
		}
		if d := p.Decide(try); outcomeOf(d) != want || !d.Charged || !strings.Contains(d.Explanation, "host name leads only to addresses") {
			t.Errorf("attempt %d: %+v", charged+1, d)
		}
	}
	old := first(policy.Response{Class: policy.ClassBlocked, NameBlocked: true})
	old.FirstAt = start.Add(-24 * time.Hour)
	if d := p.Decide(old); d.Reason != policy.BlockedAddress {
		t.Errorf("after its age: %+v", d)
	}
}

// C103: an application that is being swapped answers 404 or 405 for a while, and one that is stopped 403 on Azure.
func TestWebhookThatTookMessagesLatelyIsNotGoneWithA404(t *testing.T) {
	decide := func(status int, change func(*policy.Try)) policy.Decision {
		try := first(policy.Response{Status: status})
		try.LastOK = start.Add(-time.Minute)
		if change != nil {
			change(&try)
		}
		p := preset(t, "standard")
		return p.Decide(try)
	}
	for _, status := range []int{403, 404, 405} {
		d := decide(status, nil)
		if outcomeOf(d) != abandons || d.Delay != 15*time.Second || !d.Charged || !strings.Contains(d.Explanation, "took messages lately") {
			t.Errorf("first %d: %+v", status, d)
		}
		second := decide(status, func(try *policy.Try) {
			try.Charged, try.PreviousStatus, try.PreviousAt = 1, 404, start.Add(-20*time.Second)
		})
		if outcomeOf(second) != abandons || second.Delay != 4*time.Minute {
			t.Errorf("second %d: %+v", status, second)
		}
		third := decide(status, func(try *policy.Try) {
			try.Charged, try.PreviousStatus, try.PreviousAt = 2, 405, start.Add(-4*time.Minute)
		})
		if outcomeOf(third) != deadLetters {
			t.Errorf("third %d: %+v", status, third)
		}
		after := decide(status, func(try *policy.Try) {
			try.Charged, try.PreviousStatus, try.PreviousAt = 5, 503, start.Add(-4*time.Minute)
		})
		if outcomeOf(after) != abandons || after.Delay != 15*time.Second {
			t.Errorf("%d after an outage: %+v", status, after)
		}
	}
	for name, d := range map[string]policy.Decision{
		"another status":   decide(401, nil),
		"never a 2xx":      decide(404, func(try *policy.Try) { try.LastOK = time.Time{} }),
		"over an hour ago": decide(404, func(try *policy.Try) { try.LastOK = start.Add(-time.Hour - time.Second) }),
		"attempts used up": decide(404, func(try *policy.Try) { try.Charged = 7 }),
	} {
		if outcomeOf(d) != deadLetters {
			t.Errorf("%s: %+v", name, d)
		}
	}
	p := preset(t, "standard")
	p.Rules = []policy.Rule{{Match: "404", Action: "dead-letter"}}
	try := first(policy.Response{Status: 404})
	try.LastOK = start
	if d := p.Decide(try); outcomeOf(d) != deadLetters {
		t.Errorf("beside a rule: %+v", d)
	}
}

// All three attempts of a message that alone is answered 404 fall within ten minutes.
func TestMessageThatAloneIsRefusedEndsWithinTenMinutes(t *testing.T) {
	for _, name := range []string{"standard", "short", "patient"} {
		p := preset(t, name)
		try := first(policy.Response{Status: 404})
		try.Random = 0.999999
		for posts := 1; ; posts++ {
			try.LastOK = try.Now
			d := p.Decide(try)
			if d.Action == policy.DeadLetter {
				if posts != 3 || try.Now.Sub(start) > 10*time.Minute {
					t.Errorf("%s: %d POSTs in %s", name, posts, try.Now.Sub(start))
				}
				break
			}
			try.PreviousStatus, try.PreviousAt, try.Now, try.Charged = 404, try.Now, d.NextAt, posts
		}
	}
}

// An answer that took the last of a limit says so: the next message would be refused. A reset of a second may be one of milliseconds, rounded up.
func TestAnAnswerThatTookTheLastOfALimitPausesItsWebhook(t *testing.T) {
	for _, tt := range []struct {
		name  string
		r     policy.Response
		pause time.Duration
	}{
		{"nothing left", policy.Response{Status: 200, RateLimit: `"p";r=0;t=12`}, 12 * time.Second},
		{"nothing left, the older form", policy.Response{Status: 204, RateLimit: "limit=5, remaining=0, reset=12"}, 12 * time.Second},
		{"of one of two", policy.Response{Status: 200, RateLimit: `"minute";r=0;t=12, "day";r=900;t=4000`}, 12 * time.Second},
		{"by a rule", policy.Response{Status: 409, RateLimit: `"p";r=0;t=12`}, 12 * time.Second},
		{"a day", policy.Response{Status: 200, RateLimit: `"p";r=0;t=86400`}, 15 * time.Minute},
		{"something left", policy.Response{Status: 200, RateLimit: `"p";r=1;t=12`}, 0},
		{"a second", policy.Response{Status: 200, RateLimit: `"p";r=0;t=1`}, 0},
		{"no such header", policy.Response{Status: 200, RateLimit: "soon"}, 0},
		{"what another resource is polled at", policy.Response{Status: 202, RetryAfter: "12"}, 0},
		{"that, and a limit", policy.Response{Status: 202, RetryAfter: "99", RateLimit: `"p";r=0;t=12`}, 12 * time.Second},
	} {
		p := preset(t, "standard")
		p.Rules = []policy.Rule{{Match: "409", Action: "complete"}}
		d := p.Decide(first(tt.r))
		if d.Action != policy.Complete || d.Pause != tt.pause || strings.Contains(d.Explanation, "nothing is left of its limit") != (tt.pause > 0) {
			t.Errorf("%s: %+v", tt.name, d)
		}
		p.RetryAfterCap = 0
		if d := p.Decide(first(tt.r)); d.Action != policy.Complete || d.Pause != 0 {
			t.Errorf("%s, and nobody may ask: %+v", tt.name, d)
		}
	}
}
