package sqlite

import (
	_ "embed"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pushlease/pushlease/tables"
)

//go:embed testdata/schema1.sql
var fileOfSchema1 string

// objects returns what the schema of a file consists of, by name.
func objects(t *testing.T, db *DB) map[string]string {
	t.Helper()
	found := make(map[string]string)
	q := query{text: "SELECT name, coalesce(sql, '') FROM sqlite_schema"}
	err := db.readRows(t.Context(), q, func(scan func(...any) error) (bool, error) {
		var name, text string
		err := scan(&name, &text)
		found[name] = text
		return true, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestAFileOfSchema1IsBroughtUpToDateAndKeepsItsRows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "old.db")
	other(t, path, fileOfSchema1)
	for round := range 2 { // brought up to date, then opened as it is
		db := openFile(t, path, Options{})
		if d := cmp.Diff(objects(t, openNew(t)), objects(t, db)); d != "" {
			t.Errorf("the schema of a new file and of this one (-new +this):\n%s", d)
		}
		for _, m := range wantVisible(t, mustQueue(t, db), "in the old file", 1-round) { // the first round leases it
			if m.ID != "message-1" || string(m.Text) != "text" {
				t.Errorf("the message is %s with text %q", m.ID, m.Text)
			}
		}
		ds, as, err := db.Message(t.Context(), "orders", "message-1")
		if err != nil || len(ds) != 1 || len(as) != 1 || ds[0].LastStatus != 503 || as[0].Status != 503 {
			t.Errorf("Message = %+v, %+v, %v; want one delivery and one attempt with status 503", ds, as, err)
		}
		if letters, _, err := db.ListDeadLetters(t.Context(), tables.DeadLetterFilter{}, tables.Page{Limit: 10}); err != nil || len(letters) != 1 {
			t.Errorf("ListDeadLetters = %d, %v; want 1", len(letters), err)
		}
		var webhooks, version int
		for text, into := range map[string]*int{"SELECT count(*) FROM webhooks": &webhooks, "PRAGMA user_version": &version} {
			if err := db.reads.QueryRowContext(t.Context(), text).Scan(into); err != nil {
				t.Fatal(err)
			}
		}
		if webhooks != 1 || version != schemaVersion() {
			t.Errorf("%d webhooks, user_version %d; want 1 and %d", webhooks, version, schemaVersion())
		}
		now := time.Now()
		c := tables.Claim{Key: tables.ClaimKey("k"), Owner: "a", Until: now.Add(time.Minute), At: now}
		if _, won, err := db.Claim(t.Context(), c, now); err != nil || !won {
			t.Errorf("Claim = %v, %v; want it won", won, err)
		}
		if err := db.PutHealth(t.Context(), tables.Health{WebhookID: "w", Instance: "a"}); err != nil {
			t.Errorf("PutHealth: %v", err)
		}
		if rows, err := db.ListHealth(t.Context()); err != nil || len(rows) != 1 {
			t.Errorf("ListHealth = %d, %v; want 1", len(rows), err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// What stays in a file for ever must not depend on a schema that is changed later.
func TestSchema1IsAsItWasReleased(t *testing.T) {
	released, now := filepath.Join(t.TempDir(), "released.db"), filepath.Join(t.TempDir(), "now.db")
	other(t, released, fileOfSchema1)
	other(t, now, schema1+"PRAGMA user_version = 1;")
	if d := cmp.Diff(objects(t, openFile(t, released, Options{})), objects(t, openFile(t, now, Options{}))); d != "" {
		t.Errorf("schema.sql makes another file than it did (-released +now):\n%s", d)
	}
}

// Until schema 10 a first success had two rows.
func TestAFirstSuccessInAFileOfSchema10IsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "old.db")
	other(t, path, strings.Join(schemas[:10], "\n")+`PRAGMA user_version = 10;
INSERT INTO deliveries (message_id, queue, day, webhook_id, inserted_at, generation, state, reason, attempts, charged, waits, excused,
  missing_records, last_status, last_error_class, first_at, last_at, next_at, updated_at, expires_at, encoding, size, body_hash,
  dead_letter_id, instance)
VALUES ('m', 'orders', 20416, 'wh', 1764000000000, 0, 'delivered', 'Delivered', 1, 1, 0, 0, 0, 200, '', 1764000001000, 1764000001000, 0,
  1764000001002, 0, 'none', 4, 'hash', '', 'a');
INSERT INTO attempts (message_id, queue, day, webhook_id, generation, number, inserted_at, started_at, duration_ns, status, error_class,
  error, snippet, retry_after, redirect_host, redials, action, reason, charged, delay_ns, next_at, explanation, instance, dequeue_count)
VALUES ('m', 'orders', 20416, 'wh', 0, 1, 1764000000000, 1764000001000, 2000000, 200, '', '', '', '', '', 0, 'complete', 'Delivered', 1, 0, 0, '', 'a', 1);`)
	db := openFile(t, path, Options{})
	at := time.UnixMilli(1764000001000).UTC()
	a := tables.Attempt{
		MessageKey: tables.MessageKey{Queue: "orders", MessageID: "m", Day: at.Add(-time.Second)}, WebhookID: "wh", Number: 1, StartedAt: at,
		Duration: 2 * time.Millisecond, Status: 200, Action: "complete", Reason: "Delivered", Charged: true, Instance: "a", DequeueCount: 1,
	}
	d := a.Completed(&tables.Delivery{UpdatedAt: at.Add(2 * time.Millisecond), Encoding: "none", Size: 4, BodyHash: "hash"})
	for _, step := range []string{"as it was written", "and written again by this version"} {
		ds, as, err := db.Message(t.Context(), "orders", "m")
		if diff := cmp.Diff([]tables.Delivery{d}, ds) + cmp.Diff([]tables.Attempt{a}, as); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got)\n%s", step, err, diff)
		}
		if err := db.Record(t.Context(), tables.Record{Deliveries: []tables.Delivery{d}, Attempts: []tables.Attempt{a}}); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := db.Expire(t.Context(), at.Add(48*time.Hour)); err != nil || n != 2 {
		t.Errorf("Expire = %d, %v, want both rows", n, err)
	}
}

func TestAFirstSuccessHasOneRow(t *testing.T) {
	db := openNew(t)
	a := tables.Attempt{MessageKey: tables.MessageKey{Queue: "orders", MessageID: "m", Day: time.UnixMilli(1764000000000)}, WebhookID: "wh", Number: 1, Charged: true}
	d := a.Completed(&tables.Delivery{})
	if err := db.Record(t.Context(), tables.Record{Deliveries: []tables.Delivery{d}, Attempts: []tables.Attempt{a}}); err != nil {
		t.Fatal(err)
	}
	var rows int
	if err := db.reads.QueryRowContext(t.Context(), "SELECT (SELECT count(*) FROM deliveries) + (SELECT count(*) FROM attempts)").Scan(&rows); err != nil || rows != 1 {
		t.Errorf("%d rows, %v, want one", rows, err)
	}
}
