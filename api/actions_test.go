package api

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

func TestTestPostShowsTheDecisionAndStoresNothing(t *testing.T) {
	var got *http.Request
	var body []byte
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		w.Header().Set("Retry-After", "120")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, "you sent "+r.Header.Get("X-Api-Key")+" and "+r.Header.Get("Authorization")+" to "+r.URL.String()+" <script>")
	}))
	defer receiver.Close()
	h := newHarness(t, allowLocal)
	a := h.register(`{"queue":"orders","url":"` + receiver.URL + `/hook?sig=SIGNED","enabled":false,"headers":{"X-Api-Key":"K3Y-VALUE","Authorization":"Bearer T0KEN"},
		"signatures":{"http":{"algorithm":"hmac-sha256","components":["@method"]}}}`)
	secret, target := a.text("secret"), "/api/v1/webhooks/"+a.text("id")

	res := h.do(http.StatusOK, "POST", target+"/test", "")
	if res.get("status") != 503.0 || res.text("decision", "action") != "abandon" || res.text("decision", "pause") != "2m" || res.text("retry_after") != "120" {
		t.Errorf("answer: %s", res.body)
	}
	for _, hidden := range []string{"K3Y-VALUE", "T0KEN", "SIGNED", secret} {
		res.wantNot(hidden)
	}
	if sent := res.get("request", "headers").(map[string]any); res.text("request", "method") != "POST" || !strings.HasPrefix(res.text("request", "url"), receiver.URL+"/hook") || res.text("request", "body") != string(body) ||
		sent["X-Api-Key"] != redacted || sent["Authorization"] != redacted || sent["Webhook-Signature"] != redacted || sent["Webhook-Id"] != res.text("message_id") || sent["Pushlease-Attempt"] != "1" {
		t.Errorf("it shows that it sent %v", res.get("request"))
	} else if sent["Signature"] != redacted || sent["Content-Digest"] != nil || got.Header.Get("Content-Digest") != "" {
		t.Errorf("with a digest that is not covered, and so not sent, it shows %v", sent)
	}
	res.wantNot(got.Header.Get("Webhook-Signature"))
	if !strings.Contains(res.text("snippet"), "you sent [redacted]") {
		t.Errorf("snippet = %q", res.text("snippet"))
	}
	if err := webhook.Verify([]string{secret}, got.Header, body, time.Now(), time.Minute); err != nil {
		t.Errorf("the test POST does not verify: %v", err)
	}
	if got.Header.Get("webhook-id") != res.text("message_id") || !strings.Contains(string(body), res.text("message_id")) {
		t.Errorf("sent %v %s", got.Header, body)
	}
	h.do(http.StatusNotFound, "GET", "/api/v1/messages/"+res.text("message_id"), "")
	if n := len(h.do(http.StatusOK, "GET", "/api/v1/attempts", "").get("data").([]any)); n != 0 {
		t.Errorf("%d attempts were recorded", n)
	}
	if one := h.do(http.StatusOK, "GET", target, ""); one.rowVersion() != a.rowVersion() {
		t.Error("the webhook was changed")
	}
	receiver.Close()
	if res := h.do(http.StatusOK, "POST", target+"/test", ""); res.text("error_class") != "connect" || res.get("status") != nil {
		t.Errorf("without a receiver: %s", res.body)
	}
}

// C103: a test is decided as a message would be.
func TestATestIsDecidedByWhatIsKnownOfItsWebhook(t *testing.T) {
	receiver := httptest.NewServer(http.NotFoundHandler())
	defer receiver.Close()
	for name, c := range map[string]struct {
		known  status.Webhook
		action string
	}{
		"it never took one":           {status.Webhook{}, "dead-letter"},
		"it took one lately":          {status.Webhook{Failing: policy.AutoDisableState{LastSuccess: time.Now().Add(-time.Minute)}}, "abandon"},
		"it took one long ago":        {status.Webhook{Failing: policy.AutoDisableState{LastSuccess: time.Now().Add(-24 * time.Hour)}}, "dead-letter"},
		"it refuses all that it gets": {status.Webhook{Refusing: true}, "abandon"},
	} {
		h := newHarness(t, allowLocal)
		id := h.register(`{"queue":"orders","url":"` + receiver.URL + `"}`).text("id")
		h.view.webhook = func(string) (status.Webhook, bool) { return c.known, true }
		if a := h.do(http.StatusOK, "POST", "/api/v1/webhooks/"+id+"/test", ""); a.text("decision", "action") != c.action {
			t.Errorf("%s: %s", name, a.body)
		}
	}
}

// C89: whether a receiver can be reached now is told by a new connection alone.
func TestEachTestDialsAnew(t *testing.T) {
	var dials atomic.Int64
	receiver := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	receiver.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			dials.Add(1)
		}
	}
	receiver.Start()
	defer receiver.Close()
	h := newHarness(t, allowLocal)
	id := h.register(`{"queue":"orders","url":"` + receiver.URL + `"}`).text("id")
	for n := int64(1); n <= 3; n++ {
		h.do(http.StatusOK, "POST", "/api/v1/webhooks/"+id+"/test", "")
		if got := dials.Load(); got != n {
			t.Errorf("%d connections after %d tests", got, n)
		}
	}
}

func TestFewTestsAreUnderWayAtATime(t *testing.T) {
	arrived, answer := make(chan struct{}), make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-answer
	}))
	defer receiver.Close()
	h := newHarness(t, allowLocal)
	create := func() string {
		return "/api/v1/webhooks/" + h.register(`{"queue":"orders","url":"`+receiver.URL+`"}`).text("id") + "/test"
	}
	var running sync.WaitGroup
	first := create()
	for target, n := first, 0; n < testsOfAll; n++ {
		if n > 0 && n%testsOfOne == 0 {
			target = create()
		}
		running.Go(func() { h.do(http.StatusOK, "POST", target, "") })
		<-arrived
		if n == testsOfOne-1 {
			a := h.do(http.StatusTooManyRequests, "POST", target, "")
			a.wantProblem("id")
			if a.header.Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
		}
	}
	h.do(http.StatusTooManyRequests, "POST", create(), "").wantProblem("id")
	close(answer)
	running.Wait()
	go func() { <-arrived }()
	h.do(http.StatusOK, "POST", first, "")
}

func TestRotationKeepsOldSecretsForTheOverlap(t *testing.T) {
	h := newHarness(t)
	a := h.register(hook)
	id, target := a.text("id"), "/api/v1/webhooks/"+a.text("id")+"/rotate-secret"
	load := func() []webhook.Secret {
		t.Helper()
		reg, err := h.db.GetWebhook(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return reg.Secrets
	}

	second := h.do(http.StatusOK, "POST", target, "").text("secret")
	s := load()
	if len(s) != 2 || s[0].Key != second || s[1].Key != a.text("secret") || !s[0].ExpiresAt.IsZero() {
		t.Fatalf("after the first rotation: %d secrets", len(s))
	}
	if left := time.Until(s[1].ExpiresAt); left < 23*time.Hour || left > 24*time.Hour {
		t.Errorf("the old secret ends in %s, want 24h", left)
	}
	const given = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	if got := h.do(http.StatusOK, "POST", target, `{"secret":"`+given+`","overlap":"1h"}`).text("secret"); got != "whsec_"+given {
		t.Errorf("secret = %q", got)
	}
	for _, old := range load()[1:] {
		if time.Until(old.ExpiresAt) > time.Hour {
			t.Error("a shorter overlap did not shorten the life of the old secrets")
		}
	}
	h.do(http.StatusBadRequest, "POST", target, `{"secret":"whsec_`+given+`"}`).wantProblem("secret")
	h.do(http.StatusOK, "POST", target, "")
	h.do(http.StatusOK, "POST", target, "{}")
	h.do(http.StatusConflict, "POST", target, "").wantProblem("request")
	h.do(http.StatusConflict, "POST", target, `{"overlap":"1h"}`).wantProblem("overlap")
	h.do(http.StatusOK, "POST", target, `{"overlap":"0s"}`)
	if n := len(load()); n != 1 {
		t.Errorf("%d secrets after an overlap of 0s, want 1", n)
	}
	for body, field := range map[string]string{
		`{"overlap":"8d"}`: "overlap", `{"overlap":"169h"}`: "overlap", `{"overlap":"-1s"}`: "overlap", `{"overlap":3}`: "overlap",
		`{"secret":"short"}`: "secret", `{"key":"x"}`: "key", `{"first":"oldest"}`: "first", `{"first":true}`: "first",
	} {
		h.do(http.StatusBadRequest, "POST", target, body).wantProblem(field)
	}
}

// C97: some libraries read the first signature only.
func TestARotationSaysWhoseSignatureComesFirst(t *testing.T) {
	var header http.Header
	var body []byte
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		header = r.Header
		body, _ = io.ReadAll(r.Body)
	}))
	defer receiver.Close()
	for request, newFirst := range map[string]bool{`{}`: false, `{"first":"old"}`: false, `{"first":null}`: false, `{"first":"new"}`: true} {
		h := newHarness(t, allowLocal)
		a := h.register(`{"queue":"orders","url":"` + receiver.URL + `"}`)
		target := "/api/v1/webhooks/" + a.text("id")
		secret := a.text("secret")
		if fresh := h.do(http.StatusOK, "POST", target+"/rotate-secret", request).text("secret"); newFirst {
			secret = fresh
		}
		h.do(http.StatusOK, "POST", target+"/test", "")
		first, _, more := strings.Cut(header.Get("webhook-signature"), " ")
		header.Set("webhook-signature", first)
		if err := webhook.Verify([]string{secret}, header, body, time.Now(), time.Minute); err != nil || !more {
			t.Errorf("%s: the first signature: %v; more: %t", request, err, more)
		}
	}
}

func TestExpiredSecretsLeaveWithTheNextRotation(t *testing.T) {
	now := time.Now()
	reg := tables.Registration{}
	reg.Secrets = []webhook.Secret{
		webhook.NewSecret(now),
		{Key: webhook.NewSecret(now).Key, ExpiresAt: now.Add(-time.Second)},
		{Key: webhook.NewSecret(now).Key, ExpiresAt: now.Add(time.Minute)},
	}
	if err := (rotation{fresh: webhook.NewSecret(now), overlap: time.Hour}).rotate(&reg, now); err != nil {
		t.Fatal(err)
	}
	if len(reg.Secrets) != 3 || !reg.Secrets[1].ExpiresAt.Equal(now.Add(time.Hour)) || !reg.Secrets[2].ExpiresAt.Equal(now.Add(time.Minute)) {
		t.Errorf("%d secrets are left, want the new one and two that end by themselves", len(reg.Secrets))
	}
}
