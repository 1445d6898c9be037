package tablestest

import (
	"errors"
	"testing"
	"time"

	"github.com/pushlease/pushlease/tables"
)

var jobTests = []test{
	{"JobsAreKeptAscendingAndDropped", jobList},
	{"AJobIsChangedByWhoSawItLast", jobChange},
}

func mustPutJob(t *testing.T, s tables.Store, j tables.Job) tables.Job {
	t.Helper()
	put, err := s.PutJob(t.Context(), j)
	if err != nil {
		t.Fatalf("PutJob(%q): %v", j.ID, err)
	}
	return put
}

func wantJobs(t *testing.T, s tables.Store, want ...tables.Job) {
	t.Helper()
	got, err := s.ListJobs(t.Context())
	if err != nil {
		t.Fatalf("ListJobs: %v", err)
	}
	if d := diff(want, got); d != "" {
		t.Errorf("ListJobs (-want +got):\n%s", d)
	}
}

func jobList(t *testing.T, s tables.Store) {
	wantJobs(t, s)
	if err := s.DropJob(t.Context(), "none"); err != nil {
		t.Errorf("DropJob of none = %v", err)
	}
	second := mustPutJob(t, s, tables.Job{ID: "b", Instance: "one", HeardAt: day, State: []byte(`{"n":1}`)})
	first := mustPutJob(t, s, tables.Job{ID: "a", HeardAt: day.Add(time.Hour), CancelAsked: true, State: []byte(`{}`)})
	wantJobs(t, s, first, second)
	if list, bad, err := s.ListWebhooks(t.Context()); err != nil || len(list)+len(bad) > 0 {
		t.Errorf("ListWebhooks = %v, %v, %v; want none", list, bad, err)
	}
	if err := s.DropJob(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	wantJobs(t, s, second)
}

func jobChange(t *testing.T, s tables.Store) {
	old := mustPutJob(t, s, tables.Job{ID: "a", Instance: "one", HeardAt: day, State: []byte(`{}`)})
	if _, err := s.PutJob(t.Context(), tables.Job{ID: "a", State: []byte(`{}`)}); !errors.Is(err, tables.ErrExists) {
		t.Errorf("a second insert = %v, want ErrExists", err)
	}
	next := old
	next.Instance, next.State = "two", []byte(`{"n":2}`)
	next = mustPutJob(t, s, next)
	if _, err := s.PutJob(t.Context(), old); !errors.Is(err, tables.ErrConflict) {
		t.Errorf("a change of what was changed = %v, want ErrConflict", err)
	}
	wantJobs(t, s, next)
	if err := s.DropJob(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if _, err := s.PutJob(t.Context(), next); !errors.Is(err, tables.ErrNotFound) {
		t.Errorf("a change of what is gone = %v, want ErrNotFound", err)
	}
}
