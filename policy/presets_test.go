package policy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
)

func TestEveryPresetIsValidAndNamesItself(t *testing.T) {
	names := policy.PresetNames()
	if len(names) == 0 || names[0] != policy.DefaultPreset {
		t.Errorf("presets are %v, want the default first", names)
	}
	for _, name := range names {
		p := preset(t, name)
		if p.Preset != name {
			t.Errorf("preset %s calls itself %s", name, p.Preset)
		}
		if err := p.Validate(); err != nil {
			t.Errorf("preset %s: %v", name, err)
		}
	}
}

func TestUnknownPresetIsRefusedWithTheNames(t *testing.T) {
	for _, name := range []string{"", "Standard", "standard ", strings.Repeat("x", 1000)} {
		_, err := policy.Preset(name)
		fields := policy.FieldErrors(err)
		if len(fields) != 1 || fields[0].Field != "preset" || !strings.Contains(fields[0].Cure, "standard, once, realtime") || len(err.Error()) > 250 {
			t.Errorf("%.20q: %v", name, err)
		}
	}
}

// R5: the numbers of attempts that the presets stand for.
func TestPresetsHaveTheirNumberOfAttempts(t *testing.T) {
	for name, want := range map[string]int{"once": 1, "realtime": 2, "moderate": 3, "short": 4, "tolerant": 5, "standard": 8, "patient": 10} {
		if got := preset(t, name).MaxAttempts; got != want {
			t.Errorf("%s has %d attempts, want %d", name, got, want)
		}
	}
	once := preset(t, "once")
	if d := once.Decide(first(policy.Response{Status: 429, RetryAfter: "1"})); d.Action != policy.DeadLetter {
		t.Errorf("once tries again: %+v", d)
	}
}

// R5, row by row, but for the poison guard, which acts before there is an answer.
func TestDeadLetterRouting(t *testing.T) {
	p := preset(t, "moderate") // three attempts, as in the source document
	p.Rules = []policy.Rule{
		{Match: "*", BodyContains: "duplicate invoice", Action: "dead-letter"},
		{Match: "*", BodyContains: "invalid customer id", Action: "dead-letter"},
	}
	success := []policy.Response{{Status: 200}, {Status: 202}, {Status: 204}}
	final := []policy.Response{
		{Status: 400}, {Status: 401}, {Status: 403}, {Status: 404}, {Status: 409}, {Status: 422},
		{Status: 500, Body: "Error: Duplicate Invoice 4711"}, {Status: 502, Body: "INVALID CUSTOMER ID"},
	}
	retryable := []policy.Response{
		{Status: 429}, {Status: 500}, {Status: 502}, {Status: 503}, {Status: 504},
		{Class: policy.ClassConnect}, {Class: policy.ClassDNS}, {Class: policy.ClassReset}, {Class: policy.ClassTimeout},
	}
	for charged := range 6 { // the attempt is charged + 1
		decide := func(r policy.Response) policy.Decision {
			try := first(r)
			try.Charged = charged
			return p.Decide(try)
		}
		for _, r := range success {
			if d := decide(r); d.Action != policy.Complete {
				t.Errorf("attempt %d, %+v: %+v", charged+1, r, d)
			}
		}
		for _, r := range final {
			if d := decide(r); d.Action != policy.DeadLetter || d.Reason != policy.NonRetryableError {
				t.Errorf("attempt %d, %+v: %+v", charged+1, r, d)
			}
		}
		for _, r := range retryable {
			d := decide(r)
			if charged+1 < 3 && (d.Action != policy.Abandon || d.Delay <= 0) {
				t.Errorf("attempt %d, %+v: %+v", charged+1, r, d)
			}
			if charged+1 >= 3 && (d.Action != policy.DeadLetter || d.Reason != policy.MaxDeliveryCountExceeded) {
				t.Errorf("attempt %d, %+v: %+v", charged+1, r, d)
			}
		}
	}
	old := first(policy.Response{Status: 500})
	old.FirstAt = start.Add(-time.Duration(p.MaxAge))
	if d := p.Decide(old); d.Action != policy.DeadLetter || d.Reason != policy.MaxAgeExceeded {
		t.Errorf("spent time budget: %+v", d)
	}
}

// R6: 4, 8 and 16 minutes for retries 0, 1 and 2, jitter within 30 %, none when
// it is off, and a dead letter after the third retry.
func TestShortRetriesAfterFourEightAndSixteenMinutes(t *testing.T) {
	p := preset(t, "short")
	for retry, want := range []time.Duration{4 * time.Minute, 8 * time.Minute, 16 * time.Minute} {
		for _, random := range []float64{0, 0.25, 0.5, 0.999999999} {
			try := first(policy.Response{Status: 500})
			try.Charged, try.Random = retry, random
			d := p.Decide(try)
			if d.Action != policy.Abandon || d.Delay < want || d.Delay > want*13/10 {
				t.Errorf("retry %d, random %v: %+v, want %s to %s", retry, random, d, want, want*13/10)
			}
			exact := p
			exact.Backoff.Jitter = 0
			if d := exact.Decide(try); d.Delay != want {
				t.Errorf("retry %d without jitter after %s, want %s", retry, d.Delay, want)
			}
		}
	}
	try := first(policy.Response{Status: 500})
	try.Charged = 3
	if d := p.Decide(try); d.Action != policy.DeadLetter || d.Reason != policy.MaxDeliveryCountExceeded {
		t.Errorf("after three retries: %+v", d)
	}
}

// Standard Webhooks 1.0: 75 h 35 min from the first attempt to the tenth.
func TestPatientFollowsStandardWebhooks(t *testing.T) {
	p := preset(t, "patient")
	var total, longest time.Duration
	for n := range p.MaxAttempts - 1 {
		total += p.Backoff.Delay(n, 0)
		longest += p.Backoff.Delay(n, 1)
	}
	if want := 75*time.Hour + 35*time.Minute + 5*time.Second; total != want {
		t.Errorf("the schedule takes %s, want %s", total, want)
	}
	if longest > time.Duration(p.MaxAge) {
		t.Errorf("with all jitter the schedule takes %s, beyond the age of %s", longest, p.MaxAge)
	}
}
