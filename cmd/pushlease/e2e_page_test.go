package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	chromepage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// hostile would run if any of the page's ways to show a text took it for markup.
const hostile = `"><img src=x onerror=alert(1)><script>alert(2)</script>`

// browser is a Chromium that looks at the page of a server.
type browser struct {
	*testing.T
	ctx  context.Context
	base string
	// opened says that the page is there: from then on only the view changes.
	opened bool
}

// chromium starts one Chromium for all tests of the page; TestMain ends it.
var chromium = sync.OnceValues(func() (context.Context, error) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		return nil, err
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU)
	all, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, leave := chromedp.NewContext(all)
	endChromium = func() { leave(); stop() }
	return ctx, chromedp.Do(ctx)
})

// endChromium ends the Chromium where one was started.
var endChromium = func() {}

// patience is how long something may take to be shown: on a machine with much other work the page of ten thousand
// webhooks takes half a minute.
const patience = time.Minute

// newBrowser is a window of its own, with cookies and a storage of its own, at the same time as all other tests. It skips the
// test where there is no Chromium.
func newBrowser(t *testing.T, base string) *browser {
	t.Helper()
	all, err := chromium()
	switch {
	case errors.Is(err, exec.ErrNotFound) && os.Getenv("CI") != "true":
		t.Skip("SKIPPED: Chromium is missing, so nobody looks at the page; apt-get install chromium")
	case err != nil:
		t.Fatalf("start Chromium, and CI has to look at the page: %v", err)
	}
	ctx, cancel := chromedp.NewContext(all, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	b := &browser{T: t, ctx: ctx, base: base}
	b.before(listener)
	return b
}

// before has a script run in each document before its own.
func (b *browser) before(script string) {
	b.Helper()
	if _, err := chromedp.Call(b.ctx, chromepage.AddScriptToEvaluateOnNewDocument, chromepage.AddScriptToEvaluateOnNewDocumentParams{Source: script}); err != nil {
		b.Fatalf("open a window of Chromium: %v", err)
	}
}

// listener notes what must not happen: code from outside that runs, what the policy refuses, and
// faults of the page's own scripts.
const listener = `
	window.faults = [];
	addEventListener('securitypolicyviolation', e => faults.push('CSP: ' + e.violatedDirective + ' ' + e.blockedURI));
	addEventListener('error', e => faults.push('error: ' + e.message));
	addEventListener('unhandledrejection', e => faults.push('unhandled: ' + (e.reason?.stack ?? e.reason)));
	for (const call of ['alert', 'confirm', 'prompt']) window[call] = text => faults.push('a text from outside ran: ' + text);
	console.error = (...all) => faults.push('console: ' + all.join(' '));`

// quiet fails the test for what the listener has noted.
func (b *browser) quiet() {
	b.Helper()
	if faults := b.eval("faults.splice(0).join('\\n')"); faults != "" {
		b.Error(faults)
	}
}

func (b *browser) do(what string, actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.Fatalf("%s: %v", what, err)
	}
}

func (b *browser) open(hash string) {
	b.Helper()
	if b.opened {
		b.eval("location.hash = " + fmt.Sprintf("%q", hash))
		return
	}
	b.do("open "+hash, chromedp.Navigate(b.base+"/ui/"+hash))
	b.opened = true
}

// eval is the value of a script in the page; the page's policy does not bind the debugger.
func (b *browser) eval(script string) string {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[string]("String("+script+")"))
	if err != nil {
		b.Fatalf("%s: %v", script, err)
	}
	return value
}

func (b *browser) text() string { b.Helper(); return b.eval(`document.body.innerText`) }

// see waits for all of these texts.
func (b *browser) see(texts ...string) {
	b.Helper()
	waitUntil(b.T, patience, func() string {
		shown := b.text()
		for _, want := range texts {
			if !strings.Contains(strings.ToLower(shown), strings.ToLower(want)) {
				return fmt.Sprintf("%q is not shown:\n%s", want, shown)
			}
		}
		return ""
	})
}

func (b *browser) press(keys string) { b.Helper(); b.do("press "+keys, chromedp.KeyEvent(keys)) }

// goTo goes to a page by its two keys. They are one command within a second and a half, and a busy machine may take
// longer from one to the other: then they are pressed anew.
func (b *browser) goTo(key, path string) {
	b.Helper()
	waitUntil(b.T, patience, func() string {
		b.press("g")
		b.press(key)
		if at := b.eval("location.hash"); at != "#/"+path {
			return fmt.Sprintf("g and %s lead to %s, want %s", key, at, path)
		}
		return ""
	})
}

// click clicks the button that says so.
func (b *browser) click(text string) {
	b.Helper()
	b.do("click "+text, chromedp.Click(fmt.Sprintf(`//button[normalize-space()=%q]`, text)))
}

func (b *browser) signIn(key string) {
	b.Helper()
	b.see("Sign in")
	b.do("sign in", chromedp.WaitVisible("#key"), chromedp.SendKeys("#key", key+kb.Enter))
}

// fits looks at a page in both schemes and at the widths of a phone, a laptop and a desk. Nothing may be wider
// than the screen; with -artifacts the screenshots are kept.
func (b *browser) fits(name string) {
	b.Helper()
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{320, 1280, 1920} {
			b.do("resize", chromedp.EmulateViewport(width, 900))
			media := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}
			if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: media}); err != nil {
				b.Fatal(err)
			}
			if got := b.eval(`document.documentElement.scrollWidth`); got != fmt.Sprint(width) {
				b.Errorf("%s is %s wide on a screen of %d", name, got, width)
			}
			if kept := flag.Lookup("test.artifacts"); kept == nil || kept.Value.String() != "true" {
				continue
			}
			png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
			if err != nil {
				b.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(b.ArtifactDir(), fmt.Sprintf("%s-%s-%d.png", name, scheme, width)), png, 0o600); err != nil {
				b.Error(err)
			}
		}
	}
	b.do("resize", chromedp.EmulateViewport(1280, 900))
}

// keyFor makes a key of some scopes, and the setting that knows it.
func keyFor(name, scopes string) (token, setting string) {
	token = "token-of-" + name
	hideFromLogs(token)
	sum := sha256.Sum256([]byte(token))
	return token, name + ":" + scopes + ":" + hex.EncodeToString(sum[:])
}

// troubled is a server with a day's trouble on it, and with hostile texts wherever texts come from.
type troubled struct {
	*process
	refuse               atomic.Bool
	queue, message, dead string
	hook                 hook
}

func newTroubled(t *testing.T) *troubled {
	_, admin := keyFor("admin", "admin")
	_, ops := keyFor("ops", "operate")
	_, reader := keyFor("reader", "read")
	s := &troubled{queue: queueName("page")}
	s.refuse.Store(true)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if s.refuse.Load() {
			w.WriteHeader(http.StatusBadRequest)
		}
		_, _ = io.WriteString(w, hostile)
	}))
	t.Cleanup(receiver.Close)
	s.process = sqliteStore(t).start(t, "PUSHLEASE_API_KEYS="+strings.Join([]string{admin, ops, reader}, ","))
	s.header = http.Header{"Authorization": {"Bearer token-of-admin"}}
	s.hook = s.register(s.queue, receiver.URL, map[string]any{"name": "name " + hostile})
	s.message = s.publish(s.queue, `{"note":`+fmt.Sprintf("%q", bodyMark+hostile)+`}`)
	s.waitState(30*time.Second, s.queue, s.message, s.hook.ID, "dead_lettered")
	var list struct{ Data []struct{ ID string } }
	s.call(http.MethodGet, "/api/v1/dead-letters", "", http.StatusOK, &list)
	s.dead = list.Data[0].ID
	return s
}

func TestThePageShowsEverythingAndRunsNothingFromOutside(t *testing.T) {
	t.Parallel()
	s := newTroubled(t)
	b := newBrowser(t, s.url)
	b.open("#/")
	b.signIn("token-of-nobody")
	b.see("no API key that is known")
	b.signIn("token-of-admin")
	b.see("Overview", "One thing needs you", "refuses", "name "+hostile)
	if kept := b.eval(`document.cookie + JSON.stringify(localStorage) + JSON.stringify(sessionStorage)`); !regexp.MustCompile(`^{"pushlease /":"[A-Z2-7]{52}"}{}$`).MatchString(kept) {
		t.Errorf("the browser keeps %s where scripts can read it, want the page's half of the session alone", kept)
	}
	for _, p := range []struct {
		name, hash string
		shows      []string
	}{
		{"overview", "#/", []string{"One thing needs you", s.queue, "Instances", "ready"}},
		{"queues", "#/queues", []string{s.queue, "received"}},
		{"queue", "#/queues/" + s.queue, []string{"Who would take it?", "name " + hostile, "400", "Lease"}},
		{"webhooks", "#/webhooks", []string{"name " + hostile, "refuses 1 of 1"}},
		{"webhook", "#/webhooks/" + s.hook.ID, []string{"name " + hostile, "Registration", "Breaker", "closed", "dead letter"}},
		{"messages", "#/messages", []string{"400", "dead letter", "name " + hostile}},
		{"message", "#/messages/" + url.PathEscape(s.message) + "?queue=" + s.queue, []string{"What happened", "published", "attempt 1", "dead lettered", "See the dead letter"}},
		{"dead-letters", "#/dead-letters", []string{"NonRetryableError", "1 dead letter", "waiting"}},
		{"dead-letter", "#/dead-letters/" + s.dead, []string{"NonRetryableError", s.message, "Show it"}},
		{"states", "#/messages?as=states&state=dead_lettered", []string{"dead lettered", "400", "name " + hostile}},
		{"jobs", "#/jobs", []string{"Jobs", "dead-letters replay"}},
		{"audit", "#/audit", []string{"registered", "admin", "name " + hostile}},
		{"settings", "#/settings", []string{"What is asked of storage", "it is a file", "Dead letters stay until", "Checks", "passes", "poll_min", "20ms", "environment", "drain", "default"}},
	} {
		b.open(p.hash)
		b.see(p.shows...)
		b.fits(p.name)
		b.quiet()
	}
	b.open("#/messages/" + url.PathEscape(s.message) + "?queue=" + s.queue)
	b.see("attempt 1")
	if title := b.eval("document.title"); title != s.message+" · pushlease" {
		t.Errorf("the tab of a message is called %q", title)
	}
	b.do("open the attempt", chromedp.Click(".timeline summary"))
	b.see("Answer begins", hostile)
	b.open("#/dead-letters/" + s.dead)
	b.click("Show it")
	b.see(hostile[2:])
	b.click("hex")
	b.see("00000  7b 22")
	if n := b.eval(`document.querySelectorAll('main img, main script, main iframe').length`); n != "0" {
		t.Errorf("%s elements were made of texts from outside", n)
	}
	b.quiet()
}

// From signing in to a message that is delivered, without a mouse.
func TestThePageReplaysByTheKeyboardAlone(t *testing.T) {
	t.Parallel()
	s := newTroubled(t)
	s.refuse.Store(false)
	b := newBrowser(t, s.url)
	b.open("#/")
	b.signIn("token-of-ops")
	b.see("One thing needs you")
	b.press("?")
	b.see("find a message, queue or webhook")
	b.press(kb.Escape)
	b.goTo("d", "dead-letters")
	b.see("1 dead letter")
	b.press("j")
	for i := 0; b.eval(`document.activeElement.getAttribute('href')?.includes('`+s.dead+`')`) != "true"; i++ {
		if i == 5 {
			t.Fatalf("j does not come to the dead letter: %s", b.eval(`document.activeElement.outerHTML`))
		}
		b.press("j")
	}
	b.press(kb.Enter)
	b.see("Show it", s.message)
	b.press("r")
	b.see("Replay it?")
	if focused := b.eval(`document.activeElement.textContent`); focused != "Cancel" {
		t.Errorf("%q has the focus: Enter alone must change nothing", focused)
	}
	b.press(kb.Tab)
	b.press(kb.Enter)
	b.see("What happened", "replayed", "it is delivered")
	b.press("/")
	if focused := b.eval("document.activeElement.id"); focused != "find" {
		t.Errorf("/ focuses %q", focused)
	}
	b.eval(`document.activeElement.value = ''`) // the protocol types the slash although the page takes it as a command
	b.press(s.queue + kb.Enter)
	b.see("Who would take it?")
	b.press(kb.Escape)
	b.see("Queues", s.queue)
	b.goTo("a", "audit")
	b.see("replayed a dead letter", "ops")
	b.quiet()
}

func TestThePageDrawsOnlyWhatTheKeyMayDo(t *testing.T) {
	t.Parallel()
	s := newTroubled(t)
	b := newBrowser(t, s.url)
	b.open("#/dead-letters/" + s.dead)
	b.signIn("token-of-reader")
	b.see("NonRetryableError", "scope operate") // the view that was asked for, after signing in
	for _, hash := range []string{"#/dead-letters/" + s.dead, "#/dead-letters", "#/webhooks/" + s.hook.ID, "#/messages/" + s.message} {
		b.open(hash)
		b.see("Copy as curl")
		b.do("wait for it", chromedp.WaitVisible("main .card"))
		if found := b.eval(`[...document.querySelectorAll('main button')].map(b => b.textContent).filter(t => /replay|delete|disable|enable|test|rotate|show it/i.test(t)).join()`); found != "" {
			t.Errorf("%s offers %s", hash, found)
		}
	}
	if found := b.eval(`[...document.querySelectorAll('nav a')].map(a => a.textContent).join()`); strings.Contains(found, "Audit") || !strings.Contains(found, "Settings") {
		t.Errorf("who may only read is led to %s", found)
	}
	b.goTo("s", "settings")
	b.see("Checks", "passes", "needs a key with the scope admin")
	if strings.Contains(b.text(), "poll_min") {
		t.Error("who may only read sees the settings")
	}
	b.click("Sign out")
	b.see("Show one of them")
	b.quiet()
}

func TestThePageSaysThatTheServerIsAway(t *testing.T) {
	t.Parallel()
	s := newTroubled(t)
	b := newBrowser(t, s.url)
	b.open("#/")
	b.signIn("token-of-reader")
	b.see("One thing needs you")
	s.kill()
	b.see("The server does not answer", "What is below is from", s.queue)
	b.quiet()
}
