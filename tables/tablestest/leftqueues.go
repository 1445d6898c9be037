package tablestest

import (
	"testing"
	"time"

	"github.com/pushlease/pushlease/tables"
)

var leftQueueTests = []test{
	{"NotesAreKeptAscendingAndTheLastOneOfAQueueCounts", leftQueueList},
	{"OnlyTheNoteThatWasSeenIsDropped", leftQueueDrop},
}

func wantLeftQueues(t *testing.T, s tables.Store, want ...tables.LeftQueue) {
	t.Helper()
	got, err := s.ListLeftQueues(t.Context())
	if err != nil {
		t.Fatalf("ListLeftQueues: %v", err)
	}
	if d := diff(want, got); d != "" {
		t.Errorf("ListLeftQueues (-want +got):\n%s", d)
	}
}

func mustPutLeftQueue(t *testing.T, s tables.Store, l tables.LeftQueue) {
	t.Helper()
	if err := s.PutLeftQueue(t.Context(), l); err != nil {
		t.Fatalf("PutLeftQueue(%q): %v", l.Queue, err)
	}
}

func leftQueueList(t *testing.T, s tables.Store) {
	wantLeftQueues(t, s)
	mustPutLeftQueue(t, s, tables.LeftQueue{Queue: "orders", At: day})
	mustPutLeftQueue(t, s, tables.LeftQueue{Queue: "a-b", At: day})
	mustPutLeftQueue(t, s, tables.LeftQueue{Queue: "orders", At: day.Add(time.Hour)})
	wantLeftQueues(t, s, tables.LeftQueue{Queue: "a-b", At: day}, tables.LeftQueue{Queue: "orders", At: day.Add(time.Hour)})
	if list, bad, err := s.ListWebhooks(t.Context()); err != nil || len(list)+len(bad) > 0 {
		t.Errorf("ListWebhooks = %v, %v, %v; want none", list, bad, err)
	}
}

func leftQueueDrop(t *testing.T, s tables.Store) {
	first, second := tables.LeftQueue{Queue: "orders", At: day}, tables.LeftQueue{Queue: "orders", At: day.Add(time.Millisecond)}
	drop := func(l tables.LeftQueue) {
		t.Helper()
		if err := s.DropLeftQueue(t.Context(), l); err != nil {
			t.Errorf("DropLeftQueue: %v", err)
		}
	}
	drop(first) // none is there, not even a table
	mustPutLeftQueue(t, s, first)
	mustPutLeftQueue(t, s, second)
	drop(first)
	wantLeftQueues(t, s, second)
	drop(second)
	wantLeftQueues(t, s)
	drop(second)
}
