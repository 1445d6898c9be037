package policy_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
)

func breakerSettings() policy.BreakerSettings { return policy.DefaultFlow().Breaker }

// post makes one POST that answers at once, and tells whether the breaker let it.
func post(b *policy.Breaker, ok bool, now time.Time) (made, probe bool) {
	made, probe, generation := b.Allow(breakerSettings(), now)
	if made {
		b.Report(breakerSettings(), generation, ok, now, 0)
	}
	return made, probe
}

// openBreaker returns one that has opened at start.
func openBreaker(t *testing.T) *policy.Breaker {
	t.Helper()
	b := &policy.Breaker{}
	for range 10 {
		if made, probe := post(b, false, start); !made || probe {
			t.Fatalf("a closed breaker: made %v, probe %v", made, probe)
		}
	}
	wantPhase(t, b, start, policy.BreakerOpen)
	return b
}

func wantPhase(t *testing.T, b *policy.Breaker, now time.Time, want policy.BreakerPhase) {
	t.Helper()
	if got := b.State(now).Phase; got != want {
		t.Fatalf("%s after the start: %s, want %s", now.Sub(start), got, want)
	}
}

func TestBreakerOpensAtHalfOfTenWithinAMinute(t *testing.T) {
	tests := []struct {
		name       string
		ok, failed int
		over       time.Duration // which they are spread over
		want       policy.BreakerPhase
	}{
		{"nine failures", 0, 9, 0, policy.BreakerClosed},
		{"ten failures", 0, 10, 0, policy.BreakerOpen},
		{"half of ten", 5, 5, 0, policy.BreakerOpen},
		{"less than half", 6, 5, 0, policy.BreakerClosed},
		{"ten within the minute", 0, 10, 45 * time.Second, policy.BreakerOpen},
		{"ten over several", 0, 10, 5 * time.Minute, policy.BreakerClosed},
		{"only successes", 100, 0, 0, policy.BreakerClosed},
	}
	for _, tt := range tests {
		b, now, n := &policy.Breaker{}, start, tt.ok+tt.failed
		for i := range n {
			now = start.Add(tt.over * time.Duration(i) / time.Duration(n))
			post(b, i < tt.ok, now)
		}
		if got := b.State(now).Phase; got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// A dead receiver gets 12 probes in 10 minutes, and one that is back after an outage of up to
// 40 s is found within 2 s or half of that time; after a longer one within seven tenths.
func TestBreakerProbesEarlyAndThenWithTheLengthOfTheOutage(t *testing.T) {
	b, now := openBreaker(t), start
	probes, last := 0, time.Duration(0)
	for now.Sub(start) < time.Hour {
		next := b.Next(breakerSettings(), now)
		if made, _ := post(b, true, next.Add(-time.Nanosecond)); made {
			t.Fatal("a POST was made before its time")
		}
		at := next.Sub(start)
		if most := max(last+2*time.Second, last*3/2); last < 40*time.Second && at > most {
			t.Errorf("after a probe at %s the next is at %s, want by %s", last, at, most)
		} else if last >= 40*time.Second && last < 5*time.Minute && at > last*17/10+time.Millisecond {
			t.Errorf("after a probe at %s the next is at %s", last, at)
		}
		if at < 10*time.Minute {
			probes++
		}
		last, now = at, next
		if made, probe := post(b, false, now); !made || !probe {
			t.Fatalf("made %v, probe %v", made, probe)
		}
		if st := b.State(now); st.Phase != policy.BreakerOpen || !st.Since.Equal(start) {
			t.Fatalf("%+v, want it open since the start", st)
		}
	}
	if probes > 12 || probes < 10 {
		t.Errorf("%d probes in 10 minutes, want at most 12", probes)
	}
}

// After a probe that succeeds a few POSTs go out, more with each success, and then all; what
// fails among them opens it again, as a part of the same outage.
func TestBreakerLetsMoreAndMoreThroughBeforeItCloses(t *testing.T) {
	s, b := breakerSettings(), openBreaker(t)
	now := b.Next(s, start)
	_, _, g := b.Allow(s, now)
	if room := b.Room(s, now); room != 0 {
		t.Fatalf("room for %d beside the probe", room)
	}
	if !b.Report(s, g, true, now, 0) || !b.Ramping() {
		t.Fatal("the success of a probe is told")
	}
	wantPhase(t, b, now, policy.BreakerHalfOpen)
	posts := 1
	for round := 2; b.State(now).Phase != policy.BreakerClosed; round *= 2 {
		if room := b.Room(s, now); room != round {
			t.Fatalf("room for %d after %d successes, want %d", room, posts, round)
		}
		for range round {
			_, _, g = b.Allow(s, now)
		}
		if ok, _, _ := b.Allow(s, now); ok {
			t.Fatal("more than there is room for")
		}
		for range round {
			b.Report(s, g, true, now, 0)
			posts++
		}
	}
	if posts != 7 {
		t.Errorf("closed after %d POSTs, want 7", posts)
	}

	b = openBreaker(t)
	now = b.Next(s, start)
	post(b, true, now)
	post(b, true, now)
	post(b, false, now)
	wantPhase(t, b, now, policy.BreakerHalfOpen) // one of three
	post(b, false, now)
	wantPhase(t, b, now, policy.BreakerOpen)
	if st := b.State(now); !st.Since.Equal(start) {
		t.Errorf("open since %s, want since the start", st.Since)
	}

	b = openBreaker(t) // few messages
	now = b.Next(s, start)
	post(b, true, now)
	post(b, true, now.Add(10*time.Second))
	wantPhase(t, b, now.Add(10*time.Second), policy.BreakerClosed)
}

func TestBreakerOpensForRefusalsThatItDoesNotCount(t *testing.T) {
	s, b := breakerSettings(), &policy.Breaker{}
	now := start.Add(75 * time.Second)
	if !b.Open(s, start, now, 0) || b.Open(s, start, now, 0) {
		t.Error("opens once")
	}
	if st := b.State(now); st.Phase != policy.BreakerOpen || !st.Since.Equal(start) || st.NextProbe.Sub(now) < 30*time.Second {
		t.Errorf("%+v, want it open since the start, and a probe as late as for an outage since then", st)
	}
}

// closeBreaker makes the POSTs that close a breaker whose probe is due.
func closeBreaker(b *policy.Breaker, now time.Time) {
	for range 7 {
		post(b, true, now)
	}
}

func TestBreakerIgnoresAnswersOfAnEarlierGeneration(t *testing.T) {
	s := breakerSettings()
	b := &policy.Breaker{}
	_, _, late := b.Allow(s, start)
	b = openBreaker(t)
	if b.Report(s, late, true, start, 0) {
		t.Error("an answer from before it opened changed it")
	}
	wantPhase(t, b, start, policy.BreakerOpen)
	now := start.Add(2 * time.Second)
	_, probe, lost := b.Allow(s, now)
	if ok, _, _ := b.Allow(s, now.Add(policy.ProbeTimeout-1)); ok || !probe {
		t.Fatal("two probes at once")
	}
	now = now.Add(policy.ProbeTimeout)
	ok, probe, second := b.Allow(s, now)
	if !ok || !probe {
		t.Fatal("a probe whose answer never came blocks for ever")
	}
	if b.Report(s, lost, true, now, 0) || b.Report(s, late, false, now, 0) {
		t.Error("a late answer changed it")
	}
	if !b.Report(s, second, true, now, 0) {
		t.Error("the probe's answer did not count")
	}
	closeBreaker(b, now)
	for range 20 {
		b.Report(s, second, false, now, 0)
	}
	wantPhase(t, b, now, policy.BreakerClosed)
}

func TestBreakerAbortFreesTheProbe(t *testing.T) {
	s, b := breakerSettings(), openBreaker(t)
	now := start.Add(30 * time.Second)
	_, _, g := b.Allow(s, now)
	wantPhase(t, b, now, policy.BreakerHalfOpen)
	b.Abort(g - 1)
	wantPhase(t, b, now, policy.BreakerHalfOpen)
	b.Abort(g)
	if next := b.Next(s, now); !next.Equal(now) {
		t.Errorf("next probe %s later, want at once", next.Sub(now))
	}
	if b.Report(s, g, true, now, 0) {
		t.Error("the answer of an aborted probe counted")
	}
	if made, probe := post(b, true, now); !made || !probe {
		t.Errorf("made %v, probe %v; want another probe", made, probe)
	}
	_, _, g = b.Allow(s, now)
	b.Abort(g)
	closeBreaker(b, now)
	wantPhase(t, b, now, policy.BreakerClosed)
}

func TestBreakerFollowsChangedSettingsAndTheClock(t *testing.T) {
	s, b := breakerSettings(), openBreaker(t)
	if next := b.Next(s, start.Add(-time.Hour)); next.After(start.Add(-30 * time.Minute)) {
		t.Errorf("the clock went back by an hour: next probe at %s", next)
	}
	b = openBreaker(t)
	s.ProbeMax, s.ProbeAfter = policy.Duration(2*time.Second), policy.Duration(time.Second)
	if next := b.Next(s, start); next.After(start.Add(3 * time.Second)) {
		t.Errorf("a shorter probe_max: next %s later", next.Sub(start))
	}
	b = openBreaker(t)
	s.Enabled = false
	if ok, probe, _ := b.Allow(s, start); !ok || probe {
		t.Error("turned off, but not open to POSTs")
	}
	b = openBreaker(t)
	b.Reset()
	if made, _ := post(b, true, start); !made {
		t.Error("reset, but not closed")
	}
}

func TestBreakerSurvivesARestart(t *testing.T) {
	b := openBreaker(t)
	post(b, false, start.Add(30*time.Second)) // the next one at 45 s
	saved := b.State(start.Add(31 * time.Second))
	var again policy.Breaker
	again.Restore(saved)
	if got := again.State(start.Add(31 * time.Second)); got != saved {
		t.Errorf("restored %+v, want %+v", got, saved)
	}
	if made, _ := post(&again, true, start.Add(44*time.Second)); made {
		t.Error("a POST before the probe was due")
	}
	_, _, _ = again.Allow(breakerSettings(), start.Add(90*time.Second))
	var third policy.Breaker
	third.Restore(again.State(start.Add(90 * time.Second)))
	if made, probe := post(&third, true, start.Add(91*time.Second)); !made || !probe {
		t.Errorf("restored while a probe was under way: made %v, probe %v; want a new probe", made, probe)
	}
	closeBreaker(&third, start.Add(92*time.Second))
	wantPhase(t, &third, start.Add(92*time.Second), policy.BreakerClosed)
	var closed policy.Breaker
	closed.Restore(policy.BreakerState{})
	wantPhase(t, &closed, start, policy.BreakerClosed)
}

func TestBreakerForgetsAfterAMinute(t *testing.T) {
	b := &policy.Breaker{}
	for i := range 9 {
		post(b, i == 0, start)
	}
	// Callers' clocks are read in another order than they get their turn.
	post(b, true, start.Add(-5*time.Second))
	if st := b.State(start); st.Samples != 10 || st.Failures != 8 || st.Phase != policy.BreakerClosed {
		t.Fatalf("%+v, want 8 failures of 10 samples, and no failure since", st)
	}
	if st := b.State(start.Add(49 * time.Second)); st.Samples != 10 {
		t.Errorf("forgotten too soon: %+v", st)
	}
	if st := b.State(start.Add(60 * time.Second)); st.Samples != 0 {
		t.Errorf("not forgotten: %+v", st)
	}
}

// What holds for any order of calls, times and settings.
func TestBreakerNeverHasTwoProbes(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		s, b, now := breakerSettings(), &policy.Breaker{}, start
		var flying []uint64
		probe, sent := uint64(0), time.Time{}
		for range 2000 {
			now = now.Add(time.Duration(rng.Int64N(int64(20 * time.Second))))
			if next := b.Next(s, now); next.Before(now) {
				t.Fatalf("seed %d: next %s is before now", seed, next)
			}
			if ok, isProbe, g := b.Allow(s, now); ok {
				if isProbe && probe != 0 && now.Sub(sent) < policy.ProbeTimeout {
					t.Fatalf("seed %d: a second probe %s after the first", seed, now.Sub(sent))
				}
				if isProbe {
					probe, sent = g, now
				}
				flying = append(flying, g)
			}
			if len(flying) == 0 || rng.IntN(3) == 0 {
				continue
			}
			i := rng.IntN(len(flying))
			g := flying[i]
			flying = append(flying[:i], flying[i+1:]...)
			if rng.IntN(4) == 0 {
				b.Abort(g)
			} else {
				b.Report(s, g, rng.IntN(3) == 0, now, rng.Float64())
			}
			if g == probe {
				probe = 0
			}
			if st := b.State(now); st.Failures > st.Samples || time.Duration(st.Wait) > time.Duration(s.ProbeMax) {
				t.Fatalf("seed %d: %+v", seed, st)
			}
		}
	}
}

func FuzzBreakerRestore(f *testing.F) {
	f.Add("open", int64(1_800_000_000), int64(time.Hour))
	f.Add("half-open", int64(-1), int64(-1))
	f.Add("", int64(1<<60), int64(1<<62))
	f.Fuzz(func(t *testing.T, phase string, at, wait int64) {
		var b policy.Breaker
		b.Restore(policy.BreakerState{Phase: policy.BreakerPhase(phase), NextProbe: time.Unix(at, 0), Wait: policy.Duration(wait)})
		now := start
		for range 20 {
			next := b.Next(breakerSettings(), now)
			if next.Before(now) || next.After(now.Add(20*time.Minute)) {
				t.Fatalf("next is %s later", next.Sub(now))
			}
			now = next
			if made, _ := post(&b, false, now); !made {
				t.Fatal("Next does not lead to a POST")
			}
		}
	})
}
