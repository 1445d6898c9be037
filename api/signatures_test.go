package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/webhook"
)

const signedHook = `{"queue":"orders","url":"https://example.com/hook","signatures":{"hmac":{"preset":"github","secret":"PLANTED-hmac"}}}`

// signaturesOf is signatures as an answer shows them.
func signaturesOf(a answer) any {
	a.Helper()
	if strings.Contains(string(a.body), "PLANTED") {
		a.Errorf("a secret is shown: %s", a.body)
	}
	return a.get("signatures")
}

func TestSignaturesAreRegisteredAndTheirSecretIsNeverShown(t *testing.T) {
	h := newHarness(t, withKeys)
	admin := []string{"Authorization", "Bearer admin"}
	want := map[string]any{"hmac": map[string]any{"preset": "github", "secret": "[redacted]"}}
	made := h.do(http.StatusCreated, "PUT", billing, signedHook, admin...)
	if diff := cmp.Diff(want, signaturesOf(made)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want, signaturesOf(h.do(http.StatusOK, "GET", billing, "", "Authorization", "Bearer read"))); diff != "" {
		t.Error(diff)
	}
	// A change is merged: the secret need not be repeated.
	want["hmac"].(map[string]any)["preset"] = "stripe"
	if diff := cmp.Diff(want, signaturesOf(h.do(http.StatusOK, "PATCH", billing, `{"signatures":{"hmac":{"preset":"stripe"}}}`, admin...))); diff != "" {
		t.Error(diff)
	}
	audit := h.do(http.StatusOK, "GET", "/api/v1/audit?webhook=billing-eu&limit=1", "", admin...)
	if fields := fmt.Sprint(audit.get("data", 0, "fields")); fields != "[signatures.hmac.preset]" {
		t.Errorf("the audit says %s", audit.body)
	}
	stored, err := h.db.GetWebhook(t.Context(), "billing-eu")
	if err != nil || stored.Signatures.HMAC.Secret != "PLANTED-hmac" {
		t.Fatalf("stored is %v, %v", stored.Signatures, err)
	}
	h.do(http.StatusOK, "PATCH", billing, `{"signatures":{"hmac":{"secret":"PLANTED-other"}}}`, admin...)
	plan := h.do(http.StatusOK, "PUT", dryBilling, signedHook, admin...)
	if text := fmt.Sprint(plan.get("plan", "changes")); strings.Contains(string(plan.body), "PLANTED") || !strings.Contains(text, "signatures.hmac.secret") || !strings.Contains(text, "signatures.hmac.preset") {
		t.Errorf("the plan says %s", plan.body)
	}
	own := `{"signatures":{"hmac":{"preset":null,"header":"X-Signature","signed":"timestamp.body","prefix":"v0="}}}`
	want = map[string]any{"hmac": map[string]any{"header": "X-Signature", "signed": "timestamp.body", "prefix": "v0=", "secret": "[redacted]"}}
	if diff := cmp.Diff(want, signaturesOf(h.do(http.StatusOK, "PATCH", billing, own, append(admin, "Content-Type", mergePatch)...))); diff != "" {
		t.Error(diff)
	}
	if gone := h.do(http.StatusOK, "PATCH", billing, `{"signatures":null}`, append(admin, "Content-Type", mergePatch)...); gone.get("signatures") != nil {
		t.Errorf("they stay: %s", gone.body)
	}
	if strings.Contains(h.log.String(), "PLANTED") {
		t.Error("a secret is in the log")
	}
}

func TestSignaturesThatCanNotBeUsedAreRefusedByTheirField(t *testing.T) {
	h := newHarness(t)
	for _, c := range []struct{ signatures, field, says string }{
		{`"PLANTED"`, "signatures", "wrong type"},
		{`{}`, "signatures", "empty"},
		{`{"hmca":{}}`, "signatures.hmca", "hmac"},
		{`{"hmac":{}}`, "signatures.hmac.header", "missing"},
		{`{"hmac":{"preset":"PLANTED"}}`, "signatures.hmac.preset", "github, shopify, stripe"},
		{`{"hmac":{"preset":"github","algorithm":"sha512"}}`, "signatures.hmac.preset", "beside"},
		{`{"hmac":{"header":"X-S","algorithm":"sha1"}}`, "signatures.hmac.algorithm", "sha256"},
		{`{"hmac":{"header":"X-S","algorithm":"PLANTED"}}`, "signatures.hmac.algorithm", "sha256"},
		{`{"hmac":{"header":"X-S","encoding":"PLANTED"}}`, "signatures.hmac.encoding", "base64"},
		{`{"hmac":{"header":"X-S","signed":"PLANTED"}}`, "signatures.hmac.signed", "timestamp.body"},
		{`{"hmac":{"header":"X-S","prefix":"PLANTED, b"}}`, "signatures.hmac.prefix", "sha256="},
		{`{"hmac":{"header":"X-S","prefix":"PLANTED\r\nX-A:b"}}`, "signatures.hmac.prefix", "printable"},
		{`{"hmac":{"header":"X-S","signed":"timestamp.body","timestamp_prefix":"PLANTED\n"}}`, "signatures.hmac.timestamp_prefix", "printable"},
		{`{"hmac":{"header":"X-S","timestamp_prefix":"t="}}`, "signatures.hmac.timestamp_prefix", "timestamp.body"},
		{`{"hmac":{"header":"webhook-signature"}}`, "signatures.hmac.header", "can have"},
		{`{"hmac":{"header":"Content-Type"}}`, "signatures.hmac.header", "can have"},
		{`{"hmac":{"header":"Authorization"}}`, "signatures.hmac.header", "can have"},
		{`{"hmac":{"header":"ce-id"}}`, "signatures.hmac.header", "can have"},
		{`{"hmac":{"header":"X PLANTED\n"}}`, "signatures.hmac.header", "can have"},
		{`{"hmac":{"preset":"github","secret":"PLANTED"}}`, "signatures.hmac.secret", "8 bytes"},
		{`{"hmac":{"preset":"github","secret":"PLANTED-hmac\n"}}`, "signatures.hmac.secret", "line's end"},
		{`{"hmac":{"preset":"github","secret":"[redacted]"}}`, "signatures.hmac.secret", "give the value"},
		{`{"hmac":{"preset":"github","secret":17}}`, "signatures.hmac.secret", "wrong type"},
		{`{"http":{}}`, "signatures.http.algorithm", "hmac-sha256"},
		{`{"http":{"algorithm":"rsa-PLANTED"}}`, "signatures.http.algorithm", "ed25519"},
		{`{"http":{"algorithm":"ed25519","key_id":"PLANTED"}}`, "signatures.http.key_id", "thumbprint"},
		{`{"http":{"algorithm":"hmac-sha256","key_id":"PLANTED\""}}`, "signatures.http.key_id", "printable"},
		{`{"http":{"algorithm":"hmac-sha256","components":["@method","x-PLANTED"]}}`, "signatures.http.components", "@target-uri"},
		{`{"http":{"algorithm":"hmac-sha256","components":["@method","@method"]}}`, "signatures.http.components", "twice"},
		{`{"http":{"algorithm":"hmac-sha256","components":"@method"}}`, "signatures.http.components", "wrong type"},
	} {
		a := h.do(http.StatusBadRequest, "PUT", billing, fmt.Sprintf(`{"queue":"orders","url":"https://example.com/hook","signatures":%s}`, c.signatures))
		a.wantProblem(c.field)
		if !strings.Contains(string(a.body), c.says) || strings.Contains(string(a.body), "PLANTED") {
			t.Errorf("%s: %s", c.signatures, a.body)
		}
	}
	made := h.do(http.StatusCreated, "PUT", billing, `{"queue":"orders","url":"https://example.com/hook","signatures":{"http":{"algorithm":"ed25519","components":["@method"]}}}`)
	if fmt.Sprint(made.get("signatures")) != "map[http:map[algorithm:ed25519 components:[@method]]]" || made.text("signing_keys", 0, "public_key") == "" {
		t.Errorf("made %s", made.body)
	}
	wantCure := func(a answer, field string) {
		t.Helper()
		if a.wantProblem(field); !strings.Contains(string(a.body), `ed25519`) {
			t.Errorf("the cure is for v1a alone: %s", a.body)
		}
	}
	byHMAC := `{"queue":"orders","url":"https://example.com/hook","signatures":{"http":{"algorithm":"hmac-sha256"}}`
	wantCure(h.do(http.StatusBadRequest, "PUT", billing+"-3", byHMAC+`,"signing_key":"whsk_`+strings.Repeat("A", 43)+`="}`), "signing_key")
	h.do(http.StatusCreated, "PUT", billing+"-3", byHMAC+`}`)
	wantCure(h.do(http.StatusBadRequest, "POST", billing+"-3/rotate-signing-key", `{}`), "request")
	h.do(http.StatusBadRequest, "PATCH", billing+"-3", `{"headers":{"content-digest":"a"}}`).wantProblem("headers.content-digest")
	h.do(http.StatusOK, "PATCH", billing+"-3", `{"headers":{"content-digest":"a"},"signatures":{"http":{"components":["@method"]}}}`)
	twice := `{"queue":"orders","url":"https://example.com/hook","headers":{"x-hub-signature-256":"a"},"signatures":{"hmac":{"preset":"github"}}}`
	h.do(http.StatusBadRequest, "PUT", billing, twice).wantProblem("headers.x-hub-signature-256")
}

const v1aHook = `{"queue":"orders","url":"https://example.com/hook","signatures":{"v1a":true}}`

// keysOfAnybody is what the key set of a webhook says to who has no key of the API.
func (h *harness) keysOfAnybody(status int, id string) []any {
	h.Helper()
	a := h.do(status, "GET", "/.well-known/webhook-keys/"+id, "")
	if strings.Contains(string(a.body), "whsk_") {
		h.Errorf("a private key is shown: %s", a.body)
	}
	if status != http.StatusOK {
		return nil
	}
	return a.get("keys").([]any)
}

func TestASigningKeyIsMadeRotatedAndServedByItsPublicHalf(t *testing.T) {
	h := newHarness(t, withKeys)
	admin := []string{"Authorization", "Bearer admin"}
	h.do(http.StatusUnauthorized, "GET", billing, "")
	h.keysOfAnybody(http.StatusNotFound, "billing-eu")
	dry := h.do(http.StatusOK, "PUT", dryBilling, v1aHook, admin...)
	if dry.get("signing_keys") != nil {
		t.Errorf("a plan shows a key that will not be the one: %s", dry.body)
	}
	made := h.do(http.StatusCreated, "PUT", billing, v1aHook, admin...)
	first := made.text("signing_keys", 0, "public_key")
	stored, err := h.db.GetWebhook(t.Context(), "billing-eu")
	if err != nil || len(stored.SigningKeys) != 1 || stored.SigningKeys[0].Public().String() != first || strings.Contains(string(made.body), "whsk_") {
		t.Fatalf("made %s, %v", made.body, err)
	}
	keys := h.keysOfAnybody(http.StatusOK, "billing-eu") // at once, though it was asked for before it was there
	if len(keys) != 1 || keys[0].(map[string]any)["public_key"] != first || keys[0].(map[string]any)["kid"] != made.text("signing_keys", 0, "id") {
		t.Errorf("served is %v", keys)
	}
	h.do(http.StatusOK, "PUT", billing, v1aHook, admin...)
	rotated := h.do(http.StatusOK, "POST", billing+"/rotate-signing-key", `{"overlap":"1h"}`, admin...)
	if rotated.text("signing_keys", 1, "public_key") != first || rotated.text("signing_keys", 1, "expires_at") == "" || strings.Contains(string(rotated.body), "whsk_") {
		t.Errorf("rotated: %s", rotated.body)
	}
	if keys := h.keysOfAnybody(http.StatusOK, "billing-eu"); len(keys) != 2 {
		t.Errorf("served are %v", keys)
	}
	audit := h.do(http.StatusOK, "GET", "/api/v1/audit?webhook=billing-eu&limit=1", "", admin...)
	if fields := fmt.Sprint(audit.get("data", 0, "fields")); fields != "[signing_keys]" {
		t.Errorf("the audit says %s", audit.body)
	}
	h.do(http.StatusOK, "POST", billing+"/rotate-signing-key", `{"overlap":"0s"}`, admin...)
	if keys := h.keysOfAnybody(http.StatusOK, "billing-eu"); len(keys) != 1 || keys[0].(map[string]any)["public_key"] == first {
		t.Errorf("served are %v", keys)
	}
	for range maxSecrets - 1 {
		h.do(http.StatusOK, "POST", billing+"/rotate-signing-key", `{}`, admin...)
	}
	h.do(http.StatusConflict, "POST", billing+"/rotate-signing-key", `{}`, admin...).wantProblem("request")

	h.do(http.StatusOK, "PATCH", billing, `{"signatures":null}`, append(admin, "Content-Type", mergePatch)...)
	h.keysOfAnybody(http.StatusNotFound, "billing-eu")
	h.do(http.StatusBadRequest, "POST", billing+"/rotate-signing-key", `{}`, admin...).wantProblem("request")
	back := h.do(http.StatusOK, "PATCH", billing, `{"signatures":{"v1a":true}}`, admin...)
	if n := len(back.get("signing_keys").([]any)); n != maxSecrets {
		t.Errorf("%d keys are left where the signature was taken away and put back", n)
	}
	if strings.Contains(h.log.String(), "whsk_") {
		t.Error("a key is in the log")
	}
}

func TestASigningKeyMayBeGivenOnce(t *testing.T) {
	h := newHarness(t)
	const key = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
	given := strings.Replace(v1aHook, "{", `{"signing_key":"`+key+`",`, 1)
	made := h.do(http.StatusCreated, "PUT", billing, given)
	if made.text("signing_keys", 0, "public_key") != "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=" || strings.Contains(string(made.body), "whsk_") {
		t.Errorf("made %s", made.body)
	}
	h.do(http.StatusOK, "PUT", billing, given)
	other := "whsk_" + strings.Repeat("A", 43) + "="
	for _, c := range []struct{ method, path, body, field string }{
		{"PUT", billing, strings.Replace(given, key, other, 1), "signing_key"},
		{"PATCH", billing, `{"signing_key":"` + other + `"}`, "signing_key"},
		{"PUT", billing, strings.Replace(given, key, "PLANTED", 1), "signing_key"},
		{"PUT", billing + "-2", strings.Replace(given, `"v1a":true`, `"hmac":{"preset":"github"}`, 1), "signing_key"},
		{"PUT", billing, `{"queue":"orders","url":"https://example.com/hook","signatures":{"v1a":"yes"}}`, "signatures.v1a"},
		{"PUT", billing, `{"queue":"orders","url":"https://example.com/hook","signatures":{"v1a":false}}`, "signatures"},
		{"POST", billing + "/rotate-signing-key", `{"signing_key":"` + key + `"}`, "signing_key"},
		{"POST", billing + "/rotate-signing-key", `{"overlap":"200h"}`, "overlap"},
		{"POST", billing + "/rotate-signing-key", `{"signing_key":"PLANTED"}`, "signing_key"},
	} {
		a := h.do(http.StatusBadRequest, c.method, c.path, c.body)
		if a.wantProblem(c.field); strings.Contains(string(a.body), "PLANTED") || strings.Contains(string(a.body), "whsk_A") {
			t.Errorf("%s %s: %s", c.method, c.body, a.body)
		}
	}
}

// Whoever asks for public keys has no key of the API, and makes storage no work.
func TestPublicKeysAreReadSeldom(t *testing.T) {
	h := newHarness(t)
	h.do(http.StatusCreated, "PUT", billing, v1aHook)
	counted := &countedLists{Webhooks: h.api.Webhooks}
	h.api.Webhooks = counted
	for range 5 {
		h.keysOfAnybody(http.StatusOK, "billing-eu")
		h.keysOfAnybody(http.StatusNotFound, "nobody")
	}
	if n := counted.lists.Load(); n > 1 {
		t.Errorf("storage was asked %d times", n)
	}
}

// Storage that does not answer is asked by one of those who want the keys, that it did not stands as an answer does, and a change of
// a webhook waits for none of it.
func TestPublicKeysAreReadSeldomWhileStorageIsAway(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var p publicKeys
		reads := 0
		read := func(ctx context.Context) (map[string][]webhook.SigningKey, error) {
			reads++
			<-ctx.Done()
			return nil, ctx.Err()
		}
		began := time.Now()
		answers := make(chan error, 50)
		for range cap(answers) {
			go func() { _, err := p.of(t.Context(), "w", read); answers <- err }()
		}
		synctest.Wait()
		gone, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if _, err := p.of(gone, "w", read); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("who hangs up has %v after %v", err, time.Since(began))
		}
		for range cap(answers) {
			if err := <-answers; err == nil {
				t.Error("keys are given that could not be read")
			}
		}
		if _, err := p.of(t.Context(), "w", read); err == nil || reads != 1 || time.Since(began) != publicKeysTime {
			t.Errorf("%v, %d reads in %v, want 1 in %v", err, reads, time.Since(began), publicKeysTime)
		}
		time.Sleep(publicKeysFresh)
		go func() { _, err := p.of(t.Context(), "w", read); answers <- err }()
		synctest.Wait()
		began = time.Now()
		if p.forget(); time.Since(began) > 0 {
			t.Errorf("a change waited for %v", time.Since(began))
		}
		<-answers
		if reads != 2 {
			t.Errorf("%d reads, want 2", reads)
		}
	})
}

// What was read before a change is not kept, and who read it has it all the same: otherwise nobody had an answer while webhooks are changed.
func TestPublicKeysAreGivenWhileWebhooksAreChanged(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var p publicKeys
		reads := 0
		read := func(context.Context) (map[string][]webhook.SigningKey, error) {
			if reads++; reads < 10 {
				time.Sleep(time.Second)
				p.forget()
			}
			return map[string][]webhook.SigningKey{"w": make([]webhook.SigningKey, reads)}, nil
		}
		for n := range 3 {
			if keys, err := p.of(t.Context(), "w", read); err != nil || len(keys) != n+1 || reads != n+1 {
				t.Errorf("at %d: %d keys of %d readings, %v", n, len(keys), reads, err)
			}
		}
	})
}

// A receiver elsewhere has no key of the API; but where there are none, everything is for this machine alone.
func TestPublicKeysAreForThisMachineWhereThereAreNoAPIKeys(t *testing.T) {
	h := newHarness(t)
	h.do(http.StatusCreated, "PUT", billing, v1aHook)
	for peer, status := range map[string]int{"127.0.0.1:4711": http.StatusOK, "203.0.113.9:4711": http.StatusForbidden} {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/.well-known/webhook-keys/billing-eu", nil)
		r.RemoteAddr = peer
		if h.api.ServeHTTP(w, r); w.Code != status {
			t.Errorf("%s: %d, want %d", peer, w.Code, status)
		}
	}
}

// The connections that are kept for probes carry probes.
func TestPublicKeysAreNotServedOnConnectionsForProbes(t *testing.T) {
	h := newHarness(t)
	h.do(http.StatusCreated, "PUT", billing, v1aHook)
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(context.WithValue(t.Context(), onlyProbesKey{}, true), http.MethodGet, "/.well-known/webhook-keys/billing-eu", nil)
	if h.api.ServeHTTP(w, r); w.Code != http.StatusServiceUnavailable {
		t.Errorf("it is answered with %d", w.Code)
	}
}
