package policy_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
)

var (
	taken      = policy.Sign{Delivered: true, Answered: true}
	overloaded = policy.Sign{Answered: true, Failed: true, Overloaded: true}
	unanswered = policy.Sign{Failed: true, Overloaded: true}
)

func TestSignOfEveryAnswer(t *testing.T) {
	refused := policy.Sign{Answered: true}
	broken := policy.Sign{Answered: true, Failed: true}
	for status := 200; status < 600; status++ {
		want := refused
		switch {
		case status < 300:
			want = taken
		case status == 429, status == 502, status == 503, status == 504:
			want = overloaded
		case status >= 500:
			want = broken
		}
		switch status {
		case 400, 401, 403, 404, 405, 409, 411, 413, 414, 415, 422, 431, 501, 505:
			want.Refused = status
		}
		if got := policy.SignOf(policy.Response{Status: status, Class: policy.ClassReset}); got != want {
			t.Errorf("%d: %+v, want %+v", status, got, want)
		}
	}
	for _, class := range policy.ErrorClasses() {
		want := policy.Sign{}
		switch class {
		case policy.ClassTimeout, policy.ClassConnect, policy.ClassTLS, policy.ClassReset:
			want = unanswered
		case policy.ClassDNS, policy.ClassProtocol:
			want.Failed = true
		}
		if got := policy.SignOf(policy.Response{Class: class, Status: 100}); got != want {
			t.Errorf("%s: %+v, want %+v", class, got, want)
		}
	}
	if got := policy.SignOf(policy.Response{Class: policy.ClassBlocked, NameBlocked: true}); got != (policy.Sign{Failed: true}) {
		t.Errorf("a name that points inwards: %+v, want a failure as of the DNS", got)
	}
	if got := policy.SignOf(policy.Response{Class: policy.ClassTimeout, StaleConn: true}); got != (policy.Sign{}) {
		t.Errorf("a timeout that may have been its connection's: %+v, want no sign (C89)", got)
	}
	if got := policy.SignOf(policy.Response{}); got != (policy.Sign{}) {
		t.Errorf("no answer at all: %+v, want no sign", got)
	}
}

// A 429 or 503 that names a wait is waited for; from other refusals over a limit the pace is learned, whether they name one or not: they pause nothing.
func TestARefusalWithoutAWaitMayBeALimit(t *testing.T) {
	p, _ := policy.Preset("standard")
	p.Rules = []policy.Rule{{Match: "403", BodyContains: "rate limit", Action: "throttle"}}
	for _, tt := range []struct {
		name string
		r    policy.Response
		want bool
	}{
		{"429", policy.Response{Status: 429}, true},
		{"503", policy.Response{Status: 503}, true},
		{"429 with a wait", policy.Response{Status: 429, RetryAfter: "3"}, false},
		{"503 with an exhausted quota", policy.Response{Status: 503, RateLimit: `"p";r=0;t=30`}, false},
		{"502", policy.Response{Status: 502}, false},
		{"2xx", policy.Response{Status: 204}, false},
		{"what a rule calls throttled", policy.Response{Status: 403, Body: "API rate limit exceeded"}, true},
		{"the same with a wait", policy.Response{Status: 403, Body: "API rate limit exceeded", RetryAfter: "3"}, true},
		{"another 403", policy.Response{Status: 403, Body: "go away"}, false},
		{"one that names a wait", policy.Response{Status: 403, RetryAfter: "3"}, true},
		{"one with an exhausted quota", policy.Response{Status: 400, RateLimit: `"p";r=0;t=3`}, true},
		{"one that names none", policy.Response{Status: 403, RetryAfter: "0"}, false},
		{"410 with a wait", policy.Response{Status: 410, RetryAfter: "3"}, false},
		{"500 with a wait", policy.Response{Status: 500, RetryAfter: "3"}, false},
	} {
		if got := p.Sign(tt.r, start); got.Limited != tt.want || got.Limited && !got.Failed {
			t.Errorf("%s: %+v, want limited %v", tt.name, got, tt.want)
		}
	}
}

// An answer that completes its message is a delivery to whoever watches its webhook, and a refusal that
// a rule or the webhook itself spoke of is none that counts towards "it refuses everything" (C69).
func TestWhatARuleOrTheWebhookSaysOfARefusalIsItsSign(t *testing.T) {
	p, _ := policy.Preset("standard")
	p.AllowSteering = true
	p.Rules = []policy.Rule{
		{Match: "409", Action: "complete"}, {Match: "500", Action: "complete"}, {Match: "timeout", Action: "complete"},
		{Match: "403", Action: "dead-letter"}, {Match: "404", Action: "abandon"}, {Match: "422", Action: "throttle"},
	}
	delivered, answered := policy.Sign{Delivered: true, Answered: true}, policy.Sign{Answered: true}
	for _, tt := range []struct {
		r    policy.Response
		want policy.Sign
	}{
		{policy.Response{Status: 409}, delivered},
		{policy.Response{Status: 409, RetryAfter: "3"}, delivered},
		{policy.Response{Status: 500}, delivered},
		{policy.Response{Status: 401, Steering: "complete"}, delivered},
		{policy.Response{Class: policy.ClassTimeout}, policy.Sign{Failed: true, Overloaded: true}}, // nothing was heard of it
		{policy.Response{Status: 403}, answered},
		{policy.Response{Status: 404}, answered},
		{policy.Response{Status: 401, Steering: "dead-letter"}, answered},
		{policy.Response{Status: 403, RetryAfter: "3"}, answered},
		{policy.Response{Status: 422, RetryAfter: "3"}, policy.Sign{Answered: true, Failed: true, Overloaded: true, Limited: true, TooMany: true}},
		{policy.Response{Status: 422}, policy.Sign{Answered: true, Failed: true, Overloaded: true, Limited: true, TooMany: true}},
		{policy.Response{Status: 429, RetryAfter: "3"}, policy.Sign{Answered: true, Failed: true, Overloaded: true, Waits: true, Wait: 3 * time.Second}},
		{policy.Response{Status: 401}, policy.Sign{Answered: true, Refused: 401}},
		{policy.Response{Status: 401, Steering: "unknown"}, policy.Sign{Answered: true, Refused: 401}},
	} {
		if got := p.Sign(tt.r, start); got != tt.want {
			t.Errorf("%+v: %+v, want %+v", tt.r, got, tt.want)
		}
	}
}

// A refusal that is not the message's fault costs it no attempt, up to forty times; a rule
// decides all the same.
func TestARefusalThatIsNotTheMessagesFaultIsNotCharged(t *testing.T) {
	p, _ := policy.Preset("standard")
	p.Rules = []policy.Rule{{Match: "422", Action: "dead-letter"}}
	for _, tt := range []struct {
		status, waits int
		notIts        bool
		action        policy.Action
		charged       bool
	}{
		{503, 0, true, policy.Abandon, false},
		{429, 39, true, policy.Abandon, false},
		{429, 40, true, policy.Abandon, true},
		{429, 0, false, policy.Abandon, true},
		{502, 0, true, policy.Abandon, true},
		{403, 0, true, policy.Abandon, false},
		{403, 0, false, policy.DeadLetter, true},
		{422, 0, true, policy.DeadLetter, true},
	} {
		d := p.Decide(policy.Try{Now: start, Waits: tt.waits, NotItsFault: tt.notIts, Response: policy.Response{Status: tt.status}})
		if d.Action != tt.action || d.Charged != tt.charged {
			t.Errorf("%+v: %s, charged %v: %s", tt, d.Action, d.Charged, d.Explanation)
		}
	}
}

// The time for which only the limit kept a message away is not its age: a backlog of more than max_age would end in dead letters.
func TestAMessageIsNoOlderForTheLimitOfItsWebhook(t *testing.T) {
	p, _ := policy.Preset("realtime")
	for _, tt := range []struct {
		status int
		after  string
		notIts bool
		waits  int
		action policy.Action
		reason policy.Reason
	}{
		{503, "", true, 1, policy.Abandon, policy.ReceiverBusy},
		{429, "", true, 39, policy.Abandon, policy.ReceiverBusy},
		{429, "", true, 40, policy.DeadLetter, policy.MaxAgeExceeded},
		{429, "900", true, 39, policy.Abandon, policy.ReceiverBusy},
		{429, "900", true, 40, policy.DeadLetter, policy.MaxAgeExceeded},
		{429, "900", false, 1, policy.DeadLetter, policy.MaxAgeExceeded},
		{503, "", false, 1, policy.DeadLetter, policy.MaxAgeExceeded},
		{500, "", true, 1, policy.DeadLetter, policy.MaxAgeExceeded},
	} {
		d := p.Decide(policy.Try{
			Now: start.Add(2 * time.Duration(p.MaxAge)), FirstAt: start, Waits: tt.waits, NotItsFault: tt.notIts,
			Response: policy.Response{Status: tt.status, RetryAfter: tt.after},
		})
		if d.Action != tt.action || d.Reason != tt.reason {
			t.Errorf("%+v: %s, %s: %s", tt, d.Action, d.Reason, d.Explanation)
		}
	}
}

// Whoever says how long to wait has no more dead letters for it than who says nothing: also of a policy that repeats nothing.
func TestANamedWaitIsFreeWhileOthersAreTaken(t *testing.T) {
	p, _ := policy.Preset("once")
	for _, after := range []string{"", "1", "900"} {
		for waits, want := range map[int]policy.Action{0: policy.Abandon, 39: policy.Abandon, 40: policy.DeadLetter} {
			d := p.Decide(policy.Try{Now: start, FirstAt: start, Waits: waits, NotItsFault: true, Response: policy.Response{Status: 429, RetryAfter: after}})
			if d.Action != want || d.Charged != (want == policy.DeadLetter) {
				t.Errorf("Retry-After %q, after %d waits: %s, charged %v, want %s: %s", after, waits, d.Action, d.Charged, want, d.Explanation)
			}
		}
	}
}

// Where a quota is used up the same message is not asked for again and again at the first step of its schedule.
func TestWhatAQuotaRefusesIsTriedAgainAsLateAsIfItWereCharged(t *testing.T) {
	p, err := policy.Preset("standard")
	if err != nil {
		t.Fatal(err)
	}
	for waits, delay := range []time.Duration{5 * time.Second, 20 * time.Second, 80 * time.Second, 320 * time.Second, 1280 * time.Second, time.Hour, time.Hour} {
		for _, quota := range []bool{true, false} {
			if !quota {
				delay = 5 * time.Second
			}
			d := p.Decide(policy.Try{Now: start, FirstAt: start, Waits: waits, NotItsFault: true, Quota: quota, Response: policy.Response{Status: 429}})
			if d.Charged || d.Delay != delay {
				t.Errorf("after %d waits, quota %v: charged %v, delay %s, want %s", waits, quota, d.Charged, d.Delay, delay)
			}
			d = p.Decide(policy.Try{Now: start, FirstAt: start, Waits: waits, NotItsFault: true, Quota: quota, Response: policy.Response{Status: 429, RetryAfter: "100"}})
			if d.Charged || d.Delay != 100*time.Second {
				t.Errorf("after %d waits, quota %v, with a wait of its own: charged %v, delay %s", waits, quota, d.Charged, d.Delay)
			}
		}
	}
}

// A probe that a webhook refuses which takes none counts in nothing, however often the message was one, and has no age; what the message is at fault for counts.
func TestAProbeThatIsRefusedCountsInNothing(t *testing.T) {
	p, _ := policy.Preset("realtime")
	for _, tt := range []struct {
		status int
		notIts bool
		action policy.Action
	}{{429, true, policy.Abandon}, {503, true, policy.Abandon}, {503, false, policy.DeadLetter}, {500, true, policy.DeadLetter}} {
		for _, after := range []string{"", "900"} {
			d := p.Decide(policy.Try{
				Now: start.Add(2 * time.Duration(p.MaxAge)), FirstAt: start, Charged: p.MaxAttempts - 1, Waits: 1000, NotItsFault: tt.notIts, Probe: true,
				Response: policy.Response{Status: tt.status, RetryAfter: after},
			})
			if free := tt.action == policy.Abandon; d.Action != tt.action || d.Charged == free || d.Probed != free {
				t.Errorf("%+v, Retry-After %q: %s, charged %v, probed %v: %s", tt, after, d.Action, d.Charged, d.Probed, d.Explanation)
			}
		}
	}
}

// fill reports a windowful of one sign.
func fill(w *policy.Window, s policy.Sign, limit int) {
	generation, size := w.Generation(), w.Size(limit)
	for range size {
		w.Report(s, generation, size, limit)
	}
}

func TestWindowDoublesUntilOverloadThenGrowsByOne(t *testing.T) {
	var w policy.Window
	steps := []struct {
		sign policy.Sign
		want int
	}{
		{taken, 8},
		{taken, 16},
		{policy.Sign{Answered: true}, 32},
		{policy.Sign{Answered: true, Failed: true}, 32}, // a 500 is no reason to send more, nor less
		{policy.Sign{Answered: true, Refused: 400}, 32}, // nor is a message that it refuses
		{policy.Sign{}, 32},
		{taken, 64},
		{taken, 64}, // the limit
		{overloaded, 32},
		{taken, 33},
		{taken, 34},
		{unanswered, 17},
		{unanswered, 8},
		{unanswered, 4},
		{unanswered, 2},
		{unanswered, 1},
		{unanswered, 1},
		{taken, 2},
		{taken, 3},
	}
	if got := w.Size(64); got != policy.WindowStart || !w.SlowStart() {
		t.Fatalf("it begins with %d", got)
	}
	for i, step := range steps {
		if fill(&w, step.sign, 64); w.Size(64) != step.want {
			t.Fatalf("step %d: %d, want %d", i, w.Size(64), step.want)
		}
	}
	if w.SlowStart() {
		t.Error("still in slow start after overload")
	}
}

func TestWindowIgnoresWhatBeganBeforeTheCut(t *testing.T) {
	var w policy.Window
	fill(&w, taken, 64)
	old := w.Generation()
	for range 8 {
		w.Report(overloaded, old, 8, 64)
	}
	if got := w.Size(64); got != 4 {
		t.Errorf("%d after eight answers of one round trip, want one cut to 4", got)
	}
	for range 100 {
		w.Report(taken, old, 8, 64)
	}
	if got := w.Size(64); got != 4 {
		t.Errorf("%d, want no growth by old successes", got)
	}
}

func TestWindowBeginsAnewAndIgnoresWhatWasUnderWay(t *testing.T) {
	var w policy.Window
	old := w.Generation()
	fill(&w, taken, 64)
	w.Reset()
	w.Report(overloaded, old, 8, 64)
	if got := w.Size(64); got != policy.WindowStart || !w.SlowStart() {
		t.Errorf("%d, slow start %v; want it as new", got, w.SlowStart())
	}
}

func TestWindowThatIsNotUsedDoesNotGrow(t *testing.T) {
	var w policy.Window
	for range 1000 {
		w.Report(taken, w.Generation(), 1, 64)
	}
	if got := w.Size(64); got != policy.WindowStart {
		t.Errorf("%d after a thousand POSTs one by one, want %d", got, policy.WindowStart)
	}
}

// Receives bring half a window at a time, whose POSTs are answered together.
func TestWindowDoublesAlsoWhereAnswersComeTogether(t *testing.T) {
	var w policy.Window
	batches := 0
	for ; w.Size(64) < 64; batches++ {
		if batches > 20 {
			t.Fatalf("%d after 20 batches of half a window", w.Size(64))
		}
		generation := w.Generation()
		for inFlight := (w.Size(64) + 1) / 2; inFlight > 0; inFlight-- {
			w.Report(taken, generation, inFlight, 64)
		}
	}
	if batches < 8 { // two for each time that it doubles
		t.Errorf("64 after %d batches of half a window", batches)
	}
}

// One burst says nothing about what comes after its round.
func TestWindowThatWasUsedOnceDoesNotGoOnGrowing(t *testing.T) {
	var w policy.Window
	fill(&w, taken, 64)
	size := w.Size(64)
	w.Report(taken, w.Generation(), size, 64)
	for range 1000 {
		w.Report(taken, w.Generation(), 1, 64)
	}
	if got := w.Size(64); got > 2*size {
		t.Errorf("%d after one burst and a thousand POSTs one by one, want %d at most", got, 2*size)
	}
}

// An unsteady connection costs places in proportion: of one failure in 20 it keeps about 20, and
// not the few that halving leaves. A receiver that fails for good loses half of them in each round.
func TestWindowLosesAPlaceForEachFailureAndHalfInARoundOfThem(t *testing.T) {
	var w policy.Window
	sum := 0
	const posts = 20000
	for i := range posts {
		s := taken
		if i%20 == 19 {
			s = unanswered
		}
		w.Report(s, w.Generation(), w.Size(64), 64)
		sum += w.Size(64)
	}
	if mean := float64(sum) / posts; mean < 12 || mean > 25 {
		t.Errorf("%.1f places on average with one failure in 20, want about 20", mean)
	}
	size, generation := w.Size(64), w.Generation()
	for range 3 * size {
		w.Report(unanswered, generation, size, 64)
	}
	if got := w.Size(64); got != size/2 {
		t.Errorf("%d of %d places after the failures of one round, want half", got, size)
	}
}

func TestWindowFollowsTheLimit(t *testing.T) {
	var w policy.Window
	fill(&w, taken, 64)
	for _, tt := range []struct{ limit, want int }{{3, 3}, {64, 3}, {0, 1}, {-5, 1}, {1, 1}} {
		if got := w.Size(tt.limit); got != tt.want {
			t.Errorf("limit %d: %d, want %d", tt.limit, got, tt.want)
		}
	}
}

func FuzzWindowStaysInBounds(f *testing.F) {
	f.Add([]byte{1, 2, 3, 250, 251, 9})
	f.Fuzz(func(t *testing.T, script []byte) {
		var w policy.Window
		limit, generations := 64, []uint32{0}
		for _, b := range script {
			if b >= 240 {
				limit = int(b-239) * int(b-239)
			}
			before := w.Size(limit)
			g := generations[int(b)%len(generations)]
			s := []policy.Sign{taken, overloaded, unanswered, {}, {Answered: true}}[int(b)%5]
			w.Report(s, g, int(b)%(before+1), limit)
			after := w.Size(limit)
			if after < 1 || after > max(limit, 1) || after > before+1 || after < before/2 {
				t.Fatalf("from %d to %d with limit %d", before, after, limit)
			}
			generations = append(generations, w.Generation())
		}
	})
}

func TestBucketLetsABurstAndThenTheRate(t *testing.T) {
	f := policy.Flow{Rate: 2, Burst: 5}
	var b policy.Bucket
	taken := 0
	for b.Take(f, start) {
		taken++
	}
	if taken != 5 {
		t.Errorf("%d at once, want the burst of 5", taken)
	}
	next := b.Next(f, start)
	if want := start.Add(500 * time.Millisecond); !next.Equal(want) {
		t.Errorf("next %s later, want 500ms", next.Sub(start))
	}
	if b.Take(f, next.Add(-1)) || !b.Take(f, next) || b.Take(f, next) {
		t.Error("Next is not when a token is there")
	}
	slow := policy.Flow{Rate: 0.5}
	b = policy.Bucket{}
	if !b.Take(slow, start) || b.Take(slow, start.Add(1999*time.Millisecond)) || !b.Take(slow, start.Add(2*time.Second)) {
		t.Error("a rate of 0.5 is not one in two seconds")
	}
	b = policy.Bucket{}
	for range 1000 {
		if !b.Take(policy.Flow{}, start) {
			t.Fatal("no rate, but a limit")
		}
	}
}

func TestBucketKeepsWhatIsMissingWhenTheRateChanges(t *testing.T) {
	var b policy.Bucket
	fast, slow := policy.Flow{Rate: 100, Burst: 10}, policy.Flow{Rate: 1, Burst: 10}
	for range 8 {
		b.Take(fast, start)
	}
	left := 0
	for b.Take(slow, start) {
		left++
	}
	if left != 2 {
		t.Errorf("%d tokens left after the rate was lowered, want 2", left)
	}
	if next := b.Next(slow, start); !next.Equal(start.Add(time.Second)) {
		t.Errorf("next %s later, want 1s", next.Sub(start))
	}
	if next := b.Next(fast, start); !next.Equal(start.Add(10 * time.Millisecond)) {
		t.Errorf("the rate was raised: next %s later, want 10ms", next.Sub(start))
	}
	slow.Burst = 2
	if next := b.Next(slow, start); next.Sub(start) != 9*time.Second || b.Take(slow, start.Add(8*time.Second)) || !b.Take(slow, start.Add(9*time.Second)) {
		t.Error("the burst was lowered by 8: want a token 8s later than with the old one")
	}
	b = policy.Bucket{}
	wide := policy.Flow{Rate: 1, Burst: 1000}
	for b.Take(wide, start) {
		continue
	}
	if next := b.Next(slow, start); next.Sub(start) > policy.BucketAhead {
		t.Errorf("the burst was lowered by much: next %s later, want within %s", next.Sub(start), policy.BucketAhead)
	}
}

func TestBucketForgivesAClockThatIsSetBack(t *testing.T) {
	f := policy.Flow{Rate: 1, Burst: 3}
	var b policy.Bucket
	for b.Take(f, start) {
		continue
	}
	back := start.Add(-24 * time.Hour)
	if next := b.Next(f, back); next.After(back.Add(time.Second)) {
		t.Errorf("a day back: next %s later, want within 1s", next.Sub(back))
	}
}

// Over any stretch of time there are at most rate × time + burst tokens.
func TestBucketNeverLetsMoreThanRateAndBurst(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 2))
		f := policy.Flow{Rate: math.Pow(10, rng.Float64()*6-2), Burst: 1 + rng.IntN(50)}
		var b policy.Bucket
		var times []time.Time
		now := start
		for range 1500 {
			now = now.Add(time.Duration(rng.ExpFloat64() / f.Rate / 2 * float64(time.Second)))
			next := b.Next(f, now)
			if next.Before(now) {
				t.Fatalf("next %s is before now", next)
			}
			if took := b.Take(f, now); took != next.Equal(now) {
				t.Fatalf("Take = %v, Next in %s", took, next.Sub(now))
			} else if took {
				times = append(times, now)
			}
		}
		if len(times) < 500 {
			t.Fatalf("only %d tokens: the test says little", len(times))
		}
		for i := 0; i < len(times); i += 7 {
			for j := i; j < len(times); j += 5 {
				if most := f.Rate*times[j].Sub(times[i]).Seconds() + float64(f.Burst); float64(j-i+1) > most+1e-6 {
					t.Fatalf("seed %d: %d tokens in %s at rate %v, burst %d", seed, j-i+1, times[j].Sub(times[i]), f.Rate, f.Burst)
				}
			}
		}
	}
}

func TestPauseIsOnlyMadeLonger(t *testing.T) {
	var p policy.Pause
	steps := []struct {
		ask  time.Duration
		want time.Duration
	}{{-time.Second, 0}, {0, 0}, {time.Minute, time.Minute}, {20 * time.Second, time.Minute}, {2 * time.Minute, 2 * time.Minute}, {1000 * time.Hour, 24 * time.Hour}}
	for _, step := range steps {
		p.Ask(step.ask, start)
		if step.want == 0 {
			if got := p.Until(start); !got.IsZero() {
				t.Errorf("asked for %s: until %s, want no pause", step.ask, got)
			}
			continue
		}
		if got := p.Until(start).Sub(start); got != step.want {
			t.Errorf("asked for %s: %s, want %s", step.ask, got, step.want)
		}
	}
	if got := p.Until(start.Add(24 * time.Hour)); !got.IsZero() {
		t.Errorf("over, but until %s", got)
	}
	back := start.Add(-30 * 24 * time.Hour)
	if got := p.Until(back).Sub(back); got > policy.MaxPause {
		t.Errorf("the clock was set back: paused for %s", got)
	}
}

func TestPauseIsRestoredAndReset(t *testing.T) {
	var p policy.Pause
	p.Restore(start.Add(time.Hour))
	if got := p.Until(start); !got.Equal(start.Add(time.Hour)) {
		t.Errorf("restored: until %s", got)
	}
	if p.Reset(); !p.Until(start).IsZero() {
		t.Error("not ended by a reset")
	}
}

func TestSlotsSpreadReturnsAtTheRate(t *testing.T) {
	var s policy.Slots
	var last time.Time
	for i := range 100 {
		at := s.Reserve(10, time.Time{}, start, 0)
		if want := start.Add(time.Duration(i+1) * 100 * time.Millisecond); !at.Equal(want) {
			t.Fatalf("place %d: %s later, want %s", i, at.Sub(start), want.Sub(start))
		}
		last = at
	}
	if at := s.Reserve(10, start.Add(time.Minute), start, 0); !at.Equal(start.Add(time.Minute)) {
		t.Errorf("not before a minute has passed: %s later", at.Sub(start))
	}
	if at := s.Reserve(10, time.Time{}, last, 0); !at.Equal(start.Add(time.Minute + 100*time.Millisecond)) {
		t.Errorf("after that: %s later", at.Sub(start))
	}
	if s.Reset(); !s.Reserve(10, time.Time{}, start, 0).Equal(start.Add(100 * time.Millisecond)) {
		t.Error("reset, but the line is not empty")
	}
}

// 100,000 messages are postponed at once: none comes back later than the horizon, and
// no second gets more than twice its share.
func TestSlotsOfALongLineStayWithinTheHorizonAndDoNotCrowd(t *testing.T) {
	var s policy.Slots
	rng := rand.New(rand.NewPCG(3, 4))
	const n = 100_000
	bins := make([]int, int(policy.SlotHorizon/time.Second)+1)
	for range n {
		ahead := s.Reserve(50, start.Add(30*time.Second), start, rng.Float64()).Sub(start)
		if ahead <= 0 || ahead > policy.SlotHorizon {
			t.Fatalf("%s ahead", ahead)
		}
		bins[int(ahead/time.Second)]++
	}
	if most := slices.Max(bins); most > 2*n/300 {
		t.Errorf("%d in one second", most)
	}
	if line := bins[100]; line != 50 {
		t.Errorf("%d in a second of the first half, want 50", line)
	}
}

func FuzzSlotsAreAheadAndWithinTheHorizon(f *testing.F) {
	f.Add(50.0, int64(0), int64(0), 0.5)
	f.Add(math.NaN(), int64(1<<40), int64(-1<<50), 1.0)
	f.Fuzz(func(t *testing.T, rate float64, earliest, jump int64, random float64) {
		var s policy.Slots
		now := start
		for range 5 {
			for range 50 {
				ahead := s.Reserve(rate, now.Add(time.Duration(earliest)), now, random).Sub(now)
				if ahead <= 0 || ahead > policy.SlotHorizon {
					t.Fatalf("%s ahead", ahead)
				}
			}
			now = now.Add(time.Duration(jump % int64(1000*time.Hour)))
		}
	})
}

func TestMeterMeasuresPostsPerSecond(t *testing.T) {
	var m policy.Meter
	if got := m.Rate(start); got != 0 {
		t.Errorf("%v before anything was sent", got)
	}
	now := start
	for range 40 * 200 {
		now = now.Add(5 * time.Millisecond)
		m.Add(time.Millisecond, now)
		if got := m.Rate(now); got > 250 {
			t.Fatalf("%v after %s, want at most 200 and what one slot adds", got, now.Sub(start))
		}
	}
	if got := m.Rate(now); got < 150 || got > 210 {
		t.Errorf("%v, want about 200", got)
	}
	if got := m.Rate(now.Add(2 * time.Minute)); got != 0 {
		t.Errorf("%v after two minutes of nothing", got)
	}
	m.Add(0, time.Time{})
	if got := m.Rate(time.Time{}); got < 0 || math.IsNaN(got) {
		t.Errorf("%v at the beginning of time", got)
	}
}

func TestMeterKnowsWhatAWebhookCanTake(t *testing.T) {
	var m policy.Meter
	limited := policy.Flow{Rate: 30}
	if got, with := m.Capacity(policy.Flow{}, 4), m.Capacity(limited, 4); got != 0 || with != 30 {
		t.Errorf("before the first answer: %v, %v with a rate; want 0 and the rate", got, with)
	}
	for range 50 {
		m.Add(100*time.Millisecond, start)
	}
	if got := m.Latency(); got != 100*time.Millisecond {
		t.Errorf("latency %s, want 100ms", got)
	}
	if got, with := m.Capacity(policy.Flow{}, 4), m.Capacity(limited, 4); got != 40 || with != 30 {
		t.Errorf("4 in 100 ms: %v, %v with a rate of 30; want 40 and 30", got, with)
	}
	for range 50 {
		m.Add(time.Second, start)
	}
	if got := m.Latency(); got < 990*time.Millisecond || got > time.Second {
		t.Errorf("latency %s, want it to follow to 1s", got)
	}
}
