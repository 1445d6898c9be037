package sqlite

import (
	"errors"
	"strings"
	"testing"
	"time"

	engine "modernc.org/sqlite/lib"

	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// plan returns SQLite's query plan, one line per step.
func plan(t *testing.T, db *DB, q query) string {
	t.Helper()
	args := q.args
	for len(args) < strings.Count(q.text, "?") {
		args = append(args, 0)
	}
	var steps []string
	err := db.readRows(t.Context(), query{text: "EXPLAIN QUERY PLAN " + q.text, args: args}, func(scan func(...any) error) (bool, error) {
		var id, parent, unused int
		var detail string
		err := scan(&id, &parent, &unused, &detail)
		steps = append(steps, detail)
		return true, err
	})
	if err != nil {
		t.Fatalf("plan of %s: %v", q.text, err)
	}
	return strings.Join(steps, "\n")
}

func TestHotStatementsNeverScanATable(t *testing.T) {
	db := openNew(t)
	filled := tables.AttemptFilter{WebhookID: "w", From: time.Unix(1, 0), Until: time.Unix(2, 0)}
	place := attemptPlace{1, 1}
	afterLetter := tables.Cursor(deadLetterCursor + tables.DeadLetterID(tables.MessageKey{Queue: "orders"}, "", 0, time.Unix(1, 0)))
	deadLetters := func(f tables.DeadLetterFilter) query {
		q, err := deadLettersQuery(f, afterLetter)
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	for name, q := range map[string]query{
		"receive":                 {text: visibleSQL},
		"settle":                  {text: completeSQL},
		"remove expired":          {text: expiredSQL},
		"release":                 {text: releaseSQL},
		"load":                    {text: loadSQL},
		"message":                 {text: "SELECT 1 FROM deliveries WHERE message_id = ?"},
		"expire attempts":         {text: expireAttemptsSQL},
		"expire deliveries":       {text: expireDeliveriesSQL},
		"attempts of webhook":     attemptsQuery(filled, place, true),
		"first attempts of one":   attemptsQuery(tables.AttemptFilter{WebhookID: "w"}, attemptPlace{}, false),
		"deliveries":              deliveryRows.matching(tables.DeliveryFilter{From: time.Unix(1, 0), Queue: "q", State: tables.Held}, beforeAll, 1, 1),
		"completed deliveries":    completedRows.matching(tables.DeliveryFilter{WebhookID: "w"}, dayPlace{1, 1}, 1, 1),
		"deliveries to look at":   completedRows.look(beforeAll, 1),
		"day with deliveries":     deliveryRows.day(2, 1),
		"attempts after a place":  attemptsQuery(tables.AttemptFilter{}, place, true),
		"attempts in a time span": attemptsQuery(tables.AttemptFilter{From: time.Unix(1, 0)}, attemptPlace{}, false),
		"dead letters":            deadLetters(tables.DeadLetterFilter{}),
		"dead letters of a queue": deadLetters(tables.DeadLetterFilter{Queue: "orders"}),
		"dead letter":             {text: getDeadLetterSQL},
		"claim":                   {text: getClaimSQL},
		"expire claims":           {text: expireClaimsSQL},
	} {
		p := plan(t, db, q)
		p = strings.ReplaceAll(p, "SCAN (subquery-1)", "") // of so many rows as it was given
		if strings.Contains(p, "SCAN") || strings.Contains(p, "TEMP B-TREE") {
			t.Errorf("%s scans or sorts:\n%s", name, p)
		}
	}
}

// Without anything to search for, the list is an index read from its end, and stops
// with the page.
func TestFirstPagesAreReadInIndexOrder(t *testing.T) {
	db := openNew(t)
	letters, err := deadLettersQuery(tables.DeadLetterFilter{}, "")
	if err != nil {
		t.Fatal(err)
	}
	for name, q := range map[string]query{
		"attempts":     attemptsQuery(tables.AttemptFilter{}, attemptPlace{}, false),
		"dead letters": letters,
	} {
		p := plan(t, db, q)
		if !strings.Contains(p, "USING INDEX") || strings.Contains(p, "TEMP B-TREE") {
			t.Errorf("%s are not read in the order of an index:\n%s", name, p)
		}
	}
}

// SQLite plans a statement again when an argument becomes 0 or 1, or no longer is, where
// the plan could depend on it. Queues are numbered from 1.
func TestHotStatementsArePlannedOnce(t *testing.T) {
	db := openNew(t)
	for i := range 12 {
		q, err := db.Queues().Queue([]string{"first", "second", "third"}[i%3])
		if err != nil {
			t.Fatal(err)
		}
		mustSend(t, q, "a", queue.SendOptions{TTL: queue.NoExpiry * time.Duration(i%2)})
		m := receiveAll(t, q)[0]
		key := messageKeyOf(q, m)
		err = errors.Join(
			db.Record(t.Context(), tables.Record{
				Deliveries: []tables.Delivery{{MessageKey: key, WebhookID: "w", Attempts: i % 3, Size: i % 2}},
				Attempts:   []tables.Attempt{{MessageKey: key, WebhookID: "w", Number: i % 3, Redials: i % 2}},
			}),
			q.Renew(t.Context(), m, time.Minute), q.Abandon(t.Context(), m, 0), q.Complete(t.Context(), receiveAll(t, q)[0]))
		if err != nil {
			t.Fatal(err)
		}
	}
	err := db.writer.do(t.Context(), "", false, func(tx *tx) error {
		for text, s := range tx.w.conn.stmts {
			if n := engine.Xsqlite3_stmt_status(tx.w.conn.tls, s.handle, engine.SQLITE_STMTSTATUS_REPREPARE, 0); n > 1 { // once, when the file was new
				t.Errorf("planned again %d times: %s", n, text)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A statement that is read twice is prepared once. One that differs with the filter of a list is not kept, and read all
// the same.
func TestReadsStayPreparedAndFiltersDoNot(t *testing.T) {
	db := openNew(t)
	kept := func(text string) bool {
		db.mu.Lock()
		defer db.mu.Unlock()
		return db.statements[text] != nil
	}
	for _, q := range []query{{text: "SELECT ? + 1", args: []any{1}}, {text: "SELECT ? + 2", args: []any{0}, filtered: true}} {
		for range 2 {
			var got int
			err := db.readRows(t.Context(), q, func(scan func(...any) error) (bool, error) { return false, scan(&got) })
			if err != nil || got != 2 {
				t.Errorf("read %d of %q, %v", got, q.text, err)
			}
		}
		if kept(q.text) == q.filtered {
			t.Errorf("%q is kept: %v", q.text, q.filtered)
		}
	}
	for name, q := range map[string]query{
		"attempts":   attemptsQuery(tables.AttemptFilter{}, attemptPlace{}, false),
		"deliveries": deliveryRows.matching(tables.DeliveryFilter{}, dayPlace{}, 1, 1),
	} {
		if !q.filtered {
			t.Errorf("the texts of lists of %s stay prepared, each of them", name)
		}
	}
	if q, err := deadLettersQuery(tables.DeadLetterFilter{}, ""); err != nil || !q.filtered {
		t.Errorf("the texts of lists of dead letters stay prepared, each of them: %v", err)
	}
}
