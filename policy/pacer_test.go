package policy_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
)

func TestThePacerLimitsNothingUntilAPostIsRefused(t *testing.T) {
	var p policy.Pacer
	for i := range 1000 {
		now := start.Add(time.Duration(i) * time.Millisecond)
		if next := p.Next(now); !next.Equal(now) {
			t.Fatalf("next %s later, with nothing refused", next.Sub(now))
		}
		p.Taken(p.Take(now), now, now)
	}
	if p.Limited() || p.State() != (policy.PaceState{}) {
		t.Errorf("limited: %+v", p.State())
	}
}

// A receiver that takes nothing is not limited but broken: the breaker's affair.
func TestThePacerTakesAReceiverThatTookNothingLatelyForNoLimitedOne(t *testing.T) {
	var p policy.Pacer
	if limited, broken := p.Refused(p.Take(start), start, start, 0); limited || !broken.IsZero() || p.Limited() {
		t.Error("limited by a receiver that has taken nothing")
	}
	p.Taken(p.Take(start), start, start)
	late := start.Add(76 * time.Second)
	if limited, broken := p.Refused(p.Take(late), late, late, 0); limited || !broken.IsZero() || p.Limited() {
		t.Error("limited by one that has taken nothing for 76 s")
	}
	p.Taken(p.Take(late), late, late)
	if limited, _ := p.Refused(p.Take(late), late, late, 0); !limited || !p.Limited() {
		t.Error("not limited by one that has just taken a POST")
	}
}

// limitedPacer has learned about 20/s.
func limitedPacer(t *testing.T) (*policy.Pacer, time.Time) {
	t.Helper()
	p := newPacer(1).(*pacer)
	tr := &trial{senders: []learner{p}, accepts: strictly(20), latency: time.Millisecond}
	tr.run(40*time.Second, 1)
	if r := p.Rate(); r < 16 || r > 21 {
		t.Fatalf("learned %v, want about 20", r)
	}
	return &p.Pacer, start.Add(40 * time.Second)
}

// Places are taken ahead, and the rate rises with them. What is refused is the rate of the refused POST's place, and not the one that was reached meanwhile.
func TestARefusalLowersTheRateThatItsPlaceWasTakenAt(t *testing.T) {
	p, now := limitedPacer(t)
	at := p.Next(now)
	place, rate := p.Take(at), p.Rate()
	for range 60 {
		p.Take(p.Next(now))
	}
	if ahead := p.Rate(); ahead < 1.05*rate {
		t.Fatalf("from %v/s to %v/s in 60 places", rate, ahead)
	}
	p.Refused(place, at, at, 0.5)
	if got := p.Rate(); got > 0.98*rate {
		t.Errorf("%v/s after a refusal at %v/s", got, rate)
	}
}

// Waits grow while everything is refused, and after 75 s no limit explains that.
func TestThePacerAsksARefusingReceiverEverMoreSeldomAndGivesItUp(t *testing.T) {
	p, now := limitedPacer(t)
	refused, began := 0, now
	limited, broken := true, time.Time{}
	for limited {
		if now = p.Next(now); refused == 0 {
			began = now
		}
		limited, broken = p.Refused(p.Take(now), now, now, 0.5)
		if refused++; refused > 40 {
			t.Fatal("no end in sight")
		}
	}
	if took := now.Sub(began); refused > 20 || took < 70*time.Second || took > 3*time.Minute {
		t.Errorf("given up after %d refusals and %s, want at most 20 and more than a minute", refused, took)
	}
	if !broken.Equal(began) {
		t.Errorf("broken since %s after the first refusal, want since that", broken.Sub(began))
	}
	p.Resume(now)
	if r := p.Rate(); r < 5 || r > 15 {
		t.Errorf("%v/s after the outage, want about half of what it was", r)
	}
}

// A time without messages is none in which everything was refused.
func TestARefusalAfterAQuietTimeIsNoBreakdown(t *testing.T) {
	p, now := limitedPacer(t)
	now = now.Add(10 * time.Minute)
	if limited, broken := p.Refused(p.Take(now), now, now, 0.5); !limited || !broken.IsZero() {
		t.Errorf("the first refusal: limited %v, broken since %s", limited, broken)
	}
	now = now.Add(74 * time.Second)
	if limited, _ := p.Refused(p.Take(now), now, now, 0.5); !limited {
		t.Error("broken within 75 s of the first refusal")
	}
	now = now.Add(2 * time.Second)
	if limited, _ := p.Refused(p.Take(now), now, now, 0.5); limited {
		t.Error("limited though everything was refused for 75 s")
	}
}

func TestThePacerGoesOnFromASnapshot(t *testing.T) {
	p, now := limitedPacer(t)
	saved := p.State()
	if saved.Refused == 0 || saved.Since.IsZero() {
		t.Errorf("saved %+v", saved)
	}
	var again policy.Pacer
	again.Restore(saved, now)
	if got := again.State(); math.Abs(got.Rate-saved.Rate) > saved.Rate/10 || got.Since != saved.Since || got.Refused != saved.Refused {
		t.Errorf("restored %+v, want %+v", got, saved)
	}
	again.Restore(policy.PaceState{Rate: math.NaN()}, now)
	if again.Limited() {
		t.Error("limited by what is no number")
	}
}

// What one instance has found out another one need not find out by slowing down, nor the next
// process after a restart.
func TestThePacerLearnsOfNoiseFromOthersAndFromASnapshot(t *testing.T) {
	told, now := limitedPacer(t)
	told.Share(policy.Others{Rate: 100, Taken: 100, Noise: 0.3}, now)
	var restored policy.Pacer
	restored.Restore(policy.PaceState{Rate: 20, Since: start, Noise: 0.3}, now)
	for name, p := range map[string]*policy.Pacer{"told": told, "restored": &restored} {
		if got := p.State().Noise; got != 0.3 {
			t.Errorf("%s: knows of noise of %v, want 0.3", name, got)
		}
		now, before := now, p.Rate()
		for i := range 200 {
			now = p.Next(now)
			if place := p.Take(now); i%10 == 1 || i%10 == 4 || i%10 == 5 {
				p.Refused(place, now, now, 0.5)
			} else {
				p.Taken(place, now, now)
			}
		}
		if got := p.Rate(); got < 2*before {
			t.Errorf("%s: %v/s at first and %v/s after 200 POSTs of which 30 %% were refused", name, before, got)
		}
	}
	var wrong policy.Pacer
	wrong.Restore(policy.PaceState{Rate: 20, Since: start, Noise: math.NaN()}, now)
	wrong.Share(policy.Others{Rate: 1, Taken: 1, Noise: 7}, now)
	if got := wrong.State().Noise; got != 0 {
		t.Errorf("knows of noise of %v from what is no share", got)
	}
}

// One refusal in passing is forgotten, though only few messages come.
func TestThePacerForgetsALimitThatWasOneRefusal(t *testing.T) {
	var p policy.Pacer
	now := start
	p.Taken(p.Take(now), now, now)
	p.Refused(p.Take(now), now, now, 0)
	for range 120 {
		if now = now.Add(time.Minute); !p.Limited() {
			return
		}
		p.Taken(p.Take(p.Next(now)), now, now)
	}
	t.Errorf("after two hours it is limited to %v/s by one refusal", p.Rate())
}

// What was taken a minute ago is nothing that a limit could begin with.
func TestThePacerBeginsWithWhatWasTakenInTheLastSecond(t *testing.T) {
	for _, tt := range []struct {
		ago         time.Duration
		least, most float64
	}{{0, 75, 95}, {time.Minute, 4, 6}} {
		var p policy.Pacer
		now := start
		for range 300 {
			now = now.Add(10 * time.Millisecond)
			p.Taken(p.Take(now), now, now)
		}
		now = now.Add(tt.ago)
		if p.Refused(p.Take(now), now, now, 0); p.Rate() < tt.least || p.Rate() > tt.most {
			t.Errorf("100 a second were taken until %s ago: it begins with %v/s, want %v to %v", tt.ago, p.Rate(), tt.least, tt.most)
		}
	}
}

// A place that was taken before a refusal is none any more, and one that is not used is given back.
func TestThePacerTakesPlacesBackWhenAPostIsRefused(t *testing.T) {
	p, now := limitedPacer(t)
	now = p.Next(now)
	place := p.Take(now)
	second := p.Next(now)
	if !second.After(now) || !p.Current(place) {
		t.Fatalf("second place %s later, the first is current: %v", second.Sub(now), p.Current(place))
	}
	p.Give(place, now)
	if next := p.Next(now); !next.Equal(now) {
		t.Errorf("given back, but the next is %s later", next.Sub(now))
	}
	place = p.Take(now)
	sleeping := p.Take(second)
	p.Refused(place, now, now, 0)
	if p.Current(sleeping) {
		t.Error("a place of before the refusal is still one")
	}
	rate := p.Rate()
	if p.Refused(sleeping, now, now, 0); p.Rate() != rate {
		t.Error("a POST of before the last cut lowered the rate once more")
	}
}

// A limiter goes by when POSTs come: the one after a late one waits its time, and does not follow it at once.
func TestThePacerWaitsItsTimeAfterALatePost(t *testing.T) {
	p, now := limitedPacer(t)
	first := p.Next(now)
	p.Take(first)
	second := p.Next(now)
	p.Take(second)
	gap := second.Sub(first)
	late := second.Add(-gap / 4)
	if at := p.Start(late); !at.Equal(late) {
		t.Fatalf("a late POST has to wait until %s", at)
	}
	if at := p.Start(second); at.Before(late.Add(gap * 9 / 10)) {
		t.Errorf("the next may begin %s after it, want about %s", at.Sub(late), gap)
	}
	if at := p.Next(late); at.Before(late.Add(gap * 9 / 10)) {
		t.Errorf("the next place is %s after it, want about %s", at.Sub(late), gap)
	}
	p.Share(policy.Others{Rate: 20, Taken: 20}, now)
	if at := p.Start(second); !at.Equal(second) {
		t.Errorf("beside other instances it keeps its place, and not %s later", at.Sub(second))
	}
}

// What is sent little says nothing about more: a night with few messages ends with the rate
// that the evening has learned.
func TestThePacerKeepsItsRateWhileItIsNotUsed(t *testing.T) {
	p, now := limitedPacer(t)
	before := p.Rate()
	for range 2000 {
		now = now.Add(20 * time.Second)
		p.Taken(p.Take(p.Next(now)), now, now.Add(time.Millisecond))
	}
	if got := p.Rate(); math.Abs(got-before) > before/10 {
		t.Errorf("%v/s in the morning, %v/s in the evening", got, before)
	}
}

// A place that is given back is no use of the rate, which does not rise by it.
func TestThePacerDoesNotRiseByPlacesThatAreGivenBack(t *testing.T) {
	p, now := limitedPacer(t)
	before := p.Rate()
	for range 2000 {
		now = p.Next(now)
		p.Give(p.Take(now), now)
		now = now.Add(40 * time.Millisecond)
	}
	if got := p.Rate(); got > before*1.2 {
		t.Errorf("%v/s after 2000 places that were given back, %v/s before", got, before)
	}
}

// A clock that jumps an hour neither stops the POSTs nor lets them all through.
func TestThePacerOutlivesAClockThatJumps(t *testing.T) {
	for _, jump := range []time.Duration{time.Hour, -time.Hour} {
		p, now := limitedPacer(t)
		before := p.Rate()
		now = now.Add(jump)
		limit, taken, refused := strictly(20), 0, 0
		for end := now.Add(30 * time.Second); now.Before(end); {
			if now = p.Next(now); now.After(end.Add(time.Minute)) {
				t.Fatalf("the clock jumped by %s: the next POST is %s ahead", jump, now.Sub(end))
			}
			place := p.Take(now)
			if limit(now) {
				taken++
				p.Taken(place, now, now.Add(time.Millisecond))
			} else {
				refused++
				if limited, _ := p.Refused(place, now, now.Add(time.Millisecond), 0.5); !limited {
					t.Fatalf("the clock jumped by %s: the webhook counts as broken", jump)
				}
			}
		}
		if r := p.Rate(); r < before/2 || r > 2*before || taken < 400 || refused > taken/5 {
			t.Errorf("the clock jumped by %s: %d taken and %d refused in 30 s, at %v/s and then %v/s", jump, taken, refused, before, r)
		}
	}
}

// Whatever the clock does, the next POST is never far away, and rates stay within bounds.
func FuzzPacer(f *testing.F) {
	f.Add([]byte{0, 1, 200, 3}, int64(time.Hour))
	f.Add([]byte{1, 255, 255, 255, 255, 0}, int64(-24*time.Hour))
	f.Add([]byte{1, 3, 3, 19, 3, 3, 23, 17, 13, 19, 1, 1, 19, 17, 26, 34, 38, 46}, int64(-time.Hour))
	f.Fuzz(func(t *testing.T, steps []byte, jump int64) {
		var p policy.Pacer
		rng := rand.New(rand.NewPCG(1, uint64(len(steps))))
		now := start
		for i, s := range steps {
			if i%7 == 6 {
				now = now.Add(time.Duration(jump % int64(1000*time.Hour)))
			}
			next := p.Next(now)
			if ahead := next.Sub(now); ahead < 0 || ahead > 10*time.Minute {
				t.Fatalf("next is %s ahead", ahead)
			}
			now = next
			place := p.Take(now)
			now = now.Add(time.Duration(s) * time.Millisecond)
			if s%3 == 0 {
				p.Taken(place, next, now)
			} else {
				p.Refused(place, now, now, rng.Float64())
			}
			switch {
			case s%11 == 0:
				p.Resume(now)
			case s%13 == 0:
				p.Give(p.Take(p.Next(now)), now)
			case s%17 == 0:
				if at := p.Start(now); at.Sub(now) > 10*time.Minute {
					t.Fatalf("it may start %s later", at.Sub(now))
				}
			case s%19 == 0:
				p.Share(policy.Others{Rate: rng.ExpFloat64() * 50, Taken: rng.Float64() * 50, Noise: rng.Float64() - 0.5}, now)
			case s%23 == 0:
				p.Restore(p.State(), now)
			}
			if r := p.Rate(); p.Limited() && !(r >= 1.0/121 && r <= policy.MaxRate) {
				t.Fatalf("rate %v", r)
			}
		}
	})
}

// Of an instance that leads others, a guess that ends leaves the rate that was found and not a multiple of it, whether or
// not the refusal that ended it might have been another instance's doing.
func TestAGuessThatEndsBesideOthersLeavesTheRateThatWasFound(t *testing.T) {
	var p policy.Pacer
	now := start
	p.Taken(p.Take(now), now, now)
	p.Refused(p.Take(now), now, now, 0.5)
	p.Share(policy.Others{Rate: 20, Taken: 20}, now)
	var taken time.Time
	for n := range 400 {
		now = p.Next(now)
		place := p.Take(now)
		if p.Rate() > 60 {
			t.Fatalf("%.0f/s at POST %d before a limit of 20/s", p.Rate(), n)
		}
		if now.Sub(taken) >= 50*time.Millisecond {
			taken = now
			p.Taken(place, now, now)
			continue
		}
		p.Refused(place, now, now, 0.5)
	}
	if p.Rate() < 10 || p.Rate() > 25 {
		t.Errorf("%.0f/s in the end", p.Rate())
	}
}

// Nor is a time without messages between two refusals, as between the last one of a burst and the first one of the next. Three in a row tell more.
func TestAQuietTimeBetweenTwoRefusalsIsNoBreakdown(t *testing.T) {
	p, now := limitedPacer(t)
	refuse := func() (limited bool) {
		now = p.Next(now)
		limited, _ = p.Refused(p.Take(now), now, now, 0.5)
		return limited
	}
	for i := range 2 {
		if !refuse() {
			t.Errorf("refusal %d: broken", i)
		}
		now = now.Add(time.Hour)
	}
	if refuse() {
		t.Error("limited though three were refused, each an hour after the one before")
	}
}
