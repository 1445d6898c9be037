package webhook_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/webhook"
	"github.com/pushlease/pushlease/webhook/webhooktest"
)

// answering answers in the place of an issuer.
func answering(status int, code string) func(w http.ResponseWriter) bool {
	return func(w http.ResponseWriter) bool {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"error":%q}`, code)
		return true
	}
}

// How a secret is told is found out once, whatever the issuer says to the way that it does not know.
func TestHowAClientIsToldIsFoundOut(t *testing.T) {
	for _, first := range []func(http.ResponseWriter) bool{
		answering(401, "invalid_client"), answering(400, "unauthorized_client"), answering(401, "access_denied"), answering(403, "own-code"), answering(404, ""), answering(200, "invalid_client"),
	} {
		inBubble(t, func(t *testing.T, i *tokenServer, send func() webhook.Result, _ *webhook.Webhook) {
			n := 0
			i.set(func() { i.answer = func(w http.ResponseWriter) bool { n++; return n == 1 && first(w) } })
			wantAnswer(t, send(), 200)
			i.set(func() { i.revoked = true })
			wantAnswer(t, send(), 200)
			wantRequests(t, i, 3)
			for n, form := range i.asked {
				if form.Has("client_secret") != (n > 0) {
					t.Errorf("request %d has %v", n, form)
				}
			}
		})
	}
}

// What is told is the answer that knows the client, whichever way it came by, and else the first one.
func TestTheAnswerThatKnowsTheClientIsTold(t *testing.T) {
	for _, c := range []struct {
		first, then func(http.ResponseWriter) bool
		says        string
		requests    int
	}{
		{answering(400, "invalid_scope"), answering(401, "invalid_client"), "answered 400 invalid_scope: set auth.oauth2.scopes", 1},
		{answering(401, "invalid_client"), answering(400, "invalid_scope"), "answered 400 invalid_scope: set auth.oauth2.scopes", 2},
		{answering(401, "invalid_client"), answering(503, ""), "answered 503", 2},
		{answering(400, "invalid_client"), answering(401, "invalid_request"), "answered 400 invalid_client", 2},
	} {
		inBubble(t, func(t *testing.T, i *tokenServer, send func() webhook.Result, _ *webhook.Webhook) {
			n := 0
			i.set(func() {
				i.answer = func(w http.ResponseWriter) bool {
					if n++; n == 1 {
						return c.first(w)
					}
					return c.then(w)
				}
			})
			wantNoToken(t, send(), c.says)
			wantRequests(t, i, c.requests)
		})
	}
}

// An issuer that takes the body alone and is slow is heard out with the next request.
func TestTheOtherWayIsTriedFirstWhereItHadNoTime(t *testing.T) {
	inBubble(t, func(t *testing.T, i *tokenServer, send func() webhook.Result, _ *webhook.Webhook) {
		i.set(func() {
			i.answer = func(w http.ResponseWriter) bool {
				time.Sleep(6 * time.Second)
				i.mu.Lock()
				inBody := i.asked[len(i.asked)-1].Has("client_secret")
				i.mu.Unlock()
				return !inBody && answering(401, "invalid_client")(w)
			}
		})
		wantNoToken(t, send(), "had not answered in time")
		time.Sleep(8 * time.Second)
		wantNoToken(t, send(), "answered 401 invalid_client")
		time.Sleep(time.Second)
		send() // which waits for a part of the time
		time.Sleep(10 * time.Second)
		wantAnswer(t, send(), 200)
	})
}

// A wait that the issuer asks for is kept, within reason.
func TestAnIssuerIsLeftAloneAsItAsks(t *testing.T) {
	for says, want := range map[string]time.Duration{"": time.Second, "0": time.Second, "90": 90 * time.Second, "86400": 10 * time.Minute, "planted": time.Second} {
		inBubble(t, func(t *testing.T, i *tokenServer, send func() webhook.Result, _ *webhook.Webhook) {
			i.set(func() {
				i.answer = func(w http.ResponseWriter) bool {
					w.Header().Set("Retry-After", says)
					w.WriteHeader(http.StatusTooManyRequests)
					return true
				}
			})
			got := send()
			if wantNoToken(t, got, "answered 429"); time.Until(got.TokenAt) != want {
				t.Errorf("%q: asked again in %v", says, time.Until(got.TokenAt))
			}
			time.Sleep(want - time.Millisecond)
			wantNoToken(t, send(), "answered 429")
			wantRequests(t, i, 1)
		})
	}
}

// A receiver that refuses whatever it is shown is believed, however long the issuer takes for the token that proves it.
func TestA401IsBelievedOfASlowIssuerToo(t *testing.T) {
	inBubble(t, func(t *testing.T, i *tokenServer, send func() webhook.Result, w *webhook.Webhook) {
		w.Timeout = time.Second
		i.set(func() {
			i.answer = func(http.ResponseWriter) bool { time.Sleep(2 * time.Second); return false }
			i.taken = func(w http.ResponseWriter) bool { w.WriteHeader(http.StatusUnauthorized); return true }
		})
		believed := 0
		for range 20 {
			if got := send(); got.Status == 401 {
				believed++
			}
			time.Sleep(time.Second)
		}
		if believed < 10 {
			t.Errorf("%d of 20 were answers", believed)
		}
		time.Sleep(time.Minute)
	})
}

// A token may end long before its issuer says: what a fresh one is taken for is no refusal.
func TestATokenThatEndsEarlyIsMadeGoodFor(t *testing.T) {
	inBubble(t, func(t *testing.T, i *tokenServer, send func() webhook.Result, _ *webhook.Webhook) {
		for began := time.Now(); time.Since(began) < 5*time.Minute; time.Sleep(2500 * time.Millisecond) {
			wantAnswer(t, send(), 200)
			if n := i.requests(); time.Since(began) > time.Duration(n)*5*time.Second {
				i.set(func() { i.revoked = true })
			}
		}
	})
}

// Two senders, of whom an issuer takes the newest token alone, take it from each other, and no message is refused.
func TestTwoThatTakeTheirTokensFromEachOther(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		i, one, w := newIssuer(t)
		defer i.Close()
		defer one.Close()
		two := newSender(t, i.Dial)
		defer two.Close()
		for range 60 {
			wantAnswer(t, one.Send(t.Context(), w, message("{}")), 200)
			wantAnswer(t, two.Send(t.Context(), w, message("{}")), 200)
			time.Sleep(2 * time.Second)
		}
	})
}

// One that takes each token once is asked for few, and no message of it is refused for that.
func TestFreshTokensAreBoundedHoweverGoodTheyAre(t *testing.T) {
	inBubble(t, func(t *testing.T, i *tokenServer, send func() webhook.Result, _ *webhook.Webhook) {
		refused := 0
		for range 600 {
			if got := send(); got.Status != 200 {
				wantNoToken(t, got, "as many fresh ones as may be were asked for")
				refused++
			}
			i.set(func() { i.revoked = true })
			time.Sleep(100 * time.Millisecond)
		}
		if n := i.requests(); n < 50 || n > 110 || refused == 0 {
			t.Errorf("%d tokens in a minute, %d POSTs waited for one", n, refused)
		}
	})
}

// A receiver that takes the token and answers 401 to single messages, for their own sake, is believed: they end, however many there are, and the others wait for nothing.
func TestA401ToSingleMessagesIsBelieved(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		i, s, w := newIssuer(t)
		defer i.Close()
		defer s.Close()
		var single atomic.Bool
		i.set(func() {
			i.taken = func(w http.ResponseWriter) bool {
				if single.Load() {
					w.WriteHeader(http.StatusUnauthorized)
				}
				return true
			}
		})
		waited := [2]int{}
		for n := range 1200 {
			single.Store(n%4 == 1)
			switch got := s.Send(t.Context(), w, message("{}")); {
			case got.NotBegun || got.Status == 0:
				if single.Load() {
					waited[1]++
				} else {
					waited[0]++
				}
			case (got.Status == 401) != single.Load():
				t.Fatalf("POST %d: %d", n, got.Status)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if waited != [2]int{} {
			t.Errorf("%d of the messages that are taken, and %d others, had to wait for a token", waited[0], waited[1])
		}
		if n := i.requests(); n > 200 { // about one a second
			t.Errorf("%d tokens in two minutes", n)
		}
	})
}

// What is granted is in the next token: a 403 has an old one renewed beside it, and a test of the webhook shows one of now.
func TestWhatWasGrantedIsSeen(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		i, s, w := newIssuer(t)
		defer i.Close()
		defer s.Close()
		granted := 0 // the first token with the right
		i.set(func() {
			i.taken = func(w http.ResponseWriter) bool {
				if granted == 0 || i.number < granted {
					w.WriteHeader(http.StatusForbidden)
				}
				return true
			}
		})
		send := func(fresh bool) int {
			r := message("{}")
			r.FreshToken = fresh
			return s.Send(t.Context(), w, r).Status
		}
		for range 50 {
			if status := send(false); status != 403 {
				t.Errorf("answered %d", status)
			}
			time.Sleep(time.Second)
		}
		wantRequests(t, i, 1)
		i.set(func() { granted = 2 })
		if status := send(true); status != 200 {
			t.Errorf("with a token of now: %d", status)
		}
		i.set(func() { granted = 3 })
		time.Sleep(2 * time.Minute)
		if status := send(false); status != 403 {
			t.Errorf("answered %d", status)
		}
		time.Sleep(time.Second)
		if status := send(false); status != 200 {
			t.Errorf("with the token after a 403: %d", status)
		}
		wantRequests(t, i, 3)
	})
}

// The time for which a POST has waited for its token is not its connection's.
func TestAConnectionHasItsTimeAfterTheToken(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		i := &tokenServer{}
		i.Receiver = webhooktest.NewReceiver(http.HandlerFunc(i.serve))
		defer i.Close()
		dialled := 0
		s := newSender(t, func(ctx context.Context, network, address string) (net.Conn, error) {
			if dialled++; dialled == 2 {
				select {
				case <-time.After(700 * time.Millisecond):
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			return i.Dial(ctx, network, address)
		})
		defer s.Close()
		w := hook()
		w.Timeout = time.Second
		w.URL = "http://127.0.0.1:81/hook"
		w.Auth = &webhook.Auth{OAuth2: &webhook.OAuth2{TokenURL: "http://127.0.0.1/token", ClientID: "client", ClientSecret: clientSecret}}
		i.set(func() { i.answer = func(http.ResponseWriter) bool { time.Sleep(450 * time.Millisecond); return false } })
		wantAnswer(t, s.Send(t.Context(), w, message("{}")), 200)
	})
}

// The token endpoint's host is asked for in the form that is checked.
func TestATokenEndpointMayHaveANameOfOtherLetters(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		i, _, w := newIssuer(t)
		defer i.Close()
		s := newSender(t, i.Dial, with(resolving("xn--bcher-kva.example", addresses("127.0.0.1"))))
		defer s.Close()
		w.Auth.OAuth2.TokenURL = "http://Bücher.example/token"
		wantAnswer(t, s.Send(t.Context(), w, message("{}")), 200)
	})
}

// A lack of sockets is this machine's at the moment at which it was met, and a token that can't be had for the others.
func TestAShortageThatATokenMetIsToldOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newSender(t, fails(syscall.EMFILE))
		defer s.Close()
		w := hook()
		w.Auth = &webhook.Auth{OAuth2: &webhook.OAuth2{TokenURL: "http://127.0.0.1/token", ClientID: "client", ClientSecret: clientSecret}}
		began := time.Now()
		for range 9 {
			wantNoToken(t, s.Send(t.Context(), w, message("{}")), "no socket left")
			time.Sleep(100 * time.Millisecond)
		}
		if at := s.Shortage().At; at.IsZero() || at.Sub(began) > 50*time.Millisecond {
			t.Errorf("told %v after the start", at.Sub(began))
		}
	})
}

// A token endpoint over TLS that wants a certificate is told of as it is: the webhook's tls is for its receiver alone.
func TestATokenEndpointThatWantsACertificateIsNamed(t *testing.T) {
	m := newMutual(t, func(*httptest.Server) {})
	roots := x509.NewCertPool()
	block, _ := pem.Decode([]byte(m.ca))
	authority, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	roots.AddCert(authority)
	s := newSender(t, nil, with(resolving("inside.example", addresses("127.0.0.1"))), trusting(roots))
	_, port, _ := net.SplitHostPort(m.Listener.Addr().String())
	w := m.hook(t, "wh_1", "one")
	w.Timeout = 10 * time.Second
	w.Auth = &webhook.Auth{OAuth2: &webhook.OAuth2{TokenURL: "https://inside.example:" + port + "/token", ClientID: "client", ClientSecret: clientSecret}}
	got := s.Send(t.Context(), w, message("{}"))
	wantNoToken(t, got, "the token endpoint could not be asked: it")
	if !strings.HasSuffix(got.Error, "client certificate (mTLS), and gets none") && !strings.HasSuffix(got.Error, "had asked for a client certificate, and gets none") || strings.Contains(got.Error, "tls.") {
		t.Errorf("it says %q", got.Error)
	}
}
