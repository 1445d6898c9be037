package flow

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

var (
	taken       = policy.Sign{Answered: true, Delivered: true}
	overLimit   = policy.Sign{Answered: true, Failed: true, Overloaded: true, Limited: true}
	timedOut    = policy.Sign{Failed: true, Overloaded: true}
	learnedRate = func(f *Flow) float64 { return f.Status(time.Now()).Pace.Rate }
)

// drive sends as much as the flow lets through for that time, one POST after the other, each
// answered after a millisecond.
func drive(t *testing.T, f *Flow, length time.Duration, answer func(now time.Time) policy.Sign) (ok, refused, charged int) {
	t.Helper()
	for end := time.Now().Add(length); ; {
		sign, spared, sent := post(t, f, end, answer)
		switch {
		case !sent:
			return ok, refused, charged
		case sign.Delivered:
			ok++
		case !spared:
			charged++
			refused++
		default:
			refused++
		}
	}
}

// post makes one POST as soon as the flow lets it through, or none by that time. It is answered after a millisecond.
func post(t *testing.T, f *Flow, end time.Time, answer func(now time.Time) policy.Sign) (sign policy.Sign, spared, sent bool) {
	t.Helper()
	for now := time.Now(); now.Before(end); now = time.Now() {
		if n, next := f.room(0, 0, 1, now); n == 0 {
			time.Sleep(min(max(next.Sub(now), time.Millisecond), end.Sub(now)))
			continue
		}
		ticket, refusal := f.Enter(now)
		if ticket == nil {
			if refusal == nil {
				t.Fatal("room for a POST, and it has to wait for others")
			}
			time.Sleep(time.Millisecond)
			continue
		}
		if r := ticket.Begin(t.Context()); r != nil {
			ticket.Unused()
			continue
		}
		time.Sleep(time.Millisecond)
		sign = answer(time.Now())
		ticket.Answered(Answer{Sign: sign, Began: now, Took: time.Millisecond})
		return sign, ticket.Spared(), true
	}
	return sign, false, false
}

// oneIn takes one POST in each interval, strictly.
func oneIn(gap time.Duration) func(time.Time) policy.Sign {
	var free time.Time
	return func(now time.Time) policy.Sign {
		if now.Before(free) {
			return overLimit
		}
		free = now.Add(gap)
		return taken
	}
}

// After an outage a limited webhook is not sent everything at once: the POSTs that find out how
// much it takes again go at its pace.
func TestALimitedWebhookThatComesBackFromAnOutageIsSentItsRate(t *testing.T) {
	for _, gap := range []time.Duration{50 * time.Millisecond, time.Second} {
		t.Run(gap.String(), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				f := testFlow(func(*policy.Flow) {})
				limit := oneIn(gap)
				drive(t, f, time.Minute, limit)
				drive(t, f, 30*time.Second, func(time.Time) policy.Sign { return timedOut })
				want(t, "breaker in the outage", f.Status(time.Now()).Breaker.Phase, policy.BreakerOpen)
				ok, refused, _ := drive(t, f, 40*time.Second, limit)
				if refused > 2+ok/10 {
					t.Errorf("%d taken and %d refused in the 40 s after the outage", ok, refused)
				}
				want(t, "breaker after it", f.Status(time.Now()).Breaker.Phase, policy.BreakerClosed)
				ok, _, _ = drive(t, f, 30*time.Second, limit)
				if share := float64(ok) * gap.Seconds() / 30; share < 0.75 {
					t.Errorf("%.0f %% of the limit after the outage, want 75", 100*share)
				}
			})
		})
	}
}

// What finds out after an outage how much a webhook takes again goes at half of its rate: it may come back cold.
func TestTheFirstPostsAfterAnOutageGoAtHalfOfTheRate(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := testFlow(func(*policy.Flow) {})
		limit := oneIn(50 * time.Millisecond)
		drive(t, f, time.Minute, limit)
		before := learnedRate(f)
		drive(t, f, 30*time.Second, func(time.Time) policy.Sign { return timedOut })
		for sent := false; !sent; {
			_, _, sent = post(t, f, time.Now().Add(time.Minute), limit)
		}
		want(t, "breaker", f.Status(time.Now()).Breaker.Phase, policy.BreakerHalfOpen)
		if rate := learnedRate(f); rate > 0.6*before || rate < 0.3*before {
			t.Errorf("%v a second after the first POST that was taken again, want half of %v", rate, before)
		}
	})
}

// A limited webhook that refuses everything, for longer than a limit explains, is broken: its
// breaker opens, and counts the time from the first of those refusals.
func TestALimitedWebhookThatRefusesEverythingIsBroken(t *testing.T) {
	for _, gap := range []time.Duration{50 * time.Millisecond, 30 * time.Second} {
		t.Run(gap.String(), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				f := testFlow(func(*policy.Flow) {})
				var lastTaken time.Time
				limit := oneIn(gap)
				drive(t, f, max(time.Minute, 40*gap), func(now time.Time) policy.Sign {
					sign := limit(now)
					if sign.Delivered {
						lastTaken = now
					}
					return sign
				})
				died := time.Now()
				_, refused, charged := drive(t, f, 20*time.Minute, func(time.Time) policy.Sign { return overLimit })
				b := f.Status(time.Now()).Breaker
				want(t, "breaker", b.Phase, policy.BreakerOpen)
				if b.Since.Before(lastTaken) || b.Since.After(died.Add(3*gap+time.Second)) { // the last refusals over the limit may be the first of these
					t.Errorf("open since %s after the last POST was taken, and %s after it died", b.Since.Sub(lastTaken), b.Since.Sub(died))
				}
				if refused > 60 || charged > 0 {
					t.Errorf("%d POSTs in vain in 20 minutes, %d of them charged to their messages", refused, charged)
				}
			})
		})
	}
}

// A POST that waits for its place is not made when the webhook asks for a pause meanwhile.
func TestAPauseHoldsBackWhatWaitsForItsPlace(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := testFlow(func(*policy.Flow) {})
		drive(t, f, time.Minute, oneIn(500*time.Millisecond))
		now := time.Now()
		var tickets []*Ticket
		for range 3 {
			ticket, refusal := f.Enter(now)
			if ticket == nil {
				t.Fatalf("no place: %+v", refusal)
			}
			tickets = append(tickets, ticket)
		}
		f.AskPause(time.Minute, now)
		for i, ticket := range tickets {
			r := ticket.Begin(t.Context())
			if r == nil || r.Reason != policy.WebhookPaused {
				t.Errorf("POST %d began in the pause: %+v", i, r)
			}
			ticket.Unused()
		}
	})
}

// The wait is the receiver's word: what it takes of POSTs that were under way does not end it, and an operator does.
func TestAPauseEndsWhenItsWebhookIsEnabled(t *testing.T) { // C52
	bubble.Test(t, func(t *testing.T) {
		fs, r := testFlows(), testRegistration()
		fs.o.Store = testStore(t)
		fs.Sync(t.Context(), []tables.Registration{r})
		f := fs.Of(&r)
		under, refused := f.Enter(time.Now())
		if under == nil {
			t.Fatal(refused)
		}
		f.AskPause(15*time.Minute, time.Now())
		time.Sleep(time.Minute)
		under.Answered(Answer{Sign: taken, Began: time.Now().Add(-time.Minute), Took: time.Minute})
		if _, refused = f.Enter(time.Now()); refused == nil || refused.Reason != policy.WebhookPaused {
			t.Fatalf("in the pause: %+v, want that it is refused", refused)
		}
		fs.enable(t, r)
		if ticket, refused := f.Enter(time.Now()); ticket == nil {
			t.Fatalf("once it is enabled anew: %+v, want that a POST may begin", refused)
		}
	})
}

// A limit that is gone is no longer shown, nor stored for the next start, and adaptive: false
// ends one at once.
func TestALimitThatIsGoneIsGoneInStorageToo(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := testFlow(func(*policy.Flow) {})
		drive(t, f, time.Minute, oneIn(50*time.Millisecond))
		if h, changed := f.takeChange(); !changed || h.Pace.Rate < 15 {
			t.Fatalf("stored %+v, want about 20 a second", h.Pace)
		}
		drive(t, f, time.Minute, func(time.Time) policy.Sign { return taken })
		want(t, "learned rate", learnedRate(f), 0)
		if h, changed := f.takeChange(); !changed || h.Pace.Rate != 0 {
			t.Errorf("stored: %v, %+v, want that there is no limit", changed, h.Pace)
		}
	})
}

func TestAdaptiveFalseEndsALearnedRate(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := testRegistration()
		f := testFlows().Of(&r)
		drive(t, f, time.Minute, oneIn(50*time.Millisecond))
		if learnedRate(f) == 0 {
			t.Fatal("nothing was learned")
		}
		r.Flow.Adaptive = false
		f.update(r)
		want(t, "learned rate", learnedRate(f), 0)
	})
}

// A webhook that is down, or refuses everything, is told of once, and once that it is back: each failed probe was a line of the log, and a
// row that was written at once.
func TestAnOutageIsToldOnceHoweverManyProbesFail(t *testing.T) {
	tooMany := overLimit
	tooMany.TooMany = true
	for name, sign := range map[string]policy.Sign{"timeouts": timedOut, "503": overLimit, "429": tooMany} {
		bubble.Test(t, func(t *testing.T) {
			store := &writes{Healths: testStore(t)}
			var log strings.Builder
			var phases []policy.BreakerPhase
			fs := New(Options{
				Store: store, Instance: "a", Log: slog.New(slog.NewTextHandler(&log, nil)), Shown: func(string, string) {},
				Turned: func(_ string, phase policy.BreakerPhase) { phases = append(phases, phase) },
			})
			ctx, stop := context.WithCancel(t.Context())
			var watching sync.WaitGroup
			watching.Go(func() { fs.Watch(ctx) })
			r := testRegistration()
			fs.Sync(t.Context(), []tables.Registration{r})
			probes := 0
			drive(t, fs.Of(&r), 10*time.Minute, func(time.Time) policy.Sign { probes++; return sign })
			drive(t, fs.Of(&r), 5*time.Minute, func(time.Time) policy.Sign { return taken })
			stop()
			watching.Wait()
			if n := strings.Count(log.String(), "level=WARN"); n != 1 || probes < 15 {
				t.Errorf("%s: %d warnings of %d POSTs in vain, want 1 of many:\n%s", name, n, probes, log.String())
			}
			if n := strings.Count(log.String(), "takes messages again"); n != 1 {
				t.Errorf("%s: told %d times that it takes messages again", name, n)
			}
			turns := slices.DeleteFunc(phases, func(p policy.BreakerPhase) bool { return p == policy.BreakerHalfOpen }) // for as long as it takes a few
			if want := []policy.BreakerPhase{policy.BreakerOpen, policy.BreakerClosed}; !slices.Equal(turns, want) {
				t.Errorf("%s: turned to %v, want %v", name, turns, want)
			}
			if n := store.count(); n > 20 {
				t.Errorf("%s: %d rows were written in 15 minutes, want one a minute and some for the turns", name, n)
			}
		})
	}
}

// writes counts the rows that are written.
type writes struct {
	tables.Healths
	n atomic.Int64
}

func (w *writes) count() int { return int(w.n.Load()) }

func (w *writes) PutHealth(ctx context.Context, rows ...tables.Health) error {
	w.n.Add(int64(len(rows)))
	return w.Healths.PutHealth(ctx, rows...)
}

// offer is drive of messages that come one in each interval, and wait for their turn. It ends after that time.
func offer(t *testing.T, f *Flow, length, every time.Duration, answer func(now time.Time) policy.Sign) (ok, refused int) {
	t.Helper()
	for came, end := time.Now(), time.Now().Add(length); ; came = came.Add(every) {
		if wait := time.Until(came); wait > 0 {
			time.Sleep(wait)
		}
		for delivered := false; !delivered; {
			sign, _, sent := post(t, f, end, answer)
			switch delivered = sign.Delivered; {
			case !sent:
				return ok, refused
			case delivered:
				ok++
			default:
				refused++
			}
		}
	}
}

// Without a breaker the pace is all that there is against a limit that takes nothing for minutes: what it refuses is charged to no message all the same.
func TestALongWindowChargesNoMessageWithoutABreaker(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := testFlow(func(s *policy.Flow) { s.Breaker.Enabled = false })
		l := windows(20, 5*time.Minute)
		ok, refused, charged := drive(t, f, time.Hour, l)
		if ok < 200 || refused > 150 || charged > 0 {
			t.Errorf("%d taken of 240, %d refused and %d of these charged; want 200 at least, 150 at most, and none", ok, refused, charged)
		}
	})
}

// A limit of fewer POSTs than tell a window from a crash loop opens the breaker each time that it is used up. That costs no message an attempt, and the webhook some POSTs a minute.
func TestALimitOfFewPostsInMinutesChargesNoMessage(t *testing.T) {
	for _, tooMany := range []bool{false, true} {
		for posts, each := range map[int]time.Duration{5: 10 * time.Minute, 9: 5 * time.Minute} {
			bubble.Test(t, func(t *testing.T) {
				f := testFlow(func(*policy.Flow) {})
				takes := windows(posts, each)
				ok, refused, charged := drive(t, f, 2*time.Hour, func(now time.Time) policy.Sign {
					sign := takes(now)
					sign.TooMany = sign.Limited && tooMany
					return sign
				})
				share := float64(ok) / float64(posts) * each.Hours() / 2
				t.Logf("%d in %s, 429 %v: %.0f %% of the limit, %d refused, %d charged", posts, each, tooMany, 100*share, refused, charged)
				if share < 0.3 || refused > 1800 || charged > 0 {
					t.Errorf("%d in %s, 429 %v: %.0f %% of the limit, %d refused and %d charged in two hours; want 30 at least, 1,800 at most, and none", posts, each, tooMany, 100*share, refused, charged)
				}
			})
		}
	}
}

// A webhook that takes nothing and names a wait each time is broken, whether it took something before or not: each pause let one POST through, too few for the
// breaker to count, and messages were used up one after the other.
func TestAWebhookThatOnlyAsksForWaitsIsBroken(t *testing.T) {
	for _, took := range []bool{true, false} {
		for _, wait := range []time.Duration{7 * time.Second, time.Minute, -time.Minute} {
			t.Run(fmt.Sprint(took, wait), func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) {
					mixed, n := wait < 0, 0 // each second answer is another failure
					wait := wait.Abs()
					f := testFlow(func(*policy.Flow) {})
					well := func(time.Time) policy.Sign { return taken }
					if took {
						offer(t, f, time.Minute, time.Second, well)
					}
					asks := func(now time.Time) policy.Sign {
						if n++; mixed && n%2 == 0 && f.Status(now).Breaker.Phase == policy.BreakerClosed {
							return policy.Sign{Answered: true, Failed: true}
						}
						f.AskPause(wait, now)
						return policy.Sign{Answered: true, Failed: true, Overloaded: true, Waits: true}
					}
					drive(t, f, waitsLong+2*wait, asks)
					want(t, "breaker", f.Status(time.Now()).Breaker.Phase, policy.BreakerOpen)
					_, vain, charged := drive(t, f, 10*time.Minute, asks)
					if most := int(10*time.Minute/max(wait, 10*time.Second)) + 1; charged > 0 || vain > most {
						t.Errorf("%d POSTs in vain, %d of them charged; want %d at most, and none", vain, charged, most)
					}
					ok, _, _ := drive(t, f, wait+10*time.Second, well)
					want(t, "found again", ok > 0, true)
				})
			})
		}
	}
}

// A message that is one probe after the other is one message that has failed.
func TestAMessageThatIsEachProbeFailsOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		tooMany := overLimit
		tooMany.TooMany = true
		f := testFlow(func(*policy.Flow) {})
		drive(t, f, time.Minute, func(time.Time) policy.Sign { return tooMany })
		failed := f.Status(time.Now()).Failing.FailedMessages
		for _, again := range []bool{true, false} {
			time.Sleep(20 * time.Second)
			ticket, refusal := f.Enter(time.Now())
			if ticket == nil {
				t.Fatalf("no probe: %+v", refusal)
			}
			ticket.Answered(Answer{Sign: tooMany, Began: time.Now(), Took: time.Millisecond, Again: again})
			want(t, "a probe that was refused", ticket.Probed(), true)
			if !again {
				failed++
			}
			want(t, "messages that have failed", f.Status(time.Now()).Failing.FailedMessages, failed)
		}
	})
}

// Two refusals with a wait, one after the other, are no breakdown, however many POSTs were under way together, nor are three with an answer or with an
// hour between them, or of another receiver.
func TestFewWaitsOpenNoBreaker(t *testing.T) {
	const apart = 2 * time.Minute
	for _, tt := range []struct {
		name    string
		between func(f *Flow)
		want    policy.BreakerPhase
	}{
		{"three", func(*Flow) {}, policy.BreakerOpen},
		{"an answer", func(f *Flow) { f.countWait(Answer{Sign: policy.Sign{Answered: true, Refused: 400}}, time.Now()) }, policy.BreakerClosed},
		{"an hour", func(*Flow) { time.Sleep(waitsApart) }, policy.BreakerClosed},
		{"another URL", func(f *Flow) {
			r := testRegistration()
			r.URL += "/moved"
			f.update(r)
		}, policy.BreakerClosed},
	} {
		bubble.Test(t, func(t *testing.T) {
			f := testFlow(func(*policy.Flow) {})
			refused := func(began time.Time) {
				f.mu.Lock()
				defer f.mu.Unlock()
				(&Ticket{f: f}).judge(Answer{Sign: policy.Sign{Answered: true, Failed: true, Overloaded: true, Waits: true}, Began: began}, time.Now())
			}
			for range 8 { // they were under way together
				refused(time.Now().Add(-time.Second))
			}
			time.Sleep(apart)
			refused(time.Now())
			want(t, tt.name+": breaker after two", f.Status(time.Now()).Breaker.Phase, policy.BreakerClosed)
			tt.between(f)
			time.Sleep(apart)
			refused(time.Now())
			want(t, tt.name+": breaker after three", f.Status(time.Now()).Breaker.Phase, tt.want)
		})
	}
}

// What a webhook refuses with 429 that took others within the hour is charged to no message, and one message that is refused again and again says
// nothing about others; another one that is refused, too, does.
func TestOnlySeveralMessagesThatAreRefusedTellThatAQuotaIsUsedUp(t *testing.T) {
	tooMany := overLimit
	tooMany.TooMany = true
	for _, took := range []bool{true, false} {
		bubble.Test(t, func(t *testing.T) {
			f := testFlow(func(*policy.Flow) {})
			if took {
				post(t, f, time.Now().Add(time.Second), func(time.Time) policy.Sign { return taken })
			}
			time.Sleep(10 * time.Minute)
			refused := func(message string, failed int) {
				time.Sleep(time.Until(f.unsure))
				ticket, refusal := f.Enter(time.Now())
				if ticket == nil {
					t.Fatalf("refusal %d: no POST: %+v", failed, refusal)
				}
				ticket.Answered(Answer{Sign: tooMany, Began: time.Now(), Took: time.Millisecond, Message: message, Failed: failed, Again: failed > 0})
				want(t, "a refusal is spared", ticket.Spared(), took)
				want(t, "as by a quota", ticket.Quota(), took && f.Status(time.Now()).Breaker.Phase == policy.BreakerClosed)
			}
			most := 30
			if !took {
				most = 9
			}
			for failed := range most {
				refused("a", failed)
				time.Sleep(4 * time.Second)
			}
			want(t, "breaker after one message", f.Status(time.Now()).Breaker.Phase, policy.BreakerClosed)
			if took {
				refused("b", 9) // which an earlier process tried
				want(t, "breaker after two", f.Status(time.Now()).Breaker.Phase, policy.BreakerOpen)
				want(t, "the status says that it throttles", f.Status(time.Now()).Throttles, true)
				probe, _ := f.Enter(time.Now())
				for probe == nil {
					time.Sleep(time.Second)
					probe, _ = f.Enter(time.Now())
				}
				probe.Answered(Answer{Sign: policy.Sign{Answered: true}, Began: time.Now(), Took: time.Millisecond})
				want(t, "also after another answer", f.Status(time.Now()).Throttles, false)
			}
		})
	}
}

// The log says that a webhook only throttles where its breaker has opened by nothing else, and a process that starts knows whether its last answer did.
func TestTheLogSaysWhatOpenedABreaker(t *testing.T) {
	tooMany := overLimit
	tooMany.TooMany = true
	broken := policy.Sign{Answered: true, Failed: true}
	for _, tt := range []struct {
		name      string
		first     policy.Sign
		only      bool // it is what all of ten are answered
		throttles bool // the log says so
	}{
		{"429", tooMany, true, true},
		{"500, and the last one 429", broken, false, false},
		{"500", broken, true, false},
	} {
		bubble.Test(t, func(t *testing.T) {
			store := testStore(t)
			var log strings.Builder
			made := func() (*Flows, *Flow) {
				fs := New(Options{
					Store: store, Instance: "a", Log: slog.New(slog.NewTextHandler(&log, nil)),
					Turned: func(string, policy.BreakerPhase) {}, Shown: func(string, string) {},
				})
				r := testRegistration()
				fs.Sync(t.Context(), []tables.Registration{r})
				return fs, fs.Of(&r)
			}
			fs, f := made()
			for n := range 10 {
				ticket, refusal := f.Enter(time.Now())
				if ticket == nil {
					t.Fatalf("%s: no POST %d: %+v", tt.name, n, refusal)
				}
				sign := tt.first
				if n == 9 && !tt.only {
					sign = tooMany
				}
				ticket.Answered(Answer{Sign: sign, Began: time.Now(), Took: time.Millisecond, Message: fmt.Sprint(n)})
				time.Sleep(3 * time.Second) // it asks others meanwhile
			}
			want(t, tt.name+": breaker", f.Status(time.Now()).Breaker.Phase, policy.BreakerOpen)
			if said := strings.Contains(log.String(), "nothing but 429"); said != tt.throttles || strings.Contains(log.String(), "mostly fails") == said {
				t.Errorf("%s: the log says\n%s", tt.name, log.String())
			}
			fs.saveHealth(t.Context())
			_, after := made()
			want(t, tt.name+": the status after a restart says that it throttles", after.Status(time.Now()).Throttles, tt.throttles || !tt.only)
		})
	}
}

// A webhook that was not sent anything for long and then asks for a wait has not been away for that time.
func TestTheFirstWaitAfterAQuietTimeOpensNoBreaker(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := testFlow(func(*policy.Flow) {})
		for range 2 {
			offer(t, f, time.Minute, time.Second, func(time.Time) policy.Sign { return taken })
			time.Sleep(time.Hour)
			post(t, f, time.Now().Add(time.Second), func(now time.Time) policy.Sign {
				f.AskPause(time.Minute, now)
				return policy.Sign{Answered: true, Failed: true, Overloaded: true, Waits: true}
			})
			want(t, "breaker", f.Status(time.Now()).Breaker.Phase, policy.BreakerClosed)
			time.Sleep(time.Minute)
		}
	})
}

// A limit that names its wait is no breakdown: refusals of which the pause is the remedy opened the breaker, and after each probe that was taken the
// next one came later, at last in a quarter of an hour. What it refuses is no fault of the messages.
func TestALimitThatNamesItsWaitOpensNoBreaker(t *testing.T) {
	for _, tt := range []struct {
		name  string
		limit limit
		wait  func(now time.Time) time.Duration
		rate  float64
		least float64
	}{
		{"one a second", oneIn(time.Second), always(time.Second), 1, 0.75},
		{"one in 15 s", oneIn(15 * time.Second), always(15 * time.Second), 1. / 15, 0.75},
		{"one in 50 ms", oneIn(50 * time.Millisecond), always(time.Second), 20, 0.9},
		{"5 in 12 s", windows(5, 12*time.Second), toNext(12 * time.Second), 5. / 12, 0.75},
		{"100 in 15 minutes", windows(100, 15*time.Minute), toNext(15 * time.Minute), 100. / 900, 0.75},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				f := testFlow(func(*policy.Flow) {})
				var mu sync.Mutex // of the limit and of what was counted
				opened, charged, ok := 0, 0, 0
				const length = time.Hour
				ctx, stop := context.WithTimeout(t.Context(), length)
				defer stop()
				var senders sync.WaitGroup
				for range 8 { // as many as there is room for: a backlog
					senders.Go(func() {
						for ctx.Err() == nil {
							now := time.Now()
							ticket, refusal := f.Enter(now)
							if ticket == nil && refusal == nil {
								ticket, refusal = f.Wait(ctx)
							}
							if refusal != nil {
								select {
								case <-time.After(max(time.Until(refusal.Until), 10*time.Millisecond)):
								case <-ctx.Done():
								}
								continue
							}
							if ticket.Begin(ctx) != nil {
								ticket.Unused()
								continue
							}
							began := time.Now()
							time.Sleep(5 * time.Millisecond)
							mu.Lock()
							sign := tt.limit(time.Now())
							if !sign.Delivered {
								sign = policy.Sign{Answered: true, Failed: true, Overloaded: true, Waits: true, Wait: tt.wait(time.Now())}
							}
							ticket.Answered(Answer{Sign: sign, Began: began, Took: 5 * time.Millisecond})
							switch {
							case sign.Delivered:
								ok++
							default:
								if !ticket.Spared() {
									charged++
								}
								f.AskPause(tt.wait(time.Now()), time.Now())
							}
							if f.Status(time.Now()).Breaker.Phase != policy.BreakerClosed {
								opened++
							}
							mu.Unlock()
						}
					})
				}
				senders.Wait()
				if share := float64(ok) / tt.rate / length.Seconds(); share < tt.least {
					t.Errorf("%.0f %% of the limit, want %.0f", 100*share, 100*tt.least)
				}
				if opened+charged > 0 {
					t.Errorf("after %d answers the breaker was not closed, and %d refusals were charged to their messages", opened, charged)
				}
			})
		})
	}
}

// What a receiver took between two waits is forgotten with it: the first wait of the next one at another URL looked like the second of one that takes little, and
// it was sent as little.
func TestTheFirstWaitOfAWebhookThatBeginsAnewTeachesNoRate(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := testRegistration()
		f := testFlows().Of(&r)
		waits := func(time.Time) policy.Sign {
			return policy.Sign{Answered: true, Failed: true, Overloaded: true, Waits: true}
		}
		takes := func(time.Time) policy.Sign { return taken }
		once := func(answer limit) { post(t, f, time.Now().Add(time.Second), answer) }
		once(takes)
		once(waits)
		r.URL += "/moved"
		f.update(r)
		once(takes)
		once(waits)
		want(t, "learned of the first wait", learnedRate(f), 0)
		once(waits)
		want(t, "learned of another one, with nothing taken between", learnedRate(f), 0)
		once(takes)
		once(waits)
		if learnedRate(f) == 0 {
			t.Error("nothing was learned of the second wait")
		}
	})
}

type limit = func(now time.Time) policy.Sign

func always(wait time.Duration) func(time.Time) time.Duration {
	return func(time.Time) time.Duration { return wait }
}

// toNext is how long it is to the next window, in whole seconds as the header has it.
func toNext(length time.Duration) func(time.Time) time.Duration {
	return func(now time.Time) time.Duration {
		return (now.Truncate(length).Add(length).Sub(now) + time.Second - 1).Truncate(time.Second)
	}
}

// windows takes so many POSTs in each window.
func windows(most int, length time.Duration) limit {
	var window time.Time
	n := 0
	return func(now time.Time) policy.Sign {
		if w := now.Truncate(length); !w.Equal(window) {
			window, n = w, 0
		}
		if n++; n > most {
			return overLimit
		}
		return taken
	}
}

// Limiters that name no wait, as nginx, ASP.NET and express have them, open no breaker, and what they refuse is charged to no message.
func TestALimitOpensNoBreakerAndChargesNoMessage(t *testing.T) {
	for _, tt := range []struct {
		name  string
		limit func() limit
		rate  float64
		from  time.Duration
		over  time.Duration
		least float64
	}{
		{"one in 50 ms", func() limit { return oneIn(50 * time.Millisecond) }, 20, 10 * time.Second, time.Minute, 0.8},
		{"20 a second, 20 at once", func() limit { return bucket(20, 20) }, 20, 10 * time.Second, time.Minute, 0.9},
		{"60 in each full minute", func() limit { return windows(60, time.Minute) }, 1, 2 * time.Minute, 4 * time.Minute, 0.7},
		{"one in 500 ms", func() limit { return oneIn(500 * time.Millisecond) }, 2, 10 * time.Second, time.Minute, 0.8},
		{"one in 2 ms", func() limit { return oneIn(2 * time.Millisecond) }, 500, 30 * time.Second, 20 * time.Second, 0.8},
		{"20 in a sliding second", func() limit { return sliding(20, time.Second) }, 20, 10 * time.Second, time.Minute, 0.9},
	} {
		for _, tooMany := range []bool{false, true} { // 503, 429
			t.Run(fmt.Sprint(tt.name, tooMany), func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) {
					f, l := testFlow(func(*policy.Flow) {}), tt.limit()
					answer := func(now time.Time) policy.Sign {
						sign := l(now)
						sign.TooMany = tooMany && !sign.Delivered
						return sign
					}
					_, _, early := drive(t, f, tt.from, answer)
					ok, refused, charged := drive(t, f, tt.over, answer)
					share, vain := float64(ok)/tt.rate/tt.over.Seconds(), float64(refused)/float64(max(ok+refused, 1))
					t.Logf("%.0f %% of the limit, %.1f %% refused", 100*share, 100*vain)
					if share < tt.least || vain > 0.1 {
						t.Errorf("%.0f %% of the limit and %.1f %% refused, want %.0f and at most 10", 100*share, 100*vain, 100*tt.least)
					}
					want(t, "refusals that were charged", early+charged, 0)
					want(t, "the breaker has opened", !f.Status(time.Now()).Breaker.Since.IsZero(), false)
				})
			})
		}
	}
}

// bucket takes rate POSTs a second, and burst at once.
func bucket(rate, burst float64) limit {
	tokens, last := burst, time.Time{}
	return func(now time.Time) policy.Sign {
		if !last.IsZero() {
			tokens = min(tokens+rate*now.Sub(last).Seconds(), burst)
		}
		if last = now; tokens < 1 {
			return overLimit
		}
		tokens--
		return taken
	}
}

// sliding takes so many POSTs in any stretch of that length.
func sliding(most int, length time.Duration) limit {
	var at []time.Time
	return func(now time.Time) policy.Sign {
		for len(at) > 0 && now.Sub(at[0]) >= length {
			at = at[1:]
		}
		if len(at) >= most {
			return overLimit
		}
		at = append(at, now)
		return taken
	}
}

// A configured rate and a learned one both bound what is sent, whichever is lower.
func TestAConfiguredRateBoundsWhatIsSentBesideALearnedOne(t *testing.T) {
	for _, tt := range []struct {
		rate  float64
		state status.FlowState
		least float64 // taken, a second
	}{{10, status.Busy, 9.5}, {30, status.Limited, 16}} {
		bubble.Test(t, func(t *testing.T) {
			f := testFlow(func(s *policy.Flow) { s.Rate, s.Burst = tt.rate, 1 })
			limit := oneIn(50 * time.Millisecond)
			drive(t, f, 10*time.Second, limit)
			ok, refused, charged := drive(t, f, time.Minute, limit)
			if taken := float64(ok) / 60; taken < tt.least || float64(ok+refused) > 61*tt.rate || refused > ok/10 || charged > 0 {
				t.Errorf("with a rate of %v %.1f a second are taken of 20, %d refused and %d of these charged", tt.rate, taken, refused, charged)
			}
			want(t, "state", f.Status(time.Now()).State, tt.state)
		})
	}
}
