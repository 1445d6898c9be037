package sqlite

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/queue/queuetest"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/tables/tablestest"
)

var (
	_ tables.Store  = (*DB)(nil)
	_ queue.Service = (*Queues)(nil)
)

// openFile opens path and closes it at the end of the test.
func openFile(t testing.TB, path string, opts Options) *DB {
	t.Helper()
	db, err := Open(t.Context(), path, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func openNew(t testing.TB) *DB {
	t.Helper()
	return openFile(t, filepath.Join(t.TempDir(), "test.db"), Options{})
}

func TestQueueContract(t *testing.T) {
	queuetest.Run(t, queuetest.Harness{
		Open:      func(t *testing.T) queue.Service { return openNew(t).Queues() },
		Advance:   time.Sleep,
		KeepsHeld: true,
		Bubble:    bubble.Test,
	})
}

func TestTablesContract(t *testing.T) {
	tablestest.Run(t, func(t *testing.T) tables.Store { return openNew(t) })
}
