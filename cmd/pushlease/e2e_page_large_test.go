package main

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/pushlease/pushlease/internal/sqlite"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

const thousands = 10_000

// large writes as many webhooks, each on a queue of its own, and as many messages that were delivered. The webhooks are disabled: they are to be
// looked at.
func large(t *testing.T, path string) {
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
	now := time.Now().UTC()
	var writing sync.WaitGroup
	slots := make(chan struct{}, 64) // they share commits
	write := func(row func() error) {
		slots <- struct{}{}
		writing.Go(func() {
			if err := row(); err != nil {
				t.Error(err)
			}
			<-slots
		})
	}
	for i := range thousands {
		hook := webhook.Webhook{
			ID: fmt.Sprintf("hook_%05d", i), Name: fmt.Sprintf("customer %05d", i), Queue: fmt.Sprintf("orders-%05d", i), URL: "https://example.com/hook", Timeout: 30 * time.Second,
			Secrets: []webhook.Secret{{Key: "whsec_MDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAw", CreatedAt: now}},
		}
		key := tables.MessageKey{Queue: hook.Queue, MessageID: fmt.Sprintf("message-%05d", i), Day: now}
		at := now.Add(-time.Duration(i) * time.Second)
		write(func() error {
			_, err := db.PutWebhook(t.Context(), tables.Registration{Webhook: hook, DisabledReason: "operator", DisabledAt: now, Policy: p, Flow: policy.DefaultFlow(), CreatedAt: now, UpdatedAt: now})
			return err
		})
		write(func() error {
			attempt := tables.Attempt{MessageKey: key, WebhookID: hook.ID, Number: 1, StartedAt: at, Duration: time.Millisecond, Status: 200, Action: policy.Complete, Reason: policy.Delivered, Charged: true}
			return db.Record(t.Context(), tables.Record{Deliveries: []tables.Delivery{attempt.Completed(&tables.Delivery{UpdatedAt: at})}, Attempts: []tables.Attempt{attempt}})
		})
	}
	writing.Wait()
}

// meter counts the elements that the page makes, and how long it stood still at most.
const meter = `
	window.made = 0; window.longest = 0;
	for (const name of ['createElement', 'createElementNS']) { const real = document[name]; document[name] = function (...all) { made++; return real.apply(this, all); }; }
	new PerformanceObserver((list) => list.getEntries().forEach((e) => { longest = Math.max(longest, e.duration); })).observe({ type: 'longtask', buffered: true });`

// Of ten thousand webhooks, queues and messages each is found by a part of its name. Whatever is shown, the page draws some hundred rows of it, asks for
// no more than those, and never stands still for long.
//
// No other test of this package runs beside it: how long a page stands still is the machine's matter too.
func TestThePageFindsOneOfTenThousand(t *testing.T) {
	path := filepath.Join(t.TempDir(), "large.db")
	large(t, path)
	// Nobody changes a webhook here: to read ten thousand of them each second keeps one processor busy.
	s := (&store{name: "sqlite", env: []string{"PUSHLEASE_STORAGE=sqlite:" + path}}).start(t, "PUSHLEASE_REGISTRY_REFRESH=30s")
	b := newBrowser(t, s.url)
	b.before(meter)
	rows := func() string { return b.eval(`document.querySelectorAll('main tbody tr').length`) }
	for _, p := range []struct{ hash, shows, last, find, found string }{
		{"#/webhooks", "customer 00000", "customer 00399", "MER 07876", "customer 07876"},
		{"#/queues", "orders-00000", "orders-00399", "-07876", "orders-07876"},
		{"#/messages", "customer 00000", "customer 00249", "", ""},
	} {
		b.open(p.hash)
		b.see(p.shows, "Show more")
		b.click("Show more")
		b.see(p.last)
		if p.find == "" {
			continue
		}
		if n := rows(); n != "400" {
			t.Errorf("%s has %s rows", p.hash, n)
		}
		b.fill("find", p.find+kb.Enter)
		b.see(p.found)
		if n := rows(); n != "1" || !strings.Contains(b.eval(`location.hash`), "find=") {
			t.Errorf("%s has %s rows of what was looked for, at %s", p.hash, n, b.eval(`location.hash`))
		}
		b.fill("find", "nothing is called so"+kb.Enter)
		b.see("No name has that in it")
	}
	b.press("/")
	b.eval(`document.activeElement.value = ''`)
	b.press("customer 09999" + kb.Enter)
	b.see("hook_09999", "Registration")
	b.eval(`(window.made = 0, performance.clearResourceTimings())`)
	b.open("#/")
	b.see("All queues", "All webhooks", "All is well")
	if made := b.number(`window.made`); made == 0 || made > 5_000 {
		t.Errorf("the overview of ten thousand has made %.0f elements", made)
	}
	if asked := b.eval(`performance.getEntriesByType('resource').map((e) => e.name).filter((name) => name.includes('cursor=')).join()`); asked != "" {
		t.Errorf("the overview has asked for more than the first of them: %s", asked)
	}
	longest := b.number(`window.longest`)
	if t.Logf("the page stood still for %.0f ms at most", longest); longest > 3000 { // with tests beside no machine is punctual
		t.Errorf("the page stood still for %.0f ms", longest)
	}
	b.quiet()
}

// number is a number that a script gives.
func (b *browser) number(script string) float64 {
	b.Helper()
	n, err := strconv.ParseFloat(b.eval(script), 64)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// The page is little to load. When it was painted is logged: a machine with tests beside is never punctual.
func TestThePageIsLittleToLoad(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, sqliteStore(t).start(t).url)
	b.open("#/")
	b.see("Begin here")
	painted := `performance.getEntriesByName('first-contentful-paint')[0]`
	waitUntil(t, patience, func() string {
		if b.eval(painted+" !== undefined") != "true" {
			return "nothing is painted"
		}
		return ""
	})
	loaded := b.number(`performance.getEntriesByType('resource').filter((e) => e.name.includes('/ui/')).reduce((n, e) => n + e.transferSize, 0)`)
	t.Logf("first paint after %s ms, %.0f bytes", b.eval(painted+".startTime"), loaded)
	if loaded == 0 || loaded > 100<<10 { // packed; as they are they are more
		t.Errorf("%.0f bytes were loaded", loaded)
	}
}
