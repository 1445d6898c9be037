package policy_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
)

const sec = time.Second

// R1: base × 1.75, rounded up to multiples of 30 s.
func TestLeaseFollowsProcessingTime(t *testing.T) {
	for base, want := range map[time.Duration]time.Duration{
		0: 30 * sec, 10 * sec: 30 * sec, 15 * sec: 30 * sec, 30 * sec: 60 * sec, 45 * sec: 90 * sec,
		60 * sec: 120 * sec, 90 * sec: 180 * sec, 120 * sec: 210 * sec,
		1: 30 * sec, 240 * sec: 420 * sec, 240*sec + 1: 450 * sec,
		4 * 24 * time.Hour: policy.MaxLease, 7 * 24 * time.Hour: policy.MaxLease, math.MaxInt64: policy.MaxLease, math.MaxInt64 / 5: policy.MaxLease,
		-sec: 30 * sec,
	} {
		measured := policy.RecommendLease(policy.Estimate{}, policy.Measured{Samples: policy.EnoughSamples, Average: base})
		if got := time.Duration(measured.Lease); got != want {
			t.Errorf("measured %s: lease %s, want %s", base, got, want)
		}
		if strings.Contains(measured.Reasoning, "lengthened") {
			t.Errorf("measured %s, nothing slower: %q", base, measured.Reasoning)
		}
		estimated := policy.RecommendLease(policy.Estimate{Min: sec, Average: base, Max: base}, policy.Measured{})
		if got := time.Duration(estimated.Lease); got != want {
			t.Errorf("estimated %s: lease %s, want %s", base, got, want)
		}
	}
}

func TestMeasuredTimeReplacesTheEstimateWhenThereIsEnough(t *testing.T) {
	e := policy.Estimate{Min: 5 * sec, Average: 30 * sec, Max: 60 * sec}
	atMost := e
	atMost.UseMax = true
	few := policy.Measured{Samples: policy.EnoughSamples - 1, Average: 90 * sec}
	enough := policy.Measured{Samples: policy.EnoughSamples, Average: 90 * sec}
	tests := []struct {
		name string
		e    policy.Estimate
		m    policy.Measured
		base time.Duration
	}{
		{"nothing measured", e, policy.Measured{}, 30 * sec},
		{"nothing measured, maximum asked for", atMost, policy.Measured{}, 60 * sec},
		{"too few", e, few, 30 * sec},
		{"enough", e, enough, 90 * sec},
		{"enough, maximum asked for", atMost, enough, 90 * sec},
		{"few are better than nothing", policy.Estimate{}, few, 90 * sec},
		{"only a maximum estimated", policy.Estimate{Max: 60 * sec}, policy.Measured{}, 60 * sec},
		{"only a minimum estimated", policy.Estimate{Min: 5 * sec}, policy.Measured{}, 5 * sec},
		{"nothing known", policy.Estimate{}, policy.Measured{}, 0},
	}
	for _, tt := range tests {
		got := policy.RecommendLease(tt.e, tt.m)
		if time.Duration(got.Base) != tt.base || got.Samples != tt.m.Samples || got.Buffer != 0.75 {
			t.Errorf("%s: %+v, want base %s", tt.name, got, tt.base)
		}
	}
}

func TestUtilisationTellsRiskAndLengthensTheLease(t *testing.T) {
	for _, tt := range []struct {
		processing time.Duration
		atRisk     bool
		lease      time.Duration // from 90 s
	}{
		{45 * sec, false, 90 * sec},
		{72 * sec, false, 90 * sec},
		{75 * sec, true, 90 * sec},
		{81 * sec, true, 90 * sec},
		{82 * sec, true, 150 * sec}, // 135 s, rounded up
		{500 * sec, true, 150 * sec},
	} {
		if got := policy.Utilisation(tt.processing, 90*sec) > policy.UtilisationAtRisk; got != tt.atRisk {
			t.Errorf("%s of 90 s: at risk %v", tt.processing, got)
		}
		if got := policy.LengthenLease(tt.processing, 90*sec); got != tt.lease {
			t.Errorf("%s of 90 s: lease %s, want %s", tt.processing, got, tt.lease)
		}
	}
	if got := policy.Utilisation(sec, 0); got != 0 {
		t.Errorf("utilisation without a lease is %v", got)
	}
}

func TestSlowMessagesLengthenTheRecommendation(t *testing.T) {
	for _, tt := range []struct {
		slow, lease time.Duration
		atRisk      bool
	}{
		{0, 90 * sec, false},
		{60 * sec, 90 * sec, false},
		{75 * sec, 90 * sec, true},
		{85 * sec, 150 * sec, false},
		{145 * sec, 240 * sec, false}, // 150 s are still too short
	} {
		got := policy.RecommendLease(policy.Estimate{}, policy.Measured{Samples: 100, Average: 45 * sec, Slow: tt.slow})
		if time.Duration(got.Lease) != tt.lease || got.AtRisk != tt.atRisk {
			t.Errorf("slow %s: %+v, want lease %s, at risk %v", tt.slow, got, tt.lease, tt.atRisk)
		}
		if strings.Contains(got.Reasoning, "lengthened") != (tt.lease > 90*sec) || strings.Contains(got.Reasoning, "risk") != tt.atRisk {
			t.Errorf("slow %s: %q", tt.slow, got.Reasoning)
		}
	}
}

func TestReasoningNamesItsNumbers(t *testing.T) {
	got := policy.RecommendLease(policy.Estimate{}, policy.Measured{Samples: 100, Average: 45 * sec}).Reasoning
	if want := "The average of 100 measured messages is 45s: with a buffer of 75 %, rounded up to a multiple of 30s, that is 1m30s."; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestLeaseIsAlwaysAMultipleInRange(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 9))
	for range 100_000 {
		span := func() time.Duration { return time.Duration(rng.Int64() >> rng.IntN(63)) }
		got := policy.RecommendLease(policy.Estimate{Min: span(), Average: span(), Max: span(), UseMax: rng.IntN(2) == 0},
			policy.Measured{Samples: rng.IntN(50), Average: span(), Slow: span()})
		lease := time.Duration(got.Lease)
		if lease < policy.MinLease || lease > policy.MaxLease || lease%policy.LeaseStep != 0 || got.Reasoning == "" {
			t.Fatalf("%+v", got)
		}
		if lease < policy.MaxLease && got.Utilisation > policy.UtilisationTooHigh {
			t.Fatalf("too short: %+v", got)
		}
	}
}
