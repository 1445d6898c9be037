package app

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/tables"
)

// rollupRows is a store of rollups that may be away.
type rollupRows struct {
	tables.Rollups
	mu     sync.Mutex
	rows   map[string]tables.Rollup
	all    map[string]tables.Rollup
	away   bool
	writes int
}

func (s *rollupRows) PutRollups(_ context.Context, rows ...tables.Rollup) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return errors.New("storage does not answer")
	}
	s.writes++
	for _, r := range rows {
		s.rows[r.Length.String()+" "+r.At.Format("15:04")] = r
		s.all[r.StartedAt.String()+r.Length.String()+r.At.String()] = r // as a store tells them apart
	}
	return nil
}

// held is how many deliveries the row of that length and time has held.
func (s *rollupRows) held(key string) (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.rows[key].Tallies {
		n += t.Held
	}
	return n
}

func (s *rollupRows) written() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

func (s *rollupRows) setAway(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
}

// counting is a rollups over such a store, with what it takes next.
type counting struct {
	*rollups
	store *rollupRows
	log   strings.Builder

	mu    sync.Mutex
	next  []tables.Tally
	depth map[string]tables.Depth
}

func (c *counting) add(tallies []tables.Tally) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next = append(c.next, tallies...)
}

func (c *counting) setDepth(depth map[string]tables.Depth) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.depth = depth
}

func newCounting() *counting {
	c := &counting{store: &rollupRows{rows: map[string]tables.Rollup{}, all: map[string]tables.Rollup{}}}
	c.rollups = &rollups{
		store: c.store, instance: "a", startedAt: time.Now(), log: slog.New(slog.NewTextHandler(&c.log, nil)),
		take: func() []tables.Tally {
			c.mu.Lock()
			defer c.mu.Unlock()
			taken := c.next
			c.next = nil
			return taken
		},
		depths: func() map[string]tables.Depth {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.depth
		},
	}
	return c
}

func heldBy(webhookID string, n int64) []tables.Tally {
	return []tables.Tally{{Queue: "orders", WebhookID: webhookID, Held: n}}
}

// Time in a bubble begins at midnight.
func TestEachMinuteIsWrittenOnceWithItsHour(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newCounting()
		ctx, stop := context.WithCancel(t.Context())
		go c.run(ctx)
		time.Sleep(time.Second) // minutes end between what is counted
		for minute := range 62 {
			c.add(heldBy("wh_1", int64(minute+1)))
			time.Sleep(time.Minute)
		}
		if n := c.store.written(); n != 62 {
			t.Errorf("%d transactions for 62 minutes", n)
		}
		for key, want := range map[string]int64{"1m0s 00:00": 1, "1m0s 00:41": 42, "1m0s 01:01": 62, "1h0m0s 00:00": 60 * 61 / 2, "1h0m0s 01:00": 61 + 62} {
			if got := c.store.held(key); got != want {
				t.Errorf("%s holds %d, want %d", key, got, want)
			}
		}
		if r := c.store.rows["1h0m0s 00:00"]; r.Instance != "a" || r.StartedAt.IsZero() {
			t.Errorf("the row is of %q, started at %s", r.Instance, r.StartedAt)
		}
		time.Sleep(5 * time.Minute)
		if n := c.store.written(); n != 62 {
			t.Errorf("%d transactions: minutes in which nothing happened were written", n)
		}
		c.setDepth(map[string]tables.Depth{"orders": {}, "invoices": {}})
		time.Sleep(2 * time.Minute)
		if n := c.store.written(); n != 62 {
			t.Errorf("%d transactions: empty queues were written", n)
		}
		c.setDepth(map[string]tables.Depth{"orders": {Visible: 3}})
		time.Sleep(time.Minute)
		if n := c.store.written(); n != 63 {
			t.Errorf("%d transactions: what waits was not written", n)
		}
		c.add(heldBy("wh_1", 7))
		stop()
		time.Sleep(time.Second)
		c.flush(t.Context())
		if got := c.store.held("1m0s 01:10"); got != 7 {
			t.Errorf("the last minute of a process that stops holds %d, want 7: %v", got, c.store.rows)
		}
	})
}

func TestWhatAStoreDidNotTakeIsWrittenWhenItIsBack(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newCounting()
		c.store.setAway(true)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go c.run(ctx)
		time.Sleep(time.Second) // minutes end between what is counted
		for range 90 {
			c.add(heldBy("wh_1", 1))
			time.Sleep(time.Minute)
		}
		if n := strings.Count(c.log.String(), "level=WARN"); n != 1 {
			t.Errorf("an outage is told of %d times, want once", n)
		}
		c.store.setAway(false)
		time.Sleep(time.Minute)
		if got := c.store.held("1h0m0s 00:00") + c.store.held("1h0m0s 01:00"); got != 90 {
			t.Errorf("the hours hold %d, want all 90", got)
		}
		if got := c.store.held("1m0s 01:29"); got != 1 || len(c.store.rows) != rollupsKept {
			t.Errorf("%d rows, the last minute with %d; want %d and 1", len(c.store.rows), got, rollupsKept)
		}
	})
}

// A clock that goes back, over a minute's edge and over an hour's, overwrites nothing of what was counted.
func TestAClockThatGoesBackLosesNoHistory(t *testing.T) {
	c := newCounting()
	at := time.Date(2027, 3, 1, 12, 58, 0, 0, time.UTC)
	for _, minute := range []int{0, 1, 1, 2, 3, -30, -29, 2, 3} {
		c.add(heldBy("wh_1", 1))
		c.count(at.Add(time.Duration(minute) * time.Minute))
		c.write(t.Context())
	}
	held := map[time.Duration]int64{}
	for _, r := range c.store.all {
		held[r.Length] += r.Tallies[0].Held
	}
	if held[tables.MinuteRollup] != 9 || held[tables.HourRollup] != 9 {
		t.Errorf("minutes hold %d, hours %d, want 9 of each", held[tables.MinuteRollup], held[tables.HourRollup])
	}
}

// A store that takes no history for days, and everything else, ends nothing.
func TestAHistoryThatIsNeverWrittenIsBounded(t *testing.T) {
	c := newCounting()
	c.store.setAway(true)
	at := time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC)
	for hour := range 3 * rollupsKept {
		c.add(heldBy("wh_1", 1))
		c.count(at.Add(time.Duration(hour) * time.Hour))
		c.write(t.Context())
	}
	if len(c.waiting) > rollupsKept {
		t.Errorf("%d rows wait, want %d at most", len(c.waiting), rollupsKept)
	}
	c.store.setAway(false)
	c.write(t.Context())
	if len(c.waiting) != 0 || len(c.store.rows) == 0 {
		t.Errorf("%d rows wait for a store that is back, and it has %d", len(c.waiting), len(c.store.rows))
	}
}

func TestManyWebhooksOfAnHourAreBoundedAndComplete(t *testing.T) {
	c := newCounting()
	at := time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC)
	for minute := range 40 {
		for i := range 50 {
			c.add(heldBy("wh_"+string(rune('A'+minute))+string(rune('A'+i)), 1))
		}
		c.count(at.Add(time.Duration(minute) * time.Minute))
	}
	c.write(t.Context())
	hour := c.store.rows["1h0m0s 12:00"]
	if got := c.store.held("1h0m0s 12:00"); got != 2000 || len(hour.Tallies) > maxHourTallies+1 {
		t.Errorf("%d tallies hold %d, want at most %d with 2000", len(hour.Tallies), got, maxHourTallies+1)
	}
}
