package tablestest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

var healthTests = []test{
	{"EveryFieldIsKept", healthFields},
	{"APutReplacesTheRowOfItsWebhookAndInstance", healthReplaced},
	{"ManyRowsAreWrittenInOneCall", healthMany},
	{"DeleteTakesTheRowsOfAllInstancesOfOneWebhook", healthDelete},
	{"ExpireTakesWhatWasNotWrittenLately", healthExpire},
	{"HostileIDsAreKept", healthHostile},
	{"InstancesDoNotDisturbEachOther", healthRace},
	{"AnEndedContextIsAnError", healthContext},
}

func healthOf(webhookID, instance string) tables.Health {
	return tables.Health{
		WebhookID: webhookID, Queue: "orders", Instance: instance,
		Breaker: policy.BreakerState{
			Phase: policy.BreakerOpen, Since: day, NextProbe: day.Add(30 * time.Second), Wait: policy.Duration(30*time.Second + time.Nanosecond),
			Samples: 12, Failures: 7,
		},
		Refusing:      true,
		Throttles:     true,
		PausedUntil:   day.Add(time.Hour),
		Pace:          policy.PaceState{Rate: 19.125, Since: day.Add(-time.Minute), Refused: 1 << 34, Noise: 0.305, Window: 901 * time.Second},
		Failing:       policy.AutoDisableState{FailingSince: day.Add(-time.Hour), FailedMessages: 21, LastSuccess: day.Add(-2 * time.Hour)},
		LastFailureAt: day.Add(-time.Second),
		Window:        17, InFlight: 3, Delivered: 1 << 40, Failed: 5, Postponed: 1 << 33, StartedAt: day.Add(-24 * time.Hour), UpdatedAt: day,
	}
}

func mustPutHealth(t *testing.T, s tables.Store, rows ...tables.Health) {
	t.Helper()
	if err := s.PutHealth(t.Context(), rows...); err != nil {
		t.Fatalf("PutHealth: %v", err)
	}
}

func wantHealth(t *testing.T, s tables.Store, want ...tables.Health) {
	t.Helper()
	want = slices.Clone(want)
	got, err := s.ListHealth(t.Context())
	if err != nil {
		t.Fatalf("ListHealth: %v", err)
	}
	slices.SortFunc(want, func(a, b tables.Health) int {
		return cmp.Or(cmp.Compare(a.WebhookID, b.WebhookID), cmp.Compare(a.Instance, b.Instance))
	})
	if d := diff(want, got); d != "" {
		t.Errorf("ListHealth (-want +got):\n%s", d)
	}
}

func healthFields(t *testing.T, s tables.Store) {
	wantHealth(t, s)
	full, empty := healthOf("wh1", "a"), tables.Health{WebhookID: "wh2", Instance: "a"}
	given := full
	given.UpdatedAt = full.UpdatedAt.Add(789 * time.Nanosecond).In(time.FixedZone("west", -5*60*60))
	mustPutHealth(t, s, given)
	mustPutHealth(t, s, empty)
	mustPutHealth(t, s)
	wantHealth(t, s, full, empty)
}

func healthReplaced(t *testing.T, s tables.Store) {
	a, b, other := healthOf("wh1", "a"), healthOf("wh1", "b"), healthOf("wh2", "a")
	mustPutHealth(t, s, a, b, other)
	a = tables.Health{WebhookID: "wh1", Instance: "a", Window: 4, UpdatedAt: day.Add(time.Minute)}
	mustPutHealth(t, s, a)
	wantHealth(t, s, a, b, other)
	last := b
	last.Delivered++
	mustPutHealth(t, s, b, other, last)
	wantHealth(t, s, a, last, other)
}

func healthMany(t *testing.T, s tables.Store) {
	var rows []tables.Health
	for i := range 250 {
		rows = append(rows, healthOf(fmt.Sprintf("wh%03d", i), "a"))
	}
	mustPutHealth(t, s, rows...)
	wantHealth(t, s, rows...)
}

func healthDelete(t *testing.T, s tables.Store) {
	remove := func(id string) {
		t.Helper()
		if err := s.DeleteHealth(t.Context(), id); err != nil {
			t.Errorf("DeleteHealth(%q): %v", id, err)
		}
	}
	remove("wh1") // none is there, not even a table
	longer, other := healthOf("wh10", "a"), healthOf("wh", "a")
	mustPutHealth(t, s, healthOf("wh1", "a"), healthOf("wh1", "b"), longer, other)
	for id, want := range map[string][]tables.Health{"wh1": {healthOf("wh1", "a"), healthOf("wh1", "b")}, "wh": {other}, "none": nil} {
		if got, err := s.WebhookHealth(t.Context(), id); err != nil || diff(want, got) != "" && len(want)+len(got) > 0 {
			t.Errorf("WebhookHealth(%q): %v, %v", id, got, err)
		}
	}
	remove("wh1")
	wantHealth(t, s, longer, other)
	remove("wh1")
	again := healthOf("wh1", "a")
	mustPutHealth(t, s, again)
	wantHealth(t, s, longer, other, again)
}

func healthExpire(t *testing.T, s tables.Store) {
	expire := func(before time.Time, want int64) {
		t.Helper()
		if n, err := s.ExpireHealth(t.Context(), before); err != nil || n != want {
			t.Errorf("ExpireHealth = %d, %v; want %d", n, err, want)
		}
	}
	expire(day, 0)
	old, kept := healthOf("wh1", "gone"), healthOf("wh1", "here")
	kept.UpdatedAt = day.Add(time.Hour)
	mustPutHealth(t, s, old, kept, healthOf("wh2", "gone"))
	expire(day, 0)
	expire(kept.UpdatedAt, 2)
	wantHealth(t, s, kept)
	expire(kept.UpdatedAt, 0)
}

func healthHostile(t *testing.T, s tables.Store) {
	var rows []tables.Health
	for _, id := range append(hostile(), longID("w"), longID("é")) {
		rows = append(rows, healthOf(id, "a"), healthOf("wh", id))
	}
	mustPutHealth(t, s, rows...)
	wantHealth(t, s, rows...)
	for _, h := range rows {
		if err := s.DeleteHealth(t.Context(), h.WebhookID); err != nil {
			t.Errorf("DeleteHealth(%.40q): %v", h.WebhookID, err)
		}
	}
	wantHealth(t, s)
}

func healthRace(t *testing.T, s tables.Store) {
	var want []tables.Health
	var wg sync.WaitGroup
	for i := range 6 {
		h := healthOf("wh1", fmt.Sprint(i))
		h.Delivered = 5
		want = append(want, h)
		wg.Go(func() {
			for n := range 6 {
				row := h
				row.Delivered = int64(n)
				if err := s.PutHealth(t.Context(), row); err != nil {
					t.Errorf("PutHealth: %v", err)
				}
			}
		})
	}
	wg.Wait()
	wantHealth(t, s, want...)
}

func healthContext(t *testing.T, s tables.Store) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, listErr := s.ListHealth(ended)
	_, expireErr := s.ExpireHealth(ended, day)
	for name, err := range map[string]error{
		"PutHealth": s.PutHealth(ended, healthOf("wh1", "a")), "ListHealth": listErr,
		"DeleteHealth": s.DeleteHealth(ended, "wh1"), "ExpireHealth": expireErr,
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s with an ended context = %v, want context.Canceled", name, err)
		}
	}
}
