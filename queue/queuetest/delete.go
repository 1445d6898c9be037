package queuetest

import (
	"errors"
	"slices"
	"time"

	"github.com/pushlease/pushlease/queue"
)

var deleteTests = []test{
	{"EmptyQueueIsDeleted", emptyIsDeleted},
	{"QueueWithMessagesIsKeptWhereOnlyAnEmptyOneIsMeant", messagesKeepTheQueue},
	{"DeletedQueueTakesItsMessagesWithItAndIsMadeAnew", deletedWithItsMessages},
}

func emptyIsDeleted(s *suite) {
	s.send("a")
	if err := s.queue.Complete(s.Context(), s.one(time.Minute)); err != nil {
		s.Fatal(err)
	}
	if err := s.service.Delete(s.Context(), s.queue.Name(), true); err != nil {
		s.Fatal(err)
	}
	if err := s.settled(func() error { _, err := s.queue.Depth(s.Context()); return err }); !errors.Is(err, queue.ErrQueueNotFound) {
		s.Errorf("Depth after Delete = %v, want ErrQueueNotFound", err)
	}
	if err := s.settled(func() error { return s.service.Delete(s.Context(), s.queue.Name(), true) }); !errors.Is(err, queue.ErrQueueNotFound) {
		s.Errorf("second Delete = %v, want ErrQueueNotFound", err)
	}
	names, err := s.service.List(s.Context())
	if err != nil || slices.Contains(names, s.queue.Name()) {
		s.Errorf("List = %q, %v, want it without %q", names, err, s.queue.Name())
	}
}

func messagesKeepTheQueue(s *suite) {
	other := s.open(newName())
	if _, err := other.Send(s.Context(), []byte("b"), queue.SendOptions{}); err != nil {
		s.Fatal(err)
	}
	s.send("a")
	m := s.one(time.Minute) // one that is held counts
	if err := s.service.Delete(s.Context(), s.queue.Name(), true); !errors.Is(err, queue.ErrNotEmpty) {
		s.Fatalf("Delete of a queue with a message = %v, want ErrNotEmpty", err)
	}
	if err := s.queue.Complete(s.Context(), m); err != nil {
		s.Errorf("Complete after a refused Delete = %v", err)
	}
	if err := s.service.Delete(s.Context(), s.queue.Name(), true); err != nil {
		s.Fatal(err)
	}
	if d, err := other.Depth(s.Context()); err != nil || d.Total != 1 {
		s.Errorf("the other queue has %+v, %v, want its message", d, err)
	}
}

func deletedWithItsMessages(s *suite) {
	s.send("held")
	m := s.one(time.Minute)
	s.send("visible")
	s.sendWith("delayed", queue.SendOptions{Delay: time.Minute})
	if err := s.service.Delete(s.Context(), s.queue.Name(), false); err != nil {
		s.Fatal(err)
	}
	if err := s.settled(func() error { return s.queue.Complete(s.Context(), m) }); !errors.Is(err, queue.ErrQueueNotFound) {
		s.Errorf("Complete of what was held = %v, want ErrQueueNotFound", err)
	}
	var sent queue.Sent
	err := s.settled(func() (err error) {
		sent, err = s.queue.Send(s.Context(), []byte("new"), queue.SendOptions{})
		return err
	})
	if err != nil {
		s.Fatalf("Send after Delete = %v", err)
	}
	if m := s.one(time.Minute); m.ID != sent.ID || string(m.Text) != "new" {
		s.Errorf("the queue that was made anew has %s %q, want %s alone", m.ID, m.Text, sent.ID)
	}
}

// settled asks until storage is not busy with the deletion any more.
func (s *suite) settled(ask func() error) error {
	for range 60 {
		if err := ask(); !errors.Is(err, queue.ErrBusy) {
			return err
		}
		s.h.Advance(time.Second)
	}
	return ask()
}
