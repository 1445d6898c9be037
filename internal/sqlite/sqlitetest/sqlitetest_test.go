package sqlitetest_test

import (
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/sqlite"
	"github.com/pushlease/pushlease/internal/sqlite/sqlitetest"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

// Two that open one file see what the other has written, by an index of the journal that is not in a file.
func TestAFileOfTestsIsSharedWithinTheProcessAlone(t *testing.T) {
	path := sqlitetest.File(t)
	var both [2]*sqlite.DB
	for i := range both {
		db, err := sqlite.Open(t.Context(), path, sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
		both[i] = db
	}
	for i, id := range []string{"wh_a", "wh_b"} {
		registered := tables.Registration{
			Webhook: webhook.Webhook{ID: id, Queue: "orders", URL: "https://example.com/"}, CreatedAt: time.Now(), UpdatedAt: time.Now(),
		}
		if _, err := both[i].PutWebhook(t.Context(), registered); err != nil {
			t.Fatal(err)
		}
		if _, err := both[1-i].GetWebhook(t.Context(), id); err != nil {
			t.Errorf("the other reads %s: %v", id, err)
		}
	}
	index, err := os.Stat(path + "-shm")
	if err != nil {
		t.Fatal(err)
	}
	if index.Size() > 0 && runtime.GOOS != "windows" {
		t.Errorf("the index of the journal is in a file of %d bytes, which is locked by the system", index.Size())
	}
}
