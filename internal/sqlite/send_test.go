package sqlite

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/api"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

var _ api.RecordedSends = (*Queues)(nil)

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
