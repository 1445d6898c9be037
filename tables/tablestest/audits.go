package tablestest

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pushlease/pushlease/tables"
)

var auditTests = []test{
	{"AuditsAreListedNewestFirst", auditOrder},
	{"AuditsAreFoundByWhatTheyAreAbout", auditFilters},
	{"AuditsExpire", auditExpire},
	{"AuditsOfHostileNamesAreKept", auditHostile},
}

// audit is one with everything in it.
func audit(at time.Time, request string) tables.Audit {
	at = at.Truncate(time.Millisecond)
	return tables.Audit{
		ID: tables.AuditID(at, request), At: at, Action: tables.WebhookChanged, Key: "deploy", Reason: "gone", Instance: "host-1", RequestID: request, Queue: "orders",
		WebhookID: "wh_1", DeadLetterID: "orders.1-2", ReplayID: "rpl_1", Fields: []string{"policy.attempts", "url"}, Count: 1 << 40, Filter: json.RawMessage(`{"queue":"orders"}`),
	}
}

func mustPutAudits(t *testing.T, s tables.Store, audits ...tables.Audit) {
	t.Helper()
	for _, a := range audits {
		if err := s.PutAudit(t.Context(), a); err != nil {
			t.Fatalf("PutAudit: %v", err)
		}
	}
}

func wantAudits(t *testing.T, s tables.Store, f tables.AuditFilter, limit int, want ...tables.Audit) {
	t.Helper()
	got := walk(t, limit, func(p tables.Page) ([]tables.Audit, tables.Cursor, error) { return s.ListAudits(t.Context(), f, p) }, nil)
	if d := diff(want, got); d != "" {
		t.Errorf("ListAudits(%+v) (-want +got):\n%s", f, d)
	}
}

func auditOrder(t *testing.T, s tables.Store) {
	wantAudits(t, s, tables.AuditFilter{}, 10) // nothing is there, not even a table
	first, second, third := audit(day, "a"), audit(day, "b"), audit(day.Add(time.Second), "a")
	bare := tables.Audit{ID: tables.AuditID(day.Add(time.Minute), "c"), At: day.Add(time.Minute), Action: tables.DeadLettersPurged}
	mustPutAudits(t, s, first, third, bare, second, second)
	for _, limit := range []int{1, 2, 100} {
		wantAudits(t, s, tables.AuditFilter{}, limit, bare, third, first, second)
	}
	for _, bad := range []tables.Cursor{"x", "d.1", "eyJkIjoiMjAyNjAxMDEifQ"} {
		if _, _, err := s.ListAudits(t.Context(), tables.AuditFilter{}, tables.Page{Limit: 1, After: bad}); !errors.Is(err, tables.ErrBadCursor) {
			t.Errorf("ListAudits after %q: %v, want ErrBadCursor", bad, err)
		}
	}
}

func auditFilters(t *testing.T, s tables.Store) {
	base := audit(day, "a")
	other := tables.Audit{
		ID: tables.AuditID(day.Add(time.Hour), "b"), At: day.Add(time.Hour), Action: tables.WebhookDeleted, Key: "ops", Instance: "host-2", RequestID: "b", Queue: "invoices", WebhookID: "wh_2",
	}
	mustPutAudits(t, s, base, other)
	for _, f := range []tables.AuditFilter{
		{Queue: "invoices"}, {WebhookID: "wh_2"}, {Action: tables.WebhookDeleted}, {Key: "ops"}, {From: day.Add(time.Millisecond)}, {From: other.At},
	} {
		wantAudits(t, s, f, 1, other)
	}
	for _, f := range []tables.AuditFilter{{Until: other.At}, {Until: day.Add(time.Millisecond)}, {From: day, Until: other.At, Queue: "orders", Key: "deploy"}} {
		wantAudits(t, s, f, 1, base)
	}
	for _, f := range []tables.AuditFilter{{Until: day}, {From: other.At.Add(time.Millisecond)}, {Queue: "orders", Key: "ops"}} {
		wantAudits(t, s, f, 1)
	}
}

func auditExpire(t *testing.T, s tables.Store) {
	expire := func(before time.Time, want int64) {
		t.Helper()
		if n, err := s.ExpireAudits(t.Context(), before); err != nil || n != want {
			t.Errorf("ExpireAudits = %d, %v; want %d", n, err, want)
		}
	}
	expire(day, 0)
	old, kept := audit(day, "a"), audit(day.Add(time.Millisecond), "b")
	mustPutAudits(t, s, old, kept)
	expire(day, 0)
	expire(kept.At, 1)
	expire(kept.At, 0)
	wantAudits(t, s, tables.AuditFilter{}, 10, kept)
}

func auditHostile(t *testing.T, s tables.Store) {
	var want []tables.Audit
	for i, name := range append(hostile(), longID("k")) {
		a := audit(day.Add(-time.Duration(i)*time.Second), fmt.Sprintf("r%d", i))
		a.Key, a.WebhookID = name, name
		want = append(want, a)
	}
	mustPutAudits(t, s, want...)
	wantAudits(t, s, tables.AuditFilter{}, 7, want...)
	for _, a := range want {
		wantAudits(t, s, tables.AuditFilter{Key: a.Key, WebhookID: a.WebhookID}, 100, a)
	}
}
