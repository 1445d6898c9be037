package sqlite

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// A process that is older than the file's schema takes on nothing more: it does not know all records.
// What it has in hand is recorded and settled.
func TestAFileThatANewerVersionHasOpenedIsNotReceivedFrom(t *testing.T) {
	db := openNew(t)
	q := mustQueue(t, db)
	for range 2 {
		if _, err := q.Send(t.Context(), []byte("x"), queue.SendOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	inHand, err := q.Receive(t.Context(), 1, time.Minute)
	if err != nil || len(inHand) != 1 {
		t.Fatal(inHand, err)
	}
	err = db.write(t.Context(), "queue", "test", func(tx *tx) error {
		return tx.w.conn.script("PRAGMA user_version = 1000")
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.Receive(t.Context(), 1, time.Minute); err == nil || !strings.Contains(err.Error(), "restart this process") {
		t.Errorf("receiving: %v", err)
	}
	k := tables.MessageKey{Queue: "orders", MessageID: inHand[0].ID, Day: inHand[0].InsertedAt}
	if err := db.Record(t.Context(), tables.Record{Deliveries: []tables.Delivery{{MessageKey: k, WebhookID: "w", State: tables.Delivered, Attempts: 1}}}); err != nil {
		t.Errorf("recording what is in hand: %v", err)
	}
	if err := q.Complete(t.Context(), inHand[0]); err != nil {
		t.Errorf("deleting it: %v", err)
	}
}

// Nor does it end messages whose life is over: by the records that it knows it might make a dead letter of what was delivered.
func TestAFileThatANewerVersionHasOpenedKeepsWhatExpires(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		db := openNew(t)
		if _, err := mustQueue(t, db).Send(t.Context(), []byte("x"), queue.SendOptions{TTL: time.Minute}); err != nil {
			t.Fatal(err)
		}
		setVersionTo := func(version int) {
			t.Helper()
			must(t, db.write(t.Context(), "queue", "test", func(tx *tx) error {
				return tx.w.conn.script(fmt.Sprintf("PRAGMA user_version = %d", version))
			}))
		}
		setVersionTo(1000)
		time.Sleep(time.Minute + 2*houseInterval)
		if d := letters(t, db); len(d) != 0 {
			t.Errorf("dead letters %+v", d)
		}
		setVersionTo(schemaVersion()) // as the newer version would, which knows all
		time.Sleep(2 * houseInterval)
		if d := letters(t, db); len(d) != 1 {
			t.Errorf("dead letters %+v, want one", d)
		}
	})
}

// The row of a webhook that was disabled while another one was sent to stays "held" when a later first
// success has a row of its own: it holds nothing any more.
func TestEnablingAWebhookShowsNothingThatAnotherOneHasTaken(t *testing.T) {
	db := openNew(t)
	q := mustQueue(t, db)
	sent, err := q.Send(t.Context(), []byte("x"), queue.SendOptions{})
	if err != nil {
		t.Fatal(err)
	}
	received, err := q.Receive(t.Context(), 1, time.Minute)
	if err != nil || len(received) != 1 {
		t.Fatal(received, err)
	}
	m := received[0]
	k := tables.MessageKey{Queue: "orders", MessageID: sent.ID, Day: m.InsertedAt}
	held := tables.Delivery{MessageKey: k, WebhookID: "w2", State: tables.Held, Reason: "WebhookDisabled", UpdatedAt: m.InsertedAt}
	failing := tables.Delivery{MessageKey: k, WebhookID: "w1", State: tables.Pending, Attempts: 1, Charged: 1}
	a := tables.Attempt{MessageKey: k, WebhookID: "w2", Number: 1, Charged: true, StartedAt: m.InsertedAt, Status: 200, Instance: "i"}
	taken := a.Completed(&tables.Delivery{UpdatedAt: m.InsertedAt})
	for _, rec := range []tables.Record{{Deliveries: []tables.Delivery{failing, held}}, {Deliveries: []tables.Delivery{taken}, Attempts: []tables.Attempt{a}}} {
		if err := db.Record(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.Abandon(t.Context(), m, time.Hour); err != nil { // w1 is due in an hour
		t.Fatal(err)
	}
	r := tables.Registration{Enabled: true}
	r.ID, r.Queue = "w3", "orders"
	if _, err := db.PutWebhook(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if again, err := q.Receive(t.Context(), 1, time.Minute); err != nil || len(again) != 0 {
		t.Errorf("received before its time: %d, %v", len(again), err)
	}
}
