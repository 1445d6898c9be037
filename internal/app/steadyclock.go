package app

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// clockSettles is how long after the start of a process nothing is removed by its age where its clock can't be compared with storage's: a
// machine that starts with a wrong clock has it set within minutes.
// One that can be compared is asked for a minute after the start.
const (
	clockSettles = 10 * time.Minute
	clockAsked   = time.Minute
)

// errDoubtedClock says that nothing is removed by its age.
var errDoubtedClock = errors.New("the clock of this machine is in doubt")

// steadyClock tells whether the clock of this machine may decide what is old. A clock that is days ahead for a moment would remove the
// records and the dead letters of all instances. Safe for concurrent use.
type steadyClock struct {
	// ahead compares the clock with storage's; nil where there is no other.
	ahead func() (ahead time.Duration, known bool)
	// queues is asked for something, so that they are compared.
	queues  queue.Service
	started time.Time

	mu   sync.Mutex
	seen time.Time // when it was asked last
	// set is when it was seen that the clock had been set, and by how much; zero for never.
	set time.Time
	by  time.Duration
}

func newSteadyClock(ahead func() (time.Duration, bool), queues queue.Service) *steadyClock {
	now := time.Now()
	return &steadyClock{ahead: ahead, queues: queues, started: now, seen: now}
}

// doubt says why the clock may be wrong (errDoubtedClock); nil where nothing speaks for that.
func (c *steadyClock) doubt(ctx context.Context, now time.Time) error {
	c.mu.Lock()
	passed, moved := now.Sub(c.seen), now.Round(0).Sub(c.seen.Round(0)) // without Round by the clock that is never set
	if step := moved - passed; step.Abs() > tables.ClocksApart {
		c.set, c.by = now, step
	}
	c.seen = now
	set, by := c.set, c.by
	c.mu.Unlock()
	if !set.IsZero() && now.Sub(set) < clockSettles {
		return fmt.Errorf("%w: it was set by %s", errDoubtedClock, by.Round(time.Second))
	}
	if c.ahead == nil {
		if up := now.Sub(c.started); up < clockSettles {
			return fmt.Errorf("%w: this process has run for %s only", errDoubtedClock, up.Round(time.Second))
		}
		return nil
	}
	_, _ = c.queues.List(ctx) // any answer compares them where that was not done within a minute; without one what is known stands
	switch ahead, known := c.ahead(); {
	case !known:
		return fmt.Errorf("%w: it was not compared with storage's yet", errDoubtedClock)
	case ahead.Abs() > tables.ClocksApart:
		return fmt.Errorf("%w: it differs by %s from storage's", errDoubtedClock, ahead.Round(time.Second))
	}
	return nil
}
