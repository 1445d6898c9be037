package dispatcher

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/webhook"
)

// strictly takes one POST in each interval and answers status to the others.
func strictly(gap time.Duration, refusal int) func(time.Time) webhook.Result {
	var free time.Time
	return func(now time.Time) webhook.Result {
		if now.Before(free) {
			return webhook.Result{Status: refusal}
		}
		free = now.Add(gap)
		return webhook.Result{Status: 200}
	}
}

// nginx limit_req and most middleware: one in 50 ms, the others refused at once, no header.
func TestAReceiverWithALimitGetsItsRate(t *testing.T) {
	for _, refusal := range []int{429, 503} {
		t.Run(fmt.Sprint(refusal), func(t *testing.T) {
			inBubble(t, func(b *bench) {
				limited(nil)(&b.webhook)
				b.webhook.Policy.MaxAttempts = 3
				b.webhook = b.update(b.webhook)
				answer := strictly(50*time.Millisecond, refusal)
				taken, refused := 0, 0
				r := &receiver{takes: after(time.Millisecond)}
				r.answer = func(now time.Time) webhook.Result {
					res := answer(now)
					if res.Status == 200 {
						taken++
					} else {
						refused++
					}
					return res
				}
				const messages = 1700
				b.sendNumbered(messages)
				d, stop := b.start(func(o *Options) { o.Sender = receivers{"wh_a": r} })
				time.Sleep(10 * time.Second)
				r.mu.Lock()
				taken, refused = 0, 0
				r.mu.Unlock()
				time.Sleep(time.Minute)
				r.mu.Lock()
				share, over := float64(taken)/1200, float64(refused)/float64(taken+refused)
				r.mu.Unlock()
				t.Logf("%.0f %% of the limit, %.1f %% refused", 100*share, 100*over)
				if share < 0.8 || over > 0.1 {
					t.Errorf("%.0f %% of the limit and %.1f %% refused, want 80 and at most 10", 100*share, 100*over)
				}
				s, _ := d.Webhook("wh_a")
				want(t, "state", s.State, status.Limited)
				want(t, "the rate is learned", s.Pace.Rate > 15 && s.Pace.Rate < 22, true)
				want(t, "breaker", s.Breaker.Phase, policy.BreakerClosed)
				want(t, "dead letters", len(b.deadLetters()), 0)
				stop()
				wantAtRest(t, d)

				again, stopAgain := b.start(func(o *Options) { o.Sender = receivers{"wh_a": r} })
				time.Sleep(2 * time.Second)
				s, _ = again.Webhook("wh_a")
				want(t, "limited after a restart", s.State, status.Limited)
				time.Sleep(2 * time.Minute)
				want(t, "messages left", b.total(testQueue), 0)
				want(t, "dead letters at the end", len(b.deadLetters()), 0)
				stopAgain()
			})
		})
	}
}

// Azure's "this web app is stopped": what comes after the first refusals is kept.
func TestAReceiverThatRefusesEverythingKeepsItsMessages(t *testing.T) {
	inBubble(t, func(b *bench) {
		limited(nil)(&b.webhook)
		b.webhook = b.update(b.webhook)
		r := &receiver{takes: after(10 * time.Millisecond), answer: answers(403)}
		b.sendNumbered(200)
		d, stop := b.start(func(o *Options) { o.Sender = receivers{"wh_a": r} })
		time.Sleep(10 * time.Minute)
		s, _ := d.Webhook("wh_a")
		want(t, "refuses everything", s.Refusing && s.Breaker.Phase != policy.BreakerClosed, true)
		want(t, "few dead letters", len(b.deadLetters()) <= 20, true)
		want(t, "few POSTs", r.count() <= 26, true)
		dead := len(b.deadLetters())
		for _, instance := range []string{"test", "other"} { // a restart, and an instance that was not there before
			stop()
			wantAtRest(t, d)
			d, stop = b.start(func(o *Options) { o.Sender, o.Instance = receivers{"wh_a": r}, instance })
			time.Sleep(20 * time.Minute)
			s, _ = d.Webhook("wh_a")
			want(t, "refuses everything after a restart", s.Refusing && s.Breaker.Phase != policy.BreakerClosed, true)
			want(t, "dead letters after a restart", len(b.deadLetters()), dead)
		}
		r.now(answers(200))
		time.Sleep(30 * time.Minute)
		want(t, "dead letters", len(b.deadLetters()), dead)
		want(t, "messages left", b.total(testQueue), 0)
		stop()
		wantAtRest(t, d)
	})
}

// What a rule says of a refusal holds for each message, however many are refused in a row: it neither
// stops its webhook nor has it disabled.
func TestARefusalThatARuleSpeaksOfStopsNoWebhook(t *testing.T) {
	for action, dead := range map[string]int{"complete": 0, "dead-letter": 80} {
		t.Run(action, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				limited(func(f *policy.Flow) {
					f.AutoDisableAfter, f.AutoDisableMinFailures = policy.DurationOrNever(time.Hour), 10
				})(&b.webhook)
				b.webhook.Policy.Rules = []policy.Rule{{Match: "409", Action: action}}
				b.webhook = b.update(b.webhook)
				r := &receiver{takes: after(10 * time.Millisecond), answer: answers(409)}
				d, stop := b.start(func(o *Options) { o.Sender = receivers{"wh_a": r} })
				for range 4 {
					b.sendNumbered(20)
					time.Sleep(30 * time.Minute)
				}
				s, _ := d.Webhook("wh_a")
				want(t, "the breaker", s.Breaker.Phase, policy.BreakerClosed)
				want(t, "refuses everything", s.Refusing, false)
				want(t, "POSTs", r.count(), 80)
				want(t, "dead letters", len(b.deadLetters()), dead)
				want(t, "messages left", b.total(testQueue), 0)
				stop()
				wantAtRest(t, d)
			})
		})
	}
}

// A receiver is killed for five seconds while messages come, or what is before it answers for it.
func TestAShortOutageIsFollowedByAShortSilence(t *testing.T) {
	killed := webhook.Result{ErrorClass: string(policy.ClassConnect)}
	for _, tt := range []struct {
		d      time.Duration
		answer webhook.Result
	}{
		{5 * time.Second, killed}, {30 * time.Second, killed}, {2 * time.Minute, killed},
		{5 * time.Second, webhook.Result{Status: 502}}, {30 * time.Second, webhook.Result{Status: 502}},
		{5 * time.Second, webhook.Result{Status: 503}}, {30 * time.Second, webhook.Result{Status: 503}},
	} {
		d := tt.d
		t.Run(fmt.Sprint(d, tt.answer.Status), func(t *testing.T) {
			inBubble(t, func(b *bench) {
				limited(nil)(&b.webhook)
				b.webhook = b.update(b.webhook)
				var up, back time.Time
				r := &receiver{takes: after(5 * time.Millisecond)}
				r.answer = func(now time.Time) webhook.Result {
					switch {
					case now.Before(up):
						return tt.answer
					case back.IsZero() && !up.IsZero():
						back = now
					}
					return webhook.Result{Status: 200}
				}
				_, stop := b.start(func(o *Options) { o.Sender = receivers{"wh_a": r} })
				b.sendNumbered(20)
				time.Sleep(5 * time.Second)
				r.mu.Lock()
				up = time.Now().Add(d)
				r.mu.Unlock()
				for range int(2*d/time.Second) + 10 {
					b.sendNumbered(5)
					time.Sleep(time.Second)
				}
				r.mu.Lock()
				silence := back.Sub(up)
				r.mu.Unlock()
				t.Logf("first delivery %s after an outage of %s", silence, d)
				if silence < 0 || silence > max(2*time.Second, d/2)+time.Second { // a second of the queue's polling
					t.Errorf("first delivery %s after an outage of %s", silence, d)
				}
				stop()
			})
		})
	}
}

// A quota of a day is used up, or a receiver asks for waits and takes nothing: probes are refused, which says nothing about the messages that
// happen to be the probes, however often they are.
func TestProbesThatAreRefusedAsTooMuchAreChargedToNoMessage(t *testing.T) {
	for name, refusal := range map[string]webhook.Result{"429": {Status: 429}, "503 and a wait": {Status: 503, RetryAfter: "20"}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.webhook.Policy.MaxAttempts, b.webhook.Flow = 2, policy.DefaultFlow()
				b.webhook = b.update(b.webhook)
				const last = "the last one of the quota"
				b.sender.answer = func(r webhook.Request, _ int) webhook.Result {
					if string(r.Body) == last {
						return webhook.Result{Status: 200}
					}
					return refusal
				}
				_, stop := b.start(nil)
				b.send(last)
				time.Sleep(5 * time.Second)
				sent := b.sendNumbered(3)
				time.Sleep(2 * time.Hour)
				want(t, "dead letters", len(b.deadLetters()), 0)
				for _, one := range sent {
					del := b.delivery(one, "wh_a")
					want(t, "was a probe more often than refusals are free", del.Attempts > 50, true)
					want(t, "few of these count", del.Charged == 0 && del.Waits <= 15, true)
				}
				stop()
			})
		})
	}
}

// Of a quota that names no wait nothing is learned where messages come minutes apart. What it refuses is no message's fault all the same, also once nothing was taken
// for longer than messages are tried; what is always refused, while others are taken, ends and holds up none of these.
func TestAQuotaThatSeldomMessagesUseUpMakesNoDeadLetters(t *testing.T) {
	const always = "a customer's quota"
	for _, tt := range []struct {
		name, preset  string
		status        int
		every, length time.Duration
		takes         func(at time.Duration, n int) bool // the n-th POST of its 10 minutes
		dead          int
	}{
		{"5 in 10 minutes", "moderate", 429, 90 * time.Second, time.Hour, func(_ time.Duration, n int) bool { return n <= 5 }, 0},
		{"the same, 503", "moderate", 503, 90 * time.Second, time.Hour, func(_ time.Duration, n int) bool { return n <= 5 }, 0},
		{"the same, tried once", "once", 503, 90 * time.Second, time.Hour, func(_ time.Duration, n int) bool { return n <= 5 }, 0},
		{"used up for 50 minutes, 503", "moderate", 503, time.Minute, 2 * time.Hour, func(at time.Duration, _ int) bool {
			return at < 30*time.Minute || at > 80*time.Minute
		}, 0},
		{"used up for longer than messages are tried", "standard", 429, 2 * time.Minute, 5 * time.Hour, func(at time.Duration, _ int) bool {
			return at < 30*time.Minute || at > 5*time.Hour
		}, 0},
		{"of one customer", "moderate", 429, 2 * time.Minute, 2 * time.Hour, func(time.Duration, int) bool { return true }, 1},
		{"of one customer, 503", "moderate", 503, 2 * time.Minute, 2 * time.Hour, func(time.Duration, int) bool { return true }, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				var err error
				if b.webhook.Policy, err = policy.Preset(tt.preset); err != nil {
					t.Fatal(err)
				}
				b.webhook.Flow = policy.DefaultFlow()
				b.webhook = b.update(b.webhook)
				start, posts := time.Now(), map[time.Duration]int{}
				var mu sync.Mutex
				var refused atomic.Int64
				b.sender.answer = func(r webhook.Request, _ int) webhook.Result {
					mu.Lock()
					defer mu.Unlock()
					at := time.Since(start)
					window := at / (10 * time.Minute)
					if posts[window]++; string(r.Body) == always || !tt.takes(at, posts[window]) {
						refused.Add(1)
						return webhook.Result{Status: tt.status}
					}
					return webhook.Result{Status: 200}
				}
				d, stop := b.start(nil)
				defer stop()
				opened := 0
				for time.Since(start) < tt.length {
					if text := "x"; tt.dead == 0 || time.Since(start) != 20*tt.every {
						b.send(text)
					} else {
						b.send(always)
					}
					time.Sleep(tt.every)
					if s, _ := d.Webhook("wh_a"); s.Breaker.Phase != policy.BreakerClosed {
						opened++
					}
				}
				want(t, "some were refused", refused.Load() > 10, true)
				time.Sleep(time.Hour)
				dead := b.deadLetters()
				want(t, "dead letters", len(dead), tt.dead)
				want(t, "messages left", b.total(testQueue), 0)
				if tt.dead > 0 {
					want(t, "times at which the breaker was open", opened, 0)
				}
				t.Logf("%d refused, breaker open at %d of %d looks", refused.Load(), opened, tt.length/tt.every)
			})
		})
	}
}

// The window of a limit closes on the last messages of a backlog. They are refused again and again while nothing else is sent: that says nothing about them, though
// those before them were taken.
func TestTheLastMessagesBeforeAWindowClosesAreNoDeadLetters(t *testing.T) {
	for _, tt := range []struct {
		preset       string
		status, more int
	}{
		{"realtime", 429, 1}, {"realtime", 503, 1}, {"once", 429, 1}, {"moderate", 429, 2}, {"moderate", 503, 2},
	} {
		t.Run(fmt.Sprint(tt.preset, " ", tt.status), func(t *testing.T) {
			inBubble(t, func(b *bench) {
				var err error
				if b.webhook.Policy, err = policy.Preset(tt.preset); err != nil {
					t.Fatal(err)
				}
				b.webhook.Flow = policy.DefaultFlow()
				b.webhook = b.update(b.webhook)
				start, taken := time.Now(), map[time.Duration]int{}
				var mu sync.Mutex
				b.sender.answer = func(webhook.Request, int) webhook.Result {
					mu.Lock()
					defer mu.Unlock()
					if window := time.Since(start) / (15 * time.Minute); taken[window] < 100 {
						taken[window]++
						return webhook.Result{Status: 200}
					}
					return webhook.Result{Status: tt.status}
				}
				_, stop := b.start(nil)
				defer stop()
				b.sendNumbered(100 + tt.more)
				time.Sleep(time.Hour)
				want(t, "dead letters", len(b.deadLetters()), 0)
				want(t, "messages left", b.total(testQueue), 0)
			})
		})
	}
}

// The backlog is longer than messages may grow old: what was refused before waits behind it and is refused again, and it is no
// dead letter for that.
func TestABacklogThatIsOlderThanItsMessagesMayBeMakesNoDeadLetters(t *testing.T) {
	inBubble(t, func(b *bench) {
		limited(nil)(&b.webhook)
		b.webhook.Policy.MaxAge = policy.Duration(time.Minute)
		b.webhook = b.update(b.webhook)
		answer := strictly(200*time.Millisecond, 503)
		r := &receiver{takes: after(time.Millisecond), answer: answer}
		b.sendNumbered(900) // three minutes
		d, stop := b.start(func(o *Options) { o.Sender = receivers{"wh_a": r} })
		time.Sleep(5 * time.Minute)
		want(t, "messages left", b.total(testQueue), 0)
		want(t, "dead letters", len(b.deadLetters()), 0)
		stop()
		wantAtRest(t, d)
	})
}
