package api

import (
	"crypto/rand"
	"strconv"
	"strings"
	"sync"
)

const (
	// streamKept is how many events are kept for those who follow: who falls further behind misses the oldest.
	streamKept = 2048
	// maxFollowers bounds those who follow at a time.
	maxFollowers = 32
)

// streamKind is the kind of an event.
type streamKind string

// The kinds of events.
const (
	streamAttempt    streamKind = "attempt"
	streamDeadLetter streamKind = "dead_letter"
	streamWebhook    streamKind = "webhook"
	streamDepth      streamKind = "depth"
	streamJob        streamKind = "job"
)

var streamKinds = []streamKind{streamAttempt, streamDeadLetter, streamWebhook, streamDepth, streamJob}

// streamEvent is what happened. Its data is turned into JSON for each who follows, so that telling it costs little.
type streamEvent struct {
	kind           streamKind
	queue, webhook string
	data           any
}

// stream keeps the newest events of this process. Whoever tells one never waits for who follows: each reads at its own
// pace, by the number of the event that is next for it. Safe for concurrent use.
type stream struct {
	began string // tells the events of this process from those of another one

	mu        sync.Mutex
	kept      []streamEvent // event n is at n modulo streamKept
	next      uint64
	wake      chan struct{} // closed with the next event; nil while nobody waits
	followers int
	end       chan struct{} // closed when the process stops
	ended     bool
}

func newStream() *stream {
	return &stream{began: strings.ToLower(rand.Text()[:10]), end: make(chan struct{})}
}

func (s *stream) tell(e streamEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.kept) < streamKept {
		s.kept = append(s.kept, e)
	} else {
		s.kept[s.next%streamKept] = e
	}
	s.next++
	if s.wake != nil {
		close(s.wake)
		s.wake = nil
	}
}

// since returns events from number at on, up to most, and how many before them are not kept any more. Without
// any, wake is closed with the next one.
func (s *stream) since(at uint64, most int) (events []streamEvent, missed uint64, wake <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if oldest := s.next - uint64(len(s.kept)); at < oldest {
		missed, at = oldest-at, oldest
	}
	for ; at < s.next && len(events) < most; at++ {
		events = append(events, s.kept[at%streamKept])
	}
	if len(events) > 0 {
		return events, missed, nil
	}
	if s.wake == nil {
		s.wake = make(chan struct{})
	}
	return nil, missed, s.wake
}

// mark is the id of the event before number next: who comes back with it goes on with next.
func (s *stream) mark(next uint64) string { return s.began + "-" + strconv.FormatUint(next, 10) }

// from returns the number of the next event for who comes with a mark; the newest without one. resumed is false
// where it can't be told what was missed, since the mark is none of this process.
func (s *stream) from(mark string) (next uint64, resumed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if mark == "" {
		return s.next, true
	}
	began, number, _ := strings.Cut(mark, "-")
	n, err := strconv.ParseUint(number, 10, 64)
	if began != s.began || err != nil || n > s.next {
		return s.next, false
	}
	return n, true
}

// join counts one more who follows; leave takes it back. nil means that there are as many as there may be, or that
// the process stops.
func (s *stream) join() (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.followers >= maxFollowers {
		return nil
	}
	s.followers++
	return func() {
		s.mu.Lock()
		s.followers--
		s.mu.Unlock()
	}
}

// followed reports whether anybody follows.
func (s *stream) followed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.followers > 0
}

// stop sends home all who follow, for good.
func (s *stream) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.ended = true
		close(s.end)
	}
}
