package azurestandin

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Options make a stand-in a model of the service's worse days. The zero value is the
// stand-in of benchmarks.
type Options struct {
	// Latency is how long each request takes before it does anything.
	Latency time.Duration
	// Now is the services' own clock; nil means time.Now.
	Now func() time.Time
	// Rand is where ids, receipts and disorder come from; nil means that nothing is in
	// disorder, and ids are anybody's.
	Rand rand.Source
	// Disorder makes receives bring messages in another order, or fewer than there are,
	// and queries end pages early, or with nothing on them.
	Disorder bool
	// Deleting is how long a deleted queue or table can't be made again.
	Deleting time.Duration
	// HidesToTheEnd refuses to hide a message until after its end, as the service's page says; the
	// service itself has done it whenever somebody looked.
	HidesToTheEnd bool
	// OnMessage is told what happened to a message, in the call whose context it gets. It
	// must not call the stand-in.
	OnMessage func(context.Context, MessageEvent)
}

// MessageEvent is one change of a message.
type MessageEvent struct {
	// What is put, receive, update, delete, expire, or swept: it went with its queue.
	What      string
	Queue, ID string
	// Text, Inserted and Expires are those of the message; Expires is zero for never.
	Text              string
	Inserted, Expires time.Time
	// Visible is from when on it may be received.
	Visible  time.Time
	Dequeues int
}

// model is what both services share of the Options.
type model struct {
	Options
	limits *limiter
	mu     sync.Mutex
	rng    *rand.Rand
}

func newModel(o Options) *model {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.OnMessage == nil {
		o.OnMessage = func(context.Context, MessageEvent) {}
	}
	m := &model{Options: o, limits: newLimiter(o.Now)}
	if o.Rand != nil {
		m.rng = rand.New(o.Rand)
	}
	return m
}

func (m *model) uint64() uint64 {
	if m.rng == nil {
		return rand.Uint64()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rng.Uint64()
}

// disorderly is true for a share of the calls, where there is disorder.
func (m *model) disorderly(share float64) bool {
	return m.Disorder && float64(m.uint64()>>11)/(1<<53) < share
}

// below is a number from 0 to n-1.
func (m *model) below(n int) int { return int(m.uint64() % uint64(n)) }

// Handler serves one service, "queue" or "table", to callers in the same process.
func (s *Server) Handler(service string) http.Handler {
	if service == "table" {
		return http.HandlerFunc(s.serveTable)
	}
	return http.HandlerFunc(s.serveQueue)
}

// InProcess names both services for callers that bring their requests to Handler; hosts
// begin with the service's name.
const InProcess = "AccountName=" + account + ";AccountKey=" + key +
	";QueueEndpoint=http://queue.standin/" + account + ";TableEndpoint=http://table.standin/" + account

// Messages are all that a queue holds, in no order.
func (s *Server) Messages(queue string) []MessageEvent {
	q, err := s.queues.find(queue)
	if err != nil {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	var all []MessageEvent
	for _, m := range q.heap {
		if !m.expired(s.model.Now()) {
			all = append(all, m.event("there", queue))
		}
	}
	return all
}

// Queues are the names of all queues.
func (s *Server) Queues() []string { return s.queues.names() }

func (m *message) event(what, queue string) MessageEvent {
	return MessageEvent{
		What: what, Queue: queue, ID: m.id, Text: m.text, Inserted: m.inserted, Expires: m.expires, Visible: m.visible, Dequeues: m.dequeues,
	}
}

// shuffled brings the messages that a receive could have into another order, and says how
// many of them it gets.
func (q *storedQueue) shuffled(n int, now time.Time) (again []*message, most int) {
	if !q.model.disorderly(0.3) {
		return nil, n
	}
	most = 1 + q.model.below(n)
	if q.model.disorderly(0.1) {
		most = 0
	}
	for range 2 * n {
		m := q.pop(now)
		if m == nil {
			break
		}
		again = append(again, m)
	}
	for i := len(again) - 1; i > 0; i-- {
		j := q.model.below(i + 1)
		again[i], again[j] = again[j], again[i]
	}
	return again, most
}

// gone is when a table of this name was deleted, if it can't be made again yet.
func (s *tableService) gone(name string, now time.Time) bool {
	at, deleted := s.deleted[strings.ToLower(name)]
	return deleted && now.Sub(at) < s.model.Deleting
}

// Operation names what a request to a service does, as Counts does.
func Operation(service string, r *http.Request) string {
	if service == "table" {
		c, _ := parseTableCall(r.Method, r.URL, r.Header) // what can't be read is refused later
		return c.operation()
	}
	return parseQueueCall(r).operation()
}
