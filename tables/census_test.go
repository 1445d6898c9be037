package tables_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

func on(queues ...string) (rs []tables.Registration) {
	for i, q := range queues {
		rs = append(rs, tables.Registration{Webhook: webhook.Webhook{ID: string(rune('a' + i)), Queue: q}})
	}
	return rs
}

// look has a census judge a list.
func look(ctx context.Context, c *tables.Census, all []tables.Registration, unreadable []tables.RowError, traces tables.Traces) ([]tables.RowError, error) {
	_, rows, err := c.List(ctx, func() ([]tables.Registration, []tables.RowError, error) { return all, unreadable, nil }, traces)
	return rows, err
}

// traces are those of webhooks that were deleted so long ago, beside those that were met, as "id" or "id of queue".
func traces(ago time.Duration, deleted []string, met ...string) tables.Traces {
	return tables.Traces{
		Deleted: func(context.Context) (map[string]time.Time, error) {
			found := map[string]time.Time{}
			for _, id := range deleted {
				found[id] = time.Now().Add(-ago)
			}
			return found, nil
		},
		Met: func(context.Context) (list []tables.Health, err error) {
			for _, m := range met {
				id, name, _ := strings.Cut(m, " of ")
				list = append(list, tables.Health{WebhookID: id, Queue: name}, tables.Health{WebhookID: id}) // one of an older version
			}
			return list, nil
		},
	}
}

var noTraces = traces(0, nil)

// C85: registrations that fell to none are lost, unless somebody has deleted them through pushlease.
func TestRegistrationsThatVanishAreNoDeletion(t *testing.T) {
	down := errors.New("injected")
	away := tables.Traces{Deleted: func(context.Context) (map[string]time.Time, error) { return nil, down }, Met: noTraces.Met}
	for name, tt := range map[string]struct {
		before     []tables.Registration
		deleted    []string // through this store
		after      []tables.Registration
		unreadable int
		traces     tables.Traces
		want       error
	}{
		"there never was one":                    {nil, nil, nil, 0, noTraces, nil},
		"all gone, without a trace":              {on("orders", "refunds"), nil, nil, 0, noTraces, tables.ErrVanished},
		"a trace of one only":                    {on("orders", "refunds"), nil, nil, 0, traces(0, []string{"a"}), tables.ErrVanished},
		"a trace of one of two of a queue":       {on("refunds", "refunds"), nil, nil, 0, traces(0, []string{"a"}), tables.ErrVanished},
		"traces of earlier ones of these ids":    {on("orders", "refunds"), nil, nil, 0, traces(time.Hour, []string{"a", "b"}), tables.ErrVanished},
		"each deleted by another instance":       {on("orders", "refunds"), nil, nil, 0, traces(0, []string{"a", "b"}), nil},
		"deleted by this one":                    {on("orders"), []string{"a"}, nil, 0, noTraces, nil},
		"one deleted here, the other vanished":   {on("orders", "refunds"), []string{"a"}, nil, 0, noTraces, tables.ErrVanished},
		"one is left":                            {on("orders", "refunds"), nil, on("orders"), 0, noTraces, nil},
		"one is left that can't be read":         {on("orders"), nil, nil, 1, noTraces, nil},
		"the traces can't be read":               {on("orders"), nil, nil, 0, away, down},
		"met, before the start, and deleted":     {nil, nil, nil, 0, traces(time.Hour, []string{"b"}, "b"), nil},
		"met, before the start, and not deleted": {nil, nil, nil, 0, traces(time.Hour, []string{"a"}, "a", "refunds"), tables.ErrVanished},
	} {
		t.Run(name, func(t *testing.T) {
			var c tables.Census
			if len(tt.before) > 0 {
				if _, err := look(t.Context(), &c, tt.before, nil, noTraces); err != nil {
					t.Fatal(err)
				}
			}
			for _, id := range tt.deleted {
				c.Deleted(id)
			}
			for range 2 { // it stays so
				_, err := look(t.Context(), &c, tt.after, make([]tables.RowError, tt.unreadable), tt.traces)
				if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
					t.Errorf("Look = %v, want %v", err, tt.want)
				}
				if errors.Is(err, tables.ErrVanished) && !strings.Contains(err.Error(), "refunds") {
					t.Errorf("%v names none", err)
				}
			}
			back := tt.before
			if len(back) == 0 {
				back = on("stock") // who registers one anew has seen that others are gone
			}
			if bad, err := look(t.Context(), &c, back, nil, tt.traces); err != nil || len(bad) > 0 {
				t.Errorf("Look = %v, %v when they are back", bad, err)
			}
		})
	}
}

// C85: who registers the first of many again does not say that the others are to be gone.
func TestRegistrationsThatVanishedAreMissedUntilEachIsBack(t *testing.T) {
	var c tables.Census
	missed := func(rs []tables.Registration, deleted ...string) string {
		t.Helper()
		bad, err := look(t.Context(), &c, rs, nil, traces(0, deleted))
		if err != nil {
			return "vanished"
		}
		var names []string
		for _, e := range bad {
			if !errors.Is(e.Err, tables.ErrVanished) {
				t.Errorf("%s is missed because of %v", e.ID, e.Err)
			}
			names = append(names, e.ID+" of "+e.Queue)
		}
		return strings.Join(names, ", ")
	}
	all := on("orders", "refunds", "returns", "stock")
	for i, step := range []struct {
		rs      []tables.Registration
		deleted []string
		want    string
	}{
		{all, nil, ""}, {nil, nil, "vanished"}, {all[:1], nil, "b of refunds, c of returns, d of stock"}, {nil, nil, "vanished"},
		{all[1:2], nil, "a of orders, c of returns, d of stock"},
		{all[:3], nil, "d of stock"},
		{all[:3], []string{"d"}, ""},
		{all[:2], nil, ""}, // a single one is a deletion
	} {
		if got := missed(step.rs, step.deleted...); got != step.want {
			t.Errorf("step %d: missed are %q, want %q", i, got, step.want)
		}
	}
	missed(nil)
	c.Deleted("a") // an operator says that it is to be gone
	if got := missed(all[1:2]); got != "" {
		t.Errorf("missed are %q", got)
	}
}

// C85: a table that is restored in part, or a tool that deletes all rows but one. The trace of one deletion
// releases no other webhook, of its queue or not.
func TestSeveralRegistrationsThatAreGoneAtOnceAreMissed(t *testing.T) {
	for name, tt := range map[string]struct {
		deleted []string // through this store
		traces  tables.Traces
		missed  int
	}{
		"nobody has deleted them":              {nil, noTraces, 2},
		"one was deleted here":                 {[]string{"b"}, noTraces, 0},
		"both were deleted elsewhere":          {nil, traces(0, []string{"b", "c"}), 0},
		"one of them was deleted elsewhere":    {nil, traces(0, []string{"b"}), 1},
		"another one of the queue was deleted": {nil, traces(0, []string{"d"}), 2},
	} {
		t.Run(name, func(t *testing.T) {
			var c tables.Census
			if _, err := look(t.Context(), &c, on("orders", "refunds", "refunds"), nil, noTraces); err != nil {
				t.Fatal(err)
			}
			for _, id := range tt.deleted {
				c.Deleted(id)
			}
			for range 2 { // it stays so
				bad, err := look(t.Context(), &c, on("orders"), nil, tt.traces)
				if err != nil || len(bad) != tt.missed {
					t.Fatalf("Look = %v, %v, want %d missed", bad, err, tt.missed)
				}
				for _, e := range bad {
					if !errors.Is(e.Err, tables.ErrVanished) || e.Queue == "" {
						t.Errorf("missed: %+v", e)
					}
				}
			}
			if bad, err := look(t.Context(), &c, on("orders", "refunds", "refunds"), nil, noTraces); err != nil || len(bad) > 0 {
				t.Errorf("Look = %v, %v when they are back", bad, err)
			}
		})
	}
}

// C85: a single registration that is gone is taken for deleted. Where nobody has deleted it through pushlease, that is told, once.
func TestARegistrationThatIsGoneAloneIsTold(t *testing.T) {
	for name, tt := range map[string]struct {
		deleted []string // through this store
		traces  tables.Traces
		told    string
	}{
		"nobody has deleted it":      {nil, noTraces, "b of refunds"},
		"another one was deleted":    {nil, traces(0, []string{"a"}), "b of refunds"},
		"it was deleted long before": {nil, traces(time.Hour, []string{"b"}), "b of refunds"},
		"it was deleted here":        {[]string{"b"}, noTraces, ""},
		"it was deleted elsewhere":   {nil, traces(0, []string{"b"}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			var c tables.Census
			var told []string
			tt.traces.Removed = func(id, queue string) { told = append(told, id+" of "+queue) }
			for _, rs := range [][]tables.Registration{on("orders", "refunds"), on("orders"), on("orders")} {
				if len(rs) == 1 {
					for _, id := range tt.deleted {
						c.Deleted(id)
					}
				}
				if bad, err := look(t.Context(), &c, rs, nil, tt.traces); err != nil || len(bad) > 0 {
					t.Errorf("Look = %v, %v", bad, err)
				}
			}
			if got := strings.Join(told, ", "); got != tt.told {
				t.Errorf("told of %q, want %q", got, tt.told)
			}
		})
	}
}

// C85: rows that went while no process ran, and others stayed. One is taken for deleted and told, of several each is missed,
// and a process that was told begins with what there is.
func TestRegistrationsThatWentBeforeTheStartBesideOthersAreToldOrMissed(t *testing.T) {
	down := errors.New("injected")
	for name, tt := range map[string]struct {
		traces       tables.Traces
		told, missed string
	}{
		"all that were met are there":                 {traces(0, nil, "a of orders"), "", ""},
		"one is gone":                                 {traces(0, nil, "a of orders", "b of refunds"), "b of refunds", ""},
		"one is gone, of no known queue":              {traces(0, nil, "a", "b"), "b of ", ""},
		"one was deleted":                             {traces(time.Hour, []string{"b"}, "b of refunds"), "", ""},
		"two are gone":                                {traces(0, nil, "b of refunds", "c of orders"), "", "b of refunds, c of orders"},
		"two are gone, one of which was deleted":      {traces(time.Hour, []string{"b"}, "b of refunds", "c of orders"), "", "c of orders"},
		"two are gone, of one the queue is not known": {traces(0, nil, "b", "c of orders"), "b of ", "c of orders"},
	} {
		t.Run(name, func(t *testing.T) {
			var c tables.Census
			var told []string
			tt.traces.Removed = func(id, queue string) { told = append(told, id+" of "+queue) }
			unknown := tt.traces
			unknown.Met = func(context.Context) ([]tables.Health, error) { return nil, down }
			if bad, err := look(t.Context(), &c, on("orders"), nil, unknown); err != nil || len(bad) > 0 || told != nil {
				t.Errorf("who was met can't be read: %v, %v, told of %v", bad, err, told)
			}
			for range 2 { // it stays so
				bad, err := look(t.Context(), &c, on("orders"), nil, tt.traces)
				var missed []string
				for _, e := range bad {
					missed = append(missed, e.ID+" of "+e.Queue)
				}
				if got := strings.Join(missed, ", "); err != nil || got != tt.missed {
					t.Errorf("missed are %q, %v; want %q", got, err, tt.missed)
				}
			}
			if got := strings.Join(told, ", "); got != tt.told {
				t.Errorf("told of %q, want %q", got, tt.told)
			}
		})
	}
}

// C86: the API moves no webhook. One whose queue another program has changed is damaged until that is written back; one that
// was deleted and registered anew is not.
func TestAWebhookWhoseQueueWasChangedIsDamaged(t *testing.T) {
	written := func(rows ...tables.Health) tables.Traces {
		tr := traces(24*time.Hour, []string{"a"})
		tr.Met = func(context.Context) ([]tables.Health, error) { return rows, nil }
		return tr
	}
	since, earlier := time.Now().Add(-time.Minute), time.Now().Add(-48*time.Hour)
	for name, tt := range map[string]struct {
		before []tables.Registration // of the list before
		traces tables.Traces
		now    string
		told   bool
	}{
		"changed before the start": {nil, traces(0, nil, "a of orders"), "stock", true}, "as it was": {nil, traces(0, nil, "a of orders"), "orders", false},
		"of no known queue":                          {nil, traces(0, nil, "a"), "stock", false},
		"deleted, and registered anew":               {nil, traces(time.Hour, []string{"a"}, "a of orders"), "stock", false},
		"changed long after it was registered anew":  {nil, written(tables.Health{WebhookID: "a", Queue: "orders", UpdatedAt: since}), "stock", true},
		"its health of before is of another queue":   {nil, written(tables.Health{WebhookID: "a", Queue: "orders", UpdatedAt: since}, tables.Health{WebhookID: "a", Queue: "stock", UpdatedAt: earlier}), "orders", false},
		"changed beside an old health":               {nil, written(tables.Health{WebhookID: "a", Queue: "orders", UpdatedAt: since}, tables.Health{WebhookID: "a", Queue: "stock", UpdatedAt: earlier}), "stock", true},
		"changed between two lists":                  {on("orders", "refunds"), noTraces, "stock", true},
		"deleted and registered anew between them":   {on("orders", "refunds"), traces(0, []string{"a"}), "stock", false},
		"deleted and registered anew long before it": {on("orders", "refunds"), traces(time.Hour, []string{"a"}), "stock", true},
		"changed before one that could not ask":      {on("stock", "refunds"), traces(0, nil, "a of orders"), "stock", true},
	} {
		t.Run(name, func(t *testing.T) {
			var c tables.Census
			if tt.before != nil {
				first := noTraces
				first.Met = func(context.Context) ([]tables.Health, error) { return nil, errors.New("injected") }
				if bad, err := look(t.Context(), &c, tt.before, nil, first); err != nil || len(bad) > 0 {
					t.Fatal(bad, err)
				}
			}
			if tt.before != nil && tt.before[0].Queue == "orders" { // seen, and compared with who was met
				if bad, err := look(t.Context(), &c, tt.before, nil, noTraces); err != nil || len(bad) > 0 {
					t.Fatal(bad, err)
				}
			}
			for range 2 { // it stays so
				all, bad, err := c.List(t.Context(), func() ([]tables.Registration, []tables.RowError, error) { return on(tt.now, "refunds"), nil, nil }, tt.traces)
				told := len(all) == 1 && len(bad) == 1 && bad[0].ID == "a" && bad[0].Queue == "orders" && errors.Is(bad[0].Err, tables.ErrDamaged)
				if err != nil || told != tt.told || !told && (len(all) != 2 || len(bad) > 0) {
					t.Errorf("%v, %v, %v", all, bad, err)
				}
			}
			if all, bad, err := c.List(t.Context(), func() ([]tables.Registration, []tables.RowError, error) { return on("orders"), nil, nil }, traces(0, []string{"b"})); tt.told && (err != nil || len(all) != 1 || len(bad) != 0) {
				t.Errorf("written back it is %v, %v, %v", all, bad, err)
			}
		})
	}
}

// C86: lists that overlap each time tell of a webhook whose queue was changed as any list does.
func TestAChangedQueueIsToldByListsThatOverlap(t *testing.T) {
	var c tables.Census
	if _, err := look(t.Context(), &c, on("orders", "refunds"), nil, noTraces); err != nil {
		t.Fatal(err)
	}
	all, bad, err := c.List(t.Context(), func() ([]tables.Registration, []tables.RowError, error) {
		if _, err := look(t.Context(), &c, on("orders", "refunds"), nil, noTraces); err != nil { // another list comes before this one
			t.Error(err)
		}
		return on("stock"), nil, nil
	}, noTraces)
	if err != nil || len(all) > 0 || len(bad) != 2 {
		t.Errorf("List: %v, %v, %v; want both as errors", all, bad, err)
	}
}

// C85: a trace is of the webhook that was deleted, and not of one that was registered later under its id, which its health tells.
func TestATraceIsNotOfAWebhookThatWasRegisteredLaterUnderItsID(t *testing.T) {
	const day = 24 * time.Hour
	for written, want := range map[time.Duration]string{2 * day: "", day - time.Minute: "", time.Hour: "b"} {
		var c tables.Census
		var told string
		tr := traces(day, []string{"b"})
		tr.Removed = func(id, _ string) { told += id }
		tr.Met = func(context.Context) ([]tables.Health, error) {
			return []tables.Health{{WebhookID: "b", Queue: "refunds", UpdatedAt: time.Now().Add(-written)}, {WebhookID: "b", UpdatedAt: time.Now().Add(-9 * day)}}, nil
		}
		if bad, err := look(t.Context(), &c, on("orders"), nil, tr); err != nil || len(bad) > 0 || told != want {
			t.Errorf("written %s ago: told of %q, want %q; %v, %v", written, told, want, bad, err)
		}
	}
}

// C85: a store that hangs when it is asked who was met leaves time for the list.
func TestAStoreThatHangsWhenItIsAskedWhoWasMetLeavesTimeForTheList(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var c tables.Census
		tr := noTraces
		tr.Met = func(ctx context.Context) ([]tables.Health, error) { <-ctx.Done(); return nil, ctx.Err() }
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second) // what the dispatcher gives
		defer cancel()
		all, _, err := c.List(ctx, func() ([]tables.Registration, []tables.RowError, error) { return on("orders"), nil, ctx.Err() }, tr)
		if err != nil || len(all) != 1 {
			t.Errorf("List: %v, %v", all, err)
		}
	})
}

// A webhook that is registered, and met, while the first list is on its way is not missed.
func TestAWebhookThatIsMetWhileTheFirstListIsReadIsNotMissed(t *testing.T) {
	var c tables.Census
	var known []string
	tr := noTraces
	tr.Met = func(ctx context.Context) ([]tables.Health, error) { return traces(0, nil, known...).Met(ctx) }
	tr.Removed = func(id, _ string) { t.Errorf("%s is told to be removed", id) }
	_, bad, err := c.List(t.Context(), func() ([]tables.Registration, []tables.RowError, error) {
		known = []string{"b of refunds"} // after what this list has read
		return on("orders"), nil, nil
	}, tr)
	if err != nil || len(bad) > 0 {
		t.Errorf("List: %v, %v", bad, err)
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
				if _, err := look(t.Context(), &c, whole, bad, noTraces); err != nil {
					t.Fatal(err)
				}
			}
			bad, err := look(t.Context(), &c, tt.after, nil, noTraces)
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

// A store that hangs when it is asked for traces keeps nobody else from the census.
func TestWhileTracesAreAskedForOthersMayLook(t *testing.T) {
	var c tables.Census
	if _, err := look(t.Context(), &c, on("orders", "orders"), nil, noTraces); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	asked, ended := make(chan struct{}), make(chan error)
	hangs := tables.Traces{Met: noTraces.Met, Deleted: func(ctx context.Context) (map[string]time.Time, error) {
		close(asked)
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	go func() {
		_, err := look(ctx, &c, nil, nil, hangs)
		ended <- err
	}()
	<-asked
	if missed, err := look(t.Context(), &c, on("orders", "orders"), nil, noTraces); err != nil || len(missed) > 0 {
		t.Errorf("another look: %v, %v", missed, err)
	}
	c.Deleted("a")
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the look whose store hangs: %v", err)
	}
}
