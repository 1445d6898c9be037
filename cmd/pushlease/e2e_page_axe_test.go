package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/pushlease/pushlease/internal/npmtest"
)

// barred are what axe finds against WCAG 2.2, A and AA, and against good practice, in what is shown.
const barred = `axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] }).then((found) =>
	found.violations.flatMap((v) => v.nodes.map((n) => v.id + ': ' + v.help + ': ' + n.html.slice(0, 160) + ' ' + n.any.concat(n.all, n.none).map((c) => c.message).join(' ').slice(0, 200))).join('\n'))`

// Nothing in the page keeps somebody out who can't see it or uses the keyboard alone, as far as axe can tell.
func TestThePageBarsNobody(t *testing.T) {
	t.Parallel()
	axe, err := os.ReadFile(filepath.Join(npmtest.Axe.InstallFor(t), "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	s := newTroubled(t)
	b := newBrowser(t, s.url)
	b.open("#/")
	b.see("Sign in")
	b.eval("(" + "() => {" + string(axe) + "\n})()")
	look := func(name string) {
		t.Helper()
		for _, scheme := range []string{"light", "dark"} {
			media := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}
			if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: media}); err != nil {
				t.Fatal(err)
			}
			if found := b.later(barred); found != "" {
				t.Errorf("%s, %s:\n%s", name, scheme, found)
			}
		}
	}
	look("sign in")
	b.signIn("token-of-admin")
	for _, p := range []struct{ name, hash, shows string }{
		{"overview", "#/", "Instances"},
		{"queues", "#/queues", "received"},
		{"queue", "#/queues/" + s.queue, "Who would take it?"},
		{"webhooks", "#/webhooks", "Register a webhook"},
		{"new webhook", "#/webhooks?form=new", "Event types"},
		{"webhook", "#/webhooks/" + s.hook.ID, "Registration"},
		{"messages", "#/messages", "Took"},
		{"message", "#/messages/" + s.message, "attempt 1"},
		{"dead letters", "#/dead-letters", "1 dead letter"},
		{"dead letter", "#/dead-letters/" + s.dead, "Show it"},
		{"states", "#/messages?as=states", "dead lettered"},
		{"jobs", "#/jobs", "dead-letters replay"},
		{"audit", "#/audit", "registered"},
		{"settings", "#/settings", "poll_min"},
	} {
		b.open(p.hash)
		b.see(p.shows)
		look(p.name)
	}
	b.press("?")
	b.see("find a message, queue or webhook")
	look("keys")
}
