package sqlite

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
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

// A list of messages looks at a bounded number of rows for one page, in each table, and the next page goes on.
func TestAPageOfMessagesLooksAtABoundedNumberOfRows(t *testing.T) {
	db := openNew(t)
	now := time.Now().UTC()
	put := func(id, webhookID string) (r tables.Record) {
		a := tables.Attempt{MessageKey: tables.MessageKey{Queue: "orders", MessageID: id, Day: now}, WebhookID: webhookID, Number: 1, StartedAt: now, Status: 200, Charged: true, Action: policy.Complete}
		d := a.Completed(&tables.Delivery{UpdatedAt: now})
		held := d
		held.WebhookID, held.State = webhookID+"2", tables.Held
		return tables.Record{Deliveries: []tables.Delivery{d, held}, Attempts: []tables.Attempt{a}}
	}
	err := db.write(t.Context(), serviceTable, "test", func(tx *tx) error {
		err := tx.putRecord(put("rare", "rare"))
		for i := 0; err == nil && i <= scanBound; i++ {
			err = tx.putRecord(put(fmt.Sprint(i), "wh"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []tables.DeliveryFilter{{WebhookID: "rare"}, {WebhookID: "rare2"}} {
		first, next, err := db.Deliveries(t.Context(), f, tables.Page{Limit: 10})
		if err != nil || len(first) != 0 || next == "" {
			t.Fatalf("first page of %s = %d rows, cursor %q, %v, want an empty page with a cursor", f.WebhookID, len(first), next, err)
		}
		second, next, err := db.Deliveries(t.Context(), f, tables.Page{Limit: 10, After: next})
		if err != nil || len(second) != 1 || next != "" {
			t.Errorf("second page of %s = %d rows, cursor %q, %v, want the row and the end", f.WebhookID, len(second), next, err)
		}
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

// C94, C86: what another program has changed decides nothing, and is there for people, with what can't be read of it.
func TestARowThatAnotherProgramHasChangedIsListedAndSaysSo(t *testing.T) {
	for _, c := range []struct {
		change, column string
		refused        bool // of the delivery
	}{
		{"UPDATE deliveries SET state = 'Delivered'", "state", true},
		{"UPDATE deliveries SET state = ''", "state", true},
		{"UPDATE deliveries SET next_at = 9e17", "next_at", true},
		{"UPDATE deliveries SET inserted_at = -9e17", "inserted_at", true},
		{"UPDATE deliveries SET first_at = 9e17", "first_at", false},
		{"UPDATE attempts SET charged = 7 WHERE number = 2", "charged", false},
		{"UPDATE attempts SET started_at = 9e17 WHERE number = 2", "started_at", false},
		{"UPDATE attempts SET next_at = 9e17 WHERE number = 2", "next_at", false},
		{"SELECT 1", "", false},
	} {
		t.Run(c.change, func(t *testing.T) {
			db := openNew(t)
			now := time.Now()
			key := tables.MessageKey{Queue: "orders", MessageID: "m", Day: now}
			r := tables.Record{Deliveries: []tables.Delivery{{MessageKey: key, WebhookID: "w", State: tables.Delivered, Attempts: 3, Charged: 3, UpdatedAt: now}}}
			for n := range 3 {
				r.Attempts = append(r.Attempts, tables.Attempt{MessageKey: key, WebhookID: "w", Number: n + 1, StartedAt: now.Add(time.Duration(n) * time.Second), Status: 503})
			}
			must(t, db.Record(t.Context(), r))
			other(t, db.path, c.change)

			loaded, err := db.Load(t.Context(), key)
			if c.refused != errors.Is(err, tables.ErrDamaged) || !c.refused && (err != nil || len(loaded) != 1) {
				t.Errorf("Load = %+v, %v, want it refused: %t", loaded, err, c.refused)
			}
			ds, as, err := db.Message(t.Context(), "orders", "m")
			if err != nil || len(ds) != 1 || len(as) != 3 {
				t.Fatalf("Message = %+v, %+v, %v", ds, as, err)
			}
			damage := ds[0].Damage.Columns
			var listed []tables.Attempt
			for after := tables.Cursor(""); ; { // one by one: a page may end with the damaged one
				page, next, err := db.Attempts(t.Context(), tables.AttemptFilter{}, tables.Page{Limit: 1, After: after})
				must(t, err)
				listed = append(listed, page...)
				if after = next; next == "" {
					break
				}
			}
			if len(listed) != 3 {
				t.Errorf("%d attempts are listed, want 3", len(listed))
			}
			for _, a := range slices.Concat(as, listed) {
				if a.Damage.Columns != "" && a.Number != 2 {
					t.Errorf("attempt %d has damage %q", a.Number, a.Damage.Columns)
				}
				damage = cmp.Or(damage, a.Damage.Columns)
			}
			if damage != c.column {
				t.Errorf("what can't be read is %q, want %q", damage, c.column)
			}
			if _, err := json.Marshal([]any{ds, as, listed}); err != nil {
				t.Errorf("nobody can be shown them: %v", err)
			}
		})
	}
}

// C86: one dead letter with such a time hid all others from who lists them.
func TestADeadLetterWithATimeThatNobodyCanSayIsListed(t *testing.T) {
	db := openNew(t)
	key := tables.MessageKey{Queue: "orders", MessageID: "m", Day: time.Now()}
	d := tables.DeadLetter{MessageKey: key, ID: tables.DeadLetterID(key, "", 0, key.Day), Status: tables.Waiting, DeadLetteredAt: key.Day, Text: []byte("x")}
	_, err := db.PutDeadLetter(t.Context(), d)
	must(t, err)
	other(t, db.path, "UPDATE dead_letters SET last_at = 9e17")
	list, _, err := db.ListDeadLetters(t.Context(), tables.DeadLetterFilter{}, tables.Page{Limit: 10})
	if err != nil || len(list) != 1 || !errors.Is(list[0].Damaged, tables.ErrDamaged) || !strings.Contains(list[0].Damaged.Error(), "last_at") {
		t.Fatalf("ListDeadLetters = %+v, %v", list, err)
	}
	list[0].Damaged = nil
	if _, err := json.Marshal(list); err != nil {
		t.Error(err)
	}
}

// C86: a dead letter whose status another program has changed counts as one that waits, or whose replay is under way where it has the token of one.
func TestADeadLetterWhoseStatusAnotherProgramHasChangedIsCounted(t *testing.T) {
	for change, want := range map[string]struct {
		status tables.DeadLetterStatus
		column string
	}{
		"status = ''": {tables.Waiting, "status"}, "status = 'done'": {tables.Waiting, "status"},
		"status = '', replay_token = 'token', replayed_at = 1": {tables.Replaying, "status"},
		"status = 'replaying', replay_token = 'token'":         {tables.Replaying, "replayed_at"},
	} {
		t.Run(change, func(t *testing.T) {
			db := openNew(t)
			key := tables.MessageKey{Queue: "orders", MessageID: "m", Day: time.Now()}
			d := tables.DeadLetter{MessageKey: key, ID: tables.DeadLetterID(key, "", 0, key.Day), Status: tables.Waiting, DeadLetteredAt: key.Day, Text: []byte("x")}
			_, err := db.PutDeadLetter(t.Context(), d)
			must(t, err)
			other(t, db.path, "UPDATE dead_letters SET "+change)
			list, _, err := db.ListDeadLetters(t.Context(), tables.DeadLetterFilter{Status: want.status}, tables.Page{Limit: 10})
			if err != nil || len(list) != 1 || !errors.Is(list[0].Damaged, tables.ErrDamaged) || !strings.Contains(list[0].Damaged.Error(), want.column) {
				t.Errorf("%s are %+v, %v", want.status, list, err)
			}
		})
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
