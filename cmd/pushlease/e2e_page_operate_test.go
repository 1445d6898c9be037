package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// yes presses the button of a dialog.
func (b *browser) yes(text string) {
	b.Helper()
	b.do("answer "+text, chromedp.Click(fmt.Sprintf(`//dialog//button[normalize-space()=%q]`, text)))
}

// find types into the field at the top.
func (b *browser) find(text string) {
	b.Helper()
	b.eval(`document.querySelector('#find').focus()`)
	b.press(text + kb.Enter)
}

// Each thing that can be done with one webhook, queue or dead letter is done, and the server has it.
func TestThePageDoesWhatItOffers(t *testing.T) {
	t.Parallel()
	s := newTroubled(t)
	s.refuse.Store(false)
	b := newBrowser(t, s.url)
	b.open("#/webhooks/" + s.hook.ID)
	b.signIn("token-of-admin")
	b.see("Registration")
	var now struct {
		Enabled bool
		Secrets []any
	}
	read := func() { s.call(http.MethodGet, "/api/v1/webhooks/"+s.hook.ID, "", http.StatusOK, &now) }

	b.press("t")
	b.see("200", "Nothing was stored", hostile)
	b.do("open what was sent", chromedp.Click(`//summary[normalize-space()="What was sent"]`))
	b.see("POST http://127.0.0.1", "Webhook-Signature: [redacted]", "Pushlease-Queue: "+s.queue, `{"message_id":"test_`)
	b.press("e")
	b.see("Disable the webhook?")
	b.press(kb.Escape)
	b.do("the dialog goes", chromedp.WaitNotPresent("dialog[open]"))
	if read(); !now.Enabled {
		t.Error("it is disabled, and nobody has said yes")
	}
	b.press("e")
	b.yes("Disable")
	b.see("An operator disabled it")
	if read(); now.Enabled {
		t.Error("it is enabled")
	}
	b.click("Enable")
	b.see("is enabled")
	if read(); !now.Enabled {
		t.Error("it is disabled")
	}
	b.click("Rotate secret")
	b.yes("Rotate")
	b.see("The new secret", "whsec_")
	b.click("I have it")
	b.see("signs until")
	if read(); len(now.Secrets) != 2 {
		t.Errorf("%d secrets", len(now.Secrets))
	}

	b.open("#/queues/" + s.queue)
	b.see("Who would take it?")
	b.do("paste a message", chromedp.SendKeys("#match", `{"order":1}`))
	b.click("Ask")
	b.see("delivered", "takes it")
	b.do("paste another", chromedp.SendKeys("#match", `}`))
	b.click("Ask")
	b.see("takes it")

	quiet := queueName("quiet") // nobody takes what is on it
	s.publish(quiet, `{"note":`+fmt.Sprintf("%q", hostile)+`}`)
	s.publishRaw(quiet, "?delay=1h", "text/plain", []byte("later"))
	b.open("#/queues/" + quiet)
	b.see("No webhook takes its messages")
	b.click("Look")
	b.see("1 message at the front", "Delayed by their publisher", "in 60 min")
	b.do("open its body", chromedp.Click(`//summary[starts-with(normalize-space(), "Body of")]`))
	b.see(hostile[2:])

	for text, shows := range map[string]string{s.hook.ID: "Registration", "name " + hostile: "Registration", s.queue: "Who would take it?", s.message: "What happened", "nothing-is-called-so": "Nothing is recorded about that message"} {
		b.open("#/jobs")
		b.see("No job replays")
		b.find(text)
		b.see(shows)
	}

	b.open("#/dead-letters")
	b.see("1 dead letter")
	for by, group := range map[string]string{"Queue": s.queue, "Webhook": "name " + hostile, "Reason": "NonRetryableError", "Last answer": "400", "Cause": "The webhook answered 400"} {
		b.open("#/dead-letters")
		b.do("group by "+by, chromedp.Click(fmt.Sprintf(`//p[contains(@class,"switch")]/a[normalize-space()=%q]`, by)))
		b.do("take the group", chromedp.Click(fmt.Sprintf(`//table[caption="By %s"]//tbody/tr[1]//a`, by)))
		b.see("1 dead letter", strings.ToLower(strings.TrimPrefix(by, "Last "))+": "+group)
		b.do("take the filter away", chromedp.Click(`a.chip`))
		b.do("it is away", chromedp.WaitNotPresent(`a.chip`))
	}
	b.open("#/dead-letters?queue=nothing")
	b.see("No dead letter is like that")
	b.open("#/dead-letters/" + s.dead)
	b.see("Show it")
	b.click("Delete")
	b.see("Delete it?")
	b.yes("Delete")
	b.see("No dead letter waits")
	if left := s.deadLetters(s.queue, "waiting"); len(left) != 0 {
		t.Errorf("%d dead letters wait", len(left))
	}
	b.quiet()
}

// Who is signed in and is not any more comes back to what was shown, after signing in again; what was asked for meanwhile is not done.
func TestThePageAsksAgainWhenItsSessionEnds(t *testing.T) {
	t.Parallel()
	s := newTroubled(t)
	b := newBrowser(t, s.url)
	end := func() {
		t.Helper()
		if _, err := chromedp.Call(b.ctx, network.ClearBrowserCookies, cdp.Empty{}); err != nil {
			t.Fatal(err)
		}
	}
	b.open("#/dead-letters/" + s.dead)
	b.signIn("token-of-ops")
	b.see("NonRetryableError")
	end()
	b.see("Show one of them") // at the next look
	b.signIn("token-of-ops")
	b.see("NonRetryableError", "Show it")
	b.press("r")
	b.see("Replay it?")
	end()
	b.yes("Replay")
	b.see("Show one of them")
	if left := s.deadLetters(s.queue, "waiting"); len(left) != 1 {
		t.Errorf("%d dead letters wait: a stranger has replayed", len(left))
	}
	b.signIn("token-of-ops")
	b.see("Show it")
	half := b.eval(`localStorage.getItem('pushlease /')`)
	asked := fmt.Sprintf(`fetch('/api/v1/webhooks', { headers: { 'Pushlease-Page': %q } }).then((r) => r.status)`, half)
	if got := b.later(asked); got != "200" {
		t.Errorf("who is signed in is answered %s", got)
	}
	b.click("Sign out")
	b.see("Show one of them")
	if got := b.later(asked); got != "401" {
		t.Errorf("who has signed out is answered %s", got)
	}
	b.quiet()
}

// A job that replays many is watched and canceled, and what it has not sent stays; a list goes on where "Show more" is.
func TestThePageWatchesAndCancelsAJob(t *testing.T) {
	t.Parallel()
	var refuse atomic.Bool
	refuse.Store(true)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if refuse.Load() {
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	t.Cleanup(receiver.Close)
	s := sqliteStore(t).start(t)
	hook := s.register("orders", receiver.URL, map[string]any{"name": "billing"})
	const many = 60
	for _, m := range s.publishMany("orders", many) {
		s.waitState(60*time.Second, "orders", m, hook.ID, "dead_lettered")
	}
	refuse.Store(false)
	b := newBrowser(t, s.url)
	for hash, rows := range map[string]string{"#/messages": "main tbody tr", "#/dead-letters": ".card:last-of-type tbody tr"} {
		b.open(hash)
		b.see("billing", "Show more")
		b.click("Show more")
		waitUntil(t, patience, func() string {
			if n := b.eval(`document.querySelectorAll('` + rows + `').length`); n != fmt.Sprint(many) {
				return hash + " has " + n + " rows"
			}
			return ""
		})
	}
	b.open("#/dead-letters")
	b.click(fmt.Sprintf("Replay all %d", many))
	b.see("At most a second")
	b.fill("rate", "0.5")
	b.click(fmt.Sprintf("Replay %d", many))
	b.see("Replay job", "running", fmt.Sprintf("of %d replayed", many))
	b.click("Cancel it")
	b.see("Cancel the job?")
	b.yes("Cancel the job")
	b.do("it is over", chromedp.WaitNotPresent(`//button[normalize-space()="Cancel it"]`))
	if j := s.job(strings.TrimPrefix(b.eval(`location.hash`), "#/jobs/")); j.State != "canceled" {
		t.Errorf("the job is %s", j.State)
	}
	left := len(s.deadLetters("orders", "waiting"))
	if left == 0 || left == many {
		t.Errorf("%d of %d dead letters wait after a job of 0.5/s was canceled", left, many)
	}
	b.open("#/jobs")
	b.see("canceled", fmt.Sprintf("%d of %d", many-left, many))
	b.quiet()
}

// Two servers on one Azure storage, behind something that sends each request to the other one: the page tells of both, goes on while one is
// away, and says when storage is, also to who opens it then.
func TestThePageOnTwoServersOfOneAzureStorage(t *testing.T) {
	t.Parallel()
	store := faultyStore(t)
	_, ops := keyFor("ops", "operate+publish+admin")
	one, two := store.start(t, "PUSHLEASE_API_KEYS="+ops, "PUSHLEASE_INSTANCE=first"), store.start(t, "PUSHLEASE_API_KEYS="+ops, "PUSHLEASE_INSTANCE=second")
	one.header = http.Header{"Authorization": {"Bearer token-of-ops"}}
	front, queue := balanced(t, one, two), queueName("page")
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(receiver.Close)
	hook := one.register(queue, receiver.URL, map[string]any{"name": "name " + hostile})
	message := one.publish(queue, `{"order":1}`)
	one.waitState(30*time.Second, queue, message, hook.ID, "delivered")
	b := newBrowser(t, front.URL)
	b.open("#/messages/" + message + "?queue=" + queue)
	b.signIn("token-of-ops")
	b.see("What happened", "it is delivered", "name "+hostile)
	for hash, shows := range map[string]string{"#/webhooks": "name " + hostile, "#/queues/" + queue: "name " + hostile, "#/messages": "name " + hostile, "#/dead-letters": "No dead letter waits", "#/jobs": "No job replays"} {
		b.open(hash)
		b.see(shows)
		b.quiet()
	}
	b.open("#/")
	b.see("Instances", "first", "second", "name "+hostile)
	two.kill()
	front.turnTo(t, one)
	b.open("#/webhooks")
	b.see("name " + hostile)

	store.proxy.Down()
	b.see("Storage or server is away", "What is below is from", "name "+hostile)
	b.do("open it anew", chromedp.Reload())
	b.see("Storage or server is away", "Nothing is known yet")
	store.proxy.Up()
	b.see("name " + hostile)
	b.do("the notice goes", chromedp.WaitNotPresent("#notice .bad"))
	b.quiet()
}
