package azurestandin

import (
	"container/heap"
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	maxText       = 64 << 10
	maxReceive    = 32
	maxVisibility = 7 * 24 * time.Hour
	defaultTTL    = 7 * 24 * time.Hour
)

var (
	errNoQueue     = &refusal{http.StatusNotFound, "QueueNotFound"}
	errNoMessage   = &refusal{http.StatusNotFound, "MessageNotFound"}
	errQueueGoing  = &refusal{http.StatusConflict, "QueueBeingDeleted"}
	errBeyondEnd   = &refusal{http.StatusBadRequest, "InvalidQueryParameterValue"}
	errTextTooLong = &refusal{http.StatusRequestEntityTooLarge, "RequestBodyTooLarge"}
)

// queueService is the account's queues.
type queueService struct {
	model  *model
	mu     sync.Mutex
	queues map[string]*storedQueue
	// deleted is when, by name.
	deleted map[string]time.Time
}

func (s *queueService) find(name string) (*storedQueue, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[name]; q != nil {
		return q, nil
	}
	return nil, s.missing(name)
}

// missing says why there is no queue of a name. s.mu is held.
func (s *queueService) missing(name string) error {
	if s.going(name) {
		return errQueueGoing
	}
	return errNoQueue
}

// going is whether a queue was deleted so lately that it can't be made again. s.mu is held.
func (s *queueService) going(name string) bool {
	at, deleted := s.deleted[name]
	return deleted && s.model.Now().Sub(at) < s.model.Deleting
}

// create reports whether the queue is new.
func (s *queueService) create(name string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queues[name] != nil {
		return false, nil
	}
	if s.going(name) {
		return false, errQueueGoing
	}
	s.queues[name] = &storedQueue{name: name, model: s.model, byID: map[string]*message{}}
	return true, nil
}

func (s *queueService) remove(ctx context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[name]
	if q == nil {
		return s.missing(name)
	}
	delete(s.queues, name)
	s.deleted[name] = s.model.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range q.heap {
		q.model.OnMessage(ctx, m.event("swept", name))
	}
	return nil
}

func (s *queueService) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := make([]string, 0, len(s.queues))
	for name := range s.queues {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// message is one stored message. Its times are exact; the protocol shows whole seconds.
type message struct {
	id, receipt, text string
	inserted, expires time.Time // expires is zero for never
	visible           time.Time
	order             int64
	dequeues          int
	at                int // its place in the heap
}

func (m *message) expired(now time.Time) bool { return !m.expires.IsZero() && !now.Before(m.expires) }

// storedQueue holds its messages in a heap by the time at which they are visible, and by
// the order of their insertion within it.
type storedQueue struct {
	name  string
	model *model

	mu   sync.Mutex
	heap messageHeap
	byID map[string]*message
	last int64
}

// put adds a message; ttl below nothing is for ever.
func (q *storedQueue) put(ctx context.Context, text string, visibility, ttl time.Duration, now time.Time) message {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.last++
	m := &message{
		id: q.model.newID(), receipt: q.model.newReceipt(), text: text,
		inserted: now.Truncate(time.Second), visible: now.Add(visibility), order: q.last,
	}
	if ttl >= 0 {
		m.expires = now.Add(ttl)
	}
	q.byID[m.id] = m
	heap.Push(&q.heap, m)
	q.model.OnMessage(ctx, m.event("put", q.name))
	return *m
}

// drop removes a message. q.mu is held.
func (q *storedQueue) drop(m *message) {
	heap.Remove(&q.heap, m.at)
	delete(q.byID, m.id)
}

// receive hides up to n visible messages and returns copies of them.
func (q *storedQueue) receive(ctx context.Context, n int, visibility time.Duration, now time.Time) []message {
	q.mu.Lock()
	defer q.mu.Unlock()
	var taken []message
	waiting, n := q.shuffled(n, now)
	for len(taken) < n {
		var m *message
		if len(waiting) > 0 {
			m, waiting = waiting[0], waiting[1:]
		} else if m = q.pop(now); m == nil {
			break
		}
		m.receipt, m.visible = q.model.newReceipt(), now.Add(visibility)
		m.dequeues++
		heap.Push(&q.heap, m)
		q.model.OnMessage(ctx, m.event("receive", q.name))
		taken = append(taken, *m)
	}
	for _, m := range waiting {
		heap.Push(&q.heap, m)
	}
	return taken
}

// pop takes the next message that is visible out of the heap, and drops those on the way
// whose time is over. It is nil when there is none. q.mu is held.
func (q *storedQueue) pop(now time.Time) *message {
	for len(q.heap) > 0 && !q.heap[0].visible.After(now) {
		m := heap.Pop(&q.heap).(*message)
		if !m.expired(now) {
			return m
		}
		delete(q.byID, m.id)
		q.model.OnMessage(context.Background(), m.event("expire", q.name))
	}
	return nil
}

// peek returns copies of up to n visible messages, and drops those whose time is over.
func (q *storedQueue) peek(n int, now time.Time) []message {
	q.mu.Lock()
	defer q.mu.Unlock()
	var popped []*message
	var seen []message
	for len(seen) < n && len(q.heap) > 0 && !q.heap[0].visible.After(now) {
		if m := q.pop(now); m != nil {
			popped = append(popped, m)
			seen = append(seen, *m)
		}
	}
	for _, m := range popped {
		heap.Push(&q.heap, m)
	}
	return seen
}

// held finds the message that a receipt is for. q.mu is held.
func (q *storedQueue) held(id, receipt string, now time.Time) (*message, error) {
	m := q.byID[id]
	if m == nil || m.receipt != receipt || m.expired(now) {
		return nil, errNoMessage
	}
	return m, nil
}

// update hides a message anew, under a new receipt; a text that is nil stays as it was.
func (q *storedQueue) update(ctx context.Context, id, receipt string, text *string, visibility time.Duration, now time.Time) (message, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	m, err := q.held(id, receipt, now)
	if err != nil {
		return message{}, err
	}
	if q.model.HidesToTheEnd && !m.expires.IsZero() && now.Add(visibility).After(m.expires) {
		return message{}, errBeyondEnd
	}
	m.receipt, m.visible = q.model.newReceipt(), now.Add(visibility)
	if text != nil {
		m.text = *text
	}
	heap.Fix(&q.heap, m.at)
	q.model.OnMessage(ctx, m.event("update", q.name))
	return *m, nil
}

func (q *storedQueue) remove(ctx context.Context, id, receipt string, now time.Time) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	m, err := q.held(id, receipt, now)
	if err != nil {
		return err
	}
	q.drop(m)
	q.model.OnMessage(ctx, m.event("delete", q.name))
	return nil
}

func (q *storedQueue) clear() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.heap = nil
	clear(q.byID)
}

func (q *storedQueue) count() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.heap)
}

// messageHeap implements heap.Interface.
type messageHeap []*message

func (h messageHeap) Len() int { return len(h) }

func (h messageHeap) Less(i, j int) bool {
	if !h[i].visible.Equal(h[j].visible) {
		return h[i].visible.Before(h[j].visible)
	}
	return h[i].order < h[j].order
}

func (h messageHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

func (h *messageHeap) Push(x any) {
	m := x.(*message)
	m.at = len(*h)
	*h = append(*h, m)
}

func (h *messageHeap) Pop() any {
	old := *h
	m := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return m
}

func (m *model) newID() string {
	a, b := m.uint64(), m.uint64()
	return fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", a>>32, a>>16&0xffff, a&0xffff, b>>48, b&0xffff_ffff_ffff)
}

// newReceipt has the characters that real ones have, '+' and '/' among them.
func (m *model) newReceipt() string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], m.uint64())
	binary.BigEndian.PutUint64(b[8:], m.uint64())
	return base64.StdEncoding.EncodeToString(b[:])
}
