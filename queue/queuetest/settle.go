package queuetest

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pushlease/pushlease/queue"
)

var settleTests = []test{
	{"CompleteRemovesTheMessage", completeRemoves},
	{"SecondCompleteIsLeaseLost", secondComplete},
	{"OneOfManyCompletesWins", oneCompleteWins},
	{"AbandonShowsNotBeforeItsDelay", abandonDelays},
	{"AbandonWithoutDelayShowsAtOnce", abandonAtOnce},
	{"AbandonEndsTheLease", abandonEndsLease},
	{"HiddenMessageIsShownByItsReceipt", hiddenIsShown},
	{"HiddenMessageComesBackAfterItsDelay", hiddenComesBack},
	{"ExpiredMessageIsNobodyElses", expiredIsNobodyElses},
}

func completeRemoves(s *suite) {
	s.send("a")
	start := time.Now()
	if err := s.queue.Complete(s.Context(), s.one(time.Second)); err != nil {
		s.Fatal(err)
	}
	s.h.Advance(time.Until(start.Add(1500 * time.Millisecond)))
	s.none()
	d, err := s.queue.Depth(s.Context())
	if err != nil || d.Total != 0 || d.Visible != 0 {
		s.Errorf("Depth = %+v, %v, want an empty queue", d, err)
	}
}

func secondComplete(s *suite) {
	s.send("a")
	m := s.one(time.Minute)
	if err := s.queue.Complete(s.Context(), m); err != nil {
		s.Fatal(err)
	}
	for range 2 {
		if err := s.queue.Complete(s.Context(), m); !errors.Is(err, queue.ErrLeaseLost) {
			s.Errorf("second Complete = %v, want ErrLeaseLost", err)
		}
	}
	if err := s.queue.Abandon(s.Context(), m, 0); !errors.Is(err, queue.ErrLeaseLost) {
		s.Errorf("Abandon after Complete = %v, want ErrLeaseLost", err)
	}
	s.none()
}

func oneCompleteWins(s *suite) {
	s.send("a")
	m := s.one(time.Minute)
	var won atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			switch err := s.queue.Complete(s.Context(), m); {
			case err == nil:
				won.Add(1)
			case !errors.Is(err, queue.ErrLeaseLost):
				s.Errorf("Complete = %v, want nil or ErrLeaseLost", err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		s.Errorf("%d of 8 concurrent Completes succeeded, want 1", won.Load())
	}
}

func abandonDelays(s *suite) {
	s.send("later <&>\r\n")
	first := s.one(time.Minute)
	start := time.Now()
	// 1.2s is rounded up to 2s.
	if err := s.queue.Abandon(s.Context(), first, 1200*time.Millisecond); err != nil {
		s.Fatal(err)
	}
	second := s.comesBackAfter(start, 2*time.Second)
	if second.ID != first.ID || second.DequeueCount != 2 || string(second.Text) != "later <&>\r\n" {
		s.Errorf("redelivery is (%s, count %d, %q), want (%s, count 2, the same text)",
			second.ID, second.DequeueCount, second.Text, first.ID)
	}
	if !second.InsertedAt.Equal(first.InsertedAt) || !second.ExpiresAt.Equal(first.ExpiresAt) {
		s.Errorf("times changed from %v, %v to %v, %v", first.InsertedAt, first.ExpiresAt, second.InsertedAt, second.ExpiresAt)
	}
}

func abandonAtOnce(s *suite) {
	s.send("a")
	m := s.one(time.Minute)
	start := time.Now()
	if err := s.queue.Abandon(s.Context(), m, 0); err != nil {
		s.Fatal(err)
	}
	s.comesBackAfter(start, 0)
}

func abandonEndsLease(s *suite) {
	s.send("a")
	m := s.one(time.Minute)
	if err := s.queue.Abandon(s.Context(), m, time.Second); err != nil {
		s.Fatal(err)
	}
	start := time.Now()
	s.wantLost(m)
	s.comesBackAfter(start, 0)
}

func hiddenIsShown(s *suite) {
	s.send("kept")
	first := s.one(time.Minute)
	if err := s.queue.Hide(s.Context(), first, time.Hour); err != nil {
		s.Fatal(err)
	}
	s.none()
	start := time.Now()
	if err := s.queue.Abandon(s.Context(), first, 0); err != nil {
		s.Fatalf("Abandon of what is hidden: %v", err)
	}
	second := s.comesBackAfter(start, 0)
	if second.ID != first.ID || second.DequeueCount != 2 || string(second.Text) != "kept" {
		s.Errorf("redelivery is (%s, count %d, %q)", second.ID, second.DequeueCount, second.Text)
	}
}

func hiddenComesBack(s *suite) {
	s.send("a")
	m := s.one(time.Minute)
	start := time.Now()
	// 1.2s is rounded up to 2s.
	if err := s.queue.Hide(s.Context(), m, 1200*time.Millisecond); err != nil {
		s.Fatal(err)
	}
	s.comesBackAfter(start, 2*time.Second)
	if err := s.queue.Abandon(s.Context(), m, 0); !errors.Is(err, queue.ErrLeaseLost) {
		s.Errorf("Abandon of what was received again = %v, want ErrLeaseLost", err)
	}
	if err := s.queue.Hide(s.Context(), m, time.Hour); !errors.Is(err, queue.ErrLeaseLost) {
		s.Errorf("Hide of what was received again = %v, want ErrLeaseLost", err)
	}
}

func expiredIsNobodyElses(s *suite) {
	s.sendWith("a", queue.SendOptions{TTL: 2 * time.Second})
	m := s.one(time.Minute)
	s.h.Advance(2500 * time.Millisecond)
	s.none()
	if s.h.KeepsHeld {
		for _, err := range []error{s.queue.Renew(s.Context(), m, time.Minute), s.queue.Complete(s.Context(), m)} {
			if err != nil {
				s.Errorf("%v, want the message to be its holder's", err)
			}
		}
	}
	s.wantLost(m)
	s.none()
}
