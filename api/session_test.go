package api

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
)

// signedIn is what a browser has after signing in: a cookie, and the page's half of the session.
type signedIn struct {
	*http.Cookie
	half string
}

// signIn shows a key as the page does.
func (h *harness) signIn(key string) signedIn {
	h.Helper()
	a := h.do(http.StatusCreated, "POST", "/api/v1/session", "", "Authorization", "Bearer "+key, pageHeader, "1", "Sec-Fetch-Site", "same-origin")
	cookies := (&http.Response{Header: a.header}).Cookies()
	if len(cookies) != 1 {
		h.Fatalf("%v", a.header)
	}
	a.wantNot(cookies[0].Value)
	return signedIn{cookies[0], a.text("page_token")}
}

// asPage are the headers of a request of the page.
func asPage(c signedIn, more ...string) []string {
	return append([]string{"Cookie", c.Name + "=" + c.Value, pageHeader, c.half}, more...)
}

func TestASessionMayDoWhatItsKeyMay(t *testing.T) {
	h := newHarness(t, withKeys)
	h.do(http.StatusUnauthorized, "GET", "/api/v1/webhooks", "", pageHeader, "1")
	read, admin := h.signIn("read"), h.signIn("admin")
	for _, c := range []signedIn{read, admin} {
		if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Secure || c.Path != "/" || c.MaxAge != 12*60*60 {
			t.Errorf("%v", c)
		}
		h.do(http.StatusOK, "GET", "/api/v1/webhooks", "", asPage(c)...)
	}
	const body = `{"queue":"orders","url":"https://example.com/hook"}`
	h.do(http.StatusForbidden, "POST", "/api/v1/webhooks", body, asPage(read)...)
	h.do(http.StatusCreated, "POST", "/api/v1/webhooks", body, asPage(admin)...)

	a := h.do(http.StatusOK, "GET", "/api/v1/session", "", asPage(read)...)
	if a.text("key") != "key-read" || a.get("signed_in") != true || !slices.Equal(a.get("scopes").([]any), []any{"read"}) {
		t.Errorf("%s", a.body)
	}
	if got := h.do(http.StatusOK, "GET", "/api/v1/session", "", asPage(admin)...).get("scopes").([]any); len(got) != 4 {
		t.Errorf("%v", got)
	}
	if !strings.Contains(h.log.String(), `"api_key":"key-admin"`) || strings.Contains(h.log.String(), admin.Value) || strings.Contains(h.log.String(), admin.half) {
		t.Error("the log should name the key, and not hold the session")
	}

	a = h.do(http.StatusNoContent, "DELETE", "/api/v1/session", "", asPage(read)...)
	if gone := (&http.Response{Header: a.header}).Cookies(); len(gone) != 1 || gone[0].Name != read.Name || gone[0].Value != "" || gone[0].MaxAge >= 0 {
		t.Errorf("signing out leaves the cookie: %v", gone)
	}
	a = h.do(http.StatusOK, "GET", "/api/v1/session", "", pageHeader, "1")
	if a.get("signed_in") != false || a.get("keys_set") != true || len(a.get("scopes").([]any)) != 0 {
		t.Errorf("%s", a.body)
	}
	a.wantNot("instance")
}

func TestASessionIsSecureOnHTTPS(t *testing.T) {
	h := newHarness(t, withKeys)
	a := h.do(http.StatusCreated, "POST", "/api/v1/session", "", "Authorization", "Bearer read", pageHeader, "1", "X-Forwarded-Proto", "https")
	c := (&http.Response{Header: a.header}).Cookies()[0]
	if !c.Secure || c.Name != "__Host-pushlease_session_8080" || c.Path != "/" || c.Domain != "" {
		t.Errorf("%v", c)
	}
	// The proxy may say so of some requests only.
	h.do(http.StatusOK, "GET", "/api/v1/webhooks", "", asPage(signedIn{c, a.text("page_token")})...)
}

// Cookies know no port: two servers of one host, and whoever else sets cookies there.
func TestSessionsOfOneHostDoNotDisturbEachOther(t *testing.T) {
	h := newHarness(t, withKeys)
	c := h.signIn("read")
	if c.Name != "pushlease_session_8080" {
		t.Errorf("the cookie is called %s: a server on another port sets it too", c.Name)
	}
	tossed := []string{"Cookie", c.Name + "=tossed; " + hostPrefix + c.Name + "=tossed; " + c.Name + "=" + c.Value, pageHeader, c.half}
	h.do(http.StatusOK, "GET", "/api/v1/webhooks", "", tossed...)
	h.do(http.StatusUnauthorized, "GET", "/api/v1/webhooks", "", append(tossed, "Host", "localhost:9090")...)
	// Nor is it the session of the cookie with another name: that of https, which this one was not made for.
	h.do(http.StatusUnauthorized, "GET", "/api/v1/webhooks", "", "Cookie", hostPrefix+c.Name+"="+c.Value, pageHeader, c.half)
}

// The browser adds the cookie to whatever any page of the same site asks for; other ports of
// localhost are the same site.
func TestACookieCountsOnlyFromThePage(t *testing.T) {
	h := newHarness(t, withKeys)
	c := h.signIn("admin")
	bare := []string{"Cookie", c.Name + "=" + c.Value}
	for name, headers := range map[string][]string{
		"without the header":            bare,
		"a form of another origin":      append(slices.Clone(bare), "Origin", "http://localhost:9999"),
		"another port of the same site": asPage(c, "Sec-Fetch-Site", "same-site"),
		"another site":                  asPage(c, "Sec-Fetch-Site", "cross-site"),
		"no page at all":                asPage(c, "Sec-Fetch-Site", "none"),
		"a wrong key beside it":         asPage(c, "Authorization", "Bearer wrong"),
		"another session":               {"Cookie", c.Name + "=" + strings.ToLower(c.Value), pageHeader, c.half},
		"who only saw the cookie":       {"Cookie", c.Name + "=" + c.Value, pageHeader, "1"},
		"the half of another session":   {"Cookie", c.Name + "=" + c.Value, pageHeader, h.signIn("admin").half},
		"the half alone":                {pageHeader, c.half},
	} {
		t.Run(name, func(t *testing.T) {
			h.do(http.StatusUnauthorized, "GET", "/api/v1/webhooks", "", headers...)
			h.do(http.StatusUnauthorized, "POST", "/api/v1/webhooks", `{"queue":"orders","url":"https://example.com/hook"}`, headers...)
		})
	}
	h.do(http.StatusUnauthorized, "POST", "/api/v1/webhooks", `{"queue":"orders","url":"https://example.com/hook"}`, asPage(c, "Origin", "http://localhost:9999")...)
}

func TestOnlyThePageSignsInAndOut(t *testing.T) {
	h := newHarness(t, withKeys)
	for _, headers := range [][]string{
		{"Authorization", "Bearer read"},
		{"Authorization", "Bearer read", pageHeader, "1", "Sec-Fetch-Site", "cross-site"},
		{"Authorization", "Bearer read", pageHeader, "1", "Origin", "https://evil.example"},
	} {
		h.do(http.StatusForbidden, "POST", "/api/v1/session", "", headers...).wantProblem(pageHeader)
		h.do(http.StatusForbidden, "DELETE", "/api/v1/session", "", headers...).wantProblem(pageHeader)
	}
	a := h.do(http.StatusUnauthorized, "POST", "/api/v1/session", "", "Authorization", "Bearer wrong", pageHeader, "1")
	a.wantProblem("Authorization")
	if a.header.Get("Set-Cookie") != "" {
		t.Error("a wrong key got a cookie")
	}
}

// Nothing is made of what somebody sends who has no key.
func TestWhoHasNoKeyTakesLittleMemory(t *testing.T) {
	h := newHarness(t, withKeys)
	var body strings.Builder
	body.WriteString("{")
	for i := range 70_000 {
		fmt.Fprintf(&body, `"é%d":1,`, i)
	}
	body.WriteString(`"z":1}`)
	for _, tt := range []struct {
		status  int
		method  string
		headers []string
	}{
		{http.StatusForbidden, "POST", nil},
		{http.StatusForbidden, "DELETE", nil},
		{http.StatusUnauthorized, "POST", []string{pageHeader, "1"}},
		{http.StatusUnauthorized, "POST", []string{pageHeader, "1", "Authorization", "Bearer wrong"}},
		{http.StatusRequestEntityTooLarge, "DELETE", []string{pageHeader, "1"}},
	} {
		r, w := request(tt.method, "/api/v1/session", body.String(), tt.headers...), httptest.NewRecorder()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		h.api.ServeHTTP(w, r)
		runtime.ReadMemStats(&after)
		if grown := after.TotalAlloc - before.TotalAlloc; w.Code != tt.status || grown > 512<<10 {
			t.Errorf("%s %v: %d, %d bytes allocated for a body of %d", tt.method, tt.headers, w.Code, grown, body.Len())
		}
	}
	h.do(http.StatusRequestEntityTooLarge, "POST", "/api/v1/replays", body.String(), "Authorization", "Bearer operate").wantProblem("body")
}

// No process keeps a session: what signed in at one of them may ask all that know its key, now and after a restart.
func TestAllInstancesTakeASession(t *testing.T) {
	first, second := newHarness(t, withKeys), newHarness(t, withKeys)
	c := first.signIn("operate")
	if a := second.do(http.StatusOK, "GET", "/api/v1/session", "", asPage(c)...); a.text("key") != "key-operate" {
		t.Errorf("%s", a.body)
	}
	withoutIt := newHarness(t, withKeys, func(o *Options) {
		o.Keys = slices.DeleteFunc(o.Keys, func(k Key) bool { return k.Name == "key-operate" })
	})
	withoutIt.do(http.StatusUnauthorized, "GET", "/api/v1/webhooks", "", asPage(c)...)
	for at := range len(c.Value) { // whatever somebody changes of it
		forged := *c.Cookie
		other := byte('A')
		if forged.Value[at] == other {
			other = 'Q'
		}
		forged.Value = forged.Value[:at] + string(other) + forged.Value[at+1:]
		first.do(http.StatusUnauthorized, "GET", "/api/v1/webhooks", "", asPage(signedIn{&forged, c.half})...)
	}
	for _, cut := range []string{"", "A", c.Value[:20], c.Value[:38]} {
		forged := *c.Cookie
		forged.Value = cut
		first.do(http.StatusUnauthorized, "GET", "/api/v1/webhooks", "", asPage(signedIn{&forged, c.half})...)
	}
}

func TestSessionsEndByTime(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := newHarness(t, withKeys)
		c := h.signIn("read")
		time.Sleep(sessionLife - time.Second)
		h.do(http.StatusOK, "GET", "/api/v1/webhooks", "", asPage(c)...)
		time.Sleep(time.Second)
		h.do(http.StatusUnauthorized, "GET", "/api/v1/webhooks", "", asPage(c)...)
	})
}

// A browser drops a cookie that is too long, and would ask for the key again and again.
func TestATokenThatNoCookieCanHoldIsRefused(t *testing.T) {
	long := strings.Repeat("k", maxSealed+1)
	h := newHarness(t, func(o *Options) {
		o.Keys = []Key{{Name: "long", Hash: sha256.Sum256([]byte(long)), Scopes: []Scope{ScopeRead}}, {Name: "fits", Hash: sha256.Sum256([]byte(long[1:])), Scopes: []Scope{ScopeRead}}}
	})
	h.do(http.StatusBadRequest, "POST", "/api/v1/session", "", "Authorization", "Bearer "+long, pageHeader, "1").wantProblem("Authorization")
	if c := h.signIn(long[1:]); len(c.Name)+len(c.Value) > 4000 {
		t.Errorf("the cookie has %d bytes", len(c.Name)+len(c.Value))
	}
}

// What stands before the server may add the key to each request: nobody signs in then, and no session ends.
func TestAKeyWithEachRequestIsNoSession(t *testing.T) {
	a := newHarness(t, withKeys).do(http.StatusOK, "GET", "/api/v1/session", "", "Authorization", "Bearer read", pageHeader, "1")
	if a.get("signed_in") != true {
		t.Errorf("%s", a.body)
	}
	a.wantNot("expires_at")
}

func TestWithoutKeysNobodySignsIn(t *testing.T) {
	a := newHarness(t).do(http.StatusOK, "GET", "/api/v1/session", "")
	if a.get("keys_set") != false || a.get("signed_in") != false || len(a.get("scopes").([]any)) != 4 {
		t.Errorf("%s", a.body)
	}
}

func TestThePageIsServed(t *testing.T) {
	h := newHarness(t, withKeys)
	for path, kind := range map[string]string{"/ui/": "text/html; charset=utf-8", "/ui/app.js": "text/javascript; charset=utf-8", "/ui/app.css": "text/css; charset=utf-8"} {
		a := h.do(http.StatusOK, "GET", path, "")
		policy := a.header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "require-trusted-types-for 'script'"} {
			if !strings.Contains(policy, want) {
				t.Errorf("%s: the policy %q has no %s", path, policy, want)
			}
		}
		if strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") {
			t.Errorf("%s: the policy %q is not strict", path, policy)
		}
		if a.header.Get("Referrer-Policy") != "no-referrer" || a.header.Get("X-Frame-Options") != "DENY" || a.header.Get("Content-Type") != kind {
			t.Errorf("%s: %v", path, a.header)
		}
	}
	h.do(http.StatusNotFound, "GET", "/ui/none.js", "")
	h.do(http.StatusNotFound, "GET", "/ui/..%2fui.go", "")
	if a := h.do(http.StatusFound, "GET", "/ui", ""); a.header.Get("Location") != "/ui/" {
		t.Errorf("%v", a.header)
	}
	if a := h.do(http.StatusFound, "GET", "/", "", "Accept", "text/html,*/*;q=0.8"); a.header.Get("Location") != "/ui/" {
		t.Errorf("%v", a.header)
	}
	h.do(http.StatusNotFound, "GET", "/", "", "Accept", "*/*")
	h.do(http.StatusForbidden, "GET", "/metrics", "", "Authorization", "Bearer publish")
}

func TestThePageIsForThisMachineWithoutKeys(t *testing.T) {
	h := newHarness(t)
	r := request("GET", "/ui/", "")
	r.RemoteAddr = "192.0.2.1:5000"
	h.serve(http.StatusForbidden, r)
	h.do(http.StatusOK, "GET", "/ui/", "")
}
