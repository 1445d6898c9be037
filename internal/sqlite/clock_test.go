package sqlite

import (
	"context"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/queue"
)

// wallClock is a wall clock that a test can set. The monotonic clock goes on.
type wallClock struct{ offset atomic.Int64 }

func (w *wallClock) now() time.Time { return time.Now().Add(time.Duration(w.offset.Load())) }

func (w *wallClock) set(step time.Duration) { w.offset.Add(int64(step)) }

func openAt(t *testing.T, path string, w *wallClock) (*DB, queue.Queue) {
	t.Helper()
	db, err := open(t.Context(), path, Options{}, newClock(w.now))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db, mustQueue(t, db)
}

func mustQueue(t testing.TB, db *DB) queue.Queue {
	t.Helper()
	q, err := db.Queues().Queue("orders")
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func mustSend(t testing.TB, q queue.Queue, text string, opts queue.SendOptions) {
	t.Helper()
	if _, err := q.Send(t.Context(), []byte(text), opts); err != nil {
		t.Fatal(err)
	}
}

// receiveAll receives what is visible now.
func receiveAll(t testing.TB, q queue.Queue) []*queue.Message {
	t.Helper()
	ms, err := q.Receive(context.Background(), queue.MaxReceive, 10*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return ms
}

func wantVisible(t *testing.T, q queue.Queue, when string, want int) []*queue.Message {
	t.Helper()
	ms := receiveAll(t, q)
	if len(ms) != want {
		t.Errorf("%s: %d messages are visible, want %d", when, len(ms), want)
	}
	return ms
}

func TestHeldLeaseSurvivesAClockSetForward(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var clock wallClock
		_, q := openAt(t, filepath.Join(t.TempDir(), "test.db"), &clock)
		for range 3 {
			mustSend(t, q, "a", queue.SendOptions{})
		}
		held := wantVisible(t, q, "at first", 3)
		time.Sleep(time.Minute)
		clock.set(time.Hour)
		wantVisible(t, q, "after the clock was set forward 1h", 0)
		if err := q.Complete(t.Context(), held[0]); err != nil {
			t.Errorf("Complete: %v", err)
		}
		if err := q.Renew(t.Context(), held[1], 20*time.Minute); err != nil {
			t.Errorf("Renew: %v", err)
		}
		time.Sleep(9*time.Minute - time.Second)
		wantVisible(t, q, "just before the lease ends", 0)
		time.Sleep(2 * time.Second)
		wantVisible(t, q, "after the lease has ended", 1)
	})
}

// Whichever process notices first that the clock was set, the leases of the others last as long as they were granted.
func TestALeaseOfAnotherProcessSurvivesAClockSetForward(t *testing.T) {
	for _, step := range []time.Duration{5 * time.Minute, time.Hour} { // within a lease, and beyond it
		bubble.Test(t, func(t *testing.T) {
			var clock wallClock
			path := filepath.Join(t.TempDir(), "test.db")
			_, q := openAt(t, path, &clock)
			_, other := openAt(t, path, &clock)
			for range 2 {
				mustSend(t, other, "a", queue.SendOptions{})
			}
			held := wantVisible(t, other, "at first", 2)
			time.Sleep(time.Minute)
			clock.set(step)
			wantVisible(t, q, "after the clock was set forward", 0)
			time.Sleep(9*time.Minute - time.Second)
			wantVisible(t, q, "just before the lease ends", 0)
			if err := other.Complete(t.Context(), held[0]); err != nil {
				t.Errorf("Complete: %v", err)
			}
			time.Sleep(2 * time.Second)
			wantVisible(t, q, "after the lease has ended", 1)
		})
	}
}

// A machine that starts with a clock years behind must not lose what it took in before
// the clock was set.
func TestClockSetForwardExpiresNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var clock wallClock
		path := filepath.Join(t.TempDir(), "test.db")
		_, q := openAt(t, path, &clock)
		_, other := openAt(t, path, &clock)
		mustSend(t, q, "expired before", queue.SendOptions{TTL: time.Minute})
		mustSend(t, q, "lives on", queue.SendOptions{TTL: time.Hour})
		time.Sleep(30*time.Minute + time.Second)
		clock.set(25 * 365 * 24 * time.Hour)
		for _, q := range []queue.Queue{q, other} {
			ms := wantVisible(t, q, "after the clock was set forward", 1)
			if len(ms) != 1 || string(ms[0].Text) != "lives on" {
				t.Fatalf("received %d messages, want the one that lives on", len(ms))
			}
			if err := q.Abandon(t.Context(), ms[0], 0); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(30 * time.Minute)
		wantVisible(t, q, "when its hour is over", 0)
	})
}

func TestNothingWaitsLongerAfterAClockSetBack(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var clock wallClock
		path := filepath.Join(t.TempDir(), "test.db")
		_, q := openAt(t, path, &clock)
		_, other := openAt(t, path, &clock)
		mustSend(t, q, "abandoned", queue.SendOptions{})
		if err := q.Abandon(t.Context(), receiveAll(t, q)[0], 15*time.Minute); err != nil {
			t.Fatal(err)
		}
		mustSend(t, q, "delayed", queue.SendOptions{Delay: 10 * time.Minute})
		mustSend(t, q, "held", queue.SendOptions{})
		held := wantVisible(t, q, "at first", 1)[0]
		time.Sleep(4 * time.Minute)
		clock.set(-time.Hour)
		// Both handles notice; the rows are moved once.
		wantVisible(t, q, "after the clock was set back 1h", 0)
		wantVisible(t, other, "the same through the other handle", 0)
		time.Sleep(6*time.Minute - time.Second)
		wantVisible(t, other, "just before 10m", 0)
		time.Sleep(2 * time.Second)
		if ms := wantVisible(t, other, "after 10m", 2); len(ms) == 2 {
			for _, m := range ms {
				if m.ID != held.ID && string(m.Text) != "delayed" {
					t.Errorf("%s is visible after 10m", m.Text)
				}
			}
		}
		time.Sleep(5*time.Minute - 2*time.Second)
		wantVisible(t, other, "just before 15m", 0)
		time.Sleep(2 * time.Second)
		if ms := wantVisible(t, other, "after 15m", 1); len(ms) == 1 && string(ms[0].Text) != "abandoned" {
			t.Errorf("%s is visible after 15m", ms[0].Text)
		}
	})
}

func TestClockSetBackWhileClosed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var clock wallClock
		path := filepath.Join(t.TempDir(), "test.db")
		db, q := openAt(t, path, &clock)
		mustSend(t, q, "delayed", queue.SendOptions{Delay: 10 * time.Minute})
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		clock.set(-time.Hour)
		_, q = openAt(t, path, &clock)
		time.Sleep(10*time.Minute + time.Second)
		wantVisible(t, q, "10m after it was opened again", 1)
	})
}

func TestRowHiddenBeyondTheLongestDelayIsClamped(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var clock wallClock
		db, q := openAt(t, filepath.Join(t.TempDir(), "test.db"), &clock)
		mustSend(t, q, "lost in time", queue.SendOptions{TTL: queue.NoExpiry})
		far := clock.now().Add(365 * 24 * time.Hour)
		err := db.write(t.Context(), serviceQueue, "test", func(tx *tx) error {
			_, err := tx.exec("UPDATE messages SET visible_at = ?", far.UnixMilli())
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := db.tidy(t.Context()); err != nil {
			t.Fatal(err)
		}
		var visible int64
		err = db.readRows(t.Context(), query{text: "SELECT visible_at FROM messages"}, func(scan func(...any) error) (bool, error) {
			return false, scan(&visible)
		})
		if latest := clock.now().Add(queue.MaxDelay).UnixMilli(); err != nil || visible > latest {
			t.Errorf("visible_at = %d, %v, want at most %d", visible, err, latest)
		}
	})
}

func TestDelayIsExactAcrossTheAutumnChange(t *testing.T) {
	zone, err := time.LoadLocation("America/New_York")
	if err != nil {
		t.Fatal(err)
	}
	local := time.Local
	time.Local = zone
	t.Cleanup(func() { time.Local = local })
	bubble.Test(t, func(t *testing.T) {
		// Clocks went back an hour at 06:00 UTC.
		time.Sleep(time.Until(time.Date(2000, 10, 29, 5, 55, 0, 0, time.UTC)))
		q := mustQueue(t, openNew(t))
		mustSend(t, q, "a", queue.SendOptions{Delay: 10 * time.Minute})
		time.Sleep(10*time.Minute - time.Second)
		wantVisible(t, q, "just before 10m", 0)
		time.Sleep(time.Second)
		wantVisible(t, q, "after 10m", 1)
	})
}

func TestDayLongLeaseHolds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		q := mustQueue(t, openNew(t))
		mustSend(t, q, "a", queue.SendOptions{TTL: queue.NoExpiry})
		ms, err := q.Receive(t.Context(), 1, 24*time.Hour)
		if err != nil || len(ms) != 1 {
			t.Fatalf("Receive = %d, %v", len(ms), err)
		}
		time.Sleep(24*time.Hour - time.Second)
		wantVisible(t, q, "just before the lease ends", 0)
		time.Sleep(2 * time.Second)
		wantVisible(t, q, "after the lease has ended", 1)
	})
}

// A lease that ends within a millisecond ends for storage with it, not before: its holder counts
// in nanoseconds.
func TestNoTimeIsRoundedSoThatItEndsEarly(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		time.Sleep(123456789 * time.Nanosecond)
		c := newClock(time.Now)
		c.look()
		for _, d := range []time.Duration{0, 1, time.Millisecond - 1, time.Second, time.Hour + 1} {
			exact := time.Now().Add(d)
			if stored := time.UnixMilli(c.after(d)); stored.Before(exact) || stored.Sub(exact) >= time.Millisecond {
				t.Errorf("%s from now is stored as %s later", d, stored.Sub(exact))
			}
		}
	})
}

// More have expired than one receive removes, as after a night without a process.
func TestWhatHasExpiredIsNeverReceived(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		_, q := openAt(t, filepath.Join(t.TempDir(), "test.db"), &wallClock{})
		for range 2*expireAtOnce + 1 {
			mustSend(t, q, "x", queue.SendOptions{TTL: 10 * time.Second})
		}
		mustSend(t, q, "alive", queue.SendOptions{TTL: time.Hour})
		time.Sleep(10 * time.Second)
		var got []string
		for range 3 {
			ms, err := q.Receive(t.Context(), queue.MaxReceive, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range ms {
				got = append(got, string(m.Text))
			}
		}
		if len(got) != 1 || got[0] != "alive" {
			t.Errorf("received %d messages, want the one that lives: %.40q", len(got), got)
		}
	})
}
