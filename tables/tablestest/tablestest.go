// Package tablestest is the proof of the tables contract: every store's own test
// runs it.
package tablestest

import (
	"crypto/rand"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/pushlease/pushlease/tables"
)

// Run checks the whole contract. open returns an empty store for every call.
func Run(t *testing.T, open func(t *testing.T) tables.Store) {
	for _, group := range []struct {
		name  string
		tests []test
	}{
		{"Deliveries", deliveryTests},
		{"Attempts", attemptTests},
		{"DeliveryLists", deliveryListTests},
		{"FirstSuccesses", firstSuccessTests},
		{"Webhooks", webhookTests},
		{"DeadLetters", deadLetterTests},
		{"Claims", claimTests},
		{"LeftQueues", leftQueueTests},
		{"Health", healthTests},
		{"Jobs", jobTests},
		{"Instances", instanceTests},
		{"Rollups", rollupTests},
		{"Audits", auditTests},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, tt := range group.tests {
				t.Run(tt.name, func(t *testing.T) { tt.body(t, open(t)) })
			}
		})
	}
}

type test struct {
	name string
	body func(t *testing.T, s tables.Store)
}

// day is the insertion time of most messages here: the evening of the day before
// yesterday, so that it is never near midnight and never old enough to expire.
var day = time.Now().UTC().Truncate(24 * time.Hour).Add(-48*time.Hour + 22*time.Hour + 15*time.Minute + 123*time.Millisecond)

// hostile are keys that some store would trip over.
func hostile() []string {
	return []string{
		"a/b", `a\b`, "a#b", "a?b", "a'b", "a''b", "a%b", "a%2Fb", "a%27b", "a b", " a", "a ", "a\x00b", "\x01\x1f\x7f", "a\u0085b",
		"~", "~~", "a~b", "d~a", ".", "..", "../x", "a\"b", "a;b", "a,b", "a|b", "a`b", "A", "a", "ünïcödé", "🙂", "\U0010FFFF",
		"' or '1'='1", "x' eq 'x", "<a>&", "%00", "null", "0", "-1",
	}
}

// longID is longer than any key of Azure Table Storage.
func longID(seed string) string { return strings.Repeat(seed, 3<<10/len(seed)) }

// sameUTC compares times as instants and wants both in UTC.
var sameUTC = cmp.Comparer(func(a, b time.Time) bool {
	return a.Equal(b) && a.Location() == time.UTC && b.Location() == time.UTC
})

// diff says how got differs from want; empty and nil collections are the same.
func diff(want, got any) string {
	return cmp.Diff(want, got, sameUTC, cmpopts.EquateEmpty())
}

// eventually polls until done, for what the contract allows to lag.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 20s", what)
		}
		<-tick.C
	}
}

// maxPages bounds walks: a store may return short and empty pages, not endless
// ones.
const maxPages = 200

// walk reads a list to its end, limit rows a page, and calls between after every
// page that is not the last.
func walk[T any](t *testing.T, limit int, list func(tables.Page) ([]T, tables.Cursor, error), between func(page int)) []T {
	t.Helper()
	var all []T
	page := tables.Page{Limit: limit}
	for n := range maxPages {
		rows, next, err := list(page)
		if err != nil {
			t.Fatalf("page %d: %v", n, err)
		}
		if len(rows) > limit {
			t.Fatalf("page %d has %d rows, want at most %d", n, len(rows), limit)
		}
		all = append(all, rows...)
		if next == "" {
			return all
		}
		if url.QueryEscape(string(next)) != string(next) {
			t.Errorf("cursor %q is not URL-safe", next)
		}
		if between != nil {
			between(n)
		}
		page.After = next
	}
	t.Fatalf("the list does not end within %d pages", maxPages)
	return nil
}

// badCursors are cursors that no store gave.
func badCursors() []tables.Cursor {
	return []tables.Cursor{"x", "not a cursor", "AAAA", "....", "%00", "🙂", "' or 1=1", tables.Cursor(longID("A")), tables.Cursor(rand.Text())}
}
