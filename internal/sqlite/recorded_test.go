package sqlite

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

func published(sent queue.Sent, rows int) tables.Record {
	d := tables.Delivery{MessageKey: tables.MessageKey{Queue: "orders", MessageID: sent.ID, Day: sent.InsertedAt}, State: tables.Published}
	r := tables.Record{}
	for range rows {
		r.Deliveries = append(r.Deliveries, d)
	}
	return r
}

func TestSendRecordedIsOneTransaction(t *testing.T) {
	var operations []string
	db := openFile(t, filepath.Join(t.TempDir(), "test.db"), Options{
		OnTransaction: func(service, operation string, _ error) { operations = append(operations, service+" "+operation) },
	})
	operations = nil
	sent, err := db.Queues().SendRecorded(t.Context(), "orders", []byte("a"), queue.SendOptions{TTL: time.Hour}, func(sent queue.Sent) tables.Record {
		return published(sent, 1)
	})
	if err != nil || len(operations) != 1 || operations[0] != "queue send" {
		t.Fatalf("%v, operations %v", err, operations)
	}
	ds, err := db.Load(t.Context(), tables.MessageKey{Queue: "orders", MessageID: sent.ID, Day: sent.InsertedAt})
	if err != nil || len(ds) != 1 || ds[0].State != tables.Published {
		t.Errorf("records %v, %v", ds, err)
	}
	if ms := wantVisible(t, mustQueue(t, db), "afterwards", 1); len(ms) == 1 && ms[0].ID != sent.ID {
		t.Errorf("received %s, sent %s", ms[0].ID, sent.ID)
	}
}

func TestSendRecordedIsBothOrNeither(t *testing.T) {
	db := openNew(t)
	_, err := db.Queues().SendRecorded(t.Context(), "orders", []byte("a"), queue.SendOptions{}, func(sent queue.Sent) tables.Record {
		return published(sent, maxRecordRows+1)
	})
	if err == nil {
		t.Fatal("a record that is too large was taken")
	}
	mustSend(t, mustQueue(t, db), "b", queue.SendOptions{})
	if ms := wantVisible(t, mustQueue(t, db), "after one that failed", 1); len(ms) == 1 && string(ms[0].Text) != "b" {
		t.Errorf("received %s", ms[0].Text)
	}
	for name, text := range map[string]string{"No Queue": "a", "orders": strings.Repeat("x", queue.MaxTextBytes+1)} {
		if _, err := db.Queues().SendRecorded(t.Context(), name, []byte(text), queue.SendOptions{}, nil); err == nil {
			t.Errorf("a send of %d bytes to %q succeeded", len(text), name)
		}
	}
}

// delivered is the record of a message that its webhook has taken.
func delivered(q queue.Queue, m *queue.Message) tables.Record {
	key := messageKeyOf(q, m)
	return tables.Record{
		Deliveries: []tables.Delivery{{MessageKey: key, WebhookID: "w", State: tables.Delivered, Attempts: 1}},
		Attempts:   []tables.Attempt{{MessageKey: key, WebhookID: "w", Number: 1, Status: 200}},
	}
}

// wantRecorded wants a message's delivery and its attempt, or neither.
func wantRecorded(t *testing.T, db *DB, m *queue.Message, want int) {
	t.Helper()
	ds, as, err := db.Message(t.Context(), "orders", m.ID)
	if err != nil && !errors.Is(err, tables.ErrNotFound) {
		t.Fatal(err)
	}
	if len(ds) != want || len(as) != want {
		t.Errorf("%d deliveries and %d attempts are recorded, want %d", len(ds), len(as), want)
	}
}

func wantTotal(t *testing.T, q queue.Queue, want int64) {
	t.Helper()
	if depth, err := q.Depth(t.Context()); err != nil || depth.Total != want {
		t.Errorf("%d messages are left, %v; want %d", depth.Total, err, want)
	}
}

func TestCompleteRecordedIsOneTransaction(t *testing.T) {
	var operations []string
	db := openFile(t, filepath.Join(t.TempDir(), "test.db"), Options{
		OnTransaction: func(service, operation string, _ error) { operations = append(operations, service+" "+operation) },
	})
	q := mustQueue(t, db)
	mustSend(t, q, "a", queue.SendOptions{})
	m := wantVisible(t, q, "at first", 1)[0]
	operations = nil
	if err := db.Queues().CompleteRecorded(t.Context(), "orders", m, delivered(q, m)); err != nil {
		t.Fatal(err)
	}
	if len(operations) != 1 || operations[0] != "queue complete" {
		t.Errorf("operations %v, want one", operations)
	}
	wantRecorded(t, db, m, 1)
	wantTotal(t, q, 0)
	// As after an answer that was lost: it may be done again.
	err := db.Queues().CompleteRecorded(t.Context(), "orders", m, delivered(q, m))
	if !errors.Is(err, queue.ErrLeaseLost) {
		t.Errorf("a second time = %v, want ErrLeaseLost", err)
	}
	wantRecorded(t, db, m, 1)
}

func TestCompleteRecordedIsBothOrNeither(t *testing.T) {
	refuse := func(on string) func(*DB) error {
		return func(db *DB) error {
			return db.writer.conn.script("CREATE TEMP TRIGGER refuse BEFORE " + on + " BEGIN SELECT RAISE(ABORT, 'refused'); END")
		}
	}
	for name, prepare := range map[string]func(*DB) error{
		"the attempt is refused":  refuse("INSERT ON main.attempts"),
		"the delivery is refused": refuse("INSERT ON main.deliveries"),
		"the delete is refused":   refuse("DELETE ON main.messages"),
	} {
		t.Run(name, func(t *testing.T) {
			db := openNew(t)
			q := mustQueue(t, db)
			mustSend(t, q, "a", queue.SendOptions{})
			m := wantVisible(t, q, "at first", 1)[0]
			if err := db.writer.do(t.Context(), "", false, func(*tx) error { return prepare(db) }); err != nil {
				t.Fatal(err)
			}
			err := db.Queues().CompleteRecorded(t.Context(), "orders", m, delivered(q, m))
			if err == nil || errors.Is(err, queue.ErrLeaseLost) || !queue.Ambiguous(err) {
				t.Errorf("CompleteRecorded = %v, want an error that promises nothing", err)
			}
			wantRecorded(t, db, m, 0)
			wantTotal(t, q, 1)
			err = db.writer.do(t.Context(), "", false, func(tx *tx) error { return tx.w.conn.script("DROP TRIGGER refuse") })
			if err != nil {
				t.Fatal(err)
			}
			if err := db.Queues().CompleteRecorded(t.Context(), "orders", m, delivered(q, m)); err != nil {
				t.Errorf("tried again: %v", err)
			}
			wantRecorded(t, db, m, 1)
			wantTotal(t, q, 0)
		})
	}
	t.Run("the record is too large, or its caller has gone", func(t *testing.T) {
		db := openNew(t)
		q := mustQueue(t, db)
		mustSend(t, q, "a", queue.SendOptions{})
		m := wantVisible(t, q, "at first", 1)[0]
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		errs := []error{
			db.Queues().CompleteRecorded(t.Context(), "orders", m, published(queue.Sent{ID: m.ID}, maxRecordRows+1)),
			db.Queues().CompleteRecorded(gone, "orders", m, delivered(q, m)),
		}
		for _, err := range errs {
			if err == nil {
				t.Error("CompleteRecorded succeeded")
			}
		}
		wantRecorded(t, db, m, 0)
		wantTotal(t, q, 1)
	})
}

func TestRecordDoesNotDependOnTheLease(t *testing.T) {
	t.Run("the message has a new holder", func(t *testing.T) {
		bubble.Test(t, func(t *testing.T) {
			db := openNew(t)
			q := mustQueue(t, db)
			mustSend(t, q, "a", queue.SendOptions{})
			old := receiveAll(t, q)[0]
			time.Sleep(11 * time.Minute)
			newest := wantVisible(t, q, "when the lease is over", 1)[0]
			if err := db.Queues().CompleteRecorded(t.Context(), "orders", old, delivered(q, old)); !errors.Is(err, queue.ErrLeaseLost) {
				t.Errorf("CompleteRecorded = %v, want ErrLeaseLost", err)
			}
			wantRecorded(t, db, old, 1)
			wantTotal(t, q, 1)
			held := 0
			err := db.writer.do(t.Context(), "", false, func(*tx) error { held = len(db.clock.held); return nil })
			if err != nil || held != 1 {
				t.Errorf("%d leases are kept by the clock, %v; want that of the new holder", held, err)
			}
			if err := q.Renew(t.Context(), newest, time.Minute); err != nil {
				t.Errorf("the new holder's Renew = %v", err)
			}
		})
	})
	t.Run("the receipt is no receipt", func(t *testing.T) {
		db := openNew(t)
		q := mustQueue(t, db)
		mustSend(t, q, "a", queue.SendOptions{})
		m := wantVisible(t, q, "at first", 1)[0]
		m.Lease = queue.NewLease("of another store", time.Now(), time.Minute)
		if err := db.Queues().CompleteRecorded(t.Context(), "orders", m, delivered(q, m)); !errors.Is(err, queue.ErrLeaseLost) {
			t.Errorf("CompleteRecorded = %v, want ErrLeaseLost", err)
		}
		wantRecorded(t, db, m, 1)
		wantTotal(t, q, 1)
	})
	t.Run("the queue is not there", func(t *testing.T) {
		db := openNew(t)
		q := mustQueue(t, db)
		m := &queue.Message{ID: "m", InsertedAt: time.Now(), Lease: queue.NewLease("1.0", time.Now(), time.Minute)}
		if err := db.Queues().CompleteRecorded(t.Context(), "orders", m, delivered(q, m)); !errors.Is(err, queue.ErrQueueNotFound) {
			t.Errorf("CompleteRecorded = %v, want ErrQueueNotFound", err)
		}
		wantRecorded(t, db, m, 1)
	})
}

// A batch is run again when a neighbour fails half-way.
func TestCompleteRecordedBesideABadOperation(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		db := openNew(t)
		q := mustQueue(t, db)
		mustSend(t, q, "a", queue.SendOptions{})
		mustSend(t, q, "b", queue.SendOptions{})
		ms := receiveAll(t, q)
		gone := *ms[1]
		gone.Lease = queue.NewLease("1.0", time.Now(), time.Minute)
		release := block(db)
		var wg sync.WaitGroup
		for m, want := range map[*queue.Message]error{ms[0]: nil, &gone: queue.ErrLeaseLost} {
			wg.Go(func() {
				if err := db.Queues().CompleteRecorded(t.Context(), "orders", m, delivered(q, m)); !errors.Is(err, want) {
					t.Errorf("CompleteRecorded = %v, want %v", err, want)
				}
			})
			synctest.Wait()
		}
		errBad := errors.New("bad")
		wg.Go(func() {
			err := db.writer.do(t.Context(), "", false, func(tx *tx) error { return errors.Join(addQueue("bad")(tx), errBad) })
			if !errors.Is(err, errBad) {
				t.Errorf("the bad one = %v", err)
			}
		})
		synctest.Wait()
		release()
		wg.Wait()
		wantRecorded(t, db, ms[0], 1)
		wantRecorded(t, db, ms[1], 1)
		wantTotal(t, q, 1)
	})
}
