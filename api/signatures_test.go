package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
	} {
		a := h.do(http.StatusBadRequest, "PUT", billing, fmt.Sprintf(`{"queue":"orders","url":"https://example.com/hook","signatures":%s}`, c.signatures))
		a.wantProblem(c.field)
		if !strings.Contains(string(a.body), c.says) || strings.Contains(string(a.body), "PLANTED") {
			t.Errorf("%s: %s", c.signatures, a.body)
		}
	}
	twice := `{"queue":"orders","url":"https://example.com/hook","headers":{"x-hub-signature-256":"a"},"signatures":{"hmac":{"preset":"github"}}}`
	h.do(http.StatusBadRequest, "PUT", billing, twice).wantProblem("headers.x-hub-signature-256")
}
