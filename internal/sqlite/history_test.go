package sqlite

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

func messageKeyOf(q queue.Queue, m *queue.Message) tables.MessageKey {
	return tables.MessageKey{Queue: q.Name(), MessageID: m.ID, Day: m.InsertedAt}
}

// A filter that few rows pass must not read the whole history for one page.
func TestPageLooksAtABoundedNumberOfRows(t *testing.T) {
	db := openNew(t)
	now := time.Now()
	key := tables.MessageKey{Queue: "orders", MessageID: "m", Day: now}
	rare := tables.Attempt{MessageKey: key, WebhookID: "wh", Number: 1, StartedAt: now.Add(-time.Hour), Status: 404}
	if err := db.Record(t.Context(), tables.Record{Attempts: []tables.Attempt{rare}}); err != nil {
		t.Fatal(err)
	}
	for n := range scanBound/100 + 1 {
		var r tables.Record
		for i := range 100 {
			r.Attempts = append(r.Attempts, tables.Attempt{MessageKey: key, WebhookID: "wh", Number: 2 + n*100 + i, StartedAt: now, Status: 200})
		}
		if err := db.Record(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	f := tables.AttemptFilter{WebhookID: "wh", Status: 404}
	first, next, err := db.Attempts(t.Context(), f, tables.Page{Limit: 10})
	if err != nil || len(first) != 0 || next == "" {
		t.Fatalf("first page = %d rows, cursor %q, %v, want an empty page with a cursor", len(first), next, err)
	}
	second, next, err := db.Attempts(t.Context(), f, tables.Page{Limit: 10, After: next})
	if err != nil || len(second) != 1 || next != "" {
		t.Errorf("second page = %d rows, cursor %q, %v, want the row and the end", len(second), next, err)
	}
}

func TestUnreadableWebhookHidesNoOther(t *testing.T) {
	db := openNew(t)
	for _, id := range []string{"wh1", "wh2", "wh3"} {
		if _, err := db.PutWebhook(t.Context(), tables.Registration{Webhook: webhook.Webhook{ID: id, Queue: "orders"}}); err != nil {
			t.Fatal(err)
		}
	}
	err := db.write(t.Context(), serviceTable, "test", func(tx *tx) error {
		_, err := tx.exec(`UPDATE webhooks SET registration = '{"id":"wh2","queue":"orders","secrets": whsec_hidden' WHERE id = 'wh2'`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	rows, bad, err := db.ListWebhooks(t.Context())
	if err != nil || len(rows) != 2 || len(bad) != 1 || bad[0].ID != "wh2" || bad[0].Queue != "orders" {
		t.Fatalf("ListWebhooks = %d rows, bad %v, %v, want wh2 as the bad one", len(rows), bad, err)
	}
	_, getErr := db.GetWebhook(t.Context(), "wh2")
	for _, err := range []error{bad[0].Err, getErr} {
		if err == nil || !errors.Is(err, tables.ErrDamaged) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("error %v, want one that says nothing of the content", err)
		}
	}
}

func TestExpireRemovesManyRows(t *testing.T) {
	db := openNew(t)
	day := time.Now().Add(-10 * 24 * time.Hour)
	const messages = expireAtOnce/50 + 3
	for n := range messages {
		key := tables.MessageKey{Queue: "orders", MessageID: fmt.Sprint("m", n), Day: day}
		var r tables.Record
		for i := range 50 {
			r.Attempts = append(r.Attempts, tables.Attempt{MessageKey: key, WebhookID: "wh", Number: i, StartedAt: day})
			r.Deliveries = append(r.Deliveries, tables.Delivery{MessageKey: key, WebhookID: fmt.Sprint("wh", i), State: tables.Delivered})
		}
		if err := db.Record(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := db.Expire(t.Context(), time.Now()); err != nil || n != messages*100 {
		t.Errorf("Expire = %d, %v, want %d rows", n, err, messages*100)
	}
}
