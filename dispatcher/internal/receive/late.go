package receive

import (
	"sync"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/delivery"
	"github.com/pushlease/pushlease/queue"
)

const (
	// guardInterval is the wait between two looks at a guarded queue. A message of a life of
	// a minute is near its end for half of it: one look falls into that, and time is left
	// for what it leads to.
	guardInterval = 20 * time.Second
	// guardMargin is how much of its life a message has left when it is dead-lettered,
	// or half of its life if that is less.
	guardMargin = time.Hour
)

func nearEnd(inserted, expires, now time.Time, margin time.Duration) bool {
	return !expires.IsZero() && expires.Sub(now) <= delivery.LastOfLife(inserted, expires, margin)
}

// late knows, by queue, when messages come back that were given back for so long that
// they are hidden until shortly before their expiry. No look from outside shows them.
type late struct {
	mu      sync.Mutex
	windows map[string]window
}

// window spans the ends of several such lives; looks in between that find nothing are
// cheap.
type window struct{ from, until time.Time }

func newLate() *late { return &late{windows: map[string]window{}} }

// note is called when m is given back for delay.
func (l *late) note(queueName string, m *queue.Message, delay time.Duration) {
	back := time.Now().Add(delay)
	if delay == 0 || !nearEnd(m.InsertedAt, m.ExpiresAt, back, guardMargin) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	w, ok := l.windows[queueName]
	if !ok || time.Now().After(w.until) {
		w = window{from: back, until: m.ExpiresAt}
	}
	if back.Before(w.from) {
		w.from = back
	}
	if m.ExpiresAt.After(w.until) {
		w.until = m.ExpiresAt
	}
	l.windows[queueName] = w
}

// wait shortens wait so that what comes back late is looked for.
func (l *late) wait(queueName string, now time.Time, wait time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	w, ok := l.windows[queueName]
	switch {
	case !ok:
		return wait
	case now.After(w.until):
		delete(l.windows, queueName)
		return wait
	case now.Before(w.from):
		return min(wait, w.from.Sub(now)+time.Second) // storage counts whole seconds
	}
	return min(wait, guardInterval)
}
