package main

import (
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/pushlease/pushlease/internal/sqlite"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

// twoThousand registers as many webhooks on one queue. They are disabled: they are to be looked at.
func twoThousand(t *testing.T, path string) {
	t.Helper()
	db, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	p, _ := policy.Preset(policy.DefaultPreset)
	for i := range 2_000 {
		now := time.Now().UTC()
		hook := webhook.Webhook{
			ID: fmt.Sprintf("hook_%05d", i), Name: fmt.Sprintf("customer %05d", i), Queue: "orders", URL: "https://example.com/hook", Timeout: 30 * time.Second,
			Secrets: []webhook.Secret{{Key: "whsec_MDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAw", CreatedAt: now}},
		}
		_, err := db.PutWebhook(t.Context(), tables.Registration{Webhook: hook, DisabledReason: "operator", DisabledAt: now, Policy: p, Flow: policy.DefaultFlow(), CreatedAt: now, UpdatedAt: now})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Thousands of webhooks are found by a part of their name, and never all drawn.
func TestThePageFindsOneOfThousands(t *testing.T) {
	path := filepath.Join(t.TempDir(), "large.db")
	twoThousand(t, path)
	s := (&store{name: "sqlite", env: []string{"PUSHLEASE_STORAGE=sqlite:" + path}}).start(t)
	b := newBrowser(t, s.url)
	b.before(`window.longest = 0; new PerformanceObserver((list) => list.getEntries().forEach((e) => { longest = Math.max(longest, e.duration); })).observe({ type: 'longtask', buffered: true });`)
	b.open("#/webhooks")
	b.see("customer 00000", "Show more of 2,000")
	if rows := b.eval(`document.querySelectorAll('tbody tr').length`); rows != "200" {
		t.Errorf("%s rows are drawn", rows)
	}
	b.click("Show more of 2,000")
	b.see("customer 00399")
	b.fill("find", "01876"+kb.Enter)
	b.see("customer 01876")
	if rows := b.eval(`document.querySelectorAll('tbody tr').length + location.hash`); rows != "1#/webhooks?find=01876" {
		t.Errorf("rows and address are %s", rows)
	}
	b.open("#/")
	b.see("All 2,000")
	t.Logf("the longest task took %s ms", b.eval("window.longest")) // no bound: a machine with tests beside is never punctual
	b.quiet()
}

// The page is little to load. When it was painted is logged: a machine with tests beside is never punctual.
func TestThePageIsLittleToLoad(t *testing.T) {
	b := newBrowser(t, sqliteStore(t).start(t).url)
	b.open("#/")
	b.see("Begin here")
	painted := `performance.getEntriesByName('first-contentful-paint')[0]`
	waitUntil(t, 20*time.Second, func() string {
		if b.eval(painted+" !== undefined") != "true" {
			return "nothing is painted"
		}
		return ""
	})
	loaded, err := strconv.ParseFloat(b.eval(`performance.getEntriesByType('resource').filter((e) => e.name.includes('/ui/')).reduce((n, e) => n + e.transferSize, 0)`), 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("first paint after %s ms, %.0f bytes", b.eval(painted+".startTime"), loaded)
	if loaded == 0 || loaded > 160<<10 {
		t.Errorf("%.0f bytes were loaded", loaded)
	}
}
