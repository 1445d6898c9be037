package dispatcher

import (
	"context"
	"sync"
)

// shares divides the messages that the process may have in flight among its queues. Half
// of them are for all queues in equal parts, which nobody else can take; the other half
// goes to whoever asks first. So a busy queue can use more than its part, and never
// keeps another one from its own. A queue with nothing in flight may always have one, beyond
// the total too: parts shrink when a queue joins, and what the others hold by then may hang
// for as long as their POSTs may take (C58).
type shares struct {
	mu     sync.Mutex
	total  int
	inUse  int
	queues map[string]*share
	// part is what each queue has for itself, and reserved what of that is not in use.
	part, reserved int
	freed          chan struct{} // closed when something was given back; nil while nobody waits
}

type share struct {
	used   int
	joined int // by how many pollers
}

func newShares(total int) *shares { return &shares{total: total, queues: map[string]*share{}} }

// join adds a queue, and leave takes it away; what is in use by it is given back as usual.
func (s *shares) join(queueName string)  { s.set(queueName, 1) }
func (s *shares) leave(queueName string) { s.set(queueName, -1) }

func (s *shares) set(queueName string, more int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[queueName]
	if q == nil {
		q = &share{}
		s.queues[queueName] = q
	}
	if q.joined += more; q.joined == 0 && q.used == 0 {
		delete(s.queues, queueName)
	}
	s.divide()
	s.wake()
}

// divide sets the parts of the queues that there are.
func (s *shares) divide() {
	s.part = s.total / 2 / max(len(s.queues), 1)
	s.reserved = 0
	for _, q := range s.queues {
		s.reserved += max(s.part-q.used, 0)
	}
}

// take takes up to n for a queue that has joined, at least one: it waits for that, and
// returns 0 only when ctx has ended.
func (s *shares) take(ctx context.Context, queueName string, n int) int {
	for {
		got, freed := s.tryTake(queueName, n)
		if got > 0 {
			return got
		}
		select {
		case <-ctx.Done():
			return 0
		case <-freed:
		}
	}
}

func (s *shares) tryTake(queueName string, n int) (got int, freed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[queueName]
	others := s.reserved - max(s.part-q.used, 0)
	got = min(n, s.total-s.inUse-others)
	if got <= 0 && q.used == 0 {
		got = 1
	}
	if got > 0 {
		s.change(q, got)
		return got, nil
	}
	if s.freed == nil {
		s.freed = make(chan struct{})
	}
	return 0, s.freed
}

// give gives n back.
func (s *shares) give(queueName string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[queueName]
	s.change(q, -n)
	if q.joined == 0 && q.used == 0 {
		delete(s.queues, queueName)
		s.divide()
	}
	s.wake()
}

// change notes that a queue uses n more.
func (s *shares) change(q *share, n int) {
	s.reserved -= max(s.part-q.used, 0)
	q.used += n
	s.inUse += n
	s.reserved += max(s.part-q.used, 0)
}

// wake lets those that wait ask again.
func (s *shares) wake() {
	if s.freed != nil {
		close(s.freed)
		s.freed = nil
	}
}
