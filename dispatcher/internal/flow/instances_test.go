package flow

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/internal/sqlite"
	"github.com/pushlease/pushlease/internal/sqlite/sqlitetest"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

// instance makes the flows of one instance on a store, and keeps them until the test ends.
func instance(t *testing.T, store tables.Healths, name string) *Flows {
	t.Helper()
	fs := New(Options{
		Store: store, Instance: name, Log: slog.New(slog.DiscardHandler),
		Turned: func(string, policy.BreakerPhase) {}, Shown: func(string, string) {},
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		fs.Watch(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	return fs
}

func testStore(t *testing.T) *sqlite.DB {
	t.Helper()
	db, err := sqlite.Open(t.Context(), sqlitetest.File(t), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// limitedRow is what an instance has written that is limited.
func limitedRow(name string, rate float64, at time.Time) tables.Health {
	return tables.Health{
		WebhookID: "wh_a", Instance: name, UpdatedAt: at, StartedAt: at.Add(-time.Hour),
		Breaker: policy.BreakerState{Phase: policy.BreakerClosed}, Pace: policy.PaceState{Rate: rate, Since: at.Add(-time.Minute), Noise: 0.25, Window: 10 * time.Minute},
	}
}

// Another instance takes all that a limit allows, and this one has begun before it could read so:
// what it is refused is no breakdown. Nor is it where both meet the limit at once, and the other one's row tells so a second later.
func TestAnInstanceThatJoinsASaturatedLimitOpensNoBreaker(t *testing.T) {
	for _, tt := range []struct {
		name  string
		other bool
		after time.Duration // its row is written
	}{{"alone", false, 0}, {"joins", true, 0}, {"at once", true, 1500 * time.Millisecond}} {
		bubble.Test(t, func(t *testing.T) {
			store := testStore(t)
			fs := instance(t, store, "b")
			r := testRegistration()
			fs.Sync(t.Context(), []tables.Registration{r})
			f, posts, limit := fs.Of(&r), 0, oneIn(50*time.Millisecond)
			if tt.other {
				time.AfterFunc(tt.after, func() {
					if err := store.PutHealth(t.Context(), limitedRow("a", 20, time.Now())); err != nil {
						t.Error(err)
					}
				})
			}
			drive(t, f, 20*time.Second, func(now time.Time) policy.Sign {
				if posts++; posts <= 15 {
					return overLimit
				}
				return limit(now)
			})
			s := f.Status(time.Now())
			want(t, tt.name+": limited", s.Pace.Rate > 0, tt.other)
			want(t, tt.name+": the breaker has opened", !s.Breaker.Since.IsZero(), !tt.other)
		})
	}
}

// A process goes on with what it has learned itself under its name, or with the mean of what those
// have that were there last.
func TestARestartGoesOnWithItsOwnRateOrItsPartOfTheOthers(t *testing.T) {
	for _, tt := range []struct {
		name  string
		rows  map[string]float64
		old   string // one that wrote its row an hour ago; all: they wrote theirs some minutes ago
		least float64
		most  float64
	}{
		{"its own", map[string]float64{"b": 5, "a": 20}, "", 4, 6},
		{"it followed one that is gone", map[string]float64{"b": 0.033, "a": 20}, "all", 9, 11},
		{"of two others", map[string]float64{"a": 20, "c": 10}, "", 13, 16},
		{"of one that was there last", map[string]float64{"a": 20, "c": 1}, "c", 18, 21},
		{"its own is old", map[string]float64{"a": 20, "b": 1}, "b", 18, 21},
	} {
		bubble.Test(t, func(t *testing.T) {
			store := testStore(t)
			for name, rate := range tt.rows {
				at := time.Now()
				if tt.old == "all" {
					at = at.Add(-5 * time.Minute)
				} else if name == tt.old {
					at = at.Add(-time.Hour)
				}
				if err := store.PutHealth(t.Context(), limitedRow(name, rate, at)); err != nil {
					t.Fatal(err)
				}
			}
			fs := instance(t, store, "b")
			r := testRegistration()
			fs.Sync(t.Context(), []tables.Registration{r})
			pace := fs.Of(&r).Status(time.Now()).Pace
			if pace.Rate < tt.least || pace.Rate > tt.most || pace.Noise != 0.25 || pace.Window != 10*time.Minute {
				t.Errorf("%s: it goes on with %+v, want %v to %v a second", tt.name, pace, tt.least, tt.most)
			}
		})
	}
}

// One instance leads, and its address is banned with 429: the other one, which is taken, is soon sent a good part of what the first one had learned, and no longer one message in 30 s for half an hour.
func TestAnInstanceTakesOverFromOneThatIsBanned(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		limit, banned := oneIn(50*time.Millisecond), ""
		two := newInstances(t, func(name string, now time.Time) policy.Sign {
			mu.Lock()
			defer mu.Unlock()
			if name == banned {
				return overLimit
			}
			return limit(now)
		})
		two.run(3 * time.Minute)
		leader := two.leader(t)
		mu.Lock()
		banned = leader
		mu.Unlock()
		two.run(2 * time.Minute)
		ok, refused := two.run(2 * time.Minute)
		if share := float64(ok) / 2400; share < 0.03 || refused > ok/5 {
			t.Errorf("%.0f %% of the limit and %d of %d refused, in the third and fourth minute after the leader was banned", 100*share, refused, ok+refused)
		}
	})
}

// After minutes in which nothing was sent both know which of them leads, and neither waits for as long as nothing was sent.
func TestTwoInstancesGoOnAfterAQuietTime(t *testing.T) {
	for i := range 8 {
		bubble.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			limit := oneIn(50 * time.Millisecond)
			two := newInstances(t, func(_ string, now time.Time) policy.Sign {
				mu.Lock()
				defer mu.Unlock()
				return limit(now)
			})
			two.run(2 * time.Minute)
			quiet := 3*time.Minute + time.Duration(i)*31*time.Second
			time.Sleep(quiet)
			two.run(5 * time.Second)
			ok, refused := two.run(25 * time.Second)
			share, waste := float64(ok)/500, float64(refused)/float64(max(ok+refused, 1))
			t.Logf("after %s: %.0f %% of the limit, %.0f %% refused", quiet, 100*share, 100*waste)
			if share < 0.75 || waste > 0.2 {
				t.Errorf("after %s: %.0f %% of the limit and %.0f %% refused, want 75 and at most 20", quiet, 100*share, 100*waste)
			}
		})
	}
}

// Two instances share a strict limit, and the webhook is away for five minutes. The probes of the one that follows meet the POSTs of the other one
// and are refused: it is not broken for that.
func TestTwoInstancesGoOnAfterAnOutage(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		limit, away := oneIn(50*time.Millisecond), false
		two := newInstances(t, func(_ string, now time.Time) policy.Sign {
			mu.Lock()
			defer mu.Unlock()
			if away {
				return timedOut
			}
			return limit(now)
		})
		set := func(to bool) {
			mu.Lock()
			defer mu.Unlock()
			away = to
		}
		two.run(2 * time.Minute)
		set(true)
		two.run(5 * time.Minute)
		set(false)
		two.run(20 * time.Minute)
		ok, refused := two.run(time.Minute)
		share, waste := float64(ok)/1200, float64(refused)/float64(max(ok+refused, 1))
		if share < 0.75 || waste > 0.2 {
			t.Errorf("%.0f %% of the limit and %.0f %% refused, want 75 and at most 20", 100*share, 100*waste)
		}
		for name, f := range two.flows {
			want(t, name+"'s breaker", f.Status(time.Now()).Breaker.Phase, policy.BreakerClosed)
		}
	})
}

// An outage ends for one of two instances, and not for the other one, whose own way is broken: that a probe of it is refused over the limit now and then does not mend that.
func TestAnInstanceWhoseOwnWayIsBrokenStaysSo(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		limit, away, broken, posts := oneIn(50*time.Millisecond), false, "", 0
		two := newInstances(t, func(name string, now time.Time) policy.Sign {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case away:
				return timedOut
			case name != broken:
				return limit(now)
			}
			if posts++; posts%3 > 0 {
				return timedOut
			}
			return overLimit
		})
		two.run(2 * time.Minute)
		leader := two.leader(t) // the other one sends too little for its breaker
		mu.Lock()
		away = true
		mu.Unlock()
		two.run(5 * time.Minute)
		mu.Lock()
		away, broken = false, leader
		mu.Unlock()
		two.run(20 * time.Minute)
		opened := 0
		for range 60 {
			two.run(time.Minute)
			if two.flows[broken].Status(time.Now()).Breaker.Phase == policy.BreakerOpen {
				opened++
			}
		}
		if opened < 45 {
			t.Errorf("its breaker was open at %d of 60 looks", opened)
		}
	})
}

// instances are two that send to one webhook.
type instances struct {
	t      *testing.T
	flows  map[string]*Flow
	answer func(name string, now time.Time) policy.Sign
}

func newInstances(t *testing.T, answer func(name string, now time.Time) policy.Sign) *instances {
	t.Helper()
	two := &instances{t: t, flows: map[string]*Flow{}, answer: answer}
	store, r := testStore(t), testRegistration()
	for _, name := range []string{"a", "b"} {
		fs := instance(t, store, name)
		fs.Sync(t.Context(), []tables.Registration{r})
		two.flows[name] = fs.Of(&r)
	}
	return two
}

// run has both send as much as they may for that time.
func (two *instances) run(length time.Duration) (ok, refused int) {
	var mu sync.Mutex
	var both sync.WaitGroup
	for name, f := range two.flows {
		both.Go(func() {
			took, vain, _ := drive(two.t, f, length, func(now time.Time) policy.Sign { return two.answer(name, now) })
			mu.Lock()
			ok, refused = ok+took, refused+vain
			mu.Unlock()
		})
	}
	both.Wait()
	return ok, refused
}

// leader is the one that leads as the other one says.
func (two *instances) leader(t *testing.T) string {
	t.Helper()
	for _, f := range two.flows {
		if leader := f.Status(time.Now()).Leader; leader != "" {
			return leader
		}
	}
	t.Fatal("none follows the other")
	return ""
}

// Two instances on one store share a limit of two a second: together they are sent most of it, few POSTs are refused, and neither
// takes the webhook for a broken one. What one could not send comes back soon, as the other one may have room for it.
func TestTwoInstancesShareASlowLimit(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := testStore(t)
		r := testRegistration()
		var mu sync.Mutex
		limit := oneIn(500 * time.Millisecond)
		answer := func(now time.Time) policy.Sign {
			mu.Lock()
			defer mu.Unlock()
			return limit(now)
		}
		ok, refused, breakers := [2]int{}, [2]int{}, [2]time.Time{}
		var flows [2]*Flow
		var both sync.WaitGroup
		for i, name := range []string{"a", "b"} {
			fs := instance(t, store, name)
			fs.Sync(t.Context(), []tables.Registration{r})
			flows[i] = fs.Of(&r)
			both.Go(func() {
				drive(t, flows[i], 4*time.Minute, answer)
				ok[i], refused[i], _ = drive(t, flows[i], 5*time.Minute, answer)
				breakers[i] = flows[i].Status(time.Now()).Breaker.Since
			})
		}
		both.Wait()
		taken, vain := ok[0]+ok[1], refused[0]+refused[1]
		share, waste := float64(taken)/600, float64(vain)/float64(taken+vain)
		t.Logf("%d and %d taken, %.0f %% of the limit, %.1f %% refused", ok[0], ok[1], 100*share, 100*waste)
		if share < 0.75 || waste > 0.2 {
			t.Errorf("%.0f %% of the limit and %.0f %% refused, want 75 and at most 20", 100*share, 100*waste)
		}
		want(t, "breakers", breakers, [2]time.Time{})
		slow := flows[0]
		if ok[1] < ok[0] {
			slow = flows[1]
		}
		now := time.Now()
		refusal := &Refusal{policy.WebhookBusy, now.Add(30 * time.Second)}
		slow.mu.Lock()
		slow.slots.Reset()
		slow.postpone(refusal, now)
		slow.mu.Unlock()
		if back := refusal.Until.Sub(now); back > 2*time.Second {
			t.Errorf("a message that the one which sends less could not send comes back after %s", back)
		}
	})
}

// Two instances that share a limit which names its wait are sent most of it, though each refusal stops one of them for the POSTs of a second. Single runs are sent
// 60 % and more, seldom less than 88.
func TestTwoInstancesShareALimitThatNamesItsWait(t *testing.T) {
	ok, refused := 0, 0
	for range 5 {
		bubble.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var two *instances
			limit := oneIn(50 * time.Millisecond)
			two = newInstances(t, func(name string, now time.Time) policy.Sign {
				mu.Lock()
				defer mu.Unlock()
				if limit(now).Delivered {
					return taken
				}
				two.flows[name].AskPause(time.Second, now)
				return policy.Sign{Answered: true, Failed: true, Overloaded: true, Waits: true, Wait: time.Second}
			})
			two.run(2 * time.Minute)
			took, vain := two.run(5 * time.Minute)
			if took < 3300 {
				t.Errorf("%d taken of 6,000 in one run, want 55 %% of them in each", took)
			}
			ok, refused = ok+took, refused+vain
		})
	}
	t.Logf("%d taken of 30,000, and %d refused", ok, refused)
	if ok < 22_500 || refused > ok/10 {
		t.Errorf("%d taken and %d refused, want 22,500 of 30,000 and at most a tenth", ok, refused)
	}
}

// POSTs that were under way together and are refused ask once what others have learned: the second question is for what comes later.
func TestRefusalsOfOneMomentAskOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := testRegistration()
		f, now := testFlows().Of(&r), time.Now()
		f.mu.Lock()
		defer f.mu.Unlock()
		want(t, "the first asks", f.ask(now), true)
		want(t, "the second asks", f.ask(now), false)
		want(t, "one that comes later asks", f.ask(now.Add(5*time.Second)), true)
	})
}

// Which instance is sent most is known some seconds after the limit was met, and rows are written seldom after that.
func TestInstancesSoonTellHowMuchTheyAreSent(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := &writes{Healths: testStore(t)}
		r := testRegistration()
		var mu sync.Mutex
		limit := oneIn(50 * time.Millisecond)
		var all [2]*Flows
		run := func(length time.Duration) {
			var both sync.WaitGroup
			for _, fs := range all {
				both.Go(func() {
					drive(t, fs.Of(&r), length, func(now time.Time) policy.Sign {
						mu.Lock()
						defer mu.Unlock()
						return limit(now)
					})
				})
			}
			both.Wait()
		}
		for i, name := range []string{"a", "b"} {
			all[i] = instance(t, store, name)
			all[i].Sync(t.Context(), []tables.Registration{r})
		}
		run(7 * time.Second)
		rows, err := store.ListHealth(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i, other := range []string{"b", "a"} {
			f := all[i].Of(&r)
			f.mu.Lock()
			told := f.peers.Read([]policy.PeerRow{peerRow(rows[0]), peerRow(rows[1])}, time.Now())
			f.mu.Unlock()
			if told.Posts == 0 {
				t.Errorf("after 7 s it is not known what %s is sent: %+v", other, told)
			}
		}
		run(5 * time.Second)
		before := store.count()
		run(16 * time.Second)
		if n := store.count() - before; n < 12 {
			t.Errorf("%d rows were written from the 12th second to the 28th by two, want each to write one in 2 s", n)
		}
		run(4 * time.Second)
		before = store.count()
		run(time.Minute)
		if n := store.count() - before; n > 16 {
			t.Errorf("%d rows were written in a minute by two, want each to write one in 10 s, and one a minute", n)
		}
	})
}

// What is held for a webhook that another instance is sent most of comes back for that one to receive: at its pace, and this instance neither
// looks for it nor shows more.
func TestWhatIsHeldIsForTheInstanceThatLeads(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		fs := testFlows()
		r := testRegistration()
		f := fs.Of(&r)
		drive(t, f, 30*time.Second, oneIn(500*time.Millisecond))
		waits := []Since{{r.ID, time.Now()}}
		want(t, "led while it is alone", fs.Led(waits), false)
		f.share(policy.Others{Rate: 2, Taken: 1, Learned: 2, Posts: 20, Instances: 1}, time.Now())
		want(t, "led while it leads", fs.Led(waits), false)
		want(t, "who leads by the status while it leads", f.Status(time.Now()).Leader, "")
		leads := policy.Others{Rate: 2, Taken: 2, Learned: 2, Posts: 20, Instances: 1, Leader: "b"}
		f.share(leads, time.Now())
		want(t, "led", fs.Led(waits), true)
		s := f.Status(time.Now())
		want(t, "who leads by the status", s.Leader, "b")
		want(t, "the rate of all", s.PaceOfAll, s.Pace.Rate+2)
		want(t, "the rate in the metric", fs.States()["wh_a"].Rate, s.PaceOfAll)
		want(t, "led, and held for another one, too", fs.Led(append(waits, Since{"wh_b", time.Now()})), false)
		want(t, "led, and held for none", fs.Led(nil), false)
		shown := 0
		for range 400 {
			shown += f.releasable(time.Now(), 500*time.Millisecond)
		}
		if all := 200 * f.returns(time.Now()); float64(shown) < 0.8*all || float64(shown) > 1.2*all {
			t.Errorf("%d are shown in 200 s, want the %.0f that are to come back", shown, all)
		}
		f.mu.Lock()
		f.postpone(&Refusal{policy.WebhookBusy, time.Now()}, time.Now())
		f.mu.Unlock()
		want(t, "shown sooner at the same pace", f.share(leads, time.Now()), false)
		leads.Learned = 40
		want(t, "shown sooner as the limit is higher", f.share(leads, time.Now()), true)
	})
}

// While it is asked whether others are limited nobody knows how fast messages may come back: they do when that is known.
func TestMessagesComeBackWhenItIsKnownWhetherOthersAreLimited(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := testFlow(func(*policy.Flow) {})
		if _, _, sent := post(t, f, time.Now().Add(time.Second), func(time.Time) policy.Sign { return overLimit }); !sent {
			t.Fatal("no POST")
		}
		for range 100 {
			if _, refusal := f.Enter(time.Now()); refusal == nil || time.Until(refusal.Until) > 2*healthSoon {
				t.Fatalf("%+v, want it to come back within 2 s", refusal)
			}
		}
	})
}
