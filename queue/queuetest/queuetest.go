// Package queuetest is the proof of the queue contract: every adapter's own
// test runs it.
package queuetest

import (
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/queue"
)

// Harness is what an adapter's test brings.
type Harness struct {
	// Open returns a store, fresh or shared: the suite makes up unique queue
	// names.
	Open func(t *testing.T) queue.Service
	// Advance lets time pass: time.Sleep, which is fake inside a bubble and a
	// real wait on real storage.
	Advance func(d time.Duration)
	// Bubble runs the body of one test; testing/bubble.Test fits. Nil runs it
	// as it is.
	Bubble func(t *testing.T, body func(t *testing.T))
	// KeepsHeld: a message whose life ends under a lease is its holder's until the lease is
	// over. Where it is not, the message is gone.
	KeepsHeld bool
	// Parallel lets the tests run at the same time, so that real waits overlap.
	Parallel bool
}

// Run checks the whole contract.
func Run(t *testing.T, h Harness) {
	t.Run("Receive", func(t *testing.T) { h.runAll(t, receiveTests) })
	t.Run("Peek", func(t *testing.T) { h.runAll(t, peekTests) })
	t.Run("Lease", func(t *testing.T) { h.runAll(t, leaseTests) })
	t.Run("Settle", func(t *testing.T) { h.runAll(t, settleTests) })
	t.Run("Send", func(t *testing.T) { h.runAll(t, sendTests) })
	t.Run("Delete", func(t *testing.T) { h.runAll(t, deleteTests) })
}

type test struct {
	name string
	body func(s *suite)
}

// suite is one running test: its store and a queue of its own.
type suite struct {
	*testing.T
	h       Harness
	service queue.Service
	queue   queue.Queue
}

func (h Harness) runAll(t *testing.T, tests []test) {
	bubble := h.Bubble
	if bubble == nil {
		bubble = func(t *testing.T, body func(t *testing.T)) { body(t) }
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if h.Parallel {
				t.Parallel()
			}
			bubble(t, func(t *testing.T) {
				s := &suite{T: t, h: h, service: h.Open(t)}
				s.queue = s.open(newName())
				tt.body(s)
			})
		})
	}
}

// newName returns a queue name that no other test uses.
func newName() string { return "qt-" + strings.ToLower(rand.Text()) }

func (s *suite) open(name string) queue.Queue {
	s.Helper()
	q, err := s.service.Queue(name)
	if err != nil {
		s.Fatalf("Queue(%q): %v", name, err)
	}
	return q
}

// send sends text with the default options.
func (s *suite) send(text string) queue.Sent {
	s.Helper()
	return s.sendWith(text, queue.SendOptions{})
}

func (s *suite) sendWith(text string, opts queue.SendOptions) queue.Sent {
	s.Helper()
	sent, err := s.queue.Send(s.Context(), []byte(text), opts)
	if err != nil {
		s.Fatalf("Send(%d bytes, %+v): %v", len(text), opts, err)
	}
	return sent
}

// receive receives up to max messages.
func (s *suite) receive(max int, lease time.Duration) []*queue.Message {
	s.Helper()
	ms, err := s.queue.Receive(s.Context(), max, lease)
	if err != nil {
		s.Fatalf("Receive(%d, %v): %v", max, lease, err)
	}
	return ms
}

// one receives exactly one message, which must be visible now.
func (s *suite) one(lease time.Duration) *queue.Message {
	s.Helper()
	ms := s.receive(queue.MaxReceive, lease)
	if len(ms) != 1 {
		s.Fatalf("received %d messages, want 1", len(ms))
	}
	return ms[0]
}

func (s *suite) none() {
	s.Helper()
	if ms := s.receive(queue.MaxReceive, time.Minute); len(ms) != 0 {
		s.Fatalf("received %d messages, want none", len(ms))
	}
}

// clockSlack forgives a store that cuts its own times at the millisecond.
const clockSlack = 20 * time.Millisecond

// patience is how much later than due a message may come. It is generous: it only
// bounds a failing test.
const patience = 15 * time.Second

// comesBackAfter polls until the one message is received again, and fails when
// that is earlier than wait after start, or much later.
func (s *suite) comesBackAfter(start time.Time, wait time.Duration) *queue.Message {
	s.Helper()
	for {
		ms := s.receive(queue.MaxReceive, time.Minute)
		elapsed := time.Since(start)
		switch {
		case len(ms) > 1:
			s.Fatalf("received %d messages, want 1", len(ms))
		case len(ms) == 1 && elapsed < wait-clockSlack:
			s.Fatalf("the message was visible after %v, want not before %v", elapsed, wait)
		case len(ms) == 1:
			return ms[0]
		case elapsed > wait+patience:
			s.Fatalf("the message is still hidden after %v, want visible after %v", elapsed, wait)
		}
		s.h.Advance(100 * time.Millisecond)
	}
}
