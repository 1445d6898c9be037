package api

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/pushlease/pushlease/tables"
)

func TestInstancesAreToldOfAndWhichOfThemAreAlive(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Instance = "b" })
	now := time.Now().UTC().Truncate(time.Millisecond)
	for _, i := range []tables.Instance{
		{Name: "b", Version: "0.1.0", Mode: "serve", StartedAt: now, SeenAt: now.Add(-time.Minute), Ready: true, InFlight: 7, Leases: 8, Queues: 2, Polled: []string{"orders", "refunds"}, Lanes: 3, LaneStalls: 4,
			LastError: "receive failed", LastErrorAt: now, ClockAhead: time.Second},
		{Name: "a", Mode: "hosted", StartedAt: now.Add(-time.Hour), SeenAt: now.Add(-4 * time.Minute), Trouble: "storage"},
		{Name: "c", SeenAt: now.Add(2 * time.Hour)}, // killed, and its clock was ahead
		{Name: "d", SeenAt: now.Add(30 * time.Minute)},
	} {
		if err := h.db.PutInstance(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	data := h.do(http.StatusOK, "GET", "/api/v1/instances", "").get("data").([]any)
	if len(data) != 4 {
		t.Fatalf("%v", data)
	}
	a, b := data[0].(map[string]any), data[1].(map[string]any)
	if a["name"] != "a" || a["alive"] != false || a["this"] != false || a["ready"] != false || a["trouble"] != "storage" || a["mode"] != "hosted" {
		t.Errorf("%v", a)
	}
	if b["alive"] != true || b["this"] != true || b["ready"] != true || b["in_flight"] != 7.0 || b["queues"] != 2.0 || b["clock_ahead"] != "1s" {
		t.Errorf("%v", b)
	}
	if fmt.Sprintf("%v %v %v %v %v", b["polled"], b["leases"], b["lanes"], b["lane_stalls"], b["last_error"]) != "[orders refunds] 8 3 4 receive failed" || b["last_error_at"] == nil || a["last_error_at"] != nil || fmt.Sprint(a["polled"]) != "[]" {
		t.Errorf("%v, %v", a, b)
	}
	if c, d := data[2].(map[string]any), data[3].(map[string]any); c["alive"] != false || d["alive"] != true {
		t.Errorf("seen in two hours: %v, in half an hour: %v", c, d)
	}
	h.do(http.StatusBadRequest, "GET", "/api/v1/instances?limit=3", "")
}
