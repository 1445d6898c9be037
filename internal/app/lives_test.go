package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/internal/sqlite"
	"github.com/pushlease/pushlease/tables"
)

// away is a store that can't be asked for a while.
type away struct {
	tables.Store
	gone bool
}

func (a *away) Load(ctx context.Context, key tables.MessageKey) ([]tables.Delivery, error) {
	if a.gone {
		return nil, errors.New("storage is away")
	}
	return a.Store.Load(ctx, key)
}

// living is what the tests of lives work with: two instances on one store, and what they counted.
type living struct {
	*testing.T
	store    *away
	one, two *lives
	mu       sync.Mutex
	counted  map[string]int
}

func newLiving(t *testing.T) *living {
	db, err := sqlite.Open(t.Context(), filepath.Join(bubble.Folder(t), "l.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	x := &living{T: t, store: &away{Store: db}, counted: map[string]int{}}
	for name, l := range map[string]**lives{"one": &x.one, "two": &x.two} {
		*l = &lives{
			Store: x.store, instance: name, log: slog.New(slog.DiscardHandler), byMessage: map[livingMessage]*life{},
			expired: func(queue string, n int) {
				x.mu.Lock()
				defer x.mu.Unlock()
				x.counted[queue+" by "+name] += n
			},
		}
	}
	return x
}

// write writes a state of a message that lives for a minute; of its publish where webhookID is empty.
func (x *living) write(l *lives, queue, webhookID string, state tables.State, change ...func(*tables.Delivery)) {
	x.Helper()
	now := time.Now().UTC()
	d := tables.Delivery{
		MessageKey: tables.MessageKey{Queue: queue, MessageID: "m-" + queue, Day: now.Truncate(time.Hour)}, WebhookID: webhookID,
		State: state, UpdatedAt: now, ExpiresAt: now.Truncate(time.Hour).Add(time.Minute), Instance: l.instance,
	}
	if state == tables.Published {
		d.Instance = ""
	}
	for _, f := range change {
		f(&d)
	}
	if err := l.Record(x.Context(), tables.Record{Deliveries: []tables.Delivery{d}}); err != nil {
		x.Fatal(err)
	}
	time.Sleep(time.Second)
}

func (x *living) wait(d time.Duration) {
	ctx, cancel := context.WithTimeout(x.Context(), d)
	defer cancel()
	var both sync.WaitGroup
	both.Go(func() { x.one.run(ctx) })
	both.Go(func() { x.two.run(ctx) })
	both.Wait()
}

// C54: where storage drops a message without a word, each that nobody ended is counted, once, by one instance.
func TestEachMessageThatExpiresUnseenIsCountedOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		x := newLiving(t)
		one, two := x.one, x.two
		x.write(one, "published", "", tables.Published)
		x.write(one, "delivered", "", tables.Published)
		x.write(one, "delivered", "w", tables.Delivered)
		x.write(one, "half", "w1", tables.Delivered)
		x.write(one, "half", "w2", tables.Pending)
		x.write(one, "held", "", tables.Held)
		x.write(one, "unmatched", "", tables.Published)
		x.write(one, "unmatched", "", tables.Unmatched)
		x.write(one, "tried-elsewhere", "w", tables.Pending)
		x.write(one, "tried-elsewhere", "", tables.Unmatched)
		x.write(one, "given-up", "w", tables.Pending)
		x.write(one, "given-up", "", tables.DeadLettered)
		x.write(one, "handed-on", "", tables.Published)
		x.write(two, "handed-on", "w", tables.Pending)
		x.write(one, "by-a-slow-clock", "", tables.Published)
		x.write(two, "by-a-slow-clock", "w", tables.Pending, func(d *tables.Delivery) { d.UpdatedAt = d.UpdatedAt.Add(-5 * time.Second) })
		x.write(one, "ended-elsewhere", "", tables.Published)
		x.write(two, "ended-elsewhere", "w", tables.Delivered)
		x.write(one, "dying", "w", tables.DeadLettering)
		x.write(one, "lasting", "w", tables.Pending, func(d *tables.Delivery) { d.ExpiresAt = time.Time{} })
		x.write(one, "replayed", "w", tables.Pending, func(d *tables.Delivery) { d.Generation = 1 })
		x.write(one, "orders-poison", "", tables.Published, func(d *tables.Delivery) {
			d.DeadLetterID = tables.DeadLetterID(tables.MessageKey{Queue: "orders", MessageID: "m"}, "w", 0, time.Now())
		})
		x.write(one, "deleted", "", tables.Published) // an operator deletes its queue with what is on it
		if err := x.store.PutAudit(t.Context(), tables.Audit{ID: tables.AuditID(time.Now(), "r"), At: time.Now(), Action: tables.QueueDeleted, Queue: "deleted"}); err != nil {
			t.Fatal(err)
		}
		x.write(one, "deleted", "w", tables.Pending, func(d *tables.Delivery) { d.MessageID = "sent since" })

		x.store.gone = true
		x.wait(10 * time.Minute)
		if len(x.counted) > 0 {
			t.Errorf("counted %v while storage was away", x.counted)
		}
		x.store.gone = false
		x.wait(10 * time.Minute)
		x.wait(10 * time.Minute)
		want := map[string]int{"published by one": 1, "half by one": 1, "tried-elsewhere by one": 1, "deleted by one": 1, "held by one": 1, "handed-on by two": 1, "by-a-slow-clock by two": 1}
		if !maps.Equal(x.counted, want) {
			t.Errorf("counted %v, want %v", x.counted, want)
		}
	})
}

// What others end costs a bounded number of requests; what nobody ended is counted to the last one.
func TestManyThatExpireCostAsManyRequestsAsThereIsToCount(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		x := newLiving(t)
		publish := func(queue string, n int, long time.Duration) {
			now := time.Now().UTC()
			for i := range n {
				d := tables.Delivery{
					MessageKey: tables.MessageKey{Queue: queue, MessageID: fmt.Sprint(queue, i), Day: now},
					State:      tables.Published, UpdatedAt: now, ExpiresAt: now.Add(long),
				}
				x.one.note(&d, now)
				if queue == "lost" {
					if err := x.store.Record(x.Context(), tables.Record{Deliveries: []tables.Delivery{d}}); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		publish("elsewhere", 200, time.Minute)
		x.wait(time.Hour)
		if n := len(x.one.byMessage); n > 0 {
			t.Errorf("%d messages are asked for again and again", n)
		}
		publish("lost", 2*livesInVain, time.Minute)
		x.wait(time.Hour)
		if x.counted["lost by one"] != 2*livesInVain {
			t.Errorf("counted %v, want all %d", x.counted, 2*livesInVain)
		}
		publish("long", maxLives, 7*24*time.Hour)
		publish("short", maxLives, time.Minute)
		if n := len(x.one.byMessage); n != maxLives {
			t.Errorf("%d messages are watched, want %d", n, maxLives)
		}
		x.wait(time.Hour)
		if n := len(x.one.byMessage); n != maxLives/2 {
			t.Errorf("%d messages that live on are watched, want %d: the rest of the room is for short lives", n, maxLives/2)
		}
	})
}

// auditor notes from when on the audit is read.
type auditor struct {
	tables.Store
	from []time.Time
}

func (a *auditor) ListAudits(ctx context.Context, f tables.AuditFilter, page tables.Page) ([]tables.Audit, tables.Cursor, error) {
	a.from = append(a.from, f.From)
	return a.Store.ListAudits(ctx, f, page)
}

// The audit is of 90 days. Whether the queue of messages that are gone was deleted is told by what is younger than these.
func TestWhetherAQueueWasDeletedIsLookedForInTheLivesOfItsMessages(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		x := newLiving(t)
		store := &auditor{Store: x.store}
		x.one.Store = store
		began := time.Now()
		x.write(x.one, "gone", "", tables.Published)
		x.wait(10 * time.Minute)
		if len(store.from) != 1 || !store.from[0].Equal(began.Truncate(time.Millisecond)) || x.counted["gone by one"] != 1 {
			t.Errorf("the audit was read from %v, want from %s; counted were %v", store.from, began, x.counted)
		}
	})
}
