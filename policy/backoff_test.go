package policy_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
)

func TestExponentialDelaysGrowUpToTheirMaximum(t *testing.T) {
	b := preset(t, "standard").Backoff
	want := []time.Duration{5 * time.Second, 20 * time.Second, 80 * time.Second, 320 * time.Second, 1280 * time.Second, time.Hour, time.Hour}
	for n, w := range want {
		if got := b.Delay(n, 0); got != w {
			t.Errorf("delay %d is %s, want %s", n, got, w)
		}
	}
}

func TestListedDelaysEndWithTheLastOne(t *testing.T) {
	b := policy.Backoff{Delays: []policy.Duration{policy.Duration(time.Second), policy.Duration(time.Minute)}}
	for n, want := range map[int]time.Duration{-1: time.Second, 0: time.Second, 1: time.Minute, 2: time.Minute, 1000: time.Minute} {
		if got := b.Delay(n, 0.9); got != want {
			t.Errorf("delay %d is %s, want %s", n, got, want)
		}
	}
}

func TestDelaysAreWholeSecondsRoundedUp(t *testing.T) {
	for initial, want := range map[time.Duration]time.Duration{
		time.Nanosecond:                   time.Second,
		time.Second:                       time.Second,
		time.Second + time.Nanosecond:     2 * time.Second,
		59*time.Second + time.Millisecond: time.Minute,
	} {
		b := policy.Backoff{Initial: policy.Duration(initial), Factor: 1, Max: policy.Duration(time.Hour)}
		if got := b.Delay(0, 0); got != want {
			t.Errorf("%s becomes %s, want %s", initial, got, want)
		}
	}
}

func TestSettingsThatWereNeverValidatedStillGiveASchedule(t *testing.T) {
	initial := policy.Duration(5 * time.Second)
	for _, tt := range []struct {
		name    string
		backoff policy.Backoff
		want    time.Duration // after attempt 3
	}{
		{"no maximum", policy.Backoff{Initial: initial, Factor: 2}, 40 * time.Second},
		{"no factor", policy.Backoff{Initial: initial}, 5 * time.Second},
		{"factor NaN", policy.Backoff{Initial: initial, Factor: math.NaN()}, 5 * time.Second},
		{"factor infinite", policy.Backoff{Initial: initial, Factor: math.Inf(1), Max: policy.Duration(time.Minute)}, time.Minute},
		{"maximum below the first delay", policy.Backoff{Initial: initial, Factor: 2, Max: policy.Duration(2 * time.Second)}, 2 * time.Second},
		{"nothing", policy.Backoff{}, time.Second},
	} {
		if got := tt.backoff.Delay(3, 0); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// C33: attempt 0 to 10^6 and base 1 ns to 1 h stay in range.
func TestNoAttemptNumberOrBaseLeavesTheRange(t *testing.T) {
	randoms := []float64{0, 0.5, math.Nextafter(1, 0), 1, 2, -1, math.NaN(), math.Inf(1), math.Inf(-1)}
	factors := []float64{0, -3, 1, 1.0001, 1.5, 2, 4, 1000, math.MaxFloat64, math.Inf(1), math.Inf(-1), math.NaN()}
	jitters := []float64{0, 0.3, 1, 7, -1, math.NaN(), math.Inf(1)}
	maxima := []time.Duration{-1, 0, 1, time.Second, time.Hour, policy.MaxDelay, math.MaxInt64}
	rng := rand.New(rand.NewPCG(1, 2))
	check := func(b policy.Backoff, n int, random float64) {
		d := b.Delay(n, random)
		if d < time.Second || d > policy.MaxDelay || d%time.Second != 0 {
			t.Fatalf("%+v.Delay(%d, %v) = %s", b, n, random, d)
		}
		if m := time.Duration(b.Max); m > 0 && m <= policy.MaxDelay && b.Jitter <= 1 && d > 2*m+time.Second {
			t.Fatalf("%+v.Delay(%d, %v) = %s, beyond its maximum", b, n, random, d)
		}
	}
	for _, base := range []time.Duration{-time.Hour, 0, 1, time.Microsecond, time.Second, time.Hour, math.MaxInt64} {
		for _, factor := range factors {
			for _, jitter := range jitters {
				for _, m := range maxima {
					b := policy.Backoff{Initial: policy.Duration(base), Factor: factor, Max: policy.Duration(m), Jitter: jitter}
					for _, random := range randoms {
						for _, n := range []int{math.MinInt, -1, 0, 1, 35, 63, 64, 65, 1023, 1024, 1_000_000, math.MaxInt} {
							check(b, n, random)
						}
					}
				}
			}
		}
	}
	for n := range 1_000_001 {
		base := time.Duration(1 + rng.Int64N(int64(time.Hour)))
		check(policy.Backoff{Initial: policy.Duration(base), Factor: 2, Max: policy.Duration(time.Hour), Jitter: 0.3}, n, rng.Float64())
	}
	for _, d := range []policy.Duration{math.MinInt64, -1, 0, 1, math.MaxInt64} {
		check(policy.Backoff{Delays: []policy.Duration{d}, Jitter: 0.3}, 0, 0.7)
	}
}

func TestJitterOnlyAdds(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 10_000 {
		b := policy.Backoff{Initial: policy.Duration(1 + rng.Int64N(int64(time.Hour))), Factor: 1 + 3*rng.Float64(), Max: policy.Duration(time.Hour)}
		n := rng.IntN(20)
		plain := b.Delay(n, 0)
		b.Jitter = rng.Float64()
		if got := b.Delay(n, rng.Float64()); got < plain || got > 2*plain+time.Second {
			t.Fatalf("%+v.Delay(%d) = %s, without jitter %s", b, n, got, plain)
		}
	}
}

// C33: 1,000 messages that fail in the same second at a delay of 60 s do not come
// back in step: no second holds more than a tenth of them.
func TestBurstIsSpread(t *testing.T) {
	schedule := preset(t, "standard")
	schedule.Backoff.Initial = policy.Duration(time.Minute)
	asked := preset(t, "standard")
	for name, tt := range map[string]struct {
		policy   policy.Policy
		response policy.Response
	}{
		"by the schedule": {schedule, policy.Response{Status: 500}},
		"by Retry-After":  {asked, policy.Response{Status: 503, RetryAfter: "60"}},
	} {
		for seed := range uint64(50) {
			rng := rand.New(rand.NewPCG(seed, 5))
			// Worst case and common case: all at one instant, or over the second.
			for _, within := range []int64{1, int64(time.Second)} {
				bins := map[int64]int{}
				for range 1000 {
					try := first(tt.response)
					try.Now = start.Add(time.Duration(rng.Int64N(within)))
					try.Random = rng.Float64()
					bins[tt.policy.Decide(try).NextAt.Unix()]++
				}
				for second, n := range bins {
					if n > 100 {
						t.Errorf("%s, seed %d: %d of 1000 in second %d", name, seed, n, second-start.Unix())
					}
				}
			}
		}
	}
}
