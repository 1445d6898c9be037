package lease

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/meter"
	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/queue"
	"go.opentelemetry.io/otel/metric/noop"
)

// Leases act in the order of their times, whichever come and go meanwhile.
func TestLeasesActInOrder(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ls, _ := testLeases(t)
		random := rand.New(rand.NewPCG(3, 4))
		type due struct {
			*Lease
			at time.Time
		}
		var all, stopped []due
		for range 500 {
			k := ls.hold(t.Context(), &fakeQueue{}, &queue.Message{Lease: queue.NewLease("gone", time.Now(), time.Minute)})
			k.receipt = "gone"
			at := time.Now().Add(time.Duration(random.Int64N(int64(time.Minute))))
			k.actAt(at)
			all = append(all, due{k, at})
			if random.IntN(3) == 0 {
				i := random.IntN(len(all))
				if all[i].Stop(); !all[i].IsLost() {
					stopped = append(stopped, all[i])
				}
				all = append(all[:i], all[i+1:]...)
			}
			time.Sleep(time.Duration(random.Int64N(int64(100 * time.Millisecond))))
			now := time.Now()
			for _, k := range all { // what is due has acted, which here means that it was lost
				if past := !k.at.After(now); past != k.IsLost() && !k.at.Equal(now) {
					t.Fatalf("a lease that is due in %s: acted: %t", k.at.Sub(now), k.IsLost())
				}
			}
		}
		for _, k := range all {
			k.Stop()
		}
		time.Sleep(2 * time.Minute)
		for _, k := range stopped {
			if k.IsLost() {
				t.Error("a lease acted although it was stopped")
			}
		}
	})
}

// fakeQueue answers renewals by a script, and nothing else.
type fakeQueue struct {
	queue.Queue
	answer func(lease time.Duration) error

	mu    sync.Mutex
	asked []time.Time
}

func (q *fakeQueue) Name() string { return "orders" }

func (q *fakeQueue) Renew(_ context.Context, m *queue.Message, lease time.Duration) error {
	now := time.Now()
	q.mu.Lock()
	q.asked = append(q.asked, now)
	q.mu.Unlock()
	if err := q.answer(lease); err != nil {
		return err
	}
	m.Lease.Renewed(m.Lease.Receipt()+"+", now, lease)
	return nil
}

func (q *fakeQueue) renewals() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.asked)
}

// testLeases asks for 30 s.
func testLeases(t *testing.T) (*Leases, *lockedBuffer) {
	t.Helper()
	m, err := meter.New(noop.NewMeterProvider().Meter(""))
	if err != nil {
		t.Fatal(err)
	}
	log := &lockedBuffer{}
	return New(t.Context(), func(string) time.Duration { return 30 * time.Second }, m, slog.New(slog.NewTextHandler(log, nil))), log
}

// Whenever storage answers again, there is a renewal in what is left of the lease, unless that
// is next to nothing.
func TestARenewalIsTriedAgainBeforeTheLeaseEnds(t *testing.T) { // C63
	for ends := 16 * time.Second; ends < 29500*time.Millisecond; ends += 300 * time.Millisecond {
		bubble.Test(t, func(t *testing.T) {
			ls, _ := testLeases(t)
			start := time.Now()
			q := &fakeQueue{answer: func(time.Duration) error {
				if time.Since(start) < ends {
					return queue.ErrBusy
				}
				return nil
			}}
			m := &queue.Message{ID: "m", Lease: queue.NewLease("r", start, 30*time.Second)}
			l := ls.Keep(t.Context(), q, m)
			time.Sleep(30*time.Second - time.Millisecond)
			if !m.Lease.Until().After(start.Add(30 * time.Second)) {
				t.Errorf("storage answered again after %s, and the lease ended; asked at %v", ends, since(start, q.asked))
			}
			if n := len(q.asked); n > 15 {
				t.Errorf("%d renewals were tried within one lease", n)
			}
			l.Stop()
		})
	}
}

// lockedBuffer is a log that is written to and read by several goroutines.
type lockedBuffer struct {
	mu  sync.Mutex
	log bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.String()
}

func since(start time.Time, list []time.Time) (after []time.Duration) {
	for _, t := range list {
		after = append(after, t.Sub(start))
	}
	return after
}

// What is said about a receipt that storage does not know is what is known.
func TestADoubtfulLeaseSaysWhatIsKnown(t *testing.T) { // C63
	for ended, said := range map[bool]string{
		false: "a renewal that it did not answer has replaced it, and the lease can't be renewed again",
		true:  "or someone else has received the message",
	} {
		bubble.Test(t, func(t *testing.T) {
			ls, log := testLeases(t)
			start, known := time.Now(), 20*time.Second
			if ended {
				known = 31 * time.Second
			}
			q := &fakeQueue{answer: func(time.Duration) error {
				if time.Since(start) < known {
					return context.DeadlineExceeded
				}
				return queue.ErrLeaseLost
			}}
			l := ls.Keep(t.Context(), q, &queue.Message{ID: "m", Lease: queue.NewLease("r", start, 30*time.Second)})
			time.Sleep(40 * time.Second)
			want(t, "lost while a renewal may have taken effect", l.IsLost(), false)
			want(t, "says what is known", strings.Contains(log.String(), said), true)
			time.Sleep(time.Minute)
			want(t, "lost when that is over too", l.IsLost(), true)
			want(t, "work ends", errors.Is(context.Cause(l.Context), queue.ErrLeaseLost), true)
			l.Stop()
		})
	}
}

// A message that was received for longer than half of its life is renewed at once, by the work that goes on with it alone: the receipt
// that a message brought when it came back is not replaced behind that work's back.
func TestAMessageThatIsHiddenForTooLongIsRenewedByItsWorkAlone(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ls, _ := testLeases(t)
		q := &fakeQueue{answer: func(time.Duration) error { return nil }}
		start := time.Now()
		received := func(receipt string) *queue.Message {
			return &queue.Message{ID: "m", ExpiresAt: start.Add(3 * time.Minute), Lease: queue.NewLease(receipt, time.Now(), 2*time.Minute)}
		}
		first := ls.Keep(t.Context(), q, received("r"))
		if !first.Begin() {
			t.Fatal("the first work does not go on")
		}
		time.Sleep(time.Second)
		if n := q.renewals(); n != 1 || first.Message.Lease.Granted() != 30*time.Second {
			t.Errorf("%d renewals, for %s", n, first.Message.Lease.Granted())
		}
		again := ls.Keep(t.Context(), q, received("r2"))
		if again.Begin() {
			t.Error("two are at work on one message")
		}
		again.Stop()
		time.Sleep(time.Second)
		if n, receipt := q.renewals(), first.Message.Lease.Receipt(); n != 1 || receipt != "r2" {
			t.Errorf("%d renewals, and the receipt %q", n, receipt)
		}
		first.Stop()
		first.Forget()
	})
}

// A renewal that was not answered may have made the lease shorter: until it is known the lease is over by then.
func TestAnUnansweredRenewalMayHaveShortenedTheLease(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ls, _ := testLeases(t)
		start := time.Now()
		q := &fakeQueue{answer: func(time.Duration) error { return context.DeadlineExceeded }}
		l := ls.Keep(t.Context(), q, &queue.Message{ID: "m", ExpiresAt: start.Add(3 * time.Minute), Lease: queue.NewLease("r", start, 2*time.Minute)})
		l.Begin()
		time.Sleep(31 * time.Second)
		if !l.MayBeElsewhere() {
			t.Errorf("the lease is good until %s, and storage may have ended it after 30 s", l.Message.Lease.Until().Sub(start))
		}
		l.Stop()
		l.Forget()
	})
}

func TestAMessageThatCameBackIsAdoptedOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ls, _ := testLeases(t)
		q := &fakeQueue{answer: func(time.Duration) error { return nil }}
		received := func(count int64) *Lease {
			return ls.hold(t.Context(), q, &queue.Message{ID: "m", DequeueCount: count, Lease: queue.NewLease("r", time.Now(), time.Minute)})
		}
		first := received(1)
		want(t, "the first begins", first.Begin(), true)
		want(t, "the second does not", received(2).Begin(), false)
		want(t, "nobody else had it", ls.MayBeElsewhere(t.Context(), "orders", first.Message), false)
		want(t, "nor does one after another's", received(4).Begin(), false)
		want(t, "somebody else had it", ls.MayBeElsewhere(t.Context(), "orders", first.Message), true)
		first.Forget()
		want(t, "in work", ls.InWork(), 0)
		want(t, "then it begins anew", received(5).Begin(), true)
	})
}

// A lease whose end has passed is ours only when storage says so, or when the message would be
// gone for everybody.
func TestWhoseMessageItIsAfterItsLeaseHasEnded(t *testing.T) {
	for _, c := range []struct {
		name    string
		after   time.Duration
		answer  error
		sure    bool
		renewed int
	}{
		{"the lease goes on", 14 * time.Second, queue.ErrLeaseLost, true, 0},
		{"storage renews it", 40 * time.Second, nil, true, 1},
		{"storage does not know the receipt", 40 * time.Second, queue.ErrLeaseLost, false, 1},
		{"storage is silent", 40 * time.Second, queue.ErrBusy, false, 1},
		{"the queue is deleted", 40 * time.Second, queue.ErrQueueNotFound, true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				ls, _ := testLeases(t)
				q := &fakeQueue{answer: func(time.Duration) error { return c.answer }}
				m := &queue.Message{ID: "m", Lease: queue.NewLease("r", time.Now(), 30*time.Second)}
				l := ls.Keep(t.Context(), q, m)
				l.timer.Stop() // its process stands still
				time.Sleep(c.after)
				want(t, "sure", l.Sure(), c.sure)
				want(t, "renewals", len(q.asked), c.renewed)
				want(t, "lost", l.IsLost(), errors.Is(c.answer, queue.ErrLeaseLost) && !c.sure)
				l.Stop()
			})
		})
	}
}

// A machine was suspended during the work: the monotonic clock stood still, and so did the timer of the renewal. Another instance may
// have had the message meanwhile.
func TestWhoseMessageItIsAfterTheMachineWasSuspended(t *testing.T) {
	for slept, over := range map[int]bool{0: false, 600: true} {
		ls, _ := testLeases(t)
		q := &fakeQueue{answer: func(time.Duration) error { return queue.ErrLeaseLost }}
		m := &queue.Message{ID: "m", Lease: queue.NewLease("r", bubble.Suspended(time.Now(), slept), 10*time.Minute)}
		l := ls.Keep(t.Context(), q, m)
		l.timer.Stop()
		want(t, "may be elsewhere", ls.MayBeElsewhere(l.Context, "orders", m), over)
		want(t, "sure", l.Sure(), !over)
		l.Stop()
	}
}
