package queuetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/pushlease/pushlease/queue"
)

var peekTests = []test{
	{"PeekTellsWithoutTaking", peekTells},
	{"PeekShowsWhatAReceiveWouldGive", peekShowsVisible},
	{"PeekNeverShowsMoreThanMax", peekMax},
	{"PeekBoundsAreRefusedByName", peekBounds},
	{"PeekLeavesALeaseAlone", peekLeavesLease},
}

func (s *suite) peek(max int) []queue.Peeked {
	s.Helper()
	ps, err := s.queue.Peek(s.Context(), max)
	if err != nil {
		s.Fatalf("Peek(%d): %v", max, err)
	}
	return ps
}

func peekTells(s *suite) {
	sent := s.sendWith("a", queue.SendOptions{TTL: time.Hour})
	for range 3 {
		ps := s.peek(queue.MaxReceive)
		if len(ps) != 1 {
			s.Fatalf("peeked at %d messages, want 1", len(ps))
		}
		p := ps[0]
		if p.ID != sent.ID || !p.InsertedAt.Equal(sent.InsertedAt) || !p.ExpiresAt.Equal(sent.ExpiresAt) || string(p.Text) != "a" {
			s.Errorf("peeked %+v, want the text a and what Send said: %+v", p, sent)
		}
	}
	if m := s.one(time.Minute); m.DequeueCount != 1 {
		s.Errorf("DequeueCount after peeking = %d, want 1 for the first receive", m.DequeueCount)
	}
}

// An empty queue is not a missing one, and what is leased, delayed or over is not
// shown.
func peekShowsVisible(s *suite) {
	s.sendWith("leased", queue.SendOptions{})
	m := s.one(time.Minute)
	s.sendWith("delayed", queue.SendOptions{Delay: time.Hour})
	s.sendWith("over", queue.SendOptions{TTL: time.Second})
	s.h.Advance(2 * time.Second)
	if ps := s.peek(queue.MaxReceive); len(ps) != 0 {
		s.Errorf("peeked %+v, want nothing: no message is visible", ps)
	}
	forEver := s.sendWith("for ever", queue.SendOptions{TTL: queue.NoExpiry})
	ps := s.peek(queue.MaxReceive)
	if len(ps) != 1 || ps[0].ID != forEver.ID || !ps[0].ExpiresAt.IsZero() {
		s.Errorf("peeked %+v, want only %s, without an expiry", ps, forEver.ID)
	}
	if err := s.queue.Complete(s.Context(), m); err != nil {
		s.Errorf("Complete after a peek: %v", err)
	}
}

func peekMax(s *suite) {
	sent := map[string]bool{}
	for i := range 5 {
		sent[s.send(fmt.Sprint(i)).ID] = true
	}
	ps := s.peek(3)
	if len(ps) != 3 {
		s.Fatalf("peeked at %d messages, want 3", len(ps))
	}
	for _, p := range ps {
		if !sent[p.ID] {
			s.Errorf("peeked at %s: it was not sent, or came twice", p.ID)
		}
		delete(sent, p.ID)
	}
}

func peekBounds(s *suite) {
	s.send("a")
	for _, max := range []int{0, -1, queue.MaxReceive + 1} {
		_, err := s.queue.Peek(s.Context(), max)
		if err == nil || !strings.Contains(err.Error(), fmt.Sprint(queue.MaxReceive)) {
			s.Errorf("Peek(%d) = %v, want an error that names %d", max, err, queue.MaxReceive)
		}
	}
}

func peekLeavesLease(s *suite) {
	s.send("a")
	m := s.one(time.Minute)
	s.peek(queue.MaxReceive)
	if err := s.queue.Renew(s.Context(), m, time.Minute); err != nil {
		s.Errorf("Renew after a peek: %v", err)
	}
	if err := s.queue.Abandon(s.Context(), m, 0); err != nil {
		s.Errorf("Abandon after a peek: %v", err)
	}
	s.peek(queue.MaxReceive)
	if again := s.one(time.Minute); again.DequeueCount != 2 {
		s.Errorf("DequeueCount = %d, want 2: a peek is no receive", again.DequeueCount)
	}
}
