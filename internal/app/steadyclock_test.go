package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/internal/config"
	"github.com/pushlease/pushlease/internal/sqlite"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// asked counts how often the queues were listed.
type asked struct {
	queue.Service
	times int
}

func (a *asked) List(context.Context) ([]string, error) { a.times++; return nil, nil }

// A machine that starts, or goes on, with a clock that is days ahead would remove what all instances know, dead letters with it.
func TestNothingIsRemovedByAClockThatMayBeWrong(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		db, err := sqlite.Open(t.Context(), t.TempDir()+"/pushlease.db", sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		key := tables.MessageKey{Queue: "orders", MessageID: "m", Day: time.Now().Add(-9 * 24 * time.Hour)}
		letter := tables.DeadLetter{ID: tables.DeadLetterID(key, "", 0, key.Day), MessageKey: key, InsertedAt: key.Day, DeadLetteredAt: key.Day, Status: tables.Waiting, Text: []byte("x")}
		put := func() {
			t.Helper()
			if err := db.Record(t.Context(), tables.Record{Deliveries: []tables.Delivery{{MessageKey: key, WebhookID: "w", State: tables.Pending, UpdatedAt: key.Day}}}); err != nil {
				t.Fatal(err)
			}
			if letter, err = db.PutDeadLetter(t.Context(), letter); err != nil {
				t.Fatal(err)
			}
		}
		there := func() bool {
			t.Helper()
			rows, err := db.Load(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			_, err = db.GetDeadLetter(t.Context(), letter.ID)
			if (err == nil) != (len(rows) > 0) {
				t.Errorf("%d records, and the dead letter: %v", len(rows), err)
			}
			return err == nil
		}
		const doubted = "the clock of this machine is in doubt: "
		keeper := func(ahead func() (time.Duration, bool)) (*housekeeping, *asked) {
			a := &asked{Service: db.Queues()}
			return newHousekeeping(config.Config{Retention: 8 * 24 * time.Hour, DeadLetterRetention: 8 * 24 * time.Hour},
				&stores{tables: db, queues: a, clockAhead: ahead}, slog.New(slog.DiscardHandler), func(string, string, int) {}), a
		}
		ahead, known := 9*24*time.Hour, true
		onAzure, listed := keeper(func() (time.Duration, bool) { return ahead, known })
		round := func(h *housekeeping, want string) {
			t.Helper()
			err := h.round(t.Context())
			if kept := there(); kept != (want != "") || fmt.Sprint(err) != cmp.Or(want, "<nil>") || kept != errors.Is(err, errDoubtedClock) {
				t.Errorf("kept: %t, %v; want what was kept because %q", kept, err, want)
			}
		}
		put()
		round(onAzure, doubted+"it differs by 216h0m0s from storage's")
		ahead = -2 * time.Minute
		round(onAzure, doubted+"it differs by -2m0s from storage's")
		ahead, known = 0, false
		round(onAzure, doubted+"it was not compared with storage's yet")
		if known = true; listed.times != 3 {
			t.Errorf("storage was asked %d times for its clock", listed.times)
		}
		round(onAzure, "")

		put()
		onFile, _ := keeper(nil)
		round(onFile, doubted+"this process has run for 0s only")
		time.Sleep(clockSettles)
		round(onFile, "")
	})
}

func TestAClockThatWasSetIsDoubtedForTenMinutes(t *testing.T) {
	c := newSteadyClock(func() (time.Duration, bool) { return 0, true }, &asked{})
	doubted := func(when, want string) {
		t.Helper()
		if err := c.doubt(t.Context(), time.Now()); (want != "") != errors.Is(err, errDoubtedClock) || err != nil && !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v, want %q", when, err, want)
		}
	}
	doubted("at the start", "")
	c.seen = bubble.Suspended(c.seen, 9*24*3600)
	doubted("after it was set", "it was set by 216h0m0s")
	doubted("another one asks", "it was set by 216h0m0s")
	c.set = c.set.Add(-clockSettles)
	doubted("ten minutes later", "")
	c.seen = bubble.Suspended(c.seen, -90)
	doubted("after it was set back", "it was set by -1m30s")
	c.set = c.set.Add(-clockSettles)
	c.seen = bubble.Suspended(c.seen, 30)
	doubted("after it was set by a little", "")
}
