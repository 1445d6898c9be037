package sqlite

import (
	"strings"
	"testing"
	"time"

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
	err := db.readRows(t.Context(), query{"EXPLAIN QUERY PLAN " + q.text, args}, func(scan func(...any) error) (bool, error) {
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
		"load":                    {text: loadSQL},
		"message":                 {text: "SELECT 1 FROM deliveries WHERE message_id = ?"},
		"expire attempts":         {text: expireAttemptsSQL},
		"expire deliveries":       {text: expireDeliveriesSQL},
		"attempts of webhook":     attemptsQuery(filled, place, true),
		"first attempts of one":   attemptsQuery(tables.AttemptFilter{WebhookID: "w"}, attemptPlace{}, false),
		"attempts after a place":  attemptsQuery(tables.AttemptFilter{}, place, true),
		"attempts in a time span": attemptsQuery(tables.AttemptFilter{From: time.Unix(1, 0)}, attemptPlace{}, false),
		"dead letters":            deadLetters(tables.DeadLetterFilter{}),
		"dead letters of a queue": deadLetters(tables.DeadLetterFilter{Queue: "orders"}),
		"dead letter":             {text: getDeadLetterSQL},
		"claim":                   {text: getClaimSQL},
		"expire claims":           {text: expireClaimsSQL},
	} {
		p := plan(t, db, q)
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
