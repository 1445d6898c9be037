package azurestandin

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// Limits are what an account and its parts take in a second, and how late some answers are. What is
// beyond a limit is refused with 503 ServerBusy before it has any effect. The zero value limits nothing.
type Limits struct {
	// Account bounds the requests, Queue the messages of one queue, Partition the rows that are
	// written, or read by their keys, in one partition of a table. A queue's messages are counted by
	// operation: what is sent, received, updated and deleted is bounded each by itself.
	Account, Queue, Partition int
	// Tail is the share of requests that take TailLeast to TailMost longer.
	Tail                float64
	TailLeast, TailMost time.Duration
}

// Published are the scalability targets of Azure Storage, with 1 KiB a message:
// https://learn.microsoft.com/azure/storage/queues/scalability-targets and the page of the same name
// about tables. The tail is not published: it is what users of the services report.
func Published() Limits {
	return Limits{Account: 20_000, Queue: 2_000, Partition: 2_000, Tail: 0.005, TailLeast: time.Second, TailMost: 3 * time.Second}
}

var errBusy = &refusal{http.StatusServiceUnavailable, "ServerBusy"}

// limiter holds requests to Limits: each bound is a token bucket of one second.
type limiter struct {
	now func() time.Time

	mu      sync.Mutex
	limits  Limits
	buckets map[bound]bucket
}

// bound names what is bounded: the account, an operation on a queue, or a partition of a table.
type bound struct{ of, name string }

// bucket is what is left of a second's share at a time; less than nothing where a request took more.
type bucket struct {
	left float64
	at   time.Time
}

func newLimiter(now func() time.Time) *limiter {
	return &limiter{now: now, buckets: map[bound]bucket{}}
}

func (l *limiter) set(limits Limits) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limits = limits
	clear(l.buckets)
}

// request takes one request of the account, and says how much longer it takes than others.
func (l *limiter) request() (late time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.limits; t.Tail > 0 && rand.Float64() < t.Tail {
		late = t.TailLeast + rand.N(t.TailMost-t.TailLeast+1)
	}
	return late, l.take(bound{"account", ""}, l.limits.Account, 1)
}

// messages takes n messages of an operation on a queue. A receive, whose number is known only
// afterwards, asks for none, and then for those that it brings.
func (l *limiter) messages(queue, operation string, n int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.take(bound{"queue " + operation, queue}, l.limits.Queue, n)
}

// rows takes n rows of a partition.
func (l *limiter) rows(table, partition string, n int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.take(bound{"table " + table, partition}, l.limits.Partition, n)
}

// take takes n from a bucket that has anything left; l.mu is held.
func (l *limiter) take(b bound, perSecond, n int) error {
	if perSecond == 0 {
		return nil
	}
	now, most := l.now(), float64(perSecond)
	was, ok := l.buckets[b]
	if !ok {
		was = bucket{most, now}
	}
	left := min(most, was.left+now.Sub(was.at).Seconds()*most)
	if left <= 0 {
		return errBusy
	}
	l.buckets[b] = bucket{left - float64(n), now}
	return nil
}
