package tables_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

func on(queues ...string) (rs []tables.Registration) {
	for i, q := range queues {
		rs = append(rs, tables.Registration{Webhook: webhook.Webhook{ID: string(rune('a' + i)), Queue: q}})
	}
	return rs
}

// C85: registrations that fell to none are lost, unless somebody has deleted them here.
func TestRegistrationsThatVanishAreNoDeletion(t *testing.T) {
	notes := func(queues ...string) func() ([]tables.LeftQueue, error) {
		return func() (ls []tables.LeftQueue, err error) {
			for _, q := range queues {
				ls = append(ls, tables.LeftQueue{Queue: q, At: time.Now()})
			}
			return ls, nil
		}
	}
	old := func() ([]tables.LeftQueue, error) {
		return []tables.LeftQueue{{Queue: "orders", At: time.Now().Add(-time.Hour)}, {Queue: "refunds", At: time.Now().Add(-time.Hour)}}, nil
	}
	down := errors.New("injected")
	for name, tt := range map[string]struct {
		before     []tables.Registration
		deleted    []string // through this store
		after      []tables.Registration
		unreadable int
		left       func() ([]tables.LeftQueue, error)
		want       error
	}{
		"there never was one":                  {nil, nil, nil, 0, nil, nil},
		"all gone, without a note":             {on("orders", "refunds"), nil, nil, 0, notes(), tables.ErrVanished},
		"a note of one queue only":             {on("orders", "refunds"), nil, nil, 0, notes("orders"), tables.ErrVanished},
		"notes of earlier deletions":           {on("orders", "refunds"), nil, nil, 0, old, tables.ErrVanished},
		"each deleted by another instance":     {on("orders", "refunds"), nil, nil, 0, notes("refunds", "orders"), nil},
		"deleted by this one":                  {on("orders"), []string{"a"}, nil, 0, nil, nil},
		"one deleted here, the other vanished": {on("orders", "refunds"), []string{"a"}, nil, 0, notes(), tables.ErrVanished},
		"one is left":                          {on("orders", "refunds"), nil, on("orders"), 0, nil, nil},
		"one is left that can't be read":       {on("orders"), nil, nil, 1, nil, nil},
		"the notes can't be read":              {on("orders"), nil, nil, 0, func() ([]tables.LeftQueue, error) { return nil, down }, down},
	} {
		t.Run(name, func(t *testing.T) {
			var c tables.Census
			if _, err := c.Look(tt.before, nil, nil); err != nil {
				t.Fatal(err)
			}
			for _, id := range tt.deleted {
				c.Deleted(id)
			}
			for range 2 { // it stays so
				_, err := c.Look(tt.after, make([]tables.RowError, tt.unreadable), tt.left)
				if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
					t.Errorf("Look = %v, want %v", err, tt.want)
				}
				if errors.Is(err, tables.ErrVanished) && !strings.Contains(err.Error(), "refunds") {
					t.Errorf("%v names no queue", err)
				}
			}
			if _, err := c.Look(tt.before, nil, tt.left); err != nil {
				t.Errorf("Look = %v when they are back", err)
			}
		})
	}
}

// C85: who registers the first of many again does not say that the others are to be gone.
func TestRegistrationsThatVanishedAreMissedUntilEachIsBack(t *testing.T) {
	var c tables.Census
	look := func(rs []tables.Registration, left ...tables.LeftQueue) string {
		t.Helper()
		bad, err := c.Look(rs, nil, func() ([]tables.LeftQueue, error) { return left, nil })
		if err != nil {
			return "vanished"
		}
		var missed []string
		for _, e := range bad {
			if !errors.Is(e.Err, tables.ErrVanished) {
				t.Errorf("%s is missed because of %v", e.ID, e.Err)
			}
			missed = append(missed, e.ID+" of "+e.Queue)
		}
		return strings.Join(missed, ", ")
	}
	all := on("orders", "refunds", "returns", "stock")
	for i, step := range []struct {
		rs   []tables.Registration
		left []tables.LeftQueue
		want string
	}{
		{all, nil, ""}, {nil, nil, "vanished"}, {all[:1], nil, "b of refunds, c of returns, d of stock"}, {nil, nil, "vanished"},
		{all[1:2], nil, "a of orders, c of returns, d of stock"},
		{all[:3], nil, "d of stock"},
		{all[:3], []tables.LeftQueue{{Queue: "stock", At: time.Now()}}, ""},
		{all[:2], nil, ""}, // a single one is a deletion
	} {
		if got := look(step.rs, step.left...); got != step.want {
			t.Errorf("step %d: missed are %q, want %q", i, got, step.want)
		}
	}
	look(nil)
	c.Deleted("a") // an operator says that it is to be gone
	if got := look(all[1:2]); got != "" {
		t.Errorf("missed are %q", got)
	}
}

// C85: a table that is restored in part, or a tool that deletes all rows but one.
func TestSeveralRegistrationsThatAreGoneAtOnceAreMissed(t *testing.T) {
	notes := func(queues ...string) func() ([]tables.LeftQueue, error) {
		return func() (ls []tables.LeftQueue, err error) {
			for _, q := range queues {
				ls = append(ls, tables.LeftQueue{Queue: q, At: time.Now()})
			}
			return ls, nil
		}
	}
	for name, tt := range map[string]struct {
		deleted []string // through this store
		left    func() ([]tables.LeftQueue, error)
		missed  int
	}{
		"nobody has deleted them":           {nil, notes(), 2},
		"one was deleted here":              {[]string{"b"}, nil, 0},
		"both were deleted elsewhere":       {nil, notes("refunds", "returns"), 0},
		"one of them was deleted elsewhere": {nil, notes("refunds"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			var c tables.Census
			if _, err := c.Look(on("orders", "refunds", "returns"), nil, nil); err != nil {
				t.Fatal(err)
			}
			for _, id := range tt.deleted {
				c.Deleted(id)
			}
			for range 2 { // it stays so
				bad, err := c.Look(on("orders"), nil, tt.left)
				if err != nil || len(bad) != tt.missed {
					t.Fatalf("Look = %v, %v, want %d missed", bad, err, tt.missed)
				}
				for _, e := range bad {
					if !errors.Is(e.Err, tables.ErrVanished) || e.Queue == "" {
						t.Errorf("missed: %+v", e)
					}
				}
			}
			if bad, err := c.Look(on("orders", "refunds", "returns"), nil, nil); err != nil || len(bad) > 0 {
				t.Errorf("Look = %v, %v when they are back", bad, err)
			}
		})
	}
}

// C85: nobody can note of which queue a damaged row was that does not say so. What is missed without a
// queue would hold the messages of all of them, and no deletion would end that.
func TestRegistrationsOfNoKnownQueueAreNotMissed(t *testing.T) {
	damaged := func(ids ...string) (bad []tables.RowError) {
		for _, id := range ids {
			bad = append(bad, tables.RowError{ID: id, Err: tables.ErrDamaged})
		}
		return bad
	}
	none := func() ([]tables.LeftQueue, error) { return nil, nil }
	for name, tt := range map[string]struct {
		before  []tables.Registration
		damaged []tables.RowError
		after   []tables.Registration
		missed  string
	}{
		"two, deleted elsewhere":               {on("orders"), damaged("x", "y"), on("orders"), ""},
		"all that there were":                  {nil, damaged("x", "y"), nil, ""},
		"one of them, and one that was read":   {on("orders", "refunds"), damaged("x"), on("orders"), "b of refunds"},
		"one that was read before it was hurt": {on("orders", "refunds", "returns"), damaged("b", "x"), on("orders"), "b of refunds, c of returns"},
	} {
		t.Run(name, func(t *testing.T) {
			var c tables.Census
			for _, bad := range [][]tables.RowError{nil, tt.damaged} {
				whole := slices.DeleteFunc(slices.Clone(tt.before), func(r tables.Registration) bool {
					return slices.ContainsFunc(bad, func(e tables.RowError) bool { return e.ID == r.ID })
				})
				if _, err := c.Look(whole, bad, none); err != nil {
					t.Fatal(err)
				}
			}
			bad, err := c.Look(tt.after, nil, none)
			var missed []string
			for _, e := range bad {
				missed = append(missed, e.ID+" of "+e.Queue)
			}
			if got := strings.Join(missed, ", "); err != nil || got != tt.missed {
				t.Errorf("missed are %q, %v; want %q", got, err, tt.missed)
			}
		})
	}
}
