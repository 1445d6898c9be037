package tables_test

import (
	"errors"
	"strings"
	"testing"

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
				ls = append(ls, tables.LeftQueue{Queue: q})
			}
			return ls, nil
		}
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
		"each deleted by another instance":     {on("orders", "refunds"), nil, nil, 0, notes("refunds", "orders"), nil},
		"deleted by this one":                  {on("orders"), []string{"a"}, nil, 0, nil, nil},
		"one deleted here, the other vanished": {on("orders", "refunds"), []string{"a"}, nil, 0, notes(), tables.ErrVanished},
		"one is left":                          {on("orders", "refunds"), nil, on("orders"), 0, nil, nil},
		"one is left that can't be read":       {on("orders"), nil, nil, 1, nil, nil},
		"the notes can't be read":              {on("orders"), nil, nil, 0, func() ([]tables.LeftQueue, error) { return nil, down }, down},
	} {
		t.Run(name, func(t *testing.T) {
			var c tables.Census
			if err := c.Look(tt.before, 0, nil); err != nil {
				t.Fatal(err)
			}
			for _, id := range tt.deleted {
				c.Deleted(id)
			}
			for range 2 { // it stays so
				err := c.Look(tt.after, tt.unreadable, tt.left)
				if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
					t.Errorf("Look = %v, want %v", err, tt.want)
				}
				if errors.Is(err, tables.ErrVanished) && !strings.Contains(err.Error(), "refunds") {
					t.Errorf("%v names no queue", err)
				}
			}
			if err := c.Look(on("orders"), 0, nil); err != nil {
				t.Errorf("Look = %v when they are back", err)
			}
		})
	}
}
