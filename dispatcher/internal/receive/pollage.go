package receive

import (
	"errors"
	"time"

	"github.com/pushlease/pushlease/queue"
)

// age is how long storage has not answered this poller.
func (p *poller) age(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.lastErr == nil && p.seats.Wait():
		return 0
	case p.lastPollAt.IsZero() && errors.Is(p.lastErr, queue.ErrQueueNotFound):
		return 0 // the first publish makes it
	case p.lastPollAt.IsZero():
		return now.Sub(p.startedAt)
	}
	return now.Sub(p.lastPollAt)
}

// status tells how polling goes.
func (p *poller) status() Poll {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Poll{At: p.lastPollAt, Err: p.lastErr, ErrAt: p.lastErrAt}
}

// Poll is how polling one queue goes.
type Poll struct {
	// At is the last receive that storage answered.
	At time.Time
	// Err is the last error while it lasts; nil when receiving works.
	Err   error
	ErrAt time.Time
}
