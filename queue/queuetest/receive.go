package queuetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pushlease/pushlease/queue"
)

var receiveTests = []test{
	{"ReceivedMessageIsHiddenFromOthers", receivedIsHidden},
	{"MessageTellsWhatItIs", messageTells},
	{"NeverMoreThanMax", neverMoreThanMax},
	{"EmptyQueueAnswersAtOnce", emptyAnswersAtOnce},
	{"BoundsAreRefusedByName", boundsRefused},
	{"LeaseIsRoundedUpToWholeSeconds", leaseRoundedUp},
	{"MissingQueueIsNotFound", missingQueue},
	{"CancelledContextEndsEveryCall", cancelledContext},
	{"ConcurrentReceiversNeverShareALease", receiversNeverShare},
	{"EveryMessageIsReceivedOnceUnderConcurrentSends", receivedOnceWhileSending},
}

func receivedIsHidden(s *suite) {
	s.send("a")
	s.one(time.Minute)
	s.none()
}

func messageTells(s *suite) {
	sent := s.send("hello")
	start := time.Now()
	m := s.one(30 * time.Second)
	if m.ID != sent.ID || m.ID == "" {
		s.Errorf("ID = %q, want %q as Send said", m.ID, sent.ID)
	}
	if string(m.Text) != "hello" {
		s.Errorf("Text = %q, want hello", m.Text)
	}
	if m.DequeueCount != 1 {
		s.Errorf("DequeueCount = %d, want 1", m.DequeueCount)
	}
	if !m.InsertedAt.Equal(sent.InsertedAt) || m.InsertedAt.IsZero() {
		s.Errorf("InsertedAt = %v, want %v as Send said", m.InsertedAt, sent.InsertedAt)
	}
	if !m.ExpiresAt.Equal(sent.ExpiresAt) {
		s.Errorf("ExpiresAt = %v, want %v as Send said", m.ExpiresAt, sent.ExpiresAt)
	}
	if m.InsertedAt.Location() != time.UTC || m.ExpiresAt.Location() != time.UTC {
		s.Errorf("times are in %v and %v, want UTC", m.InsertedAt.Location(), m.ExpiresAt.Location())
	}
	if m.Lease == nil || m.Lease.Receipt() == "" {
		s.Fatal("the message has no lease with a receipt")
	}
	if got := m.Lease.Granted(); got != 30*time.Second {
		s.Errorf("Granted = %v, want 30s", got)
	}
	until := m.Lease.Until()
	if until.Before(start.Add(30*time.Second)) || until.After(time.Now().Add(30*time.Second)) {
		s.Errorf("Until = %v, want 30s after the call began (%v)", until, start)
	}
}

func neverMoreThanMax(s *suite) {
	for i := range 5 {
		s.send(fmt.Sprint(i))
	}
	var texts []string
	for _, want := range []int{2, 2, 1, 0} {
		ms := s.receive(2, time.Minute)
		if len(ms) != want {
			s.Fatalf("received %d, want %d", len(ms), want)
		}
		for _, m := range ms {
			texts = append(texts, string(m.Text))
		}
	}
	slices.Sort(texts)
	if got := strings.Join(texts, ""); got != "01234" {
		s.Errorf("received %s, want each of 01234 once", got)
	}
}

func emptyAnswersAtOnce(s *suite) {
	s.send("a")
	if err := s.queue.Complete(s.Context(), s.one(time.Minute)); err != nil {
		s.Fatal(err)
	}
	start := time.Now()
	s.none()
	if d := time.Since(start); d > 3*time.Second {
		s.Errorf("an empty receive took %v", d)
	}
}

func boundsRefused(s *suite) {
	s.send("a")
	for _, tt := range []struct {
		max   int
		lease time.Duration
		names string
	}{
		{0, time.Minute, fmt.Sprint(queue.MaxReceive)},
		{-1, time.Minute, fmt.Sprint(queue.MaxReceive)},
		{queue.MaxReceive + 1, time.Minute, fmt.Sprint(queue.MaxReceive)},
		{1, 0, queue.MinLease.String()},
		{1, -time.Second, queue.MinLease.String()},
		{1, queue.MaxLease + time.Second, queue.MaxLease.String()},
	} {
		_, err := s.queue.Receive(s.Context(), tt.max, tt.lease)
		if err == nil || !strings.Contains(err.Error(), tt.names) {
			s.Errorf("Receive(%d, %v) = %v, want an error that names %s", tt.max, tt.lease, err, tt.names)
		}
	}
	m := s.one(time.Minute)
	if err := s.queue.Renew(s.Context(), m, 0); err == nil || errors.Is(err, queue.ErrLeaseLost) {
		s.Errorf("Renew(0) = %v, want an error about the lease's length", err)
	}
	if err := s.queue.Abandon(s.Context(), m, queue.MaxDelay+time.Second); err == nil || errors.Is(err, queue.ErrLeaseLost) {
		s.Errorf("Abandon(over MaxDelay) = %v, want an error about the delay", err)
	}
	if err := s.queue.Abandon(s.Context(), m, -time.Second); err == nil || errors.Is(err, queue.ErrLeaseLost) {
		s.Errorf("Abandon(-1s) = %v, want an error about the delay", err)
	}
	if err := s.queue.Complete(s.Context(), m); err != nil {
		s.Errorf("Complete after refused calls: %v", err)
	}
}

func leaseRoundedUp(s *suite) {
	s.send("a")
	m := s.one(1200 * time.Millisecond)
	if got := m.Lease.Granted(); got != 2*time.Second {
		s.Errorf("Granted = %v after asking for 1.2s, want 2s", got)
	}
	if err := s.queue.Renew(s.Context(), m, 100*time.Millisecond); err != nil {
		s.Fatal(err)
	}
	if got := m.Lease.Granted(); got != time.Second {
		s.Errorf("Granted = %v after renewing for 0.1s, want 1s", got)
	}
}

func missingQueue(s *suite) {
	s.send("a")
	m := s.one(time.Minute)
	missing := s.open(newName())
	_, err := missing.Receive(s.Context(), 1, time.Minute)
	_, peekErr := missing.Peek(s.Context(), 1)
	_, depthErr := missing.Depth(s.Context())
	for call, err := range map[string]error{
		"Receive":  err,
		"Peek":     peekErr,
		"Depth":    depthErr,
		"Renew":    missing.Renew(s.Context(), m, time.Minute),
		"Complete": missing.Complete(s.Context(), m),
		"Abandon":  missing.Abandon(s.Context(), m, 0),
	} {
		if !errors.Is(err, queue.ErrQueueNotFound) {
			s.Errorf("%s on a missing queue = %v, want ErrQueueNotFound", call, err)
		}
	}
	if err := s.queue.Complete(s.Context(), m); err != nil {
		s.Errorf("Complete on the message's own queue: %v", err)
	}
}

func cancelledContext(s *suite) {
	s.send("a")
	m := s.one(time.Minute)
	s.send("b")
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	start := time.Now()
	_, receiveErr := s.queue.Receive(ctx, 1, time.Minute)
	_, sendErr := s.queue.Send(ctx, []byte("c"), queue.SendOptions{})
	_, peekErr := s.queue.Peek(ctx, 1)
	_, depthErr := s.queue.Depth(ctx)
	_, listErr := s.service.List(ctx)
	for call, err := range map[string]error{
		"Receive": receiveErr, "Send": sendErr, "Peek": peekErr, "Depth": depthErr, "List": listErr,
		"Renew":    s.queue.Renew(ctx, m, time.Minute),
		"Complete": s.queue.Complete(ctx, m),
		"Abandon":  s.queue.Abandon(ctx, m, 0),
	} {
		if !errors.Is(err, context.Canceled) {
			s.Errorf("%s with a cancelled context = %v, want context.Canceled", call, err)
		}
	}
	if d := time.Since(start); d > 3*time.Second {
		s.Errorf("calls with a cancelled context took %v", d)
	}
}

// drain receives until want messages were seen, and counts how often each was.
func drain(s *suite, receivers, want int) map[string]int {
	var (
		mu   sync.Mutex
		seen = make(map[string]int)
		wg   sync.WaitGroup
	)
	for range receivers {
		wg.Go(func() {
			for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
				ms, err := s.queue.Receive(s.Context(), 4, 10*time.Minute)
				if err != nil {
					s.Errorf("Receive: %v", err)
					return
				}
				mu.Lock()
				for _, m := range ms {
					seen[m.ID]++
				}
				done := len(seen) >= want
				mu.Unlock()
				switch {
				case done:
					return
				case len(ms) == 0:
					s.h.Advance(50 * time.Millisecond)
				}
			}
		})
	}
	wg.Wait()
	return seen
}

func checkOnce(s *suite, seen map[string]int, want int) {
	s.Helper()
	if len(seen) != want {
		s.Errorf("%d messages were received, want %d", len(seen), want)
	}
	for id, n := range seen {
		if n != 1 {
			s.Errorf("message %s was received %d times under live leases", id, n)
		}
	}
}

func receiversNeverShare(s *suite) {
	const messages = 60
	for i := range messages {
		s.send(fmt.Sprint(i))
	}
	checkOnce(s, drain(s, 8, messages), messages)
	s.none()
}

func receivedOnceWhileSending(s *suite) {
	const senders, each = 4, 15
	s.send("first")
	var wg sync.WaitGroup
	for range senders {
		wg.Go(func() {
			for i := range each {
				if _, err := s.queue.Send(s.Context(), fmt.Append(nil, i), queue.SendOptions{}); err != nil {
					s.Errorf("Send: %v", err)
					return
				}
			}
		})
	}
	seen := drain(s, 8, senders*each+1)
	wg.Wait()
	checkOnce(s, seen, senders*each+1)
}
