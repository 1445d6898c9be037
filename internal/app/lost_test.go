package app

import (
	"database/sql"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric/noop"

	"github.com/pushlease/pushlease/internal/config"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

func TestADroppedTableIsToldForAnHour(t *testing.T) {
	l, now := &lost{}, time.Now()
	if c := l.checks(now); len(c) > 0 {
		t.Errorf("nothing was dropped: %+v", c)
	}
	l.tables.note("pushleaseHealth", now)
	l.tables.note("pushleaseDeadLetters", now.Add(time.Minute))
	if c := l.checks(now.Add(59 * time.Minute)); len(c) != 1 || c[0].OK || !c[0].Degrades || !strings.Contains(c[0].Detail, "pushleaseDeadLetters, pushleaseHealth") {
		t.Errorf("both are to be told: %+v", c)
	}
	if c := l.checks(now.Add(time.Hour)); len(c) != 1 || !strings.Contains(c[0].Detail, "dropped pushleaseDeadLetters within") {
		t.Errorf("the later one is to be told: %+v", c)
	}
	if c := l.checks(now.Add(2 * time.Hour)); len(c) > 0 {
		t.Errorf("after an hour: %+v", c)
	}
}

// C85: one registration that another program deletes, beside others. Its receiver gets nothing more, which nobody
// asked for.
func TestARegistrationThatAnotherProgramDeletesIsTold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	cfg, err := config.Load(nil, []string{"PUSHLEASE_STORAGE=sqlite:" + path})
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	s, err := openStores(t.Context(), cfg, Outside{}, slog.New(slog.NewTextHandler(&log, nil)), noop.Meter{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.close(t.Context()) })
	for _, id := range []string{"wh_a", "wh_b", "wh_c"} {
		if _, err := s.tables.PutWebhook(t.Context(), tables.Registration{Webhook: webhook.Webhook{ID: id, Queue: "orders"}}); err != nil {
			t.Fatal(err)
		}
	}
	look := func() string {
		t.Helper()
		if _, bad, err := s.tables.ListWebhooks(t.Context()); err != nil || len(bad) > 0 {
			t.Fatalf("%+v, %v", bad, err)
		}
		checks := s.lost.checks(time.Now())
		ready, failing := tally(checks)
		if ready != 1 || failing["registrations"] != int64(len(checks)) {
			t.Errorf("the gauges say %d, %v", ready, failing)
		}
		var texts string
		for _, c := range checks {
			texts += c.Name + ": " + c.Detail
		}
		return texts
	}
	look()
	if err := s.tables.DeleteWebhook(t.Context(), "wh_b", ""); err != nil {
		t.Fatal(err)
	}
	if told := look() + log.String(); strings.Contains(told, "wh_") {
		t.Errorf("a deletion through pushlease: %s", told)
	}
	tool, err := sql.Open("sqlite", path)
	if err == nil {
		_, err = tool.Exec("DELETE FROM webhooks WHERE id = 'wh_c'")
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := tool.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if told := look(); !strings.Contains(told, "deleted the registration of wh_c of orders within the last hour") {
			t.Errorf("the check says %q", told)
		}
	}
	if n := strings.Count(log.String(), "level=ERROR"); n != 1 || !strings.Contains(log.String(), "webhook=wh_c queue=orders") {
		t.Errorf("the log: %s", log.String())
	}
}
