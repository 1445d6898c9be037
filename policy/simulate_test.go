package policy_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
)

// checkBounds says what holds for every decision.
func checkBounds(t testing.TB, p policy.Policy, d policy.Decision, now, expires time.Time) {
	t.Helper()
	if d.Explanation == "" || d.Reason == "" {
		t.Fatalf("not explained: %+v", d)
	}
	if d.Pause < 0 || d.Pause > time.Duration(p.RetryAfterCap)+time.Second {
		t.Fatalf("pause beyond the cap of %s: %+v", p.RetryAfterCap, d)
	}
	switch d.Action {
	case policy.Complete, policy.DeadLetter, policy.Abandon, policy.NoVerdict:
	case policy.Hold:
		if d.Reason != policy.NoToken || d.Charged {
			t.Fatalf("held for another reason than a token that can't be had: %+v", d)
		}
	default:
		t.Fatalf("not an action for an answer: %+v", d)
	}
	if d.Disable && d.Action != policy.DeadLetter {
		t.Fatalf("disabled, and the message has not ended: %+v", d)
	}
	if d.Action != policy.Abandon {
		if !d.NextAt.IsZero() || d.Delay != 0 {
			t.Fatalf("nothing comes next, but it says when: %+v", d)
		}
		return
	}
	if d.Delay < time.Second || d.Delay > policy.MaxDelay || d.Delay%time.Second != 0 {
		t.Fatalf("delay out of range: %+v", d)
	}
	if !d.NextAt.Equal(now.Add(d.Delay)) {
		t.Fatalf("next at %s is not %s after %s", d.NextAt, d.Delay, now)
	}
	if !expires.IsZero() && d.NextAt.After(expires.Add(-policy.ExpiryMargin)) {
		t.Fatalf("the next attempt comes when the message is gone, %s: %+v", expires, d)
	}
	longest := time.Duration(p.RetryAfterCap)
	for n := range 12 {
		longest = max(longest, p.Backoff.Delay(n, 0))
	}
	if d.Delay > min(2*longest+time.Second, policy.MaxDelay) {
		t.Fatalf("delay beyond schedule and cap with all jitter, %s: %+v", longest, d)
	}
}

func randomResponse(rng *rand.Rand) policy.Response {
	classes := append(policy.ErrorClasses(), "", "", "", "", "")
	some := rng.Int64N(int64(9 * 24 * time.Hour / time.Second))
	asks := []string{"", "", "0", "1", fmt.Sprint(some), start.Add(time.Duration(some) * time.Second).Format(http.TimeFormat),
		"999999999999999999999", "-4", "soon", "Fri, 31 Dec 9999 23:59:59 GMT"}
	limits := []string{"", "", `"p";r=0;t=30`, fmt.Sprintf(`"p";r=1;t=9, "q";r=0;t=%d`, some), `"p";r=0;t=99999999999`,
		fmt.Sprintf("limit=1, remaining=0, reset=%d", some), "limit=1, remaining=0, reset=-7"}
	steers := []string{"", "", "", "abandon", "complete", "dead-letter", "disable", "?"}
	statuses := []int{429, 503, 500, 302, 408, 0, 100 + rng.IntN(500), rng.IntN(1200) - 100}
	return policy.Response{
		Status:     statuses[rng.IntN(len(statuses))],
		Class:      classes[rng.IntN(len(classes))],
		RetryAfter: asks[rng.IntN(len(asks))],
		RateLimit:  limits[rng.IntN(len(limits))],
		Steering:   steers[rng.IntN(len(steers))],
		Body:       []string{"", "duplicate", "Duplicate invoice"}[rng.IntN(3)],
	}
}

func randomBackoff(rng *rand.Rand) policy.Backoff {
	length := func() policy.Duration { // from nanoseconds to more than storage can hide a message
		return policy.Duration(rng.Int64N(int64(1) << rng.IntN(51)))
	}
	b := policy.Backoff{Initial: length(), Factor: rng.Float64() * 9, Max: length(), Jitter: rng.Float64()}
	for range rng.IntN(2) * rng.IntN(12) {
		b.Delays = append(b.Delays, length())
	}
	return b
}

func randomRules(rng *rand.Rand) []policy.Rule {
	matches := []string{"*", "2xx", "3xx", "4xx", "5xx", "404", "410", "429", "503", "timeout", "connect", "dns", "tls", "reset", "protocol"}
	actions := []string{"complete", "abandon", "abandon", "dead-letter", "disable"}
	var rules []policy.Rule
	for range rng.IntN(6) {
		rules = append(rules, policy.Rule{
			Match: matches[rng.IntN(len(matches))], Action: actions[rng.IntN(len(actions))],
			BodyContains: []string{"", "DUPLICATE", "invoice"}[rng.IntN(3)],
		})
	}
	return rules
}

func randomPolicy(t *testing.T, rng *rand.Rand) policy.Policy {
	names := policy.PresetNames()
	p := preset(t, names[rng.IntN(len(names))])
	p.MaxAttempts = 1 + rng.IntN(12)
	p.MaxWaits = rng.IntN(12)
	p.AllowSteering = rng.IntN(2) == 0
	if rng.IntN(2) == 0 {
		p.Backoff = randomBackoff(rng)
	}
	p.MaxAge = policy.Duration(time.Minute + time.Duration(rng.Int64N(int64(8*24*time.Hour))))
	p.RetryAfterCap = policy.Duration(rng.Int64N(int64(policy.MaxDelay)))
	p.Rules = randomRules(rng)
	return p
}

// Every delivery comes to an end, within its attempts, waits and age, whatever
// the webhook answers.
func TestEveryDeliveryEndsWithinItsLimits(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 7))
	for range 20_000 {
		p := randomPolicy(t, rng)
		failsOnly := rng.IntN(2) == 0 // long sequences come from answers that are retried
		now := start
		var expires time.Time
		if rng.IntN(2) == 0 {
			expires = start.Add(time.Duration(rng.Int64N(int64(8 * 24 * time.Hour))))
		}
		charged, waits, canceled := 0, 0, 0
		for {
			r := randomResponse(rng)
			if failsOnly {
				r.Class, r.Steering = "", ""
				r.Status = []int{429, 500, 503}[rng.IntN(3)]
			}
			now = now.Add(time.Duration(rng.Int64N(int64(30 * time.Second))))
			d := p.Decide(policy.Try{Now: now, Charged: charged, Waits: waits, FirstAt: start, ExpiresAt: expires, Random: rng.Float64(), Response: r})
			checkBounds(t, p, d, now, expires)
			if d.Charged {
				charged++
			} else if d.Action == policy.Abandon {
				waits++
			}
			if charged > p.MaxAttempts || waits > p.MaxWaits {
				t.Fatalf("%d attempts of %d, %d waits of %d: %+v", charged, p.MaxAttempts, waits, p.MaxWaits, d)
			}
			if d.Action == policy.Abandon {
				now = d.NextAt
				if now.Sub(start) > time.Duration(p.MaxAge) {
					t.Fatalf("an attempt begins %s after the first: %+v", now.Sub(start), d)
				}
				continue
			}
			if d.Action != policy.NoVerdict && d.Action != policy.Hold {
				break
			}
			if canceled++; canceled > 1000 {
				t.Fatal("no end in sight")
			}
		}
	}
}

func TestAlwaysFailingWebhookGetsExactlyMaxAttempts(t *testing.T) {
	for _, name := range policy.PresetNames() {
		for _, random := range []float64{0, 0.5, 0.999999} {
			p := preset(t, name)
			now, posts := start, 0
			for {
				d := p.Decide(policy.Try{Now: now, Charged: posts, FirstAt: start, Random: random, Response: policy.Response{Status: 500}})
				posts++
				if d.Action == policy.DeadLetter {
					if d.Reason != policy.MaxDeliveryCountExceeded || posts != p.MaxAttempts {
						t.Errorf("%s with random %v: %s after %d of %d attempts", name, random, d.Reason, posts, p.MaxAttempts)
					}
					break
				}
				now = d.NextAt
			}
		}
	}
}
