package tablestest

import (
	"fmt"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

var rollupTests = []test{
	{"RollupsAreReadInOrderAndWithinTheirTime", rollupSpan},
	{"ARollupIsWrittenOverThatOfItsProcessAlone", rollupReplaced},
	{"RollupsOfALengthExpireAlone", rollupExpire},
	{"RollupsOfManyWebhooksAndHostileNamesAreKept", rollupHostile},
}

// minute and hour are rollups with everything in them.
func minute(instance string, at time.Time) tables.Rollup {
	r := tables.Rollup{Length: tables.MinuteRollup, At: at.Truncate(time.Minute), Instance: instance, StartedAt: day.Add(-time.Hour)}
	r.Tallies = []tables.Tally{
		{
			Queue: "orders", WebhookID: "wh_1", Attempts: map[string]int64{"2xx": 1 << 40, "timeout": 2}, Delivered: 1 << 40, Held: 3, DeadLetters: 1,
			Took: policy.Spread{0: 7, 44: 1 << 40}, Delay: policy.Spread{120: 1},
		},
		{Queue: "orders", Depth: &tables.Depth{Visible: 12, Hidden: 3, Oldest: 90 * time.Second}},
	}
	return r
}

func mustPutRollups(t *testing.T, s tables.Store, rows ...tables.Rollup) {
	t.Helper()
	if err := s.PutRollups(t.Context(), rows...); err != nil {
		t.Fatalf("PutRollups: %v", err)
	}
}

func wantRollups(t *testing.T, s tables.Store, length time.Duration, from, until time.Time, want ...tables.Rollup) {
	t.Helper()
	var got []tables.Rollup
	if err := s.EachRollup(t.Context(), length, from, until, func(r tables.Rollup) { got = append(got, r) }); err != nil {
		t.Fatalf("EachRollup: %v", err)
	}
	if d := diff(want, got); d != "" {
		t.Errorf("EachRollup(%s) (-want +got):\n%s", length, d)
	}
}

func rollupSpan(t *testing.T, s tables.Store) {
	at := day.Truncate(time.Hour)
	wantRollups(t, s, tables.MinuteRollup, at, at.Add(time.Hour)) // nothing is there, not even a table
	mustPutRollups(t, s)
	first, second, last := minute("b", at), minute("a", at.Add(time.Minute)), minute("b", at.Add(2*time.Minute))
	hour := minute("b", at)
	hour.Length = tables.HourRollup
	mustPutRollups(t, s, last, first, hour)
	mustPutRollups(t, s, second)
	wantRollups(t, s, tables.MinuteRollup, at, at.Add(time.Hour), first, second, last)
	wantRollups(t, s, tables.MinuteRollup, at.Add(time.Second), at.Add(2*time.Minute), second)
	wantRollups(t, s, tables.HourRollup, at, at.Add(time.Second), hour)
	wantRollups(t, s, tables.HourRollup, at.Add(time.Second), at.Add(time.Hour))
}

func rollupReplaced(t *testing.T, s tables.Store) {
	at := day.Truncate(time.Hour)
	a, b := minute("a", at), minute("b", at)
	again := a
	again.StartedAt = a.StartedAt.Add(time.Second) // the next process of that name
	mustPutRollups(t, s, a, b, again)
	a.Tallies = []tables.Tally{{Queue: "invoices", Held: 9}}
	mustPutRollups(t, s, a)
	mustPutRollups(t, s, a)
	wantRollups(t, s, tables.MinuteRollup, at, at.Add(time.Minute), a, again, b)
}

func rollupExpire(t *testing.T, s tables.Store) {
	at := day.Truncate(time.Hour)
	expire := func(length time.Duration, before time.Time, want int64) {
		t.Helper()
		if n, err := s.ExpireRollups(t.Context(), length, before); err != nil || n != want {
			t.Errorf("ExpireRollups(%s) = %d, %v; want %d", length, n, err, want)
		}
	}
	expire(tables.HourRollup, at, 0)
	old, other, kept, hour := minute("a", at), minute("b", at), minute("a", at.Add(time.Minute)), minute("a", at)
	hour.Length = tables.HourRollup
	mustPutRollups(t, s, old, other, kept, hour)
	expire(tables.MinuteRollup, at, 0)
	expire(tables.MinuteRollup, at.Add(time.Minute), 2)
	expire(tables.MinuteRollup, at.Add(time.Minute), 0)
	wantRollups(t, s, tables.MinuteRollup, at.Add(-time.Hour), at.Add(time.Hour), kept)
	wantRollups(t, s, tables.HourRollup, at, at.Add(time.Hour), hour)
}

func rollupHostile(t *testing.T, s tables.Store) {
	at := day.Truncate(time.Minute)
	var rows []tables.Rollup
	for i, name := range append(hostile(), longID("i")) {
		r := minute(name, at.Add(time.Duration(i)*time.Minute))
		r.Tallies[0].WebhookID = name
		rows = append(rows, r)
	}
	for i := range 400 { // more than one column holds
		rows[0].Tallies = append(rows[0].Tallies, tables.Tally{Queue: "orders", WebhookID: fmt.Sprintf("wh_%x", i*i*i*7919), Held: int64(i * i * 31)})
	}
	mustPutRollups(t, s, rows...)
	wantRollups(t, s, tables.MinuteRollup, at, at.Add(time.Duration(len(rows))*time.Minute), rows...)
}
