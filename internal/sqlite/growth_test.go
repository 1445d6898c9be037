package sqlite

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// pages says how many pages the file has, and how many of them are free.
func pages(t *testing.T, db *DB) (all, free int64) {
	t.Helper()
	err := db.writer.do(t.Context(), "", false, func(tx *tx) error {
		if err := tx.row("PRAGMA page_count", nil, &all); err != nil {
			return err
		}
		return tx.row("PRAGMA freelist_count", nil, &free)
	})
	if err != nil {
		t.Fatal(err)
	}
	return all, free
}

// deliverDay sends, delivers and records n messages.
func deliverDay(t *testing.T, db *DB, n int) {
	t.Helper()
	q := mustQueue(t, db)
	for i := range n {
		mustSend(t, q, fmt.Sprint(i), queue.SendOptions{})
	}
	for done := 0; done < n; {
		for _, m := range receiveAll(t, q) {
			key := messageKeyOf(q, m)
			err := db.Record(t.Context(), tables.Record{
				Deliveries: []tables.Delivery{{MessageKey: key, WebhookID: "w", State: tables.Delivered, UpdatedAt: time.Now()}},
				Attempts:   []tables.Attempt{{MessageKey: key, WebhookID: "w", Number: 1, StartedAt: time.Now(), Status: 200}},
			})
			if err == nil {
				err = q.Complete(t.Context(), m)
			}
			if err != nil {
				t.Fatal(err)
			}
			done++
		}
	}
}

// The file is as large as its retention asks for: pages of days that have expired are used
// again, and it never grows with the days.
func TestFileStopsGrowingAtItsRetention(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const retention, perDay = 3, 150
		path := filepath.Join(t.TempDir(), "test.db")
		db := openFile(t, path, Options{})
		var settled int64
		for day := range 12 {
			deliverDay(t, db, perDay)
			time.Sleep(24 * time.Hour)
			if _, err := db.Expire(t.Context(), time.Now().AddDate(0, 0, -retention)); err != nil {
				t.Fatal(err)
			}
			all, free := pages(t, db)
			if day == retention+1 {
				settled = all
			}
			if day > retention+1 && all > settled+settled/10 {
				t.Fatalf("day %d: %d pages, of which %d are free; %d were enough on day %d", day, all, free, settled, retention+1)
			}
		}
		info, err := os.Stat(path + "-wal")
		if err != nil || info.Size() > 64<<20 {
			t.Errorf("the journal has %d bytes, %v", info.Size(), err)
		}
	})
}
