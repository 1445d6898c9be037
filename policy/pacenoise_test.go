package policy_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
)

// A webhook that refuses at random, whatever the pace, is not driven to a standstill: in the
// second minute it takes at least so much in a second, in each of some runs. Without a limit it
// would take some thousands, and with answers after 100 ms some hundreds.
func TestRefusalsAtRandomDoNotDriveAWebhookToAStandstill(t *testing.T) {
	for _, tt := range []struct {
		share   float64
		latency time.Duration
		senders int
		least   float64
	}{
		{0.05, 10 * time.Millisecond, 1, 200},
		{0.1, 10 * time.Millisecond, 1, 100},
		{0.3, time.Millisecond, 1, 60},
		{0.5, time.Millisecond, 1, 8},
		{0.02, 100 * time.Millisecond, 1, 100},
		{0.05, 100 * time.Millisecond, 1, 30},
		{0.3, 100 * time.Millisecond, 1, 5},
		{0.5, 100 * time.Millisecond, 1, 3},
		{0.05, 100 * time.Millisecond, 2, 40},
		{0.5, 100 * time.Millisecond, 2, 2},
		{0.3, 20 * time.Millisecond, 1, 20},
		{0.3, 20 * time.Millisecond, 2, 20},
		{0.3, 100 * time.Millisecond, 3, 10},
		{0.8, 100 * time.Millisecond, 2, 10},
		{0.5, time.Second, 1, 2},
	} {
		least := math.Inf(1)
		for seed := range uint64(3) {
			tr := &trial{accepts: randomly(tt.share)(rand.New(rand.NewPCG(seed, 1))), latency: tt.latency, window: true, flight: 16, jitter: 200 * time.Microsecond}
			for i := range tt.senders {
				tr.senders = append(tr.senders, newPacer(seed+uint64(i)*100))
			}
			tr.run(2*time.Minute, seed)
			ok, _ := tr.between(time.Minute, 2*time.Minute)
			least = min(least, float64(ok)/time.Minute.Seconds())
		}
		t.Logf("%.0f %% refused, %v, %d instances: %.1f/s", 100*tt.share, tt.latency, tt.senders, least)
		if least < tt.least {
			t.Errorf("with %.0f %% refused at random after %v and %d instances %.2f a second are taken, want %.0f", 100*tt.share, tt.latency, tt.senders, least, tt.least)
		}
	}
}

// Refusals at random from the first POST on are found out soon: nothing waits for a minute until a webhook
// that takes most of what it is sent gets more than a few POSTs a second. Some slow answers among
// quick ones change nothing of that. Each run takes a tenth of that at least, but for one whose first trial comes to nothing by
// chance, as ADR 0093 knows.
func TestRefusalsAtRandomFromTheFirstPostOnAreFoundOutSoon(t *testing.T) {
	for _, tt := range []struct {
		share, late float64
		least       float64 // in a second of the second half minute, in the median of some runs
	}{{0.05, 0, 500}, {0.15, 0, 400}, {0.3, 0, 300}, {0.5, 0, 80}, {0.7, 0, 30}, {0.8, 0, 25}, {0.05, 0.02, 100}, {0.3, 0.02, 80}} {
		var runs []float64
		worst := math.Inf(1)
		for seed := range uint64(5) {
			tr := &trial{
				accepts: randomly(tt.share)(rand.New(rand.NewPCG(seed, 1))), senders: []learner{newPacer(seed)},
				latency: 50 * time.Millisecond, late: tt.late, window: true, jitter: 200 * time.Microsecond,
			}
			tr.run(time.Minute, seed)
			ok, _ := tr.between(30*time.Second, time.Minute)
			runs = append(runs, float64(ok)/30)
			if tt.share != 0.7 || seed != 4 {
				worst = min(worst, float64(ok)/30)
			}
		}
		slices.Sort(runs)
		least := runs[len(runs)/2]
		t.Logf("%.0f %% refused, %.0f %% late: %.1f/s, and %.1f at worst", 100*tt.share, 100*tt.late, least, worst)
		if least < tt.least || worst < tt.least/10 {
			t.Errorf("with %.0f %% refused at random and %.0f %% late %.1f a second are taken after half a minute, and %.1f at worst, want %.0f and a tenth", 100*tt.share, 100*tt.late, least, worst, tt.least)
		}
	}
}

// A receiver refuses at once, and what it takes takes its time: answers come in another order than
// POSTs began. None of that is taken for refusals at random.
func TestQuickRefusalsOfAReceiverWithALimitAreNoNoise(t *testing.T) {
	for name, accepts := range map[string]func() limiter{
		"one in a second":       func() limiter { return strictly(1) },
		"token bucket":          func() limiter { return tokenBucket(20, 20) },
		"20 in 5 s":             func() limiter { return slidingWindow(20, 5*time.Second) },
		"2 in a sliding second": func() limiter { return slidingWindow(2, time.Second) },
	} {
		for seed := range uint64(3) {
			p := &pacer{rng: rand.New(rand.NewPCG(seed, 3))}
			tr := &trial{accepts: accepts(), senders: []learner{p}, latency: 300 * time.Millisecond, refusal: 5 * time.Millisecond, window: true, jitter: 200 * time.Microsecond}
			tr.run(3*time.Minute, seed)
			ok, no := tr.between(time.Minute, 3*time.Minute)
			share := float64(no) / float64(ok+no)
			t.Logf("%s: %.1f %% refused", name, 100*share)
			if share > 0.1 || p.State().Noise != 0 {
				t.Errorf("%s: %.0f %% refused after a minute, and noise of %v is known", name, 100*share, p.State().Noise)
			}
		}
	}
}

// Two instances and more find out together that most is refused at random: after 45 seconds they send what is
// taken, also where one of them believes longer than the other that there is a limit.
func TestSeveralInstancesFindOutThatMostIsRefusedAtRandom(t *testing.T) {
	for _, tt := range []struct {
		share   float64
		senders int
		least   float64 // in a second, from the 45th second to the 60th, on average of some runs
	}{{0.5, 2, 50}, {0.6, 2, 40}, {0.7, 2, 40}, {0.8, 2, 30}, {0.7, 3, 20}, {0.8, 3, 10}} {
		const seeds = 2
		mean := 0.0
		for seed := range uint64(seeds) {
			tr := &trial{accepts: randomly(tt.share)(rand.New(rand.NewPCG(seed, 1))), latency: 50 * time.Millisecond, window: true, flight: 8, jitter: 200 * time.Microsecond}
			for i := range tt.senders {
				tr.senders = append(tr.senders, newPacer(seed+uint64(i)*100))
			}
			tr.run(time.Minute, seed)
			ok, _ := tr.between(45*time.Second, time.Minute)
			mean += float64(ok) / 15 / seeds
		}
		t.Logf("%.0f %% refused, %d instances: %.1f/s", 100*tt.share, tt.senders, mean)
		if mean < tt.least {
			t.Errorf("with %.0f %% refused at random and %d instances %.1f a second are taken after 45 seconds, want %.0f", 100*tt.share, tt.senders, mean, tt.least)
		}
	}
}

// Two instances believe in noise, as one has it from the other, and it is a limit. One that has found that out
// does not take it from the other again.
func TestNoiseThatIsALimitIsForgottenByTwoInstances(t *testing.T) {
	for name, accepts := range map[string]func() limiter{
		"one in 50 ms": func() limiter { return strictly(20) }, "token bucket": func() limiter { return tokenBucket(20, 20) },
		"2 in a sliding second": func() limiter { return slidingWindow(2, time.Second) },
	} {
		for seed := range uint64(3) {
			tr := &trial{accepts: accepts(), latency: 20 * time.Millisecond, jitter: 200 * time.Microsecond}
			for i := range 2 {
				p := &pacer{rng: rand.New(rand.NewPCG(seed, uint64(i)))}
				p.Restore(policy.PaceState{Rate: 20, Since: start, Noise: 0.6}, start)
				tr.senders = append(tr.senders, p)
			}
			tr.run(5*time.Minute, seed)
			ok, no := tr.between(4*time.Minute, 5*time.Minute)
			one, two := tr.senders[0].(*pacer).State().Noise, tr.senders[1].(*pacer).State().Noise
			t.Logf("%s: %.1f %% refused", name, 100*float64(no)/float64(ok+no))
			if share := float64(no) / float64(ok+no); share > 0.2 || one+two > 0 {
				t.Errorf("%s: %.0f %% refused in the fifth minute, and noise of %v and %v is known", name, 100*share, one, two)
			}
		}
	}
}

// Noise that was believed in, as another instance said or by chance, and is a limit: more is refused than it explains,
// and at the rate that was taken nothing is.
func TestNoiseThatIsALimitIsForgotten(t *testing.T) {
	for name, accepts := range map[string]limiter{
		"one in 50 ms": strictly(20), "token bucket": tokenBucket(20, 20), "2 in a sliding second": slidingWindow(2, time.Second),
	} {
		p := &pacer{rng: rand.New(rand.NewPCG(1, 3))}
		p.Restore(policy.PaceState{Rate: 20, Since: start, Noise: 0.6}, start)
		tr := &trial{accepts: accepts, senders: []learner{p}, latency: 20 * time.Millisecond, jitter: 200 * time.Microsecond}
		tr.run(5*time.Minute, 1)
		ok, no := tr.between(4*time.Minute, 5*time.Minute)
		if share := float64(no) / float64(ok+no); share > 0.1 || p.State().Noise != 0 {
			t.Errorf("%s: %.0f %% refused in the fifth minute, and noise of %v is known", name, 100*share, p.State().Noise)
		}
	}
}
