package admission

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/queue"
)

func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

// wants is for a queue whose webhooks have room for n more than those on the way.
func wants(name string, n int) Wants {
	return Wants{Queue: name, Gather: func() time.Duration { return 0 }, Room: func(onTheWay, ahead, most int, _ time.Time) (int, time.Time) {
		return min(n+ahead-onTheWay, most), time.Time{}
	}}
}

// acquire takes slots until there are none at once, at most n of them.
func acquire(s *Seats, n int) (taken int) {
	for taken < n && s.TryAcquire() {
		taken++
	}
	return taken
}

// free gives n slots back.
func free(s *Seats, n int) {
	for range n {
		s.Grant().Close()
	}
}

// start begins with n seats.
func start(t *testing.T, s *Seats, n int) (grants []*Grant) {
	t.Helper()
	for range n {
		if !s.Start(t.Context(), time.Time{}) {
			t.Fatalf("of %d seats only %d have a slot", n, len(grants))
		}
		grants = append(grants, s.Grant())
	}
	return grants
}

func TestABusyQueueLeavesOthersTheirPart(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a := New(Bounds{Slots: 100, Total: 20})
		busy, quiet := a.Join(wants("busy", 100)), a.Join(wants("quiet", 100))
		want(t, "a busy queue gets", acquire(busy, 100), 15)
		want(t, "the other gets its part", acquire(quiet, 100), 5)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		want(t, "nothing is left", quiet.Acquire(ended), 0)
		got := make(chan int)
		go func() { got <- quiet.Acquire(t.Context()) }()
		synctest.Wait()
		want(t, "waits", quiet.Wait(), true)
		free(busy, 2)
		want(t, "what is given back goes to who waits", <-got, 2)
		quiet.Return(2)
		free(busy, 13)
		free(quiet, 5)
		quiet.Leave()
		want(t, "a queue alone may have it all", acquire(busy, 100), 20)
		free(busy, 20)
		busy.Leave()
		want(t, "queues left", len(a.shares), 0)
		want(t, "reserved", a.reserved, 0)
	})
}

func TestAQueueWithNothingInHandMayAlwaysHaveOne(t *testing.T) {
	a := New(Bounds{Slots: 10, Total: 4})
	first := a.Join(wants("first", 10))
	want(t, "a queue alone", acquire(first, 10), 4)
	for i := range 100 {
		one := a.Join(wants(fmt.Sprint(i), 10))
		want(t, "beyond the total", acquire(one, 10), 1)
	}
}

func TestWhatALeavingQueueHadIsDividedAmongTheOthers(t *testing.T) {
	a := New(Bounds{Slots: 20, Total: 20})
	a.Join(wants("one", 20))
	two := a.Join(wants("two", 20))
	acquire(two, 1)
	two.Leave()
	free(two, 1)
	want(t, "part", a.part, 10)
	want(t, "reserved", a.reserved, 10)
}

func TestTheSlotIsFreeWithTheLastAnswerUntilTooManyWaitForStorage(t *testing.T) {
	a := New(Bounds{Slots: 2, Total: 100})
	s := a.Join(wants("q", 100))
	var settling []*Grant
	for acquire(s, 1) == 1 && len(settling) < 20 {
		g := s.Grant()
		g.Asked()
		g.Posting(1, false)
		g.Answered()
		settling = append(settling, g)
	}
	want(t, "in hand", len(settling), 2+Bounds{Slots: 2}.Settling())
	settling[0].Close()
	want(t, "seats once one was settled", acquire(s, 5), 0) // its slot is still the last one's
	settling[7].Close()
	want(t, "seats once one with a slot was settled", acquire(s, 5), 1)
}

func TestAMessageThatOneWebhookIsDoneWithLeavesItsSlotToOthers(t *testing.T) {
	a := New(Bounds{Slots: 1, Total: 4})
	s := a.Join(wants("q", 100))
	var lingering []*Grant
	for acquire(s, 1) == 1 && len(lingering) < 20 {
		g := s.Grant()
		g.Asked()
		g.Posting(2, len(lingering) == 0) // the first was with a webhook before
		if len(lingering) > 0 {
			g.Answered()
		}
		lingering = append(lingering, g)
	}
	want(t, "in hand", len(lingering), 3) // half of the total without a slot, and one in it
	for _, g := range lingering {
		g.Close()
	}
	inHand, without := a.Counts()
	want(t, "in hand at rest", inHand, 0)
	want(t, "lingering at rest", without, 0)
	want(t, "seats in use", s.inUse(), 0)
}

func TestUnderABacklogAReceiverWaitsForHalfOfWhatMayBeInWork(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a := New(Bounds{Slots: 8, Total: 100})
		w := wants("q", 100)
		w.Gather = func() time.Duration { return 50 * time.Millisecond }
		looks, room := 0, w.Room
		w.Room = func(onTheWay, ahead, most int, now time.Time) (int, time.Time) {
			looks++
			return room(onTheWay, ahead, most, now)
		}
		s := a.Join(w)
		want(t, "at first", s.Acquire(t.Context()), 8)
		grants := start(t, s, 8)
		got := make(chan int)
		go func() { got <- s.Acquire(t.Context()) }()
		for i, g := range grants {
			time.Sleep(10 * time.Millisecond)
			if g.Close(); i == 3 {
				break
			}
		}
		want(t, "when half is free", <-got, 4)
		want(t, "looks", looks, 4) // at first, without a slot, with one, and with half: not with each
		start := time.Now()
		go func() { got <- s.Acquire(t.Context()) }()
		grants[4].Close()
		want(t, "when nothing more comes", <-got, 1)
		want(t, "after", time.Since(start), 50*time.Millisecond)
	})
}

func TestAReceiverWaitsForRoomAsLongAsItsPatience(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a := New(Bounds{Slots: 8, Total: 100})
		var next time.Time
		var room atomic.Int64
		w := Wants{Queue: "q", Gather: func() time.Duration { return 0 }, Patience: 5 * time.Second,
			Room: func(int, int, int, time.Time) (int, time.Time) { return int(room.Load()), next }}
		s := a.Join(w)
		start := time.Now()
		want(t, "nobody knows when", s.Acquire(t.Context()), 0)
		want(t, "waited for", time.Since(start), 5*time.Second)
		start, next = time.Now(), time.Now().Add(time.Minute)
		want(t, "in a minute", s.Acquire(t.Context()), 0)
		want(t, "waited for", time.Since(start), 0)
		next = time.Now().Add(4 * time.Second)
		go func() {
			time.Sleep(time.Second)
			room.Store(3)
			s.Changed() <- struct{}{}
		}()
		want(t, "soon, and told before", s.Acquire(t.Context()), 3)
		want(t, "waited for", time.Since(start), time.Second)
	})
}

// Whatever happens to messages, in whatever order: no bound is passed, and nothing is left.
func TestNoBoundIsPassedInAnyOrder(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		a := New(Bounds{Slots: 3, Total: 12})
		queues := []*Seats{a.Join(wants("a", 5)), a.Join(wants("b", 5)), a.Join(wants("c", 5))}
		var grants []*Grant
		received := map[*Seats]int{}
		for range 300 {
			s := queues[r.IntN(len(queues))]
			switch r.IntN(5) {
			case 0:
				if s.TryAcquire() {
					grants = append(grants, s.Grant())
				}
			case 1: // a receive, at times ahead, that brings less than it asked for
				ahead := r.IntN(3)
				room, _ := s.room(ahead, time.Now())
				if n, _ := s.take(room, ahead, true, false); n > 0 {
					s.Return(1)
					received[s] += n - 1
				}
			case 2:
				if received[s] == 0 {
					continue
				}
				received[s]--
				if s.Start(t.Context(), time.Time{}) {
					grants = append(grants, s.Grant())
				} else {
					s.Return(1)
				}
			default:
				if len(grants) == 0 {
					continue
				}
				i := r.IntN(len(grants))
				if g := grants[i]; !g.asked {
					g.Asked()
					g.Posting(1+r.IntN(3), r.IntN(2) == 0)
				} else if g.posts > 0 {
					g.Answered()
				} else {
					g.Close()
					grants[i] = grants[len(grants)-1]
					grants = grants[:len(grants)-1]
				}
			}
			inHand, lingering := a.Counts()
			if inHand != len(grants)+received[queues[0]]+received[queues[1]]+received[queues[2]] || inHand > 12+2 || lingering > 6 {
				t.Fatalf("seed %d: %d in hand of %d, %d without a slot", seed, inHand, len(grants), lingering)
			}
			for _, s := range queues {
				if s.slots > 3 || s.slots < 0 || s.settling > a.bounds.Settling() || s.onTheWay < 0 || s.coming != received[s] || s.onTheWay+s.coming > 5+2 {
					t.Fatalf("seed %d: %d slots, %d settling, %d on the way, %d coming", seed, s.slots, s.settling, s.onTheWay, s.coming)
				}
			}
		}
		for _, g := range grants {
			g.Close()
		}
		for _, s := range queues {
			s.Return(received[s])
			want(t, "seats in use", s.inUse()+s.onTheWay, 0)
			s.Leave()
		}
		want(t, "in hand", a.inHand+a.lingering+a.reserved+len(a.shares), 0)
	}
}

func TestAcquireTakesWhatOneReceiveCanBringAtMost(t *testing.T) {
	a := New(Bounds{Slots: 500, Total: 1000})
	s := a.Join(wants("q", 1000))
	want(t, "seats", s.Acquire(t.Context()), queue.MaxReceive)
}

// Half of what is free is left for a second receive, where storage is late with the first; of a few,
// nothing is.
func TestAcquireLeavesHalfOfWhatIsFreeForAnotherReceive(t *testing.T) {
	for _, tt := range []struct{ slots, first, second int }{{1, 1, 0}, {7, 7, 0}, {8, 4, 4}, {32, 16, 8}, {64, 32, 16}, {500, 32, 32}} {
		a := New(Bounds{Slots: tt.slots, Total: 1000})
		s := a.Join(wants("q", 1000))
		want(t, "seats", s.Acquire(t.Context()), tt.first)
		if tt.second > 0 {
			want(t, "seats of the second", s.Acquire(t.Context()), tt.second)
		}
	}
}

// While slots turn over, some are in hand beside those that have one, and wait in vain for a
// second at most; not at the start, and no more when the slots stand still.
func TestABatchIsReceivedAheadWhileSlotsTurnOver(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a := New(Bounds{Slots: 8, Total: 100})
		w := wants("q", 8)
		w.Ahead, w.Gather = true, func() time.Duration { return 50 * time.Millisecond }
		s := a.Join(w)
		want(t, "at first", s.Acquire(t.Context()), 8)
		grants := start(t, s, 8)
		ended, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		want(t, "before any slot was freed", s.Acquire(ended), 0)
		for i := range 6 {
			grants[i].Asked()
			grants[i].Close()
		}
		want(t, "those that are free, and as many as have turned over", s.Acquire(t.Context()), 6+6)
		start(t, s, 6)
		asked := time.Now()
		want(t, "a slot for the next one", s.Start(t.Context(), asked.Add(AheadTime)), false)
		want(t, "waited for", time.Since(asked), AheadTime)
		go func() {
			time.Sleep(100 * time.Millisecond)
			grants[6].Asked()
			grants[6].Close()
		}()
		asked = time.Now()
		want(t, "a slot when one is freed", s.Start(t.Context(), asked.Add(AheadTime)), true)
		want(t, "waited for", time.Since(asked), 100*time.Millisecond)
		s.Return(5)
		ended, cancel = context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		want(t, "when slots stand still", s.Acquire(ended), 0)
	})
}

// inUse counts the seats that are in use, in slots or while settling.
func (s *Seats) inUse() int {
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	return s.slots + s.settling + s.coming
}

func TestPutOffsAreRememberedWithinABound(t *testing.T) {
	p := NewPutOffs()
	for i := range maxPutOffs + 1 {
		p.Remember("orders", fmt.Sprint(i), 2)
	}
	for id, want := range map[string]int64{"0": 0, "1": 7, fmt.Sprint(maxPutOffs): 7, "never put off": 0} {
		if got := p.Receives("orders", id, 9); got != want {
			t.Errorf("message %s: %d receives were put off, want %d", id, got, want)
		}
	}
	p.Ended("orders", "1")
	if got := p.Receives("orders", "1", 9); got != 0 {
		t.Errorf("of a message that is no more %d receives are remembered", got)
	}
	if got := p.Receives("invoices", "2", 9); got != 0 {
		t.Errorf("of another queue's message %d receives are remembered", got)
	}
}
