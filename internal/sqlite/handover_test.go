package sqlite

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// sendLeased sends text under a lease of a minute, and returns the message if it was handed over.
func sendLeased(t *testing.T, db *DB, text string, opts queue.SendOptions) (handed *queue.Message) {
	t.Helper()
	sent, err := db.Queues().SendLeased(t.Context(), "orders", []byte(text), opts, func(sent queue.Sent) tables.Record {
		return published(sent, 1)
	}, time.Minute, func(m *queue.Message) { handed = m })
	if err != nil {
		t.Fatal(err)
	}
	if handed != nil && (handed.ID != sent.ID || !handed.InsertedAt.Equal(sent.InsertedAt) || !handed.ExpiresAt.Equal(sent.ExpiresAt)) {
		t.Errorf("handed over %+v, sent %+v", handed, sent)
	}
	return handed
}

func TestAMessageIsLeasedByTheCommitThatStoresIt(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var sends, others atomic.Int64
		db := openFile(t, filepath.Join(t.TempDir(), "test.db"), Options{
			OnTransaction: func(_, operation string, _ error) {
				if operation == "send" {
					sends.Add(1)
				} else {
					others.Add(1)
				}
			},
		})
		others.Store(0) // what the opening needs
		start := time.Now()
		m := sendLeased(t, db, "a", queue.SendOptions{TTL: time.Hour})
		if sends.Load() != 1 || others.Load() != 0 {
			t.Errorf("%d sends and %d others", sends.Load(), others.Load())
		}
		if m == nil || m.DequeueCount != 1 || string(m.Text) != "a" || m.Lease.Granted() != time.Minute || m.Lease.Until().Sub(start) != time.Minute {
			t.Fatalf("handed over %+v", m)
		}
		q := mustQueue(t, db)
		wantVisible(t, q, "while it is leased", 0)
		ds, err := db.Load(t.Context(), tables.MessageKey{Queue: "orders", MessageID: m.ID, Day: m.InsertedAt})
		if err != nil || len(ds) != 1 || ds[0].State != tables.Published {
			t.Errorf("records %v, %v", ds, err)
		}
		time.Sleep(50 * time.Second)
		if err := q.Renew(t.Context(), m, time.Minute); err != nil {
			t.Errorf("renew: %v", err)
		}
		time.Sleep(50 * time.Second)
		wantVisible(t, q, "after a renewal", 0)
		if err := q.Complete(t.Context(), m); err != nil {
			t.Errorf("complete: %v", err)
		}
		if d, err := q.Depth(t.Context()); err != nil || d.Total != 0 {
			t.Errorf("depth %+v, %v", d, err)
		}
	})
}

func TestAMessageWhoseHolderIsGoneComesBackWithItsLease(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		db := openNew(t)
		m := sendLeased(t, db, "a", queue.SendOptions{})
		time.Sleep(time.Minute)
		again := wantVisible(t, mustQueue(t, db), "when the lease has ended", 1)
		if len(again) == 1 && (again[0].ID != m.ID || again[0].DequeueCount != 2) {
			t.Errorf("received %+v", again[0])
		}
		if err := mustQueue(t, db).Complete(t.Context(), m); !errors.Is(err, queue.ErrLeaseLost) {
			t.Errorf("complete on the old lease: %v", err)
		}
	})
}

func TestNoMessageIsHandedOverBeforeItsTurn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		db := openNew(t)
		q := mustQueue(t, db)
		mustSend(t, q, "first", queue.SendOptions{})
		if m := sendLeased(t, db, "second", queue.SendOptions{}); m != nil {
			t.Error("handed over before one that is visible")
		}
		ms := wantVisible(t, q, "both", 2)
		if len(ms) == 2 && string(ms[0].Text) != "first" {
			t.Errorf("received %s first", ms[0].Text)
		}
		if m := sendLeased(t, db, "third", queue.SendOptions{}); m == nil {
			t.Error("what others have in work kept it waiting")
		}
		mustSend(t, q, "later", queue.SendOptions{Delay: time.Second})
		if m := sendLeased(t, db, "fourth", queue.SendOptions{}); m == nil {
			t.Error("what is delayed kept it waiting")
		}
		if m := sendLeased(t, db, "fifth", queue.SendOptions{Delay: time.Second}); m != nil {
			t.Error("handed over before its delay was over")
		}
		time.Sleep(time.Second)
		if m := sendLeased(t, db, "sixth", queue.SendOptions{}); m != nil {
			t.Error("handed over before one whose delay is over")
		}
	})
}

func TestWhatIsNotStoredIsNotHandedOver(t *testing.T) {
	db := openNew(t)
	never := func(m *queue.Message) { t.Errorf("handed over %s", m.Text) }
	record := func(sent queue.Sent) tables.Record { return published(sent, maxRecordRows+1) }
	if _, err := db.Queues().SendLeased(t.Context(), "orders", []byte("a"), queue.SendOptions{}, record, time.Minute, never); err == nil {
		t.Error("a record that is too large was taken")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := db.Queues().SendLeased(ended, "orders", []byte("a"), queue.SendOptions{}, record, time.Minute, never); !errors.Is(err, context.Canceled) {
		t.Errorf("after its context had ended: %v", err)
	}
	if _, err := db.Queues().SendLeased(t.Context(), "No Queue", []byte("a"), queue.SendOptions{}, record, time.Minute, never); err == nil {
		t.Error("a send to no queue succeeded")
	}
	if _, err := db.Queues().SendLeased(t.Context(), "orders", []byte("a"), queue.SendOptions{}, record, 0, never); err == nil {
		t.Error("a lease of no length was taken")
	}
}

// A caller that hangs up still learns whether the message was handed over.
func TestASendThatHasBegunIsWaitedFor(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		db := openNew(t)
		ctx, hangUp := context.WithCancel(t.Context())
		handed := false
		_, err := db.Queues().SendLeased(ctx, "orders", []byte("a"), queue.SendOptions{}, func(sent queue.Sent) tables.Record {
			hangUp()
			time.Sleep(2 * settleGrace)
			return published(sent, 1)
		}, time.Minute, func(*queue.Message) { handed = true })
		if err != nil || !handed {
			t.Errorf("handed over: %t, %v", handed, err)
		}
	})
}
