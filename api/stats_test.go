package api

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

// rollupOf is a rollup of an instance with one webhook's attempts.
func rollupOf(instance string, length time.Duration, at time.Time, queueName, webhookID string, ok, failed int64) tables.Rollup {
	t := tables.Tally{Queue: queueName, WebhookID: webhookID, Attempts: map[string]int64{}, Delivered: ok}
	for outcome, n := range map[string]int64{"2xx": ok, "timeout": failed} {
		if n > 0 {
			t.Attempts[outcome] = n
		}
	}
	for range ok {
		t.Took.Add(100 * time.Millisecond)
		t.Delay.Add(time.Second)
	}
	return tables.Rollup{Length: length, At: at, Instance: instance, StartedAt: at, Tallies: []tables.Tally{t}}
}

func (h *harness) putRollups(rows ...tables.Rollup) {
	h.Helper()
	if err := h.db.PutRollups(h.Context(), rows...); err != nil {
		h.Fatal(err)
	}
}

func at(t time.Time) string { return url.QueryEscape(t.Format(time.RFC3339)) }

func TestTheHistoryAddsUpAllInstancesStepByStep(t *testing.T) {
	h := newHarness(t)
	from := time.Now().UTC().Truncate(15 * time.Minute).Add(-time.Hour)
	other := rollupOf("b", tables.MinuteRollup, from, "orders", "wh_1", 1, 4)
	other.Tallies = append(other.Tallies, tables.Tally{Queue: "orders", WebhookID: "wh_2", Held: 7}, tables.Tally{Queue: "invoices", DeadLetters: 2})
	h.putRollups(rollupOf("a", tables.MinuteRollup, from, "orders", "wh_1", 10, 0), other, rollupOf("a", tables.MinuteRollup, from.Add(6*time.Minute), "orders", "wh_1", 5, 0))

	a := h.do(http.StatusOK, "GET", "/api/v1/stats?step=5m&from="+at(from.Add(2*time.Minute)), "")
	if a.text("from") != from.Format(time.RFC3339) || a.text("step") != "5m" {
		t.Errorf("from %s by %s, want %s by 5m", a.text("from"), a.text("step"), from.Format(time.RFC3339))
	}
	if points := a.get("groups", 0, "points").([]any); len(points) != 2 {
		t.Fatalf("%d points, want the two with something in them", len(points))
	}
	for i, want := range []map[string]any{
		{"delivered": 11.0, "held": 7.0, "dead_letters": 2.0, "2xx": 11.0, "timeout": 4.0},
		{"delivered": 5.0, "held": 0.0, "dead_letters": 0.0, "2xx": 5.0, "timeout": nil},
	} {
		for field, n := range want {
			path := []any{"groups", 0, "points", i, field}
			if field == "2xx" || field == "timeout" {
				path = []any{"groups", 0, "points", i, "attempts", field}
			}
			if got := a.get(path...); got != n {
				t.Errorf("point %d has %v of %s, want %v", i, got, field, n)
			}
		}
	}
	if got := a.get("groups", 0, "total", "delivered"); got != 16.0 {
		t.Errorf("delivered in all = %v, want 16", got)
	}
	for path, want := range map[string]time.Duration{"took": 100 * time.Millisecond, "delay": time.Second} {
		got, err := time.ParseDuration(a.text("groups", 0, "total", path, "p95"))
		if err != nil || got < want*9/10 || got > want*11/10 {
			t.Errorf("p95 of %s = %s, want %s to within a tenth", path, got, want)
		}
	}
}

func TestTheHistoryIsGroupedAndFiltered(t *testing.T) {
	h := newHarness(t)
	now := time.Now().UTC().Truncate(time.Minute).Add(-2 * time.Minute)
	r := rollupOf("a", tables.MinuteRollup, now, "orders", "wh_1", 3, 1)
	r.Tallies = append(r.Tallies, tables.Tally{Queue: "orders", WebhookID: "wh_2", Attempts: map[string]int64{"5xx": 9}}, tables.Tally{Queue: "invoices", WebhookID: "wh_3", Attempts: map[string]int64{"2xx": 2}})
	h.putRollups(r)
	for _, tt := range []struct {
		query string
		want  map[string]float64 // attempts by key of the group
	}{
		{"", map[string]float64{"": 15}},
		{"?group_by=queue", map[string]float64{"orders": 13, "invoices": 2}},
		{"?group_by=webhook", map[string]float64{"wh_1": 4, "wh_2": 9, "wh_3": 2}},
		{"?group_by=webhook&queue=orders", map[string]float64{"wh_1": 4, "wh_2": 9}},
		{"?group_by=outcome", map[string]float64{"2xx": 5, "5xx": 9, "timeout": 1}},
		{"?group_by=status_class", map[string]float64{"2xx": 5, "5xx": 9, "none": 1}},
		{"?webhook=wh_2", map[string]float64{"": 9}},
		{"?webhook=wh_none", map[string]float64{}},
		{"?until=" + at(now), map[string]float64{}},
	} {
		got := map[string]float64{}
		last := -1.0
		for _, g := range h.do(http.StatusOK, "GET", "/api/v1/stats"+tt.query, "").get("groups").([]any) {
			g := g.(map[string]any)
			var n float64
			for _, of := range g["total"].(map[string]any)["attempts"].(map[string]any) {
				n += of.(float64)
			}
			if got[g["key"].(string)] = n; last >= 0 && n > last {
				t.Errorf("%s: a group with %v attempts comes after one with %v", tt.query, n, last)
			}
			last = n
		}
		if fmt.Sprint(got) != fmt.Sprint(tt.want) {
			t.Errorf("%s: %v, want %v", tt.query, got, tt.want)
		}
	}
}

// Several instances count the same queue: what they saw is one number, and several queues are many.
func TestDepthsOfOneQueueAreNotAddedUpAndThoseOfManyAre(t *testing.T) {
	h := newHarness(t)
	now := time.Now().UTC().Truncate(time.Hour)
	depth := func(instance string, visible, other int64) tables.Rollup {
		return tables.Rollup{Length: tables.HourRollup, At: now, Instance: instance, Tallies: []tables.Tally{
			{Queue: "orders", Depth: &tables.Depth{Visible: visible, Hidden: 1, Oldest: time.Duration(visible) * time.Second}}, {Queue: "invoices", Depth: &tables.Depth{Visible: other}},
		}}
	}
	h.putRollups(depth("a", 40, 5), depth("b", 42, 5))
	all := h.do(http.StatusOK, "GET", "/api/v1/stats?step=1h", "")
	if got := all.get("groups", 0, "points", 0, "depth", "visible"); got != 47.0 {
		t.Errorf("on all queues %v, want 47", got)
	}
	one := h.do(http.StatusOK, "GET", "/api/v1/stats?step=1h&group_by=queue&queue=orders", "")
	if visible, oldest := one.get("groups", 0, "points", 0, "depth", "visible"), one.text("groups", 0, "points", 0, "depth", "oldest"); visible != 42.0 || oldest != "42s" {
		t.Errorf("on orders %v, the oldest %s; want 42 and 42s", visible, oldest)
	}
	if groups := h.do(http.StatusOK, "GET", "/api/v1/stats?step=1h&group_by=webhook", "").get("groups").([]any); len(groups) != 0 {
		t.Errorf("by webhook: %v, want none: a queue's depth is no webhook's", groups)
	}
}

func TestTheStepFitsTheTimeThatIsAskedFor(t *testing.T) {
	h := newHarness(t)
	now := time.Now()
	for _, tt := range []struct {
		ago  time.Duration
		want string
	}{
		{15 * time.Minute, "1m"}, {3 * time.Hour, "1m"}, {6 * time.Hour, "5m"}, {24 * time.Hour, "15m"}, {48 * time.Hour, "15m"}, {7 * 24 * time.Hour, "1h"},
		{30 * 24 * time.Hour, "6h"}, {90 * 24 * time.Hour, "24h"},
	} {
		if got := h.do(http.StatusOK, "GET", "/api/v1/stats?from="+at(now.Add(-tt.ago)), "").text("step"); got != tt.want {
			t.Errorf("%s makes steps of %s, want %s", tt.ago, got, tt.want)
		}
	}
	old := h.do(http.StatusOK, "GET", "/api/v1/stats?from="+at(now.Add(-72*time.Hour))+"&until="+at(now.Add(-71*time.Hour)), "")
	if got := old.text("step"); got != "1h" {
		t.Errorf("an hour of three days ago is shown by %s, want by what is still kept", got)
	}
	// What is no longer kept is no time in which nothing happened.
	h.do(http.StatusBadRequest, "GET", "/api/v1/stats?step=1m&from="+at(now.Add(-72*time.Hour))+"&until="+at(now.Add(-71*time.Hour)), "").wantProblem("step")
	h.do(http.StatusBadRequest, "GET", "/api/v1/stats?step=1m&from="+at(now.Add(-48*time.Hour-50*time.Minute))+"&until="+at(now.Add(-47*time.Hour)), "").wantProblem("step")
	for _, tt := range []struct{ from, until time.Duration }{{48*time.Hour + 50*time.Minute, 47 * time.Hour}, {48*time.Hour + 10*time.Minute, 48*time.Hour + 5*time.Minute}} {
		if got := h.do(http.StatusOK, "GET", "/api/v1/stats?from="+at(now.Add(-tt.from))+"&until="+at(now.Add(-tt.until)), "").text("step"); got != "1h" {
			t.Errorf("from %s to %s ago is shown by %s, and the minutes of then are gone", tt.from, tt.until, got)
		}
	}
	h.do(http.StatusBadRequest, "GET", "/api/v1/stats?from="+at(now.Add(-100*24*time.Hour))+"&until="+at(now.Add(-95*24*time.Hour)), "").wantProblem("until")
	clamped, err := time.Parse(time.RFC3339, h.do(http.StatusOK, "GET", "/api/v1/stats?step=24h&from="+at(now.Add(-100*24*time.Hour)), "").text("from"))
	if age := now.Sub(clamped); err != nil || age > 91*24*time.Hour || age < 90*24*time.Hour {
		t.Errorf("from %s, %v; want the 90 days that are kept", clamped, err)
	}
	h.do(http.StatusBadRequest, "GET", "/api/v1/stats?from="+at(now.Add(25*time.Hour)), "").wantProblem("from")
	for _, bad := range []string{"?step=2m", "?group_by=reason", "?from=yesterday", "?limit=3", "?until=" + at(now.Add(-2*time.Hour)) + "&from=" + at(now), "?step=1m&from=" + at(now.Add(-48*time.Hour))} {
		h.do(http.StatusBadRequest, "GET", "/api/v1/stats"+bad, "")
	}
}

// The largest groups are shown, and it is said how many are not.
func TestTheHistoryOfManyWebhooksIsBounded(t *testing.T) {
	h := newHarness(t)
	r := tables.Rollup{Length: tables.MinuteRollup, At: time.Now().UTC().Truncate(time.Minute), Instance: "a"}
	for i := range 130 {
		r.Tallies = append(r.Tallies, tables.Tally{Queue: "orders", WebhookID: fmt.Sprintf("wh_%d", i), Attempts: map[string]int64{"2xx": int64(i + 1)}, Took: policy.Spread{3: int64(i + 1)}})
	}
	h.putRollups(r)
	a := h.do(http.StatusOK, "GET", "/api/v1/stats?group_by=webhook", "")
	if n := len(a.get("groups").([]any)); n != 100 || a.get("others") != 30.0 || a.text("groups", 0, "key") != "wh_129" {
		t.Errorf("%d groups, %v others, the first %s; want 100, 30 and wh_129", n, a.get("others"), a.text("groups", 0, "key"))
	}
}
