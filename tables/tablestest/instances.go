package tablestest

import (
	"testing"
	"time"

	"github.com/pushlease/pushlease/tables"
)

var instanceTests = []test{
	{"InstancesAreWrittenOverAscendingAndDropped", instanceList},
}

func instanceList(t *testing.T, s tables.Store) {
	wantInstances(t, s)
	if err := s.DropInstance(t.Context(), "none"); err != nil {
		t.Errorf("DropInstance of none = %v", err)
	}
	second := tables.Instance{Name: "b.1", Version: "0.1.0", Mode: "serve", StartedAt: day, SeenAt: day.Add(time.Minute), Ready: true, InFlight: 3, Leases: 5, Queues: 2, Polled: []string{"orders", "refunds"}, Lanes: 1, LaneStalls: 9,
		LastError: "receive failed", LastErrorAt: day, ClockAhead: -2 * time.Second}
	first := tables.Instance{Name: "a_2", Mode: "hosted", StartedAt: day, SeenAt: day, Trouble: "storage does not answer"}
	for _, i := range []tables.Instance{second, first, {Name: "c", StartedAt: day, SeenAt: day}} {
		if err := s.PutInstance(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	second.InFlight, second.SeenAt = 0, day.Add(2*time.Minute)
	if err := s.PutInstance(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	if err := s.DropInstance(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	wantInstances(t, s, first, second)
	if list, bad, err := s.ListWebhooks(t.Context()); err != nil || len(list)+len(bad) > 0 {
		t.Errorf("ListWebhooks = %v, %v, %v; want none", list, bad, err)
	}
}

func wantInstances(t *testing.T, s tables.Store, want ...tables.Instance) {
	t.Helper()
	got, err := s.ListInstances(t.Context())
	if err != nil {
		t.Fatalf("ListInstances: %v", err)
	}
	if d := diff(want, got); d != "" {
		t.Errorf("ListInstances (-want +got):\n%s", d)
	}
}
