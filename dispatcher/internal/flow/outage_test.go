package flow

import (
	"fmt"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/policy"
)

// An outage that is answered 503, as an ingress without endpoints or a draining balancer does, is no limit: whoever was sent its messages
// before is sent them again soon after it, and after another long one. What was refused meanwhile was taken for a limit of what came through on average.
func TestAnOutageThatIsAnswered503LeavesNoLimit(t *testing.T) {
	for _, tt := range []struct {
		every, limit time.Duration // of messages, and of those that it takes
		least        float64       // share of what may be taken
	}{
		{2 * time.Millisecond, 0, 0.95},
		{50 * time.Millisecond, 0, 0.95},
		{time.Second, 0, 0.95},
		{20 * time.Millisecond, 50 * time.Millisecond, 0.8},
	} {
		for _, length := range []time.Duration{5 * time.Second, 20 * time.Second, time.Minute, 10 * time.Minute} {
			t.Run(fmt.Sprint(tt.every, tt.limit, length), func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) {
					f := testFlow(func(*policy.Flow) {})
					well := oneIn(tt.limit)
					offer(t, f, time.Minute, tt.every, well)
					outages := 1
					if length > time.Minute {
						outages = 2
					}
					for range outages {
						_, vain := offer(t, f, length, tt.every, func(time.Time) policy.Sign { return overLimit })
						if vain > 30 {
							t.Errorf("%d POSTs in vain", vain)
						}
						for back, ok := time.Now(), 0; ok == 0; ok, _, _ = drive(t, f, 10*time.Millisecond, well) {
							if time.Since(back) > length {
								t.Fatal("nothing was sent for as long as the outage")
							}
						}
						offer(t, f, 45*time.Second, tt.every, well)
						ok, refused := offer(t, f, 30*time.Second, tt.every, well)
						if least := tt.least * float64(30*time.Second/max(tt.every, tt.limit)); float64(ok) < least || refused > ok/10 {
							t.Errorf("%d taken and %d refused in the 30 s that begin 45 s after the outage, want %.0f", ok, refused, least)
						}
					}
				})
			})
		}
	}
}

// Nor is one that is answered 503 at first and then with timeouts, or with 503 and a wait, or in any way by a webhook with a limit of so many in a time.
func TestAnOutageInWhateverWayLeavesNoLimit(t *testing.T) {
	waits := policy.Sign{Answered: true, Failed: true, Overloaded: true, Waits: true}
	ways := map[string]func(since time.Duration) policy.Sign{
		"503": func(time.Duration) policy.Sign { return overLimit },
		"503 and then timeouts": func(since time.Duration) policy.Sign {
			if since < 5*time.Second {
				return overLimit
			}
			return timedOut
		},
		"503 and a wait": func(time.Duration) policy.Sign { return waits },
	}
	unlimited := func() limit { return oneIn(0) }
	minutes := func() limit { return windows(60, time.Minute) }
	for _, tt := range []struct {
		name, way string
		every     time.Duration // of messages
		well      func() limit
		rate      float64
		known     time.Duration // before
		length    time.Duration
		least     float64 // share of what may be taken from the 45th second on
		vain      float64 // refused ones of those that are taken, at most
	}{
		{"500 a second", "503 and then timeouts", 2 * time.Millisecond, unlimited, 500, 10 * time.Second, 10 * time.Minute, 0.95, 0},
		{"20 a second", "503 and then timeouts", 50 * time.Millisecond, unlimited, 20, time.Minute, 10 * time.Minute, 0.95, 0},
		{"20 a second", "503 and a wait", 50 * time.Millisecond, unlimited, 20, time.Minute, time.Minute, 0.95, 0},
		{"20 a second", "503 and a wait", 50 * time.Millisecond, unlimited, 20, time.Minute, 10 * time.Minute, 0.95, 0},
		{"one a second", "503 and a wait", time.Second, unlimited, 1, time.Minute, 10 * time.Minute, 0.95, 0},
		{"60 in each minute", "503", 20 * time.Millisecond, minutes, 1, 4 * time.Minute, 10 * time.Minute, 0.6, 0.2},
		{"60 in each minute", "503 and then timeouts", 20 * time.Millisecond, minutes, 1, 4 * time.Minute, 10 * time.Minute, 0.6, 0.2},
		{"60 in each minute", "503 and a wait", 20 * time.Millisecond, minutes, 1, 4 * time.Minute, 10 * time.Minute, 0.6, 0.2},
		{"60 in each minute, hardly known", "503 and then timeouts", 20 * time.Millisecond, minutes, 1, 100 * time.Second, 10 * time.Minute, 0.6, 0.33},
		{"20 in 5 s", "503", 20 * time.Millisecond, func() limit { return windows(20, 5*time.Second) }, 4, 4 * time.Minute, time.Minute, 0.8, 0.2},
	} {
		t.Run(fmt.Sprint(tt.name, tt.way, tt.length), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				f, well := testFlow(func(*policy.Flow) {}), tt.well()
				offer(t, f, tt.known, tt.every, well)
				began := time.Now()
				offer(t, f, tt.length, tt.every, func(now time.Time) policy.Sign {
					sign := ways[tt.way](now.Sub(began))
					if sign.Waits {
						f.AskPause(5*time.Second, now)
					}
					return sign
				})
				back := time.Now()
				for ok := 0; ok == 0; ok, _, _ = drive(t, f, 10*time.Millisecond, well) {
					if time.Since(back) > max(tt.length, 10*time.Second) {
						t.Fatal("nothing was sent for as long as the outage")
					}
				}
				offer(t, f, 45*time.Second, tt.every, well)
				ok, refused := offer(t, f, 2*time.Minute, tt.every, well)
				if share := float64(ok) / tt.rate / 120; share < tt.least || float64(refused) > tt.vain*float64(ok) {
					t.Errorf("%.0f %% of what may be taken, and %d refused, in the 2 minutes that begin 45 s after the outage; want %.0f", 100*share, refused, 100*tt.least)
				}
			})
		})
	}
}

// A receiver that takes some POSTs and crashes, again and again, while something before it answers 503, has no window of a limit: it was sent one
// message in two minutes for hours after it had been mended.
func TestACrashLoopThatIsAnswered503LeavesNoLimit(t *testing.T) {
	for takes := 1; takes <= 3; takes++ {
		t.Run(fmt.Sprint(takes), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				f := testFlow(func(*policy.Flow) {})
				well := oneIn(0)
				offer(t, f, time.Minute, time.Second, well)
				for range 5 {
					offer(t, f, 3*time.Minute, time.Second, func(time.Time) policy.Sign { return overLimit })
					for n := 0; n < takes; {
						sign, _, sent := post(t, f, time.Now().Add(20*time.Minute), well) // the next probe is up to 15 minutes away
						if !sent {
							t.Fatal("nothing was sent to a receiver that was up again for 20 minutes")
						}
						if sign.Delivered {
							n++
						}
					}
				}
				offer(t, f, 45*time.Second, time.Second, well)
				if ok, _ := offer(t, f, 30*time.Second, time.Second, well); ok < 29 {
					t.Errorf("%d taken in the 30 s that begin 45 s after the last crash, want all", ok)
				}
			})
		})
	}
}

// Nor has one with a limit that crashes after so many POSTs each time, and does not answer until it is up again.
func TestACrashLoopOfALimitedWebhookIsNoWindow(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f, well := testFlow(func(*policy.Flow) {}), oneIn(50*time.Millisecond)
		drive(t, f, time.Minute, well)
		for range 5 {
			drive(t, f, 3*time.Minute, func(time.Time) policy.Sign { return timedOut })
			for n := 0; n < 20; {
				sign, _, sent := post(t, f, time.Now().Add(5*time.Minute), well)
				if !sent {
					t.Fatal("nothing was sent to a receiver that was up again for 5 minutes")
				}
				if sign.Delivered {
					n++
				}
			}
		}
		drive(t, f, 45*time.Second, well)
		if ok, _, _ := drive(t, f, 30*time.Second, well); ok < 480 {
			t.Errorf("%d taken in the 30 s that begin 45 s after the last crash, want 480 of 600", ok)
		}
	})
}

// A webhook that answers 503 to messages that come minutes apart may have a limit that others use up, or be down. It is charged to nobody as long as it took something
// within the hour; when it has refused several it counts as down: the breaker opens, probes are as seldom as in any outage, and after that hour they are charged.
func TestSeldomMessagesThatAreAnswered503TellAnOutage(t *testing.T) {
	for _, took := range []bool{true, false} {
		t.Run(fmt.Sprint(took), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				f := testFlow(func(*policy.Flow) {})
				if took {
					post(t, f, time.Now().Add(time.Second), func(time.Time) policy.Sign { return taken })
				}
				start := time.Now()
				refused := func(message string, failed int) *Ticket {
					ticket, _ := f.Enter(time.Now())
					for ; ticket == nil; ticket, _ = f.Enter(time.Now()) {
						time.Sleep(time.Second)
					}
					ticket.Answered(Answer{Sign: overLimit, Began: time.Now(), Took: time.Millisecond, Message: message, Failed: failed, Again: failed > 0})
					return ticket
				}
				for n, message := range []string{"a", "b", "c"} {
					want(t, "breaker before "+message, f.Status(time.Now()).Breaker.Phase, policy.BreakerClosed)
					time.Sleep(90 * time.Second)
					want(t, "spared "+message, refused(message, 0).Spared(), took || n == 2)
				}
				down := f.Status(time.Now())
				want(t, "breaker", down.Breaker.Phase, policy.BreakerOpen)
				want(t, "the status says that it throttles", down.Throttles, false)
				probes := 0
				for since := time.Now(); time.Since(since) < 10*time.Minute; probes++ {
					want(t, "a probe counts in nothing", refused("c", probes+1).Probed(), took)
				}
				if probes > 12 {
					t.Errorf("%d probes in ten minutes, want 12 at most", probes)
				}
				time.Sleep(time.Hour + time.Second - time.Since(start))
				want(t, "a probe counts in nothing an hour after the last 2xx", refused("c", 9).Probed(), false)
			})
		})
	}
}

// Some gateways refuse what is over a limit with 403, or 400, and a wait. Such a receiver was taken for one that refuses everything: its breaker opened, and it was sent a message now and then.
func TestALimitThatIsAnswered403AndAWaitIsLearned(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p, err := policy.Preset("standard")
		if err != nil {
			t.Fatal(err)
		}
		f, takes := testFlow(func(*policy.Flow) {}), oneIn(500*time.Millisecond)
		limit := func(now time.Time) policy.Sign {
			if takes(now).Delivered {
				return taken
			}
			return p.Sign(policy.Response{Status: 403, RetryAfter: "1"}, now)
		}
		drive(t, f, time.Minute, limit)
		ok, refused, charged := drive(t, f, 5*time.Minute, limit)
		if ok < 480 || refused > 60 || charged > 0 {
			t.Errorf("%d taken and %d refused in 5 minutes, %d of them charged; want 480 of 600 and at most 60, none of them charged", ok, refused, charged)
		}
	})
}
