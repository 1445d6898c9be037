package app

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// clockSettles is how long after the start of a process nothing is removed by its age where its clock can't be compared with storage's: a
// machine that starts with a wrong clock has it set within minutes.
const clockSettles = 10 * time.Minute

// steadyClock tells whether the clock of this machine may decide what is old. A clock that is days ahead for a moment would remove the
// records and the dead letters of all instances. Safe for concurrent use.
type steadyClock struct {
	// ahead compares the clock with storage's; nil where there is no other.
	ahead func() (ahead time.Duration, known bool)
	// queues is asked for something where they were not compared yet.
	queues  queue.Service
	started time.Time

	mu   sync.Mutex
	seen time.Time // when it was asked last
}

func newSteadyClock(ahead func() (time.Duration, bool), queues queue.Service) *steadyClock {
	now := time.Now()
	return &steadyClock{ahead: ahead, queues: queues, started: now, seen: now}
}

// doubt says why the clock may be wrong; empty where nothing speaks for that.
func (c *steadyClock) doubt(ctx context.Context, now time.Time) string {
	c.mu.Lock()
	passed, moved := now.Sub(c.seen), now.Round(0).Sub(c.seen.Round(0)) // without Round by the clock that is never set
	c.seen = now
	c.mu.Unlock()
	if step := moved - passed; step.Abs() > tables.ClocksApart {
		return fmt.Sprintf("it was set by %s since the last round", step.Round(time.Second))
	}
	if c.ahead == nil {
		if up := now.Sub(c.started); up < clockSettles {
			return fmt.Sprintf("this process has run for %s only", up.Round(time.Second))
		}
		return ""
	}
	if _, known := c.ahead(); !known {
		_, _ = c.queues.List(ctx) // any answer compares them; without one the doubt stays
	}
	switch ahead, known := c.ahead(); {
	case !known:
		return "it was not compared with storage's yet"
	case ahead.Abs() > tables.ClocksApart:
		return fmt.Sprintf("it differs by %s from storage's", ahead.Round(time.Second))
	}
	return ""
}
