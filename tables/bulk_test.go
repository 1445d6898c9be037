package tables_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/sqlite"
	"github.com/pushlease/pushlease/internal/sqlite/sqlitetest"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// storeWith has n dead letters of each queue, one second apart.
func storeWith(t *testing.T, n int, queues ...string) *sqlite.DB {
	t.Helper()
	db, err := sqlite.Open(t.Context(), sqlitetest.File(t), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	for _, q := range queues {
		for i := range n {
			key, at := tables.MessageKey{Queue: q, MessageID: fmt.Sprintf("m%d", i), Day: noon}, noon.Add(time.Duration(i)*time.Second)
			_, err := db.PutDeadLetter(t.Context(), tables.DeadLetter{
				ID: tables.DeadLetterID(key, "wh", 0, at), MessageKey: key, WebhookID: "wh", Status: tables.Waiting,
				Reason: policy.NonRetryableError, DeadLetteredAt: at, Text: []byte("x"),
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return db
}

func TestCountSaysWhenItIsALowerBound(t *testing.T) {
	db := storeWith(t, 12, "orders", "refunds")
	for _, tt := range []struct {
		most, calls int
		n           int
		exact       bool
	}{{100, 5, 12, true}, {12, 5, 12, true}, {11, 5, 11, false}, {100, 0, 0, false}} {
		seen := 0
		n, exact, err := tables.CountDeadLetters(t.Context(), db, tables.DeadLetterFilter{Queue: "orders"}, tt.most, tt.calls, func(tables.DeadLetter) { seen++ })
		if n != tt.n || exact != tt.exact || err != nil || seen != n {
			t.Errorf("up to %d in %d calls: %d, exact %t, %v", tt.most, tt.calls, n, exact, err)
		}
	}
}

func TestPurgeTakesWhatMatchesAndNothingElse(t *testing.T) {
	db := storeWith(t, 10, "orders", "refunds")
	spare := func(d tables.DeadLetter) bool { return d.MessageID == "m3" }
	page, deleted, kept := tables.Page{Limit: 4}, 0, 0
	for {
		p, err := tables.PurgeDeadLetters(t.Context(), db, tables.DeadLetterFilter{Queue: "orders"}, page, spare)
		if err != nil {
			t.Fatal(err)
		}
		deleted, kept = deleted+p.Deleted["orders"], kept+p.Kept
		if p.Next == "" {
			break
		}
		page.After = p.Next
	}
	left, _, err := db.ListDeadLetters(t.Context(), tables.DeadLetterFilter{}, tables.Page{Limit: 100})
	if err != nil || deleted != 9 || kept != 1 || len(left) != 11 {
		t.Errorf("%d deleted, %d kept, %d left, %v", deleted, kept, len(left), err)
	}
}

// changing changes or fails rows between the list and the delete.
type changing struct {
	tables.DeadLetters
	before func(id string) error
}

func (c changing) DeleteDeadLetter(ctx context.Context, id, etag string) error {
	if err := c.before(id); err != nil {
		return err
	}
	return c.DeadLetters.DeleteDeadLetter(ctx, id, etag)
}

func TestPurgeLeavesARowThatChangedMeanwhile(t *testing.T) {
	db := storeWith(t, 3, "orders")
	s := changing{db, func(id string) error {
		d, err := db.GetDeadLetter(t.Context(), id)
		if err == nil && d.MessageID == "m1" {
			d.Status = tables.Replaying
			_, err = db.UpdateDeadLetter(t.Context(), d)
		}
		return err
	}}
	p, err := tables.PurgeDeadLetters(t.Context(), s, tables.DeadLetterFilter{}, tables.Page{Limit: 10}, func(tables.DeadLetter) bool { return false })
	if err != nil || p.Total() != 2 || p.Kept != 1 || p.Next != "" {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestPurgeThatFailedGoesThroughThePageAgain(t *testing.T) {
	db := storeWith(t, 6, "orders")
	fault := errors.New("injected")
	s := changing{db, func(id string) error {
		if d, err := db.GetDeadLetter(t.Context(), id); err == nil && d.MessageID == "m5" {
			return fault
		}
		return nil
	}}
	p, err := tables.PurgeDeadLetters(t.Context(), s, tables.DeadLetterFilter{}, tables.Page{Limit: 3}, func(tables.DeadLetter) bool { return false })
	if !errors.Is(err, fault) || p.Total() != 2 || p.Next != "" {
		t.Errorf("%+v, %v", p, err)
	}
	p, err = tables.PurgeDeadLetters(t.Context(), db, tables.DeadLetterFilter{}, tables.Page{Limit: 3, After: p.Next}, func(tables.DeadLetter) bool { return false })
	if err != nil || p.Total() != 3 || p.Next == "" {
		t.Errorf("again: %+v, %v", p, err)
	}
}
