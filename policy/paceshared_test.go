package policy_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
)

// ahead is another instance that is taken 20 times a second.
var ahead = policy.Others{Rate: 20, Taken: 20, Learned: 20, Posts: 200, Failed: 4, Instances: 1, Leader: "a"}

// refuse has a POST refused at its place, and returns when.
func refuse(p *policy.Pacer, now time.Time) (at time.Time, broken bool) {
	at = p.Next(now)
	limited, _ := p.Refused(p.Take(at), at, at, 0.5)
	return at, !limited
}

func TestAnInstanceGivesWayToOneThatIsTakenMoreOften(t *testing.T) {
	for _, tt := range []struct {
		name        string
		others      policy.Others
		least, most float64
	}{
		{"alone", policy.Others{}, 0.82, 0.97},
		{"beside one that is taken more often", ahead, 0.65, 0.75},
	} {
		p, now := limitedPacer(t)
		p.Share(tt.others, now)
		before := p.Rate()
		refuse(p, now)
		if left := p.Rate() / before; left < tt.least || left > tt.most {
			t.Errorf("%s: a refusal leaves %.2f of the rate, want %v to %v", tt.name, left, tt.least, tt.most)
		}
	}
}

// The one that is taken most often is refused what the others take from it, and puts up with that.
func TestTheInstanceThatIsTakenMostPutsUpWithSomeRefusals(t *testing.T) {
	p, now := limitedPacer(t)
	p.Share(policy.Others{Rate: 5, Taken: 5, Posts: 50, Instances: 1}, now)
	for range 40 { // by then it may be refused a few
		now = p.Next(now)
		p.Taken(p.Take(now), now, now)
	}
	before := p.Rate()
	if now, _ = refuse(p, now); p.Rate() < before {
		t.Errorf("one refusal in 41 lowered the rate from %v to %v", before, p.Rate())
	}
	for range 4 {
		now, _ = refuse(p, now)
	}
	if p.Rate() >= before {
		t.Errorf("five refusals in a row left the rate at %v", p.Rate())
	}
}

// A POST that another instance's refusal explains has all places ahead taken anew: those of both would meet again. The time of
// these places counts once.
func TestPlacesThatAreTakenAnewBesideOthersCountOnce(t *testing.T) {
	p, now := limitedPacer(t)
	p.Share(policy.Others{Rate: 5, Taken: 5, Posts: 50, Instances: 1}, now)
	for range 40 { // by then it may be refused one
		now = p.Next(now)
		p.Taken(p.Take(now), now, now)
	}
	now = p.Next(now)
	refused, before := p.Take(now), p.Rate()
	var ahead []policy.PacePlace
	for range 20 {
		ahead = append(ahead, p.Take(p.Next(now)))
	}
	reached := p.Rate()
	p.Refused(refused, now, now, 0.5)
	for i, place := range ahead {
		if p.Current(place) {
			t.Fatalf("place %d is still that of its POST", i)
		}
	}
	for range ahead {
		p.Take(p.Next(now))
	}
	if got := p.Rate(); got < before || got > reached*1.001 {
		t.Errorf("%v/s once 20 places were taken anew, want %v at least and no more than the %v that they had reached", got, before, reached)
	}
}

// Who follows another instance makes no trial, and the one that leads does: half is refused, and each other POST.
func TestOnlyTheInstanceThatLeadsMakesATrial(t *testing.T) {
	for _, leader := range []string{"", "a"} {
		var p policy.Pacer
		p.Restore(policy.PaceState{Rate: 2, Since: start.Add(-time.Minute)}, start)
		p.Share(policy.Others{Rate: 0.2, Taken: 0.2, Posts: 2, Instances: 1, Leader: leader}, start)
		now, asked := start, false
		for n := range 80 {
			now = p.Next(now)
			if place := p.Take(now); n%2 == 0 {
				p.Taken(place, now, now)
			} else {
				p.Refused(place, now, now, 0.5)
			}
			asked = asked || p.Asks() // what others send is known from long ago
		}
		if follows := leader != ""; asked == follows {
			t.Errorf("it follows another one: %v, and is to make a trial: %v", follows, asked)
		}
	}
}

func TestAnInstanceTakesOverFromOneThatHasStopped(t *testing.T) {
	p, now := limitedPacer(t)
	for range 100 {
		p.Share(ahead, p.Next(now))
		now, _ = refuse(p, now)
	}
	if r := p.Rate(); r < 1./31 || r > 1 {
		t.Fatalf("%v/s after 100 refusals beside one that is taken 20 times a second, want little, and one POST in 30 s", r)
	}
	if !p.Follows() {
		t.Error("it does not know that another one is taken more often")
	}
	p.Share(policy.Others{}, now)
	if r := p.Rate(); r < 15 || r > 20 || p.Follows() {
		t.Errorf("%v/s once that one has stopped, want about what it was taken", r)
	}
}

// One that was sent little before it stopped, at night, had learned more all the same.
func TestAnInstanceTakesOverWhatAnIdleOneHadLearned(t *testing.T) {
	for name, left := range map[string]policy.Others{
		"nobody is left":           {},
		"another follower is left": {Rate: 0.017, Taken: 0.017, Learned: 0.033, Posts: 1, Instances: 1},
	} {
		p, now := limitedPacer(t)
		for range 100 {
			p.Share(ahead, p.Next(now))
			now, _ = refuse(p, now)
		}
		idle := ahead
		idle.Rate, idle.Taken, idle.Posts, idle.Failed, idle.Instances = 0.2, 0.2, 1, 0, 2
		if p.Share(idle, now); !p.Follows() {
			t.Fatal("it does not follow the one that has nothing to send")
		}
		p.Share(left, now)
		if r := p.Rate(); r < 15 || r > 20 {
			t.Errorf("%s: %v/s once that one has stopped, want about what it had learned", name, r)
		}
	}
}

// What was refused before and after a time in which nothing was sent says nothing of that time: one POST in 46 s went to a webhook that takes 20 a second.
func TestNothingWaitsForATimeInWhichNothingWasSent(t *testing.T) {
	p, now := limitedPacer(t)
	now, _ = refuse(p, now)
	now, _ = refuse(p, now.Add(10*time.Minute))
	if wait := p.Next(now).Sub(now); wait > time.Second {
		t.Errorf("%s until the next POST", wait)
	}
	for range 10 {
		now, _ = refuse(p, now)
	}
	if wait := p.Next(now).Sub(now); wait < time.Second {
		t.Errorf("%s until the next POST after ten refusals in a row", wait)
	}
}

// Nor does such a time between two refusals say that the webhook took less on average.
func TestAQuietTimeBetweenTwoRefusalsLeavesTheRate(t *testing.T) {
	p, now := limitedPacer(t)
	for range 60 {
		now = p.Next(now)
		p.Taken(p.Take(now), now, now)
	}
	before := p.Rate()
	now, _ = refuse(p, now)
	now, _ = refuse(p, now.Add(6*time.Minute))
	for range 3 {
		now = p.Next(now)
		p.Taken(p.Take(now), now, now)
	}
	if after := p.Rate(); after < 0.8*before {
		t.Errorf("%.1f POSTs a second after it, %.1f before", after, before)
	}
	now, _ = refuse(p, now)
	now, _ = refuse(p, now)
	if wait := p.Next(now).Sub(now); wait > 2*time.Second {
		t.Errorf("%s until the next POST", wait)
	}
}

// Nor where the breaker has opened meanwhile.
func TestWhatWasIdleBeforeABreakerOpenedDoesNotCount(t *testing.T) {
	p, now := limitedPacer(t)
	now, _ = refuse(p, now)
	now, _ = refuse(p, now.Add(10*time.Minute))
	p.Taken(p.Take(now), now, now)
	p.Away(now)
	for range 10 {
		now, _ = refuse(p, now)
	}
	if wait := p.Next(now).Sub(now); wait < time.Second {
		t.Errorf("%s until the next POST after ten refusals in a row", wait)
	}
}

// While others are taken the webhook is no broken one, though this instance is refused everything.
func TestAWebhookThatTakesPostsOfOthersIsNotBroken(t *testing.T) {
	for _, tt := range []struct {
		name   string
		others policy.Others
		want   bool
	}{
		{"others are taken", ahead, false},
		{"others are refused, too", policy.Others{Rate: 20, Taken: 1, Posts: 200, Failed: 200, Instances: 1, Leader: "a"}, true},
	} {
		p, now := limitedPacer(t)
		broken := false
		for end := now.Add(10 * time.Minute); now.Before(end) && !broken; {
			p.Share(tt.others, p.Next(now))
			now, broken = refuse(p, now)
		}
		if broken != tt.want {
			t.Errorf("%s: broken %v", tt.name, broken)
		}
	}
}

// What several instances could not send comes back to any of them, so that the one which leads receives what it may send: it comes back from
// those that follow at the pace of all of them, times what the leader does not receive of it.
func TestMessagesComeBackSoThatTheInstanceThatLeadsReceivesEnough(t *testing.T) {
	p, now := limitedPacer(t)
	if got := p.Turn(); got != 0 {
		t.Errorf("alone: %v", got)
	}
	for _, tt := range []struct {
		name   string
		others policy.Others
		want   float64 // of the rate that the one which leads has learned
	}{
		{"it leads", policy.Others{Rate: p.Rate() / 10, Learned: p.Rate() / 10, Instances: 1}, 1.1},
		{"of two it follows", policy.Others{Rate: 10 * p.Rate(), Learned: 10 * p.Rate(), Instances: 1, Leader: "a"}, 22},
		{"of three", policy.Others{Rate: 10 * p.Rate(), Learned: 10 * p.Rate(), Instances: 2, Leader: "a"}, 16.5},
		{"one that has nothing to send now", policy.Others{Rate: p.Rate() / 10, Learned: 10 * p.Rate(), Instances: 1, Leader: "a"}, 20},
	} {
		p.Share(tt.others, now)
		if got, want := p.Turn(), tt.want*p.Rate(); got < want*0.99 || got > want*1.01 {
			t.Errorf("%s: %v a second, want %v", tt.name, got, want)
		}
	}
}

// Several instances that share a limit reach most of it, few POSTs are refused, and none of them takes what it is refused for noise,
// or for a breakdown. One comes to be taken most often, and the others give way.
func TestSeveralInstancesShareALimit(t *testing.T) {
	for _, tt := range []struct {
		name    string
		limit   float64
		accepts func() limiter
	}{
		{"one in 500 ms", 2, func() limiter { return strictly(2) }},
		{"one in 50 ms", 20, func() limiter { return strictly(20) }},
		{"token bucket 2/s, burst 5", 2, func() limiter { return tokenBucket(2, 5) }},
		{"token bucket 20/s, burst 5", 20, func() limiter { return tokenBucket(20, 5) }},
		{"2 in a sliding second", 2, func() limiter { return slidingWindow(2, time.Second) }},
		{"10 in each 10 s", 1, func() limiter { return fixedWindow(10, 10*time.Second) }},
		{"20 in each 5 s", 4, func() limiter { return fixedWindow(20, 5*time.Second) }},
	} {
		for _, by := range []struct {
			senders     int
			least, most float64
		}{{2, 0.75, 0.2}, {3, 0.5, 0.22}} {
			for _, latency := range []time.Duration{time.Millisecond, 50 * time.Millisecond, 300 * time.Millisecond} {
				least, most := math.Inf(1), 0.0
				for seed := range uint64(4) {
					tr := &trial{accepts: tt.accepts(), latency: latency, window: true, flight: 16, jitter: 200 * time.Microsecond}
					for i := range by.senders {
						tr.senders = append(tr.senders, newPacer(seed+uint64(i)*100))
					}
					tr.run(9*time.Minute, seed)
					ok, no := tr.between(4*time.Minute, 9*time.Minute)
					least, most = min(least, float64(ok)/tt.limit/300), max(most, float64(no)/float64(ok+no))
					for _, s := range tr.senders {
						if p := s.(*pacer); p.opened > 0 || p.State().Noise > 0 {
							t.Errorf("%s, %d instances, %v: a breaker has opened %d times, and noise of %v is known", tt.name, by.senders, latency, p.opened, p.State().Noise)
						}
					}
				}
				t.Logf("%s, %d instances, %v: %.0f %%, %.1f %% refused", tt.name, by.senders, latency, 100*least, 100*most)
				if least < by.least || most > by.most {
					t.Errorf("%s, %d instances, %v: %.0f %% of the limit and %.0f %% refused, want %.0f and at most %.0f", tt.name, by.senders, latency, 100*least, 100*most, 100*by.least, 100*by.most)
				}
			}
		}
	}
}

// In the first half minute of a limit, too, few POSTs are refused: as nginx limits, by a machine that is late. Who is alone is refused
// what looking for the limit costs.
func TestALimitThatIsMetByABacklogRefusesFewAfterTenSeconds(t *testing.T) {
	for _, tt := range []struct {
		name        string
		accepts     func() limiter
		senders     int
		jitter      time.Duration
		ahead       time.Duration
		least, most float64
	}{
		{"alone, token bucket", func() limiter { return tokenBucket(20, 21) }, 1, 20 * time.Millisecond, trialAhead, 0.95, 0.05},
		{"alone, token bucket, under a host", func() limiter { return tokenBucket(20, 21) }, 1, 20 * time.Millisecond, trialHost, 0.95, 0.05},
		{"alone, strictly", func() limiter { return strictly(20) }, 1, 5 * time.Millisecond, trialAhead, 0.85, 0.06},
		{"two, token bucket", func() limiter { return tokenBucket(20, 21) }, 2, 200 * time.Microsecond, trialAhead, 0.95, 0.16},
		{"two, token bucket, under a host", func() limiter { return tokenBucket(20, 21) }, 2, 200 * time.Microsecond, trialHost, 0.95, 0.16},
		{"two, token bucket, late", func() limiter { return tokenBucket(20, 21) }, 2, 20 * time.Millisecond, trialAhead, 0.95, 0.16},
		{"two, strictly, late", func() limiter { return strictly(20) }, 2, 5 * time.Millisecond, trialAhead, 0.6, 0.16},
	} {
		least, most := math.Inf(1), 0.0
		for seed := range uint64(20) {
			tr := &trial{accepts: tt.accepts(), latency: 2 * time.Millisecond, window: true, jitter: tt.jitter, ahead: tt.ahead}
			for i := range tt.senders {
				tr.senders = append(tr.senders, newPacer(seed+uint64(i)*100))
			}
			tr.run(40*time.Second, seed)
			first := slices.IndexFunc(tr.posts, func(p trialPost) bool { return !p.taken })
			from := tr.posts[first].at.Sub(start) + 10*time.Second
			ok, no := tr.between(from, from+25*time.Second)
			least, most = min(least, float64(ok)/500), max(most, float64(no)/float64(ok+no))
		}
		t.Logf("%s: %.0f %% of the limit, %.1f %% refused", tt.name, 100*least, 100*most)
		if least < tt.least || most > tt.most {
			t.Errorf("%s: %.0f %% of the limit and %.1f %% refused, want %.0f and at most %.0f", tt.name, 100*least, 100*most, 100*tt.least, 100*tt.most)
		}
	}
}

// One that is banned has little left of its rate when it is known that nothing of it is taken any more.
func TestAnInstanceTakesOverWhatABannedOneHadLearned(t *testing.T) {
	p, now := limitedPacer(t)
	for range 100 {
		p.Share(ahead, p.Next(now))
		now, _ = refuse(p, now)
	}
	banned := ahead
	banned.Rate, banned.Taken, banned.Learned, banned.Posts, banned.Failed = 1, 0.1, 1, 10, 10
	p.Share(banned, now)
	if r := p.Rate(); r > 1 {
		t.Fatalf("%v/s while it follows", r)
	}
	p.Share(policy.Others{Rate: 0.1, Posts: 10, Failed: 10}, now)
	if r := p.Rate(); r < 12 || r > 20 {
		t.Errorf("%v/s once it leads, want about what the other one had learned", r)
	}
	if next := p.Next(now); next.Sub(now) > time.Second {
		t.Errorf("its first POST is %s away", next.Sub(now))
	}
}
