package main

import (
	"context"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// later is the value of a script in the page that has to be waited for.
func (b *browser) later(script string) string {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[string]("Promise.resolve("+script+").then(String)", chromedp.EvalAwaitPromise))
	if err != nil {
		b.Fatalf("%s: %v", script, err)
	}
	return value
}

// What the page says of a time, a share or a body is so.
func TestThePageSaysWhatIsSo(t *testing.T) {
	t.Parallel()
	s := sqliteStore(t).start(t)
	b := newBrowser(t, s.url)
	if _, err := chromedp.Call(b.ctx, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Tokyo"}); err != nil {
		t.Fatal(err)
	}
	b.open("#/")
	b.see("Begin here")
	deep := strings.Repeat("[", 5000) + strings.Repeat("]", 5000)
	for _, tt := range []struct{ module, script, want string }{
		{"body", `m.pretty('{"order":12345678901234567890,"price":1.10,"2":0,"1":[],"a":1,"a":{"b":"x, {\\"y"}}')`,
			"{\n  \"order\": 12345678901234567890,\n  \"price\": 1.10,\n  \"2\": 0,\n  \"1\": [],\n  \"a\": 1,\n  \"a\": {\n    \"b\": \"x, {\\\"y\"\n  }\n}"},
		{"body", `m.pretty('{"no json}')`, `{"no json}`},
		{"body", `m.pretty('` + deep + `').length < 20000`, "true"},
		{"body", `m.pretty('` + deep + `').replace(/\s/g, '').length`, "10000"},
		{"words", `m.clock('2026-01-29T22:30:00Z').textContent`, "01-30 07:30:00"}, // the day that it was here
		{"words", `[5400, 133200, 86400 * 12, 0.0002].map(m.span).join()`, "1.5 h,1.5 days,12 days,< 1 ms"},
		{"words", `m.due(new Date(Date.now() - 11000).toISOString()).textContent.startsWith('due 1')`, "true"},
		{"history", `[[9999, 10000], [1, 10000], [1, 1], [0, 1], [1, 3]].map((p) => m.percent(...p)).join()`, "> 99.9 %,< 0.1 %,100 %,0 %,33.3 %"},
		{"dom", `(() => { const ul = m.h('ul'), items = (keys) => keys.split('').map((key) => m.h('li', { key }, key)); m.draw(ul, items('abcd')); const d = ul.lastChild; m.draw(ul, items('dbbx')); return ul.textContent + (ul.firstChild === d); })()`, "dbbxtrue"},
	} {
		if got := b.later(`import('/ui/` + tt.module + `.js').then((m) => ` + tt.script + `)`); got != tt.want {
			t.Errorf("%.90s is %.300q, want %q", tt.script, got, tt.want)
		}
	}
	b.quiet()
}

// A laptop's clock may be ten minutes ahead: what is due in a minute is no nine minutes ago.
func TestThePageTellsTimesByTheServersClock(t *testing.T) {
	t.Parallel()
	s := sqliteStore(t).start(t)
	b := newBrowser(t, s.url)
	b.before(`{ const now = Date.now; Date.now = () => now() + 600000; }`)
	b.open("#/")
	b.see("Begin here", "clock is 10 min ahead")
	if got := b.later(`import('/ui/words.js').then((m) => m.relative(Date.now() - 600000 + 62000))`); got != "in 1 min" {
		t.Errorf("what is due in a minute is %q", got)
	}
	b.quiet()
}
