package sqlite

import (
	"errors"
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
	must(t, db.PutLeftQueue(t.Context(), tables.LeftQueue{Queue: "orders", At: time.Now()}))
	if all, _, err := db.ListWebhooks(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("%d webhooks, %v after the last one was deleted here", len(all), err)
	}
}
