package policy_test

import (
	"math"
	"math/rand/v2"
	"regexp"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
)

// Others than Go have to read the durations of answers: one form, which ISO 8601 has too.
func TestDurationsHaveOneFormThatOthersRead(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 30 * time.Second: "30s", 24 * time.Hour: "24h", 5 * time.Minute: "5m", 90 * time.Minute: "1h30m", 120 * time.Hour: "120h",
		time.Hour + time.Second: "1h1s", 680101 * time.Nanosecond: "0.000680101s", 1500 * time.Millisecond: "1.5s", 4 * time.Millisecond: "0.004s",
		time.Minute + time.Nanosecond: "1m0.000000001s", -90 * time.Second: "-1m30s", -time.Millisecond: "-0.001s",
	} {
		if got := policy.Duration(d).String(); got != want {
			t.Errorf("%s is written %s, want %s", d, got, want)
		}
	}
	form := regexp.MustCompile(`^-?(\d+h)?([1-5]?\dm)?([1-5]?\d(\.\d{0,8}[1-9])?s)?$`)
	check := func(d policy.Duration) {
		text, err := d.MarshalText()
		var read policy.Duration
		if err != nil || !form.Match(text) || len(text) < 2 || read.UnmarshalText(text) != nil || read != d {
			t.Errorf("%d is written %s, and read as %d: %v", d, text, read, err)
		}
	}
	for _, d := range []policy.Duration{math.MinInt64, math.MaxInt64, 1, -1} {
		check(d)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		check(policy.Duration(random.Int64() >> random.IntN(60)))
	}
	if got := policy.DurationOrNever(120 * time.Hour).String(); got != "120h" {
		t.Errorf("auto_disable_after is written %s", got)
	}
}
