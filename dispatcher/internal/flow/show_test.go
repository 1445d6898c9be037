package flow

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// holding are flows that hold n messages of a real queue, hidden for an hour, for one webhook that is disabled.
func holding(t *testing.T, n int, change func(*policy.Flow)) (fs *Flows, q queue.Queue, r tables.Registration, shown *atomic.Int64) {
	t.Helper()
	fs, q, shown = testFlows(), testQueue(t), &atomic.Int64{}
	fs.o.Store = testStore(t)
	fs.o.Shown = func(string, string) { shown.Add(1) }
	r = testRegistration()
	change(&r.Flow)
	r.Enabled = false
	fs.Sync(t.Context(), []tables.Registration{r})
	for i := range n {
		if _, err := q.Send(t.Context(), fmt.Append(nil, i), queue.SendOptions{}); err != nil {
			t.Fatal(err)
		}
		got, err := q.Receive(t.Context(), 1, time.Hour)
		if err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		fs.Hold(q, got[0], []Since{{r.ID, time.Now()}})
	}
	want(t, "held", fs.Held(), n)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); fs.ShowHeld(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	return fs, q, r, shown
}

// enable has the webhook enabled anew.
func (fs *Flows) enable(t *testing.T, r tables.Registration) {
	t.Helper()
	r.Enabled, r.ResetAt = true, time.Now()
	fs.Sync(t.Context(), []tables.Registration{r})
}

func visible(t *testing.T, q queue.Queue) int {
	t.Helper()
	depth, err := q.Depth(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return int(depth.Visible)
}

// What is shown must be worth receiving: as much as the webhook takes, and all of it in the end.
func TestHeldMessagesAreShownAsFastAsTheirWebhookTakesThem(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		fs, q, r, shown := holding(t, 100, func(f *policy.Flow) { f.Adaptive, f.Concurrency = false, 4 })
		time.Sleep(time.Minute)
		want(t, "visible while the webhook is disabled", visible(t, q), 0)
		fs.enable(t, r)
		time.Sleep(5*time.Second + releaseEvery/2)
		if n := visible(t, q); n < 40 || n > 44 { // a window each half second
			t.Errorf("%d are visible after 5 s, want 40 to 44", n)
		}
		time.Sleep(10 * time.Second)
		want(t, "visible in the end", visible(t, q), 100)
		want(t, "told", shown.Load(), 100)
		want(t, "held in the end", fs.Held(), 0)
	})
}

func TestNothingIsShownThatItsWebhookCanNotBeSent(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		fs, q, r, _ := holding(t, 20, func(f *policy.Flow) { f.Adaptive, f.Concurrency = false, 4 })
		fs.enable(t, r)
		f := fs.Get(r.ID)
		f.AskPause(time.Minute, time.Now()) // before any was shown
		time.Sleep(30 * time.Second)
		want(t, "visible in a pause", visible(t, q), 0)
		time.Sleep(31 * time.Second)
		fs.held.release(r.ID)
		time.Sleep(time.Second + releaseEvery/2) // between two rounds
		if n := visible(t, q); n == 0 || n == 20 {
			t.Errorf("%d are visible after the pause, want some", n)
		}
		for range 4 { // the window is full
			if _, refused := f.Enter(time.Now()); refused != nil {
				t.Fatal(refused)
			}
		}
		before := visible(t, q)
		time.Sleep(time.Second)
		want(t, "visible beside those that were shown before the window was full", visible(t, q)-before, 0)
	})
}

// A message that waits for a webhook which was released before it was given back is not waited with.
func TestAMessageThatIsHeldAfterTheReleaseIsShown(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		fs, q, r, _ := holding(t, 0, func(*policy.Flow) {})
		decided := time.Now()
		time.Sleep(time.Second)
		fs.enable(t, r)
		time.Sleep(time.Second)
		if _, err := q.Send(t.Context(), []byte("late"), queue.SendOptions{}); err != nil {
			t.Fatal(err)
		}
		got, err := q.Receive(t.Context(), 1, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		fs.Hold(q, got[0], []Since{{r.ID, decided}})
		time.Sleep(time.Second)
		want(t, "visible", visible(t, q), 1)
	})
}

// Nobody else can show what a process held that stops: it comes back within a minute.
func TestWhatAProcessThatStopsHasHeldComesBackWithinAMinute(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		fs, q, _, _ := holding(t, 50, func(*policy.Flow) {})
		fs.Leave(t.Context())
		time.Sleep(stoppedDelay / 2)
		if n := visible(t, q); n < 10 || n > 40 {
			t.Errorf("%d of 50 are visible after half a minute, want them spread over it", n)
		}
		time.Sleep(stoppedDelay/2 + time.Second)
		want(t, "visible after a minute", visible(t, q), 50)
	})
}

// A delivery that waits for a webhook is due when that was found to take messages since, or has room.
func TestWhatWaitsIsDueWhenItsWebhookHasRoom(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := testRegistration()
		r.Flow.Adaptive, r.Flow.Concurrency = false, 1
		fs := testFlows()
		f := fs.Of(&r)
		due := func(reason policy.Reason) bool {
			now := time.Now()
			del := tables.Delivery{WebhookID: r.ID, State: tables.Held, Reason: reason, UpdatedAt: now, NextAt: now.Add(time.Hour)}
			fs.MakeDue(&del)
			return !del.NextAt.After(now)
		}
		want(t, "due, with room", due(policy.WebhookBusy), true)
		want(t, "due, though its webhook is disabled", due(policy.WebhookDisabled), false)
		ticket, _ := f.Enter(time.Now())
		want(t, "due, without room", due(policy.WebhookBusy), false)
		ticket.Unused()
		f.AskPause(time.Minute, time.Now())
		want(t, "due, in a pause", due(policy.WebhookPaused), false)
		time.Sleep(time.Minute + time.Second)
		want(t, "due, after the pause", due(policy.WebhookPaused), true)
	})
}

// Whoever waits for a POST to end gets its place, or is given back when that takes too long.
func TestAPostIsWaitedForNoLongerThanItIsWorth(t *testing.T) {
	enter := func(t *testing.T, f *Flow) *Ticket {
		t.Helper()
		ticket, refused := f.Enter(time.Now())
		if refused != nil || ticket == nil {
			t.Fatalf("no ticket: %+v", refused)
		}
		return ticket
	}
	one := func(f *policy.Flow) { f.Adaptive, f.Concurrency = false, 1 }
	for name, tt := range map[string]struct {
		ends, gives time.Duration // when the POST before ends, and when the waiter is cut short; 0: never
		gets        bool
		took        time.Duration
	}{
		"it ends soon":            {time.Second, 0, true, time.Second},
		"it hangs":                {0, 0, false, flowPatience},
		"the waiter is cut short": {0, time.Second, false, time.Second},
	} {
		bubble.Test(t, func(t *testing.T) {
			f := testFlow(one)
			before := enter(t, f)
			if ticket, refused := f.Enter(time.Now()); ticket != nil || refused != nil {
				t.Fatalf("%s: %+v, %+v: it is worth waiting, as nothing is known yet", name, ticket, refused)
			}
			ctx := t.Context()
			if tt.gives > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, tt.gives)
				defer cancel()
			}
			if tt.ends > 0 {
				time.AfterFunc(tt.ends, before.Unused)
			}
			start := time.Now()
			ticket, refused := f.Wait(ctx)
			want(t, name+": it gets the place", ticket != nil, tt.gets)
			want(t, name+": it is refused", refused != nil, !tt.gets)
			want(t, name+": it waited", time.Since(start), tt.took)
			if refused != nil {
				want(t, name+": why", refused.Reason, policy.WebhookBusy)
			}
			want(t, name+": waiting afterwards", f.Status(time.Now()).Waiting, 0)
		})
	}
}
