package lease

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/queue"
)

// Others are told once for each lease that may end under the work, before it does; and the work
// goes on for as long as they wait.
func TestOthersAreToldBeforeALeaseEndsThatCanNotBeRenewed(t *testing.T) {
	const lease = 30 * time.Second
	for _, c := range []struct {
		name   string
		answer func(since time.Duration) error
		told   time.Duration // when; 0 for never
		by     time.Duration // until when nobody else can have it
		fails  bool          // telling
		lost   time.Duration // when the work ends; 0 for never
	}{
		{name: "renewed", answer: until(0, nil, nil)},
		{name: "late", answer: until(20*time.Second, queue.ErrBusy, nil)},
		{
			name: "answer lost", told: 15500 * time.Millisecond, by: 45 * time.Second, lost: 2 * time.Minute,
			answer: until(15100*time.Millisecond, context.DeadlineExceeded, queue.ErrLeaseLost),
		},
		{
			name: "answer lost, nobody told", told: 15500 * time.Millisecond, by: 45 * time.Second, fails: true, lost: 45 * time.Second,
			answer: until(15100*time.Millisecond, context.DeadlineExceeded, queue.ErrLeaseLost),
		},
		{name: "silent", answer: until(time.Hour, queue.ErrBusy, nil), told: 22500 * time.Millisecond, by: lease},
		{
			name: "silent, then received by another", told: 22500 * time.Millisecond, by: lease, lost: 2 * time.Minute,
			answer: until(40*time.Second, queue.ErrBusy, queue.ErrLeaseLost),
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				ls, _ := testLeases(t)
				start := time.Now()
				q := &fakeQueue{answer: func(time.Duration) error { return c.answer(time.Since(start)) }}
				m := &queue.Message{ID: "m", Lease: queue.NewLease("r", start, lease)}
				l := ls.Keep(t.Context(), q, m)
				defer l.Stop()
				l.Begin()
				var told []time.Duration
				var by time.Duration
				ls.Tell("orders", m, func(ctx context.Context) time.Time {
					want(t, "too late for more", ls.TooLate("orders", m), true)
					told = append(told, time.Since(start))
					deadline, _ := ctx.Deadline()
					by = deadline.Sub(start)
					if c.fails {
						return time.Time{}
					}
					return start.Add(2 * time.Minute)
				})
				ended := time.Duration(0)
				context.AfterFunc(l.Context, func() { ended = time.Since(start) })
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				if c.told == 0 {
					want(t, "told", len(told), 0)
					want(t, "too late for more", ls.TooLate("orders", m), false)
					return
				}
				want(t, "told once", len(told), 1)
				if told[0] < c.told || told[0] >= lease {
					t.Errorf("told at %s, want it from %s on, before the lease ends", told[0], c.told)
				}
				if off := by - c.by; off < 0 || off > time.Second {
					t.Errorf("has to be told by %s, want %s", by, c.by)
				}
				want(t, "work ends", ended.Round(5*time.Second), c.lost)
			})
		})
	}
}

// until answers renewals, by the time since the start.
func until(end time.Duration, before, after error) func(time.Duration) error {
	return func(at time.Duration) error {
		if at < end {
			return before
		}
		return after
	}
}

// What came back to this process is renewed again, also while others wait for it.
func TestALeaseThatCameBackInDoubtIsRenewed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ls, _ := testLeases(t)
		start := time.Now()
		q := &fakeQueue{answer: func(time.Duration) error {
			switch at := time.Since(start); {
			case at < 15100*time.Millisecond:
				return context.DeadlineExceeded
			case at < 45*time.Second:
				return queue.ErrLeaseLost
			}
			return nil
		}}
		m := &queue.Message{ID: "m", DequeueCount: 1, Lease: queue.NewLease("r", start, 30*time.Second)}
		l := ls.Keep(t.Context(), q, m)
		defer l.Stop()
		l.Begin()
		ls.Tell("orders", m, func(context.Context) time.Time { return start.Add(10 * time.Minute) })
		time.Sleep(47 * time.Second)
		again := ls.hold(t.Context(), q, &queue.Message{ID: "m", DequeueCount: 2, Lease: queue.NewLease("new", time.Now(), 30*time.Second)})
		want(t, "it is work of its own", again.Begin(), false)
		time.Sleep(5 * time.Minute)
		want(t, "lost", errors.Is(context.Cause(l.Context), queue.ErrLeaseLost), false)
		want(t, "the lease goes on", m.Lease.Until().After(time.Now()), true)
		want(t, "too late for more", ls.TooLate("orders", m), false)
	})
}

// Telling is over with the work, and counts for the lease that it was about: neither does a stop wait
// for it, nor is a lease taken for told that was renewed meanwhile.
func TestTellingEndsWithTheWorkAndWithTheNextRenewal(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ls, _ := testLeases(t)
		start := time.Now()
		q := &fakeQueue{answer: func(time.Duration) error { return until(28*time.Second, queue.ErrBusy, nil)(time.Since(start)) }}
		m := &queue.Message{ID: "m", Lease: queue.NewLease("r", start, 30*time.Second)}
		l := ls.Keep(t.Context(), q, m)
		l.Begin()
		ls.Tell("orders", m, func(ctx context.Context) time.Time {
			<-ctx.Done() // as long as it may
			return start.Add(time.Hour)
		})
		time.Sleep(35 * time.Second)
		want(t, "renewed", m.Lease.Until().After(start.Add(30*time.Second)), true)
		want(t, "waited for", l.waitedFor() > 0, false)
		l.Stop()
	})
	bubble.Test(t, func(t *testing.T) {
		ls, _ := testLeases(t)
		m := &queue.Message{ID: "m", Lease: queue.NewLease("r", time.Now(), 30*time.Second)}
		l := ls.Keep(t.Context(), &fakeQueue{answer: func(time.Duration) error { return queue.ErrBusy }}, m)
		l.Begin()
		began := make(chan struct{})
		ls.Tell("orders", m, func(ctx context.Context) time.Time {
			close(began)
			<-ctx.Done()
			return time.Time{}
		})
		<-began
		stopped := time.Now()
		l.Stop()
		want(t, "stopping took", time.Since(stopped), 0)
	})
}
