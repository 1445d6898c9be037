package policy_test

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
)

var start = time.Date(2026, 3, 14, 9, 26, 53, 0, time.UTC)

func preset(t testing.TB, name string) policy.Policy {
	t.Helper()
	p, err := policy.Preset(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// first is the first try of a delivery, without jitter.
func first(r policy.Response) policy.Try {
	return policy.Try{Now: start, FirstAt: start, Response: r}
}

// outcome is what a row of the default table says.
type outcome struct {
	action  policy.Action
	reason  policy.Reason
	disable bool
}

var (
	completes   = outcome{policy.Complete, policy.Delivered, false}
	abandons    = outcome{policy.Abandon, policy.RetryableError, false}
	deadLetters = outcome{policy.DeadLetter, policy.NonRetryableError, false}
	disables    = outcome{policy.DeadLetter, policy.WebhookGone, true}
)

func outcomeOf(d policy.Decision) outcome { return outcome{d.Action, d.Reason, d.Disable} }

// expected is the default table and case C24, written down a second time.
func expected(status int) outcome {
	const refused = " 400 401 403 404 405 409 411 413 414 415 422 431 501 505 "
	switch {
	case status >= 200 && status <= 299:
		return completes
	case status == 410:
		return disables
	case status > 0 && strings.Contains(refused, " "+strconv.Itoa(status)+" "):
		return deadLetters
	}
	return abandons
}

var oneSentence = regexp.MustCompile(`^[A-Z][^.]*([0-9]\.[0-9]+[^.]*)*\.$`)

func TestEveryStatusHasItsRowInTheDefaultTable(t *testing.T) {
	statuses := []int{-1, 0, 600, 999, 1 << 30}
	for s := 100; s <= 599; s++ {
		statuses = append(statuses, s)
	}
	p := preset(t, "standard")
	for _, status := range statuses {
		d := p.Decide(first(policy.Response{Status: status}))
		if got, want := outcomeOf(d), expected(status); got != want {
			t.Errorf("status %d: %v, want %v", status, got, want)
		}
		if !d.Charged || d.Pause != 0 {
			t.Errorf("status %d: charged %v, pause %s; want a charged attempt and no pause", status, d.Charged, d.Pause)
		}
		if wantNext := d.Action == policy.Abandon; wantNext != !d.NextAt.IsZero() || wantNext != (d.Delay == 5*time.Second) {
			t.Errorf("status %d: %s with next %v, delay %s", status, d.Action, d.NextAt, d.Delay)
		}
		if !oneSentence.MatchString(d.Explanation) {
			t.Errorf("status %d: explanation is not one sentence: %q", status, d.Explanation)
		}
	}
}

func TestEveryErrorClassHasItsRowInTheDefaultTable(t *testing.T) {
	want := map[policy.ErrorClass]outcome{
		policy.ClassTimeout:       abandons,
		policy.ClassConnect:       abandons,
		policy.ClassDNS:           abandons,
		policy.ClassTLS:           abandons,
		policy.ClassReset:         abandons,
		policy.ClassProtocol:      abandons,
		policy.ClassBlocked:       {policy.DeadLetter, policy.BlockedAddress, false},
		policy.ClassRequest:       {policy.NoVerdict, policy.InternalFault, false},
		policy.ClassToken:         {policy.Hold, policy.NoToken, false},
		policy.ClassCanceled:      {policy.NoVerdict, policy.InternalFault, false},
		"a class of next year":    abandons,
		policy.ErrorClass("\x00"): abandons,
	}
	for _, c := range policy.ErrorClasses() {
		if _, ok := want[c]; !ok {
			t.Errorf("class %s has no row in this test", c)
		}
	}
	p := preset(t, "standard")
	for c, w := range want {
		for _, status := range []int{0, 100, 103, 600} { // never an answer beside a class
			d := p.Decide(first(policy.Response{Class: c, Status: status}))
			if got := outcomeOf(d); got != w {
				t.Errorf("class %q with status %d: %v, want %v", c, status, got, w)
			}
			if d.Charged != (c != policy.ClassCanceled && c != policy.ClassRequest && c != policy.ClassToken) {
				t.Errorf("class %q: charged %v", c, d.Charged)
			}
			if !oneSentence.MatchString(d.Explanation) || strings.Contains(d.Explanation, "next year") {
				t.Errorf("class %q: explanation %q", c, d.Explanation)
			}
		}
	}
}

func TestStatusDecidesEvenWhenTheBodyBroke(t *testing.T) {
	p := preset(t, "standard")
	for _, c := range policy.ErrorClasses() {
		for _, status := range []int{200, 204, 302, 400, 410, 500} {
			d := p.Decide(first(policy.Response{Status: status, Class: c}))
			if got, want := outcomeOf(d), expected(status); got != want {
				t.Errorf("status %d, then %s: %v, want %v", status, c, got, want)
			}
		}
	}
}

func TestBusyReceiverIsWaitedForWithoutCharge(t *testing.T) {
	date := start.Add(90 * time.Second).Format("Mon, 02 Jan 2006 15:04:05 GMT")
	tests := []struct {
		name        string
		status      int
		retryAfter  string
		rateLimit   string
		waits       int
		wantReason  policy.Reason
		wantDelay   time.Duration
		wantPause   time.Duration
		wantCharged bool
	}{
		{"429 with seconds", 429, "120", "", 0, policy.ReceiverBusy, 120 * time.Second, 120 * time.Second, false},
		{"503 with a date", 503, date, "", 0, policy.ReceiverBusy, 90 * time.Second, 90 * time.Second, false},
		{"429 with a rate limit", 429, "", `"p";r=0;t=30`, 0, policy.ReceiverBusy, 30 * time.Second, 30 * time.Second, false},
		{"the longer of both", 429, "10", `"p";r=0;t=30`, 0, policy.ReceiverBusy, 30 * time.Second, 30 * time.Second, false},
		{"shorter than the schedule", 429, "2", "", 0, policy.ReceiverBusy, 5 * time.Second, 2 * time.Second, false},
		{"zero pauses for a second", 429, "0", "", 0, policy.ReceiverBusy, 5 * time.Second, time.Second, false},
		{"the last uncharged wait", 429, "120", "", 9, policy.ReceiverBusy, 120 * time.Second, 120 * time.Second, false},
		{"waits used up", 429, "120", "", 10, policy.RetryableError, 120 * time.Second, 120 * time.Second, true},
		{"429 without a wait", 429, "", "", 0, policy.RetryableError, 5 * time.Second, 0, true},
		{"429 with nonsense", 429, "soon", "r=0", 0, policy.RetryableError, 5 * time.Second, 0, true},
		{"quota left", 429, "", `"p";r=3;t=30`, 0, policy.RetryableError, 5 * time.Second, 0, true},
		{"500 is not busy", 500, "120", "", 0, policy.RetryableError, 120 * time.Second, 0, true},
		{"302 may ask too", 302, "120", "", 0, policy.RetryableError, 120 * time.Second, 0, true},
		{"the cap", 503, "3600", "", 0, policy.ReceiverBusy, time.Hour, 15 * time.Minute, false},
		{"beyond the cap, spread below it", 503, "99999999999999999999", "", 0, policy.ReceiverBusy, 46*time.Minute + 10*time.Second, 15 * time.Minute, false},
	}
	p := preset(t, "standard")
	p.RetryAfterCap = policy.Duration(time.Hour)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			try := first(policy.Response{Status: tt.status, RetryAfter: tt.retryAfter, RateLimit: tt.rateLimit})
			try.Waits = tt.waits
			d := p.Decide(try)
			if d.Action != policy.Abandon || d.Reason != tt.wantReason || d.Delay != tt.wantDelay || d.Pause != tt.wantPause || d.Charged != tt.wantCharged {
				t.Errorf("got %+v", d)
			}
			if !d.NextAt.Equal(start.Add(tt.wantDelay)) {
				t.Errorf("next at %s, want %s later than now", d.NextAt, tt.wantDelay)
			}
		})
	}
}

func TestLastAttemptStillWaitsForABusyReceiver(t *testing.T) {
	p := preset(t, "standard")
	try := first(policy.Response{Status: 429, RetryAfter: "60"})
	try.Charged = p.MaxAttempts - 1
	if d := p.Decide(try); d.Action != policy.Abandon || d.Charged {
		t.Errorf("an uncharged wait used up the attempts: %+v", d)
	}
	try.Waits = p.MaxWaits
	d := p.Decide(try)
	if d.Action != policy.DeadLetter || d.Reason != policy.MaxDeliveryCountExceeded || d.Pause != time.Minute {
		t.Errorf("got %+v, want a dead letter that still pauses the webhook", d)
	}
}

func TestReceiverCannotAskForAWaitWhenTheCapIsZero(t *testing.T) {
	p := preset(t, "standard")
	p.RetryAfterCap = 0
	d := p.Decide(first(policy.Response{Status: 429, RetryAfter: "60", RateLimit: `"p";r=0;t=30`}))
	if d.Reason != policy.RetryableError || d.Delay != 5*time.Second || d.Pause != 0 || !d.Charged {
		t.Errorf("got %+v", d)
	}
}

func TestAskedWaitsAreJitteredToo(t *testing.T) {
	try := first(policy.Response{Status: 429, RetryAfter: "100"})
	try.Random = 0.5
	d := preset(t, "standard").Decide(try)
	if d.Delay != 115*time.Second || d.Pause != 100*time.Second {
		t.Errorf("delay %s, pause %s; want 1m55s and 1m40s", d.Delay, d.Pause)
	}
}

func TestAttemptsRunOut(t *testing.T) {
	p := preset(t, "standard")
	for charged, want := range []outcome{5: abandons, 6: abandons, 7: {policy.DeadLetter, policy.MaxDeliveryCountExceeded, false}, 8: {policy.DeadLetter, policy.MaxDeliveryCountExceeded, false}} {
		if want.action == "" {
			want = abandons
		}
		try := first(policy.Response{Status: 500})
		try.Charged = charged
		if got := outcomeOf(p.Decide(try)); got != want {
			t.Errorf("after %d charged attempts: %v, want %v", charged, got, want)
		}
	}
}

func TestAgeRunsOut(t *testing.T) {
	p := preset(t, "standard")
	for _, r := range []policy.Response{{Status: 500}, {Status: 429, RetryAfter: "5"}} {
		try := first(r)
		try.Now = start.Add(24*time.Hour - 5*time.Second)
		if d := p.Decide(try); d.Action != policy.Abandon {
			t.Errorf("%d with the next attempt at exactly the age: %+v", r.Status, d)
		}
		try.Now = try.Now.Add(time.Nanosecond)
		if d := p.Decide(try); d.Action != policy.DeadLetter || d.Reason != policy.MaxAgeExceeded {
			t.Errorf("%d with the next attempt beyond the age: %+v", r.Status, d)
		}
	}
}

func TestUnknownFirstAttemptCountsAsThisOne(t *testing.T) {
	p := preset(t, "standard")
	try := policy.Try{Now: start, Response: policy.Response{Status: 500}}
	if d := p.Decide(try); d.Action != policy.Abandon {
		t.Errorf("got %+v", d)
	}
	p.MaxAge = policy.Duration(time.Second)
	if d := p.Decide(try); d.Reason != policy.MaxAgeExceeded {
		t.Errorf("got %+v", d)
	}
}

func TestMessageIsDeadLetteredBeforeItExpires(t *testing.T) {
	tests := []struct {
		name       string
		retryAfter string
		life       time.Duration // what is left of the message
		wantDelay  time.Duration // 0 for a dead letter
	}{
		{"plenty of time", "", time.Hour, 20 * time.Second},
		{"just enough", "", 20*time.Second + policy.ExpiryMargin, 20 * time.Second},
		{"the schedule's delay is shortened", "", 19*time.Second + policy.ExpiryMargin, 19 * time.Second},
		{"shortened to whole seconds", "", 1900*time.Millisecond + policy.ExpiryMargin, time.Second},
		{"no whole second left", "", 999*time.Millisecond + policy.ExpiryMargin, 0},
		{"inside the margin", "", policy.ExpiryMargin / 2, 0},
		{"expired", "", -time.Hour, 0},
		{"expired centuries ago", "", math.MinInt64, 0},
		{"an asked wait leaves room for two more", "60", 180*time.Second + policy.ExpiryMargin, time.Minute},
		{"an asked wait is cut to a third", "3600", 130*time.Second + policy.ExpiryMargin, 34 * time.Second}, // with all jitter 44 s
		{"not below the schedule", "60", 59*time.Second + policy.ExpiryMargin, 20 * time.Second},
		{"shortened with the schedule", "10", 10*time.Second + policy.ExpiryMargin, 10 * time.Second},
	}
	p := preset(t, "standard")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			try := first(policy.Response{Status: 500, RetryAfter: tt.retryAfter})
			try.Charged = 1
			try.ExpiresAt = start.Add(tt.life)
			d := p.Decide(try)
			if tt.wantDelay == 0 {
				if d.Action != policy.DeadLetter || d.Reason != policy.MessageExpiring || !d.NextAt.IsZero() || d.Delay != 0 {
					t.Errorf("got %+v", d)
				}
				return
			}
			if d.Action != policy.Abandon || d.Delay != tt.wantDelay {
				t.Errorf("got %+v, want a delay of %s", d, tt.wantDelay)
			}
		})
	}
}

// Where somebody looks rarely, the last look has to come that much earlier.
func TestTheEndOfALifeThatNobodyLooksAtIsNotUsed(t *testing.T) {
	p := preset(t, "standard")
	for slack, want := range map[time.Duration]time.Duration{
		0: 20 * time.Second, 15 * time.Second: 5 * time.Second, 19*time.Second + time.Millisecond: 0, time.Minute: 0,
	} {
		try := first(policy.Response{Status: 500})
		try.Charged, try.LookSlack = 1, slack
		try.ExpiresAt = start.Add(20*time.Second + policy.ExpiryMargin)
		d := p.Decide(try)
		if dead := d.Action == policy.DeadLetter && d.Reason == policy.MessageExpiring; dead != (want == 0) || !dead && d.Delay != want {
			t.Errorf("with a slack of %s: %s (%s) after %s; want a delay of %s, or a dead letter for none", slack, d.Action, d.Reason, d.Delay, want)
		}
	}
}

func TestExplanationSaysWhatHappensWithNumbersOnly(t *testing.T) {
	const secret = "receiver-chosen"
	p := preset(t, "standard")
	p.AllowSteering = true
	p.Rules = []policy.Rule{{Match: "418", BodyContains: secret, Action: "dead-letter"}}
	tests := []struct {
		try  policy.Try
		want string
	}{
		{first(policy.Response{Status: 204}), "The webhook answered 204, so the message is complete for this webhook."},
		{first(policy.Response{Status: 500}), "The webhook answered 500: attempt 1 of 8 failed, and the next one is due in 5s."},
		{first(policy.Response{Status: 404}), "The webhook answered 404: the message is dead-lettered after attempt 1, since another one would not change the answer."},
		{first(policy.Response{Status: 410}), "The webhook answered 410: the message is dead-lettered after attempt 1, and the webhook is disabled."},
		{first(policy.Response{Status: 429, RetryAfter: "60"}), "The webhook answered 429 and asked for a wait: the next attempt is due in 1m0s, and this one is not counted (wait 1 of 10)."},
		{first(policy.Response{Status: 418, Body: secret}), "The webhook answered 418: the message is dead-lettered after attempt 1, as rule 1 says."},
		{first(policy.Response{Status: 500, Steering: "disable"}), "The webhook answered 500: the message is dead-lettered after attempt 1 and the webhook is disabled, as the webhook asked."},
		{first(policy.Response{Class: policy.ClassTimeout}), "The webhook did not answer in time: attempt 1 of 8 failed, and the next one is due in 5s."},
		{policy.Try{Now: start, FirstAt: start, Charged: 7, Response: policy.Response{Status: 500}}, "The webhook answered 500: attempt 8 of 8 failed, so the attempts are used up."},
	}
	for _, tt := range tests {
		tt.try.Response.Steering += " "
		d := p.Decide(tt.try)
		if d.Explanation != tt.want || strings.Contains(d.Explanation, secret) {
			t.Errorf("got  %q\nwant %q", d.Explanation, tt.want)
		}
	}
}

func TestReasonsOfDecideAreInTheClosedSets(t *testing.T) {
	for _, a := range []policy.Action{policy.Complete, policy.Abandon, policy.DeadLetter, policy.Hold, policy.NoVerdict} {
		if !slices.Contains(policy.Actions(), a) {
			t.Errorf("%s is missing from Actions", a)
		}
	}
	for s := range 700 {
		d := preset(t, "standard").Decide(first(policy.Response{Status: s}))
		if !slices.Contains(policy.Reasons(), d.Reason) || !slices.Contains(policy.Actions(), d.Action) {
			t.Errorf("status %d: %s, %s", s, d.Action, d.Reason)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	p := preset(b, "standard")
	try := first(policy.Response{Status: 503, RetryAfter: "30", Body: "busy"})
	b.ReportAllocs()
	for b.Loop() {
		if p.Decide(try).Action != policy.Abandon {
			b.Fatal("not abandoned")
		}
	}
}
