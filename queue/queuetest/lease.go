package queuetest

import (
	"errors"
	"time"

	"github.com/pushlease/pushlease/queue"
)

var leaseTests = []test{
	{"ExpiredLeaseShowsTheMessageAgain", expiredLeaseShows},
	{"RenewalExtendsAndReplacesTheReceipt", renewalExtends},
	{"RenewalKeepsTheContent", renewalKeepsContent},
	{"ReceiptFromBeforeARenewalIsStale", oldReceiptIsStale},
	{"FirstHolderLosesToTheSecond", firstHolderLoses},
	{"LapsedLeaseThatNobodyTookIsStillGood", lapsedLeaseStillGood},
	{"RenewalAfterSettlingIsLost", renewalAfterSettling},
}

func expiredLeaseShows(s *suite) {
	s.send("again")
	start := time.Now()
	first := s.one(2 * time.Second)
	second := s.comesBackAfter(start, 2*time.Second)
	if second.ID != first.ID || !second.InsertedAt.Equal(first.InsertedAt) || !second.ExpiresAt.Equal(first.ExpiresAt) {
		s.Errorf("redelivery is (%s, %v, %v), want (%s, %v, %v)",
			second.ID, second.InsertedAt, second.ExpiresAt, first.ID, first.InsertedAt, first.ExpiresAt)
	}
	if second.DequeueCount != first.DequeueCount+1 {
		s.Errorf("DequeueCount went from %d to %d, want one more", first.DequeueCount, second.DequeueCount)
	}
	if string(second.Text) != "again" {
		s.Errorf("Text = %q, want again", second.Text)
	}
}

func renewalExtends(s *suite) {
	s.send("a")
	m := s.one(time.Second)
	before := m.Lease.Receipt()
	start := time.Now()
	if err := s.queue.Renew(s.Context(), m, 3*time.Second); err != nil {
		s.Fatal(err)
	}
	if m.Lease.Receipt() == before || m.Lease.Receipt() == "" {
		s.Error("the receipt was not replaced by the renewal")
	}
	if m.Lease.Granted() != 3*time.Second {
		s.Errorf("Granted = %v, want 3s", m.Lease.Granted())
	}
	if until := m.Lease.Until(); until.Before(start.Add(3*time.Second)) || until.After(time.Now().Add(3*time.Second)) {
		s.Errorf("Until = %v, want 3s after the renewal began (%v)", until, start)
	}
	again := s.comesBackAfter(start, 3*time.Second)
	if again.DequeueCount != 2 {
		s.Errorf("DequeueCount = %d, want 2: a renewal is no receive", again.DequeueCount)
	}
}

func renewalKeepsContent(s *suite) {
	const text = "kept <&> \r\n\t exactly "
	s.send(text)
	start := time.Now()
	m := s.one(time.Minute)
	for range 2 {
		start = time.Now()
		if err := s.queue.Renew(s.Context(), m, time.Second); err != nil {
			s.Fatal(err)
		}
	}
	if again := s.comesBackAfter(start, time.Second); string(again.Text) != text {
		s.Errorf("Text = %q after renewals, want %q", again.Text, text)
	}
}

// withReceipt is m as somebody would hold it who kept this receipt.
func withReceipt(m *queue.Message, receipt string) *queue.Message {
	held := *m
	held.Lease = queue.NewLease(receipt, time.Now(), time.Minute)
	return &held
}

func (s *suite) wantLost(m *queue.Message) {
	s.Helper()
	for call, err := range map[string]error{
		"Renew":    s.queue.Renew(s.Context(), m, time.Minute),
		"Abandon":  s.queue.Abandon(s.Context(), m, 0),
		"Complete": s.queue.Complete(s.Context(), m),
	} {
		if !errors.Is(err, queue.ErrLeaseLost) {
			s.Errorf("%s with a stale receipt = %v, want ErrLeaseLost", call, err)
		}
	}
}

func oldReceiptIsStale(s *suite) {
	s.send("a")
	m := s.one(time.Minute)
	old := withReceipt(m, m.Lease.Receipt())
	if err := s.queue.Renew(s.Context(), m, time.Minute); err != nil {
		s.Fatal(err)
	}
	s.wantLost(old)
	if err := s.queue.Complete(s.Context(), m); err != nil {
		s.Errorf("Complete with the newest receipt: %v", err)
	}
}

func firstHolderLoses(s *suite) {
	s.send("a")
	start := time.Now()
	first := s.one(time.Second)
	second := s.comesBackAfter(start, time.Second)
	s.wantLost(first)
	s.none()
	if err := s.queue.Renew(s.Context(), second, time.Minute); err != nil {
		s.Errorf("Renew by the second holder: %v", err)
	}
	if err := s.queue.Complete(s.Context(), second); err != nil {
		s.Errorf("Complete by the second holder: %v", err)
	}
}

func lapsedLeaseStillGood(s *suite) {
	s.send("renewed")
	s.send("abandoned")
	s.send("completed")
	held := make(map[string]*queue.Message)
	for _, m := range s.receive(queue.MaxReceive, time.Second) {
		held[string(m.Text)] = m
	}
	if len(held) != 3 {
		s.Fatalf("received %d messages, want 3", len(held))
	}
	s.h.Advance(1500 * time.Millisecond)
	if err := s.queue.Complete(s.Context(), held["completed"]); err != nil {
		s.Errorf("Complete after the own lease lapsed: %v", err)
	}
	if err := s.queue.Renew(s.Context(), held["renewed"], time.Minute); err != nil {
		s.Errorf("Renew after the own lease lapsed: %v", err)
	}
	if err := s.queue.Abandon(s.Context(), held["abandoned"], time.Minute); err != nil {
		s.Errorf("Abandon after the own lease lapsed: %v", err)
	}
	s.none()
}

func renewalAfterSettling(s *suite) {
	s.send("a")
	m := s.one(time.Minute)
	if err := s.queue.Complete(s.Context(), m); err != nil {
		s.Fatal(err)
	}
	if err := s.queue.Renew(s.Context(), m, time.Minute); !errors.Is(err, queue.ErrLeaseLost) {
		s.Errorf("Renew after Complete = %v, want ErrLeaseLost", err)
	}
}
