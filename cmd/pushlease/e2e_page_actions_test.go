package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// fill writes into a field of a form.
func (b *browser) fill(name, text string) {
	b.Helper()
	selector := fmt.Sprintf(`[name=%q]`, name)
	b.eval(fmt.Sprintf("document.querySelector(%q).value = ''", selector))
	b.do("fill "+name, chromedp.SendKeys(selector, text))
}

// set gives a field its value, also where it is folded away.
func (b *browser) set(name, value string) {
	b.Helper()
	b.eval(fmt.Sprintf(`document.querySelector('[name=%q]').value = %q`, name, value))
}

// Registering, changing and deleting, with nothing but the page.
func TestThePageRegistersChangesAndDeletesAWebhook(t *testing.T) {
	t.Parallel()
	s := sqliteStore(t).start(t)
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(receiver.Close)
	b := newBrowser(t, s.url)
	b.open("#/webhooks")
	b.see("No webhook is registered")
	b.do("open the form", chromedp.Click(`//a[normalize-space()="Register a webhook"]`))
	b.see("Event types")
	b.fits("webhook-form")
	b.fill("queue", "orders")
	b.fill("url", "nonsense")
	b.click("Register")
	b.see("can't be used")
	if focused := b.eval("document.activeElement.name"); focused != "url" {
		t.Errorf("%q has the focus, and not the field that is wrong", focused)
	}
	b.fill("url", receiver.URL)
	b.fill("name", "name "+hostile)
	b.fill("headers", "X-Kept: one\nX-Gone: two")
	b.click("Register")
	b.see("The new secret", "whsec_")
	b.press(kb.Escape)
	b.press(kb.Escape) // browsers close a dialog at the second one, whatever it says
	b.see("whsec_")
	b.click("I have it")
	b.see("It is done, with a warning", "does not exist yet")
	b.click("Close")
	b.see("name "+hostile, "Registration", "X-Gone, X-Kept")
	var list struct{ Data []hook }
	s.call(http.MethodGet, "/api/v1/webhooks", "", http.StatusOK, &list)
	if len(list.Data) != 1 {
		t.Fatalf("%d webhooks", len(list.Data))
	}
	id := list.Data[0].ID

	b.do("open the form", chromedp.Click(`//a[normalize-space()="Change"]`))
	b.see("See what would change")
	b.fill("policy.max_attempts", "3")
	b.fill("filter.types", "order.*")
	b.do("take a header away", chromedp.Click(`[name="take-away"][value="X-Gone"]`))
	b.click("See what would change")
	b.see("Change the webhook?", "Attempts", "order.*", "taken away")
	b.fits("webhook-diff")
	b.click("Change it")
	b.see("Registration", "3 within", `{"types":["order.*"]}`)
	var now struct {
		Name    string
		Headers map[string]string
		Policy  struct {
			Max int `json:"max_attempts"`
		}
	}
	s.call(http.MethodGet, "/api/v1/webhooks/"+id, "", http.StatusOK, &now)
	if len(now.Headers) != 1 || now.Headers["X-Kept"] == "" || now.Policy.Max != 3 || now.Name != "name "+hostile {
		t.Errorf("%+v", now)
	}

	b.do("open the form", chromedp.Click(`//a[normalize-space()="Change"]`))
	b.see("See what would change")
	b.set("signatures.v1a", "true")
	b.set("signatures.hmac.preset", "github")
	b.set("signatures.hmac.secret", "a secret of theirs")
	b.set("auth.oauth2.client_id", "pushlease")
	b.set("auth.oauth2.client_secret", "a secret of ours")
	b.set("auth.oauth2.params", "resource: https://example.com")
	b.click("See what would change")
	b.click("Change it")
	b.see("the URL does not begin with https") // none was given, and its field was folded away
	if focused := b.eval("document.activeElement.name"); focused != "auth.oauth2.token_url" {
		t.Errorf("%q has the focus, and not the token's URL", focused)
	}
	b.set("auth.oauth2.token_url", receiver.URL)
	b.click("See what would change")
	b.see("HMAC: preset", "github", "another value")
	if strings.Contains(b.text(), "a secret of") {
		t.Error("what would change shows a secret")
	}
	b.click("Change it")
	b.see("The URL is not https") // a warning
	b.click("Close")
	b.see("Registration", "3 within")
	var signed struct {
		Signatures struct {
			V1a  bool
			HMAC map[string]string
		}
		Auth struct {
			OAuth2 *struct {
				ClientID string            `json:"client_id"`
				Secret   string            `json:"client_secret"`
				Params   map[string]string `json:"params"`
			}
		}
	}
	s.call(http.MethodGet, "/api/v1/webhooks/"+id, "", http.StatusOK, &signed)
	if o := signed.Auth.OAuth2; !signed.Signatures.V1a || signed.Signatures.HMAC["preset"] != "github" || signed.Signatures.HMAC["secret"] == "" || o == nil || o.ClientID != "pushlease" || o.Secret == "" || len(o.Params) != 1 {
		t.Errorf("%+v", signed)
	}

	// What is left empty ends, and no more: the signature stays.
	b.do("open the form", chromedp.Click(`//a[normalize-space()="Change"]`))
	b.see("See what would change")
	for _, name := range []string{"token_url", "client_id"} {
		b.set("auth.oauth2."+name, "")
	}
	b.eval(`[...document.querySelectorAll('[name="take-away"][data-of^="auth."]')].forEach((box) => { box.checked = true; })`)
	b.click("See what would change")
	b.see("taken away")
	b.click("Change it")
	b.see("Registration", "3 within")
	signed.Auth.OAuth2, signed.Signatures.HMAC = nil, nil
	s.call(http.MethodGet, "/api/v1/webhooks/"+id, "", http.StatusOK, &signed)
	if signed.Auth.OAuth2 != nil || !signed.Signatures.V1a || signed.Signatures.HMAC["secret"] == "" {
		t.Errorf("%+v", signed)
	}

	b.do("open the form", chromedp.Click(`//a[normalize-space()="Change"]`))
	b.see("See what would change")
	s.call(http.MethodPatch, "/api/v1/webhooks/"+id, `{"name":"of somebody else"}`, http.StatusOK, nil)
	b.fill("timeout", "5s")
	b.click("See what would change")
	b.click("Change it")
	b.see("Somebody has changed it meanwhile")
	b.click("Close")
	b.do("leave the form", chromedp.Click(`//a[normalize-space()="Leave"]`))
	b.see("of somebody else", "30 s")
	b.click("Delete")
	b.see("Delete the webhook?")
	b.do("yes", chromedp.Click(`//dialog//button[normalize-space()="Delete"]`))
	b.see("No webhook is registered")
	b.quiet()
}

// Two clicks register one webhook and ask once. Where the answer is lost and the form is changed then, the page says what has happened.
func TestThePageSaysThatALostAnswerHasRegistered(t *testing.T) {
	t.Parallel()
	s := sqliteStore(t).start(t)
	inner := balanced(t, s)
	var asked atomic.Int64
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/api/v1/webhooks" || asked.Add(1) > 1 {
			inner.ServeHTTP(w, r)
			return
		}
		inner.ServeHTTP(httptest.NewRecorder(), r)
		w.WriteHeader(http.StatusBadGateway)
	}))
	t.Cleanup(front.Close)
	b := newBrowser(t, front.URL)
	b.open("#/webhooks?form=new")
	b.see("Event types")
	b.fill("queue", "orders")
	b.fill("url", "https://example.com/hook")
	b.fill("name", "as it was first")
	b.eval(`[1, 2].map(() => document.querySelector('form.register button').click())`)
	b.see("That did not work")
	b.click("Close")
	if n := asked.Load(); n != 1 {
		t.Errorf("two clicks made %d requests", n)
	}
	b.fill("name", "as it was changed")
	b.click("Register")
	b.see("It is registered already")
	b.click("To the webhooks")
	b.see("as it was first")
	b.quiet()
}

// What is chosen with x is replayed or deleted, and nothing else.
func TestThePageReplaysAndDeletesWhatWasChosen(t *testing.T) {
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
	var messages []string
	for i := range 5 {
		messages = append(messages, s.publish("orders", fmt.Sprintf(`{"order":%d}`, i)))
	}
	for _, m := range messages {
		s.waitState(30*time.Second, "orders", m, hook.ID, "dead_lettered")
	}
	refuse.Store(false)
	b := newBrowser(t, s.url)
	b.open("#/dead-letters")
	b.see("5 dead letters", "Replay all 5")
	b.eval(`document.querySelectorAll('.card:last-of-type tbody th a')[0].focus()`)
	b.press("x")
	b.see("Replay 1 chosen")
	b.press("j")
	b.press("x")
	b.see("Replay 2 chosen")
	b.press("r")
	b.see("Replay 2 dead letters?")
	b.click("Replay 2")
	b.see("2 of 2 sent again") // it is shown for five seconds, and the list may be read later
	b.see("3 dead letters")
	b.eval(`document.querySelectorAll('.card:last-of-type tbody th input')[0].click()`)
	b.click("Delete 1 chosen")
	b.see("Delete 1 dead letter?")
	b.click("Delete 1")
	b.see("1 of 1 deleted")
	b.see("2 dead letters")
	if left := s.deadLetters("orders", "waiting"); len(left) != 2 {
		t.Errorf("%d dead letters wait, want the two that were not chosen", len(left))
	}
	b.click("Replay all 2")
	b.see("Replay 2 dead letters?", "At most a second")
	b.fill("limit", "1")
	b.click("Replay 2")
	b.see("Replay job", "1 of 2 replayed", "done")
	b.open("#/dead-letters")
	b.click("Delete this one")
	b.see("Never replayed")
	b.click("Delete 1")
	b.see("1 dead letter is deleted")
	b.see("No dead letter waits")
	b.quiet()
}

// A filter that the API refuses leaves the form there, with what was typed; a webhook may be named.
func TestThePageKeepsAFormWhoseAnswerIsWrong(t *testing.T) {
	t.Parallel()
	s := newTroubled(t)
	b := newBrowser(t, s.url)
	b.open("#/messages")
	b.signIn("token-of-reader")
	b.see("dead letter")
	b.fill("queue", "My Orders"+kb.Enter)
	b.see("The request is not valid")
	if typed := b.eval(`document.querySelector('[name=queue]').value + document.activeElement.name`); typed != "My Ordersqueue" {
		t.Errorf("the form has %q", typed)
	}
	b.fill("queue", s.queue)
	b.fill("webhook", "name "+hostile+kb.Enter)
	waitUntil(t, patience, func() string { // its id is asked for
		if hash := b.eval(`location.hash`); !strings.Contains(hash, "webhook="+s.hook.ID) {
			return "the address is " + hash
		}
		return ""
	})
	b.see("dead letter", "400")
	b.quiet()
}

// rotation sends each request to the next server, as one without affinity does.
type rotation struct {
	*httptest.Server
	next    atomic.Int64
	proxies atomic.Pointer[[]http.Handler]
}

func balanced(t *testing.T, servers ...*process) *rotation {
	t.Helper()
	b := &rotation{}
	b.turnTo(t, servers...)
	b.Server = httptest.NewServer(b)
	t.Cleanup(b.Close)
	return b
}

// turnTo has these servers answer from now on, while requests go on.
func (b *rotation) turnTo(t *testing.T, servers ...*process) {
	t.Helper()
	var proxies []http.Handler
	for _, s := range servers {
		target, err := url.Parse(s.url)
		if err != nil {
			t.Fatal(err)
		}
		proxies = append(proxies, &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target); r.Out.Host = r.In.Host },
			ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }})
	}
	b.proxies.Store(&proxies)
}

func (b *rotation) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	proxies := *b.proxies.Load()
	if len(proxies) == 0 {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	proxies[int(b.next.Add(1))%len(proxies)].ServeHTTP(w, r)
}

// Nobody who signs in at one instance is a stranger to the next one, nor after a restart. Who signs out while no server answers is signed out.
func TestThePageWorksBehindABalancerAndAfterARestart(t *testing.T) {
	t.Parallel()
	_, admin := keyFor("admin", "admin")
	keys, first := "PUSHLEASE_API_KEYS="+admin, sqliteStore(t)
	one, two := first.start(t, keys), sqliteStore(t).start(t, keys)
	front := balanced(t, one, two)
	b := newBrowser(t, front.URL)
	b.before(`window.asked = 0; { const real = window.fetch; window.fetch = (...all) => { if (String(all[0]).endsWith('/session')) window.asked++; return real(...all); }; }`)
	b.open("#/")
	b.signIn("token-of-admin")
	b.see("Begin here")
	for _, hash := range []string{"#/queues", "#/webhooks", "#/messages", "#/dead-letters", "#/jobs", "#/"} {
		b.open(hash)
		b.do("wait for it", chromedp.WaitVisible("main .empty, main .card"))
	}
	if asked := b.eval("window.asked"); asked != "3" { // once at first, to sign in, and once after it
		t.Errorf("the page asked %s times who it is", asked)
	}
	one.kill()
	two.kill()
	b.see("Storage or server is away", "What is below is from")
	again := first.start(t, keys)
	front.turnTo(t, again)
	b.see("Begin here")
	b.do("the notice goes", chromedp.WaitNotPresent("#notice .bad"))
	again.kill()
	b.click("Sign out") // while no server answers
	b.see("The server does not answer")
	front.turnTo(t, first.start(t, keys))
	b.see("Show one of them")
	b.quiet()
}

// Something in front of the server that adds the key: the page needs no session, and has none to end.
func TestThePageWorksWhereTheKeyIsAddedToEachRequest(t *testing.T) {
	t.Parallel()
	_, admin := keyFor("admin", "admin")
	s := sqliteStore(t).start(t, "PUSHLEASE_API_KEYS="+admin)
	inner := balanced(t, s)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Authorization", "Bearer token-of-admin")
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	b := newBrowser(t, front.URL)
	b.open("#/")
	b.see("Begin here", "admin", "$PUSHLEASE_API_KEY")
	if strings.Contains(b.text(), "Sign out") {
		t.Error("there is nothing to sign out of")
	}
	b.quiet()
}
