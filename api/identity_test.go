package api

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/webhook"
)

const oauthHook = `{"queue":"orders","url":"https://example.com/hook","auth":{"oauth2":{"token_url":"https://login.example.com/tenant/token?key=QUERYKEY",
	"client_id":"client","client_secret":"PLANTEDSECRET","scopes":["a","b"],"audience":"https://example.com","params":{"resource":"PLANTEDPARAM"}}}}`

// authOf is auth as an answer shows it.
func authOf(a answer) any {
	a.Helper()
	for _, secret := range []string{"PLANTED", "whsec_planted"} {
		if strings.Contains(string(a.body), secret) {
			a.Errorf("a secret is shown: %s", a.body)
		}
	}
	return a.get("auth", "oauth2")
}

func TestAuthIsRegisteredAndItsSecretsAreNeverShown(t *testing.T) {
	h := newHarness(t, withKeys)
	admin, read := []string{"Authorization", "Bearer admin"}, []string{"Authorization", "Bearer read"}
	want := map[string]any{
		"token_url": "https://login.example.com/tenant/token?key=QUERYKEY", "client_id": "client", "client_secret": "[redacted]",
		"scopes": []any{"a", "b"}, "audience": "https://example.com", "params": map[string]any{"resource": "[redacted]"},
	}
	made := h.do(http.StatusCreated, "PUT", billing, oauthHook, admin...)
	if diff := cmp.Diff(want, authOf(made)); diff != "" {
		t.Error(diff)
	}
	want["token_url"] = "https://login.example.com/tenant/token?[redacted]"
	if diff := cmp.Diff(want, authOf(h.do(http.StatusOK, "GET", billing, "", read...))); diff != "" {
		t.Errorf("to who may read: %s", diff)
	}
	stored, err := h.db.GetWebhook(t.Context(), "billing-eu")
	if err != nil || stored.Auth.OAuth2.ClientSecret != "PLANTEDSECRET" {
		t.Fatalf("stored is %v, %v", stored.Auth, err)
	}

	// A change is merged: the secret need not be repeated.
	changed := h.do(http.StatusOK, "PATCH", billing, `{"auth":{"oauth2":{"scopes":["c"],"audience":null,"params":{"resource":null,"x":"PLANTED"}}}}`,
		append(admin, "Content-Type", mergePatch, "If-Match", made.header.Get("ETag"))...)
	want = map[string]any{
		"token_url": "https://login.example.com/tenant/token?key=QUERYKEY", "client_id": "client", "client_secret": "[redacted]",
		"scopes": []any{"c"}, "params": map[string]any{"x": "[redacted]"},
	}
	if diff := cmp.Diff(want, authOf(changed)); diff != "" {
		t.Error(diff)
	}
	if after, err := h.db.GetWebhook(t.Context(), "billing-eu"); err != nil || after.Auth.OAuth2.ClientSecret != "PLANTEDSECRET" {
		t.Errorf("stored is %v, %v", after.Auth, err)
	}
	h.do(http.StatusPreconditionFailed, "PATCH", billing, `{"auth":null}`, append(admin, "Content-Type", mergePatch, "If-Match", made.header.Get("ETag"))...)
	h.do(http.StatusOK, "PATCH", billing, `{"auth":{"oauth2":{"client_secret":"PLANTEDOTHER"}}}`, admin...)
	audit := h.do(http.StatusOK, "GET", "/api/v1/audit?webhook=billing-eu&limit=1", "", admin...)
	if fields := fmt.Sprint(audit.get("data", 0, "fields")); fields != "[auth.oauth2.client_secret]" || strings.Contains(string(audit.body), "PLANTED") {
		t.Errorf("the audit says %s", audit.body)
	}
	if gone := h.do(http.StatusOK, "PATCH", billing, `{"auth":null}`, append(admin, "Content-Type", mergePatch)...); gone.get("auth") != nil {
		t.Errorf("it stays: %s", gone.body)
	}
	if strings.Contains(h.log.String(), "PLANTED") {
		t.Error("a secret is in the log")
	}
}

func TestAPlanSaysWhichSecretsOfAuthChange(t *testing.T) {
	h := newHarness(t)
	h.do(http.StatusCreated, "PUT", billing, oauthHook)
	next := strings.NewReplacer("PLANTEDSECRET", "PLANTEDOTHER", `"scopes":["a","b"],`, "", "QUERYKEY", "OTHERKEY").Replace(oauthHook)
	plan := h.do(http.StatusOK, "PUT", dryBilling, next)
	fields := map[string][2]any{}
	for _, c := range plan.get("plan", "changes").([]any) {
		c := c.(map[string]any)
		fields[c["field"].(string)] = [2]any{c["from"], c["to"]}
	}
	want := map[string][2]any{
		"auth.oauth2.client_secret": {"[redacted]", "[redacted]"}, "auth.oauth2.scopes": {[]any{"a", "b"}, nil},
		"auth.oauth2.token_url": {"https://login.example.com/tenant/token?[redacted]", "https://login.example.com/tenant/token?[redacted]"},
	}
	if diff := cmp.Diff(want, fields); diff != "" || strings.Contains(string(plan.body), "PLANTED") {
		t.Errorf("%s\n%s", diff, plan.body)
	}
	if same := h.do(http.StatusOK, "PUT", dryBilling, oauthHook); same.text("plan", "action") != "nothing" {
		t.Errorf("of the same: %s", same.body)
	}
}

// What can't be used is refused with the field and what to do, and nothing repeats a secret.
func TestBadAuthIsRefusedWithTheField(t *testing.T) {
	h := newHarness(t)
	h.do(http.StatusCreated, "PUT", billing, oauthHook)
	for _, c := range []struct{ auth, field, says string }{
		{`{}`, "auth.oauth2", "it is missing"},
		{`{"oauth":{}}`, "auth.oauth", "not a field"},
		{`{"oauth2":{"token":"PLANTED"}}`, "auth.oauth2.token", "not a field"},
		{`"PLANTED"`, "auth", "wrong type"},
		{`{"oauth2":{"token_url":"https://a.example.com/","client_id":"c"}}`, "auth.oauth2.client_secret", "it is missing"},
		{`{"oauth2":{"token_url":"https://a.example.com/","client_secret":"PLANTED"}}`, "auth.oauth2.client_id", "it is missing"},
		{`{"oauth2":{"token_url":"https://a.example.com/","client_id":"c","client_secret":7}}`, "auth.oauth2.client_secret", "wrong type"},
		{`{"oauth2":{"token_url":"https://a.example.com/","client_id":"c","client_secret":"[redacted]"}}`, "auth.oauth2.client_secret", "hidden value"},
		{`{"oauth2":{"token_url":"http://a.example.com/","client_id":"c","client_secret":"PLANTED"}}`, "auth.oauth2.token_url", "not https"},
		{`{"oauth2":{"token_url":"https://user:PLANTED@a.example.com/","client_id":"c","client_secret":"PLANTED"}}`, "auth.oauth2.token_url", "user name"},
		{`{"oauth2":{"token_url":"https://169.254.169.254/PLANTED","client_id":"c","client_secret":"PLANTED"}}`, "auth.oauth2.token_url", "not public"},
		{`{"oauth2":{"token_url":"https://[::ffff:127.0.0.1]/","client_id":"c","client_secret":"PLANTED"}}`, "auth.oauth2.token_url", "not public"},
		{`{"oauth2":{"token_url":"https://2130706433/","client_id":"c","client_secret":"PLANTED"}}`, "auth.oauth2.token_url", "looks like a number"},
		{`{"oauth2":{"token_url":"https://localhost/","client_id":"c","client_secret":"PLANTED"}}`, "auth.oauth2.token_url", "name for this machine"},
		{`{"oauth2":{"token_url":"https://a.example.com/","client_id":"c","client_secret":"PLANTED","scopes":["a b"]}}`, "auth.oauth2.scopes", "can't be sent"},
		{`{"oauth2":{"token_url":"https://a.example.com/","client_id":"c","client_secret":"PLANTED","params":{"grant_type":"password"}}}`, "auth.oauth2.params", "sent by pushlease"},
		{`{"oauth2":{"token_url":"https://a.example.com/","client_id":"c","private_key_jwt":{"key":"PLANTED"}}}`, "auth.oauth2.private_key_jwt.key", "no private key"},
		{`{"oauth2":{"token_url":"https://a.example.com/","client_id":"c","client_secret":"PLANTED","private_key_jwt":{"key":"PLANTED"}}}`, "auth.oauth2.client_secret", "beside private_key_jwt"},
	} {
		body := fmt.Sprintf(`{"queue":"orders","url":"https://example.com/hook","auth":%s}`, c.auth)
		refused := h.do(http.StatusBadRequest, "PUT", billing, body)
		refused.wantProblem(c.field)
		if text := string(refused.body); strings.Contains(text, "PLANTED") || !strings.Contains(text, c.says) {
			t.Errorf("%s: %s", c.auth, text)
		}
	}
	refused := h.do(http.StatusBadRequest, "PATCH", billing, `{"headers":{"authorization":"Bearer x"}}`)
	if refused.wantProblem("headers.authorization"); !strings.Contains(string(refused.body), mergePatch) {
		t.Errorf("it does not say how null is sent: %s", refused.body)
	}
	refused = h.do(http.StatusBadRequest, "PATCH", billing, `{"auth":{"oauth2":{"client_secret":null,"private_key_jwt":{"key":"PLANTED"}}}}`)
	if refused.wantProblem("auth.oauth2.client_secret"); !strings.Contains(string(refused.body), mergePatch) {
		t.Errorf("it does not say how null is sent: %s", refused.body)
	}
	h.do(http.StatusBadRequest, "PATCH", billing, `{"auth":{"oauth2":{"client_secret":null}}}`, "Content-Type", mergePatch).wantProblem("auth.oauth2.client_secret")
}

// A test POST shows what came of the token, and not the token.
func TestATestIsMadeWithAToken(t *testing.T) {
	h := newHarness(t, allowLocal)
	answered, denied := 0, false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/token":
			if answered++; answered == 1 {
				w.WriteHeader(http.StatusUnauthorized)
			}
			_, _ = fmt.Fprintf(w, "saw %s", r.Header.Get("Authorization"))
		case denied:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = fmt.Fprint(w, `{"error":"invalid_client"}`)
		default:
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(map[string]any{"access_token": fmt.Sprintf("PLANTEDTOKEN-%d", answered), "expires_in": 3600})
		}
	}))
	defer server.Close()
	h.do(http.StatusCreated, "PUT", billing, fmt.Sprintf(`{"queue":"orders","url":"%s/hook","auth":{"oauth2":{"token_url":"%s/token","client_id":"c","client_secret":"PLANTEDSECRET"}}}`, server.URL, server.URL))
	test := h.do(http.StatusOK, "POST", billing+"/test", "")
	if test.get("status") != 200.0 || test.text("request", "headers", "Authorization") != "[redacted]" || test.text("snippet") != "saw [redacted]" ||
		!strings.Contains(test.text("note"), "fresh token") || strings.Contains(string(test.body), "PLANTED") {
		t.Errorf("it says %s", test.body)
	}
	denied = true
	h.do(http.StatusOK, "PATCH", billing, `{"auth":{"oauth2":{"client_secret":"PLANTEDOTHER"}}}`)
	test = h.do(http.StatusOK, "POST", billing+"/test", "")
	if test.text("error_class") != "token" || test.text("error") != "the token endpoint answered 401 invalid_client: set auth.oauth2.client_secret" ||
		test.text("decision", "action") != "hold" || test.text("decision", "reason") != "NoToken" || test.get("decision", "charged") != false || strings.Contains(string(test.body), "PLANTED") {
		t.Errorf("it says %s", test.body)
	}
}

// certified makes a certificate and its key in PEM; by nil signs itself, as an authority.
func certified(t *testing.T, end time.Time, by *tls.Certificate) (certificate, key string, pair tls.Certificate) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(end.UnixNano()), Subject: pkix.Name{CommonName: "client"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: end}
	parent, signer := template, any(private)
	if by == nil {
		template.IsCA, template.BasicConstraintsValid = true, true
	} else {
		parent, signer = by.Leaf, by.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &private.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	certificate = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	key = string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}))
	if pair, err = tls.X509KeyPair([]byte(certificate), []byte(key)); err != nil {
		t.Fatal(err)
	}
	return certificate, key, pair
}

func TestTLSIsRegisteredAndItsKeyIsNeverShown(t *testing.T) {
	reader := metric.NewManualReader()
	h := newHarness(t, func(o *Options) { o.Meter = metric.NewMeterProvider(metric.WithReader(reader)).Meter("") })
	ca, _, root := certified(t, time.Now().Add(2000*time.Hour), nil)
	end := time.Now().Add(1000 * time.Hour)
	certificate, key, _ := certified(t, end, &root)
	with := func(part map[string]any) string {
		text, err := json.Marshal(map[string]any{"queue": "orders", "url": "https://example.com/hook", "tls": part})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	made := h.do(http.StatusCreated, "PUT", billing, with(map[string]any{"client_certificate": certificate, "client_key": key, "ca": ca, "min_version": "1.3", "server_name": "inside.example"}))
	want := map[string]any{"client_certificate": strings.TrimSpace(certificate), "client_key": "[redacted]", "ca": strings.TrimSpace(ca), "min_version": "1.3", "server_name": "inside.example"}
	if diff := cmp.Diff(want, made.get("tls")); diff != "" || made.text("certificate_expires_at") != web.Stamp(end.Truncate(time.Second)) {
		t.Errorf("%s, until %v: %s", diff, end, made.body)
	}
	if text := string(made.body); strings.Contains(text, "client_certificate expires") || strings.Contains(text, strings.Split(key, "\n")[1]) {
		t.Errorf("it says %s", text)
	}

	soon := time.Now().Add(29 * 24 * time.Hour)
	next, nextKey, _ := certified(t, soon, &root)
	change, err := json.Marshal(map[string]any{"tls": map[string]any{"client_certificate": next}})
	if err != nil {
		t.Fatal(err)
	}
	h.do(http.StatusBadRequest, "PATCH", billing, string(change)).wantProblem("tls.client_key")
	if change, err = json.Marshal(map[string]any{"tls": map[string]any{"client_certificate": next, "client_key": nextKey, "server_name": nil}}); err != nil {
		t.Fatal(err)
	}
	h.do(http.StatusOK, "PATCH", billing, string(change), "Content-Type", mergePatch)
	shown := h.do(http.StatusOK, "GET", billing, "")
	if warnings := fmt.Sprint(shown.get("warnings")); !strings.Contains(warnings, "The certificate in tls.client_certificate expires at "+web.Stamp(soon.Truncate(time.Second))) || shown.get("tls", "server_name") != nil {
		t.Errorf("it says %s", shown.body)
	}
	h.api.countDepths(t.Context())
	if left := points(t, reader, "pushlease.webhook.certificate.left", "webhook")["billing-eu"]; left < 28*86400 || left > 29*86400 {
		t.Errorf("its metric says %v seconds", left)
	}
	audit := h.do(http.StatusOK, "GET", "/api/v1/audit?webhook=billing-eu&limit=1", "")
	if fields := fmt.Sprint(audit.get("data", 0, "fields")); fields != "[tls.client_certificate tls.client_key tls.server_name]" {
		t.Errorf("the audit says %s", fields)
	}
	h.do(http.StatusBadRequest, "PUT", billing, with(map[string]any{"ca": certificate})).wantProblem("tls.ca")
	h.do(http.StatusBadRequest, "PUT", billing, with(map[string]any{"key": key})).wantProblem("tls.key")
	h.do(http.StatusBadRequest, "PUT", billing, with(map[string]any{"client_certificate": certificate, "client_key": "[redacted]"})).wantProblem("tls.client_key")
	ended, endedKey, _ := certified(t, time.Now().Add(-time.Second), &root)
	h.do(http.StatusBadRequest, "PUT", billing, with(map[string]any{"client_certificate": ended, "client_key": endedKey})).wantProblem("tls.client_certificate")
	h.do(http.StatusBadRequest, "PUT", billing, strings.Replace(with(map[string]any{"ca": ca}), "https:", "http:", 1)).wantProblem("tls")
	if gone := h.do(http.StatusOK, "PATCH", billing, `{"tls":null}`, "Content-Type", mergePatch); gone.get("tls") != nil || gone.get("certificate_expires_at") != nil {
		t.Errorf("it stays: %s", gone.body)
	}
}

// What anybody on the way can read is no proof of who sends.
func TestATokenOverHTTPIsWarnedOf(t *testing.T) {
	h := newHarness(t, allowLocal)
	for scheme, warned := range map[string]bool{"http": true, "https": false} {
		made := h.do(http.StatusCreated, "PUT", "/api/v1/webhooks/over-"+scheme, strings.Replace(oauthHook, "https://example.com", scheme+"://example.com", 1))
		if warnings := fmt.Sprint(made.get("warnings")); strings.Contains(warnings, "whoever reads what is sent has the token") != warned {
			t.Errorf("over %s: %s", scheme, warnings)
		}
	}
}

// A part of a key that stands beside a certificate is not kept, and so shown to nobody.
func TestWhatStandsBesideACertificateIsNotKept(t *testing.T) {
	h := newHarness(t)
	certificate, key, _ := certified(t, time.Now().Add(1000*time.Hour), nil)
	text, err := json.Marshal(map[string]any{"queue": "orders", "url": "https://example.com/hook", "tls": map[string]any{"ca": strings.TrimSuffix(key, "-----END PRIVATE KEY-----\n") + certificate}})
	if err != nil {
		t.Fatal(err)
	}
	h.do(http.StatusCreated, "PUT", billing, string(text))
	shown := h.do(http.StatusOK, "GET", billing, "")
	if strings.Contains(string(shown.body), strings.Split(key, "\n")[1]) || shown.text("tls", "ca") != strings.TrimSpace(certificate) {
		t.Errorf("it shows %s", shown.body)
	}
}

// A webhook to which nothing can be sent is no healthy one: its certificate has ended, or no request could be made to it lately.
func TestAWebhookThatCanNotBeUsedIsInTrouble(t *testing.T) {
	h := newHarness(t)
	h.do(http.StatusCreated, "PUT", billing, `{"queue":"orders","url":"https://example.com/hook"}`)
	s := status.Webhook{State: status.Healthy}
	s.Breaker.Phase = policy.BreakerClosed
	h.view.webhook = func(string) (status.Webhook, bool) { return s, true }
	tells := func(what string, troubled bool, says string) {
		t.Helper()
		if listed := h.do(http.StatusOK, "GET", "/api/v1/webhooks?trouble=true", "").get("data").([]any); (len(listed) == 1) != troubled {
			t.Errorf("%s: %d webhooks in trouble", what, len(listed))
		}
		if text := h.do(http.StatusOK, "GET", billing, "").text("status", "text"); !strings.Contains(text, says) {
			t.Errorf("%s: it says %q", what, text)
		}
	}
	tells("a good one", false, "")
	s.Why = "the URL is not https"
	tells("one that no request could be made to", true, "But no request can be made to it from its registration: the URL is not https. Its messages wait")
	s.Why = ""
	reg, err := h.db.GetWebhook(t.Context(), "billing-eu")
	if err != nil {
		t.Fatal(err)
	}
	ended, _, _ := certified(t, time.Now().Add(-time.Second), nil)
	reg.TLS = &webhook.TLS{CA: ended}
	if _, err = h.db.PutWebhook(t.Context(), reg); err != nil {
		t.Fatal(err)
	}
	tells("one whose authority has ended", true, "a certificate of its own has expired")
}
