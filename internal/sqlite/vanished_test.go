package sqlite

import (
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/pushlease/pushlease/tables"
)

// C85: rows that another program deletes are not read as "nobody is registered".
func TestRegistrationsThatAnotherProgramDeletesAreMissed(t *testing.T) {
	db := openNew(t)
	register(t, db, "a", "b")
	if all, _, err := db.ListWebhooks(t.Context()); err != nil || len(all) != 2 {
		t.Fatalf("%d webhooks, %v", len(all), err)
	}
	other(t, db.path, "DELETE FROM webhooks")
	if _, _, err := db.ListWebhooks(t.Context()); !errors.Is(err, tables.ErrVanished) {
		t.Errorf("ListWebhooks = %v, want ErrVanished", err)
	}
	register(t, db, "a")
	must(t, db.DeleteWebhook(t.Context(), "a", ""))
	if all, _, err := db.ListWebhooks(t.Context()); !errors.Is(err, tables.ErrVanished) {
		t.Errorf("%d webhooks, %v: b is missed still", len(all), err)
	}
	second := openFile(t, db.path, Options{})
	if err := second.DeleteWebhook(t.Context(), "b", ""); !errors.Is(err, tables.ErrNotFound) {
		t.Errorf("DeleteWebhook of one that is gone = %v", err)
	}
	if all, _, err := db.ListWebhooks(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("%d webhooks, %v after another process has deleted the last one", len(all), err)
	}
}

// C85: several that another process deletes, at once and long before this one looks, are not missed, and a
// deletion releases no other webhook of its queue.
func TestADeletionByAnotherProcessLeavesATraceOfEachWebhook(t *testing.T) {
	db := openNew(t)
	second := openFile(t, db.path, Options{})
	register(t, db, "a", "b", "c", "d", "e")
	missed := func() (ids []string) {
		t.Helper()
		_, bad, err := db.ListWebhooks(t.Context())
		must(t, err)
		for _, e := range bad {
			ids = append(ids, e.ID)
		}
		return ids
	}
	missed()
	must(t, second.DeleteWebhook(t.Context(), "a", ""))
	must(t, second.DeleteWebhook(t.Context(), "b", ""))
	if ids := missed(); ids != nil {
		t.Errorf("missed are %v, which were deleted", ids)
	}
	other(t, db.path, "DELETE FROM webhooks WHERE id IN ('c', 'd')")
	if ids := missed(); !slices.Equal(ids, []string{"c", "d"}) {
		t.Errorf("missed are %v, want c and d", ids)
	}
	must(t, second.DeleteWebhook(t.Context(), "e", "")) // the last one that is there
	if ids := missed(); !slices.Equal(ids, []string{"c", "d"}) {
		t.Errorf("missed are %v, want c and d, and not what was deleted", ids)
	}
	_ = second.DeleteWebhook(t.Context(), "c", "")
	if ids := missed(); !slices.Equal(ids, []string{"d"}) {
		t.Errorf("missed are %v, want d", ids)
	}
}

// C86: a job and an instance whose rows another program has changed are there all the same.
func TestJobsAndInstancesThatAnotherProgramHasChangedAreListed(t *testing.T) {
	db := openNew(t)
	stored, err := db.PutJob(t.Context(), tables.Job{ID: "a", State: []byte("{}")})
	must(t, err)
	must(t, db.PutInstance(t.Context(), tables.Instance{Name: "one", Ready: true, SeenAt: time.Now()}))
	for _, text := range []string{"{", "{}"} {
		other(t, db.path, "UPDATE jobs SET job = '"+text+"'; UPDATE instances SET instance = '"+text+"'")
		jobs, err := db.ListJobs(t.Context())
		if err != nil || len(jobs) != 1 || jobs[0].ID != "a" || jobs[0].ETag != stored.ETag || !errors.Is(jobs[0].Damaged, tables.ErrDamaged) {
			t.Errorf("ListJobs = %+v, %v", jobs, err)
		}
		instances, err := db.ListInstances(t.Context())
		if err != nil || len(instances) != 1 || !reflect.DeepEqual(instances[0], tables.DamagedInstance("one")) {
			t.Errorf("ListInstances = %+v, %v", instances, err)
		}
	}
}

// C85: a table that was emptied while no process ran is no "nobody is registered": webhooks were met.
func TestRegistrationsThatWereGoneBeforeTheStartAreMissed(t *testing.T) {
	db := openNew(t)
	register(t, db, "a", "b")
	must(t, db.PutHealth(t.Context(), tables.Health{WebhookID: "a", Instance: "i", UpdatedAt: time.Now()}, tables.Health{WebhookID: "b", Instance: "i", UpdatedAt: time.Now()}))
	must(t, db.DeleteWebhook(t.Context(), "a", "")) // its health is written once more by an instance that does not know
	must(t, db.Close())
	other(t, db.path, "DELETE FROM webhooks")
	db = openFile(t, db.path, Options{})
	var gone *tables.VanishedError
	if _, _, err := db.ListWebhooks(t.Context()); !errors.As(err, &gone) || len(gone.Missed) != 1 || gone.Missed[0].ID != "b" {
		t.Fatalf("ListWebhooks = %v, want b missed", err)
	}
	_ = db.DeleteWebhook(t.Context(), "b", "")
	if _, _, err := db.ListWebhooks(t.Context()); err != nil {
		t.Errorf("ListWebhooks = %v when it is to be gone", err)
	}
	must(t, db.Close())
	db = openFile(t, db.path, Options{})
	if _, _, err := db.ListWebhooks(t.Context()); err != nil {
		t.Errorf("ListWebhooks = %v after the next start", err)
	}
	if n, err := db.ExpireHealth(t.Context(), time.Now().Add(tables.TraceOutlives).Add(time.Hour)); err != nil || n != 2 {
		t.Errorf("ExpireHealth = %d, %v", n, err)
	}
	if traces, err := db.deletedWebhooks(t.Context()); err != nil || len(traces) > 0 {
		t.Errorf("traces that stay: %v, %v", traces, err)
	}
}
