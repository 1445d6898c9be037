package webhook_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/webhook"
	"github.com/pushlease/pushlease/webhook/webhooktest"
)

const clientSecret = "planted-client-secret-0815"

// tokenServer is a token endpoint with a receiver behind it that takes its newest token alone.
type tokenServer struct {
	*webhooktest.Receiver // both, told apart by their path

	mu      sync.Mutex
	asked   []url.Values
	basic   []string // the user and password of each request
	number  int
	revoked bool                             // the newest token is taken no more
	answer  func(w http.ResponseWriter) bool // answers in the place of the issuer; false leaves it to that
	life    string                           // the member expires_in; empty for none
	taken   func(w http.ResponseWriter) bool // answers a POST in the place of the receiver
}

func newIssuer(t *testing.T) (*tokenServer, *webhook.Sender, *webhook.Webhook) {
	i := &tokenServer{life: `,"expires_in":3600`}
	i.Receiver = webhooktest.NewReceiver(http.HandlerFunc(i.serve))
	s := newSender(t, i.Dial)
	w := hook()
	w.Auth = &webhook.Auth{OAuth2: &webhook.OAuth2{
		TokenURL: "http://127.0.0.1/token", ClientID: "client", ClientSecret: clientSecret,
		Scopes: []string{"a.read", "b.write"}, Audience: "https://receiver", Params: map[string]webhook.Hidden{"resource": "planted-parameter"},
	}}
	return i, s, w
}

func (i *tokenServer) serve(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if r.URL.Path != "/token" {
		switch {
		case i.taken != nil && i.taken(w):
		case i.revoked || r.Header.Get("Authorization") != fmt.Sprintf("Bearer planted-token-%d", i.number):
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = fmt.Fprintf(w, "not good: %s", r.Header.Get("Authorization"))
		default:
			_, _ = fmt.Fprintf(w, "saw %s", strings.ToUpper(r.Header.Get("Authorization")))
		}
		return
	}
	_ = r.ParseForm()
	i.asked = append(i.asked, r.PostForm)
	user, password, _ := r.BasicAuth()
	i.basic = append(i.basic, user+" "+password)
	if answer := i.answer; answer != nil {
		i.mu.Unlock() // it may take its time
		answered := answer(w)
		i.mu.Lock()
		if answered {
			return
		}
	}
	i.number, i.revoked = i.number+1, false
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"access_token":"planted-token-%d","token_type":"Bearer"%s}`, i.number, i.life)
}

// set changes what it does.
func (i *tokenServer) set(f func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	f()
}

// requests is how often a token was asked for.
func (i *tokenServer) requests() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.asked)
}

// inBubble runs f with an issuer in simulated time.
func inBubble(t *testing.T, f func(t *testing.T, i *tokenServer, send func() webhook.Result, w *webhook.Webhook)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		i, s, w := newIssuer(t)
		defer i.Close()
		defer s.Close()
		f(t, i, func() webhook.Result { return s.Send(t.Context(), w, message(`{"order":1}`)) }, w)
	})
}

func wantRequests(t *testing.T, i *tokenServer, want int) {
	t.Helper()
	if n := i.requests(); n != want {
		t.Errorf("a token was asked for %d times, want %d", n, want)
	}
}

// wantNoToken is about a POST that was not made, or not taken, since there was no token.
func wantNoToken(t *testing.T, got webhook.Result, says string) {
	t.Helper()
	wantFailure(t, got, "token")
	if !strings.Contains(got.Error, says) {
		t.Errorf("it says %q, want %q in it", got.Error, says)
	}
	webhooktest.AssertNoSecrets(t, []string{fmt.Sprintf("%+v %#v", got, got)}, clientSecret, "planted")
}

func TestATokenIsAskedForOnceAndShownWithEachPost(t *testing.T) {
	inBubble(t, func(t *testing.T, i *tokenServer, send func() webhook.Result, _ *webhook.Webhook) {
		for range 3 {
			wantAnswer(t, send(), 200)
		}
		wantRequests(t, i, 1)
		form := i.asked[0]
		for name, want := range map[string]string{"grant_type": "client_credentials", "scope": "a.read b.write", "audience": "https://receiver", "resource": "planted-parameter"} {
			if form.Get(name) != want {
				t.Errorf("%s is %q, want %q", name, form.Get(name), want)
			}
		}
		if i.basic[0] != "client "+clientSecret || form.Has("client_secret") {
			t.Errorf("the client is told by %v, and %v", i.basic[0], form)
		}
	})
}

func TestWhatTheReceiverEchoesOfATokenIsNotRecorded(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *tokenServer, send func() webhook.Result, w *webhook.Webhook) {
		got := send()
		snippet := got.Snippet(w, []byte(`{"order":1}`))
		if !strings.Contains(string(got.Body), "PLANTED-TOKEN-1") || !strings.HasPrefix(snippet, "saw ") {
			t.Fatalf("the body is %q, and %q is recorded", got.Body, snippet)
		}
		webhooktest.AssertNoSecrets(t, []string{strings.ToLower(snippet), fmt.Sprintf("%#v", got.Note), fmt.Sprintf("%v %#v", w.Auth.OAuth2.ClientSecret, w.Auth.OAuth2.ClientSecret)}, "planted", clientSecret)
		for _, secret := range []string{clientSecret, "planted-parameter"} {
			if text := w.Redact("saw " + url.QueryEscape(secret)); text != "saw [redacted]" {
				t.Errorf("%q is recorded", text)
			}
		}
	})
}

func TestOneRequestIsForAllPostsThatNeedAToken(t *testing.T) {
	inBubble(t, func(t *testing.T, i *tokenServer, send func() webhook.Result, _ *webhook.Webhook) {
		var work sync.WaitGroup
		for range 50 {
			work.Go(func() { wantAnswer(t, send(), 200) })
		}
		work.Wait()
		wantRequests(t, i, 1)
	})
}

// The POST that had a token asked for may be cut short; the others wait for it all the same.
func TestARequestForATokenOutlivesThePostThatBeganIt(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		i, s, w := newIssuer(t)
		defer i.Close()
		defer s.Close()
		i.set(func() { i.answer = func(http.ResponseWriter) bool { time.Sleep(time.Second); return false } })
		ctx, cut := context.WithTimeout(t.Context(), time.Millisecond)
		defer cut()
		wantFailure(t, s.Send(ctx, w, message("{}")), "canceled")
		wantAnswer(t, s.Send(t.Context(), w, message("{}")), 200)
		wantRequests(t, i, 1)
	})
}

func TestATokenIsRenewedBeforeItsEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, i *tokenServer, send func() webhook.Result, _ *webhook.Webhook) {
		wantAnswer(t, send(), 200)
		time.Sleep(44 * time.Minute)
		wantAnswer(t, send(), 200)
		wantRequests(t, i, 1)
		time.Sleep(2 * time.Minute)
		i.set(func() { // the old one is good while the next one is asked for
			i.answer = func(http.ResponseWriter) bool { time.Sleep(time.Second); return false }
			i.taken = func(w http.ResponseWriter) bool { w.WriteHeader(http.StatusAccepted); return true }
		})
		began := time.Now()
		wantAnswer(t, send(), 202)
		if waited := time.Since(began); waited >= time.Second {
			t.Errorf("the POST waited for %v", waited)
		}
		time.Sleep(5 * time.Second)
		wantRequests(t, i, 2)
	})
}

// An issuer may say a life that is none, or that is longer than the token is taken.
func TestWhatAnIssuerSaysOfALifeIsBounded(t *testing.T) {
	for says, within := range map[string]struct{ once, again time.Duration }{
		"":                            {4 * time.Minute, 5 * time.Minute},
		`,"expires_in":0`:             {4 * time.Minute, 5 * time.Minute},
		`,"expires_in":1`:             {4 * time.Second, 5 * time.Second},
		`,"expires_in":-5`:            {4 * time.Second, 5 * time.Second},
		`,"expires_in":"60"`:          {50 * time.Second, time.Minute},
		`,"expires_in":9999999999999`: {44 * time.Minute, time.Hour},
	} {
		t.Run(says, func(t *testing.T) {
			inBubble(t, func(t *testing.T, i *tokenServer, send func() webhook.Result, _ *webhook.Webhook) {
				i.set(func() { i.life = says; i.taken = func(http.ResponseWriter) bool { return true } })
				for began := time.Now(); time.Since(began) < within.once*3/4; time.Sleep(within.once / 8) {
					wantAnswer(t, send(), 200)
				}
				wantRequests(t, i, 1)
				time.Sleep(within.again)
				wantAnswer(t, send(), 200)
				wantRequests(t, i, 2)
			})
		})
	}
}

// While an issuer hangs, one POST alone waits for it.
func TestWhileAnIssuerHangsOnePostWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, i *tokenServer, send func() webhook.Result, _ *webhook.Webhook) {
		i.set(func() { i.answer = func(http.ResponseWriter) bool { time.Sleep(time.Minute); return true } })
		wantNoToken(t, send(), "had not answered in time")
		time.Sleep(20 * time.Second)
		waited := 0
		for range 5 {
			if got := send(); got.Duration > 0 {
				waited++
			}
		}
		if waited != 1 {
			t.Errorf("%d POSTs waited", waited)
		}
		time.Sleep(5 * time.Minute)
	})
}

// The head of an issuer's answer may come long before its body, and the token when its life is nearly over.
func TestATokenThatComesLateIsUsed(t *testing.T) {
	for _, pause := range []time.Duration{2 * time.Second, 9 * time.Second} {
		inBubble(t, func(t *testing.T, i *tokenServer, send func() webhook.Result, w *webhook.Webhook) {
			w.Timeout = 30 * time.Second
			i.set(func() {
				i.life = `,"expires_in":5`
				i.answer = func(w http.ResponseWriter) bool {
					_ = http.NewResponseController(w).Flush()
					time.Sleep(pause)
					return false
				}
			})
			if got := send(); got.Status != 200 || got.Duration > pause+time.Second {
				t.Errorf("after %v: %d %q", got.Duration, got.Status, got.Error)
			}
			wantRequests(t, i, 1)
		})
	}
}

// A 401 by which the webhook means something is the answer.
func TestA401ByWhichTheWebhookMeansMoreIsTheAnswer(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		i, s, w := newIssuer(t)
		defer i.Close()
		defer s.Close()
		i.set(func() {
			i.taken = func(w http.ResponseWriter) bool {
				w.Header().Set("pushlease-decision", "complete")
				w.WriteHeader(http.StatusUnauthorized)
				return true
			}
		})
		r := message("{}")
		r.Meant = func(result *webhook.Result) bool { return result.Steering == "complete" }
		if got := s.Send(t.Context(), w, r); got.Status != 401 || got.Note != "" || len(i.Received()) != 2 {
			t.Errorf("%d with the note %q, after %d requests", got.Status, got.Note, len(i.Received()))
		}
	})
}

// The first POST was made, and has to be on record.
func TestA401IsToldThoughThePostWithAFreshTokenMayNotBegin(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		i, s, w := newIssuer(t)
		defer i.Close()
		defer s.Close()
		i.set(func() {
			i.taken = func(w http.ResponseWriter) bool { w.WriteHeader(http.StatusUnauthorized); return true }
		})
		r, asked := message("{}"), 0
		r.Begin = func() bool { asked++; return asked == 1 }
		got := s.Send(t.Context(), w, r)
		wantNoToken(t, got, "answered 401 by the receiver, and then the POST with a fresh one might not be made")
		if got.NotBegun || asked != 2 {
			t.Errorf("it says that no POST was made; Begin was asked %d times", asked)
		}
	})
}

func TestAPostThatIsAnswered401IsMadeAgainWithAFreshToken(t *testing.T) {
	inBubble(t, func(t *testing.T, i *tokenServer, send func() webhook.Result, _ *webhook.Webhook) {
		wantAnswer(t, send(), 200)
		i.set(func() { i.revoked = true })
		var work sync.WaitGroup
		for range 20 {
			work.Go(func() {
				got := send()
				wantAnswer(t, got, 200)
				if !strings.Contains(got.Note, "401") {
					t.Errorf("the note is %q", got.Note)
				}
			})
		}
		work.Wait()
		wantRequests(t, i, 2)
		if got := send(); got.Note != "" || got.Status != 200 {
			t.Errorf("%d, with the note %q", got.Status, got.Note)
		}
	})
}

// After a fresh token the answer counts, and a receiver that answers 401 to all it is sent has few asked for.
func TestAReceiverThatAnswers401ToEverythingIsBelieved(t *testing.T) {
	inBubble(t, func(t *testing.T, i *tokenServer, send func() webhook.Result, _ *webhook.Webhook) {
		i.set(func() {
			i.taken = func(w http.ResponseWriter) bool { w.WriteHeader(http.StatusUnauthorized); return true }
		})
		for range 100 {
			wantAnswer(t, send(), 401)
		}
		wantRequests(t, i, 6)
		time.Sleep(30 * time.Second)
		for range 100 {
			wantAnswer(t, send(), 401)
		}
		wantRequests(t, i, 9)
	})
}

// What is answered 401 while the issuer is away is nobody's attempt: it may be the token's fault. That token is shown no more.
func TestA401WhileNoTokenCanBeHadIsNoAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T, i *tokenServer, send func() webhook.Result, _ *webhook.Webhook) {
		wantAnswer(t, send(), 200)
		posts := func() (n int) {
			for _, r := range i.Received() {
				if r.Path != "/token" {
					n++
				}
			}
			return n
		}
		before := posts()
		i.set(func() {
			i.revoked = true
			i.answer = func(w http.ResponseWriter) bool { w.WriteHeader(http.StatusServiceUnavailable); return true }
		})
		var work sync.WaitGroup
		for range 20 {
			work.Go(func() { wantNoToken(t, send(), "the token endpoint answered 503") })
		}
		work.Wait()
		if n := posts() - before; n > 20 {
			t.Errorf("%d POSTs with a token that was refused", n)
		}
		before = posts()
		for range 60 {
			time.Sleep(2 * time.Second)
			wantNoToken(t, send(), "the token endpoint answered 503")
		}
		if n := posts() - before; n > 0 {
			t.Errorf("%d POSTs with a token that was refused before", n)
		}
		i.set(func() { i.answer = nil })
		time.Sleep(time.Minute)
		wantAnswer(t, send(), 200)
	})
}

func TestAnIssuerThatGivesTheSameTokenAgainSettlesA401(t *testing.T) {
	inBubble(t, func(t *testing.T, i *tokenServer, send func() webhook.Result, _ *webhook.Webhook) {
		wantAnswer(t, send(), 200)
		i.set(func() {
			i.taken = func(w http.ResponseWriter) bool { w.WriteHeader(http.StatusUnauthorized); return true }
			i.answer = func(w http.ResponseWriter) bool {
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(`{"access_token":"planted-token-1","token_type":"bearer"}`))
				return true
			}
		})
		before := len(i.Received())
		if got := send(); got.Status != 401 || !strings.Contains(got.Note, "again") {
			t.Errorf("%d, with the note %q", got.Status, got.Note)
		}
		if posts := len(i.Received()) - before; posts != 2 {
			t.Errorf("%d requests, want the POST and that for a token", posts)
		}
	})
}

// The issuer's faults are told with what to do, and bounded.
func TestFaultsOfAnIssuer(t *testing.T) {
	status := func(status int, body string) func(w http.ResponseWriter) bool {
		return func(w http.ResponseWriter) bool {
			w.Header().Set("Location", "http://127.0.0.1/planted-elsewhere")
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
			return true
		}
	}
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter) bool
		says   string
	}{
		"wrong secret":  {status(401, `{"error":"invalid_client","error_description":"planted-client-secret-0815 is wrong"}`), "answered 401 invalid_client: set auth.oauth2.client_secret"},
		"wrong scope":   {status(400, `{"error":"invalid_scope"}`), "answered 400 invalid_scope: set auth.oauth2.scopes"},
		"own code":      {status(401, `{"error":"planted-code"}`), "answered 401: set auth.oauth2.client_secret"},
		"invented code": {status(400, `{"error":"planted-code"}`), "answered 400: see client_id, scopes, audience and params of auth.oauth2"},
		"bad request":   {status(400, `{"error":"invalid_request"}`), "answered 400 invalid_request: see client_id"},
		"forbidden":     {status(403, "planted"), "answered 403: see client_id"},
		"fault":         {status(500, "planted"), "answered 500"},
		"busy":          {status(429, ""), "answered 429"},
		"moved":         {status(307, ""), "answered 307, a redirect, which is not followed: set auth.oauth2.token_url"},
		"not there":     {status(404, ""), "answered 404: set auth.oauth2.token_url"},
		"garbage":       {status(200, "<html>planted"), "holds no token"},
		"no token":      {status(200, `{"token_type":"bearer"}`), "holds no token"},
		"200 and error": {status(200, `{"error":"invalid_client"}`), "answered 200 invalid_client: set auth.oauth2.client_secret"},
		"another type":  {status(200, `{"access_token":"planted","token_type":"DPoP"}`), "another type than Bearer"},
		"line ends":     {status(200, `{"access_token":"planted\r\nX-Planted: 1"}`), "no header can carry"},
		"huge":          {status(200, `{"access_token":"`+strings.Repeat("planted", 1<<20)+`"}`), "too long"},
		"large token":   {status(200, `{"access_token":"`+strings.Repeat("planted", 4<<10)+`"}`), "no header can carry"},
		"hangs": {func(w http.ResponseWriter) bool {
			time.Sleep(time.Minute)
			return true
		}, "had not answered in time"},
		"hangs within": {func(w http.ResponseWriter) bool {
			_, _ = w.Write([]byte(`{"access_token":`))
			_ = http.NewResponseController(w).Flush()
			time.Sleep(time.Minute)
			return true
		}, "had not answered in time"},
		"breaks off": {func(w http.ResponseWriter) bool {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte(`{"access_token":`))
			return true
		}, "broke off, or did not come"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, i *tokenServer, send func() webhook.Result, w *webhook.Webhook) {
				i.set(func() { i.answer = c.answer })
				got := send()
				wantNoToken(t, got, c.says)
				if got.Duration > w.Timeout {
					t.Errorf("it took %v", got.Duration)
				}
				for range 50 { // which are not asked for anew
					wantNoToken(t, send(), "the token endpoint")
				}
				if n := i.requests(); n > 2 { // both ways to tell a secret were tried
					t.Errorf("a token was asked for %d times at once", n)
				}
				time.Sleep(5 * time.Minute) // all that hangs has ended
				for _, r := range i.Received() {
					if r.Path != "/token" {
						t.Errorf("%s %s was asked", r.Method, r.Path)
					}
				}
			})
		})
	}
}

// Who has no token is told when to try again: where nothing was sent, and where it was answered 401.
func TestWhenATokenIsWorthTryingAgainIsTold(t *testing.T) {
	inBubble(t, func(t *testing.T, i *tokenServer, send func() webhook.Result, w *webhook.Webhook) {
		down := func(w http.ResponseWriter) bool { w.WriteHeader(http.StatusBadGateway); return true }
		i.set(func() { i.answer = down })
		for _, wait := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, askAgainMost, askAgainMost} {
			got := send()
			wantNoToken(t, got, "answered 502")
			if !got.NotBegun || time.Until(got.TokenAt) != wait {
				t.Errorf("not begun %v, and to be tried again in %v, want %v", got.NotBegun, time.Until(got.TokenAt), wait)
			}
			time.Sleep(wait)
		}
		i.set(func() { i.answer = nil })
		if got := send(); got.NotBegun || !got.TokenAt.IsZero() {
			t.Errorf("all is well, and it is %+v", got)
		}
		i.set(func() { i.answer, i.revoked = down, true })
		got := send()
		wantNoToken(t, got, "answered 401 by the receiver, and then")
		if got.NotBegun || time.Until(got.TokenAt) != time.Second {
			t.Errorf("after a POST: not begun %v, to be tried again in %v", got.NotBegun, time.Until(got.TokenAt))
		}
		time.Sleep(2 * time.Hour) // no token is left
		i.set(func() { i.answer = func(http.ResponseWriter) bool { time.Sleep(time.Minute); return true } })
		got = send()
		wantNoToken(t, got, "had not answered in time")
		if !got.NotBegun || time.Until(got.TokenAt) <= 0 || got.Duration > w.Timeout {
			t.Errorf("one that hangs: not begun %v, to be tried again in %v", got.NotBegun, time.Until(got.TokenAt))
		}
		time.Sleep(5 * time.Minute) // all that hangs has ended
	})
}

const askAgainMost = time.Minute

// Another registration is another identity: neither its token nor its fault is that of the one before.
func TestAChangedRegistrationAsksForATokenOfItsOwn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		i, s, w := newIssuer(t)
		defer i.Close()
		defer s.Close()
		i.set(func() {
			i.answer = func(w http.ResponseWriter) bool { w.WriteHeader(http.StatusUnauthorized); return true }
		})
		wantNoToken(t, s.Send(t.Context(), w, message("{}")), "401: set auth.oauth2.client_secret")
		i.set(func() { i.answer = nil })
		changed, o := *w, *w.Auth.OAuth2
		o.ClientSecret = "the-right-one"
		changed.Auth = &webhook.Auth{OAuth2: &o}
		wantAnswer(t, s.Send(t.Context(), &changed, message("{}")), 200)
		if last := i.basic[len(i.basic)-1]; last != "client the-right-one" {
			t.Errorf("asked as %q", last)
		}
	})
}

// Messages that were in hand when a registration was changed are still sent by the old one, beside those by the new one.
func TestTwoRegistrationsSideBySideAskForOneTokenEach(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		i, s, w := newIssuer(t)
		defer i.Close()
		defer s.Close()
		i.set(func() { i.taken = func(http.ResponseWriter) bool { return true } })
		changed, o := *w, *w.Auth.OAuth2
		o.ClientSecret = "another"
		changed.Auth = &webhook.Auth{OAuth2: &o}
		for range 5 {
			wantAnswer(t, s.Send(t.Context(), w, message("{}")), 200)
			wantAnswer(t, s.Send(t.Context(), &changed, message("{}")), 200)
		}
		wantRequests(t, i, 2)
	})
}

// A client without a secret signs what proves that it has the key.
func TestAClientProvesWhoItIsByAKey(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for method, key := range map[string]crypto.Signer{"RS256": rsaKey, "ES256": ecKey} {
		t.Run(method, func(t *testing.T) {
			der, err := x509.MarshalPKCS8PrivateKey(key)
			if err != nil {
				t.Fatal(err)
			}
			inBubble(t, func(t *testing.T, i *tokenServer, send func() webhook.Result, w *webhook.Webhook) {
				o := w.Auth.OAuth2
				o.ClientSecret = ""
				o.PrivateKeyJWT = &webhook.PrivateKeyJWT{Key: webhook.Hidden(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), KeyID: "key-1"}
				wantAnswer(t, send(), 200)
				i.set(func() { i.revoked = true })
				wantAnswer(t, send(), 200)
				form := i.asked[0]
				if form.Get("client_assertion_type") != "urn:ietf:params:oauth:client-assertion-type:jwt-bearer" || form.Get("client_id") != "client" || form.Has("client_secret") {
					t.Errorf("asked with %v", form)
				}
				_, err := jwt.Parse(form.Get("client_assertion"), func(j *jwt.Token) (any, error) {
					if j.Header["kid"] != "key-1" || j.Method.Alg() != method {
						t.Errorf("the assertion's head is %v", j.Header)
					}
					return key.Public(), nil
				}, jwt.WithAudience(o.TokenURL), jwt.WithIssuer("client"), jwt.WithSubject("client"), jwt.WithExpirationRequired(), jwt.WithIssuedAt())
				if err != nil {
					t.Error(err)
				}
				if form.Get("client_assertion") == i.asked[1].Get("client_assertion") {
					t.Error("one assertion was sent twice")
				}
			})
		})
	}
}

// The token endpoint is behind the same guard as receivers, by its literal address and by what its name leads to.
func TestTheGuardIsBetweenPushleaseAndTheTokenEndpoint(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "10.0.0.1", "169.254.169.254", "[::1]", "[fd00:ec2::254]", "[64:ff9b::a9fe:a9fe]", "inward.example.com"} {
		t.Run(host, func(t *testing.T) {
			d := &dials{next: func(context.Context, string, string) (net.Conn, error) {
				t.Error("something was dialled")
				return nil, context.Canceled
			}}
			s := newSender(t, d.dial, guarded(webhook.GuardOptions{}), with(resolving("inward.example.com", addresses("169.254.169.254"))))
			w := hook()
			w.URL = "https://example.com/hook"
			w.Auth = &webhook.Auth{OAuth2: &webhook.OAuth2{TokenURL: "https://" + host + "/token", ClientID: "c", ClientSecret: clientSecret}}
			got := s.Send(t.Context(), w, message("{}"))
			if got.Status != 0 || got.ErrorClass != "token" && got.ErrorClass != "request" || len(d.list()) > 0 {
				t.Errorf("%d %s %q, dialled %v", got.Status, got.ErrorClass, got.Error, d.list())
			}
			if wrong := w.Auth.Problems(webhook.GuardOptions{}); host != "inward.example.com" && (len(wrong) != 1 || wrong[0].Field != "oauth2.token_url") {
				t.Errorf("registered with %v", wrong)
			}
		})
	}
}
