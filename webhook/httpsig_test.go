package webhook_test

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/npmtest"
	"github.com/pushlease/pushlease/webhook"
)

func withHTTP(h webhook.HTTPSignature) *webhook.Webhook {
	w := hook()
	w.Signatures = &webhook.Signatures{HTTP: &h}
	return w
}

func TestWhatIsCoveredIsWhatWasAskedFor(t *testing.T) {
	w := withHTTP(webhook.HTTPSignature{Algorithm: "hmac-sha256", Components: []string{"@authority", "content-type", "webhook-id"}, KeyID: "ours"})
	w.Secrets = []webhook.Secret{{Key: secretOf(32)}, {Key: testSecret}}
	got := received(t, w, "{}")
	stamp := got.Header.Get("Webhook-Timestamp")
	of := func(label string) string {
		return label + `=("@authority" "content-type" "webhook-id");created=` + stamp + `;keyid="ours";alg="hmac-sha256"`
	}
	if input := got.Header.Get("Signature-Input"); input != of("sig1")+", "+of("sig2") {
		t.Errorf("the input is %s", input)
	}
	if got.Header.Get("Content-Digest") != "" {
		t.Error("a digest is sent that nobody asked for")
	}
	plain := received(t, withHTTP(webhook.HTTPSignature{Algorithm: "hmac-sha256"}), "{}")
	if input := plain.Header.Get("Signature-Input"); !strings.HasPrefix(input, `sig1=("@method" "@target-uri" "content-digest");`) || !strings.Contains(input, `keyid="wh_1"`) {
		t.Errorf("without settings the input is %s", input)
	}
	// The example of RFC 9530, appendix B.1.
	example := received(t, withHTTP(webhook.HTTPSignature{Algorithm: "hmac-sha256"}), "{\"hello\": \"world\"}\n")
	if digest := example.Header.Get("Content-Digest"); digest != "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:" {
		t.Errorf("the digest is %s", digest)
	}
	if result := newSender(t, nil).Send(t.Context(), withHTTP(webhook.HTTPSignature{Algorithm: "other"}), message("x")); result.ErrorClass != "request" {
		t.Errorf("with an algorithm that is not known: %+v", result)
	}
}

func TestThePagesCheckOfHTTPSignaturesTakesWhatIsSigned(t *testing.T) {
	key := keyOf(t, vectorKey)
	public := key.Public()
	secret := strings.TrimPrefix(testSecret, "whsec_")
	var all []checked
	for _, body := range []string{`{"a":1}`, "", "\xff\xfe\x00\r\n"} {
		shared := withHTTP(webhook.HTTPSignature{Algorithm: "hmac-sha256"})
		pair := withHTTP(webhook.HTTPSignature{Algorithm: "ed25519", Components: []string{"@method", "@authority", "@path", "@query", "content-digest", "content-type", "webhook-id"}})
		pair.SigningKeys = []webhook.SigningKey{key}
		for _, c := range []struct {
			w                *webhook.Webhook
			id, right, wrong string
		}{
			{shared, "wh_1", secret, base64.StdEncoding.EncodeToString(make([]byte, 24))},
			{pair, public.ID(), public.X(), (&webhook.SigningKey{Key: webhook.NewSigningKey(time.Now()).Key}).Public().X()},
		} {
			got := received(t, c.w, body)
			moved := got
			moved.Header = http.Header{}
			for name, values := range got.Header {
				moved.Header[name] = values
			}
			moved.Header.Set("Signature-Input", strings.Replace(got.Header.Get("Signature-Input"), "created=1", "created=2", 1))
			all = append(all, check(c.id, c.right, got, body, true), check(c.id, c.wrong, got, body, false), check(c.id, c.right, got, body+"x", false), check(c.id, c.right, moved, body, false))
		}
	}
	input, want := encodedChecks(t, all)
	got := npmtest.SDKs.Run(t, snippetOf(t, "js", "httpbis")+`
(async () => {
  const requests = JSON.parse(require("node:fs").readFileSync(0));
  let taken = "";
  for (const { preset, secret, headers, body } of requests) {
    const key = preset === "wh_1" ? createSecretKey(Buffer.from(secret, "base64")) : createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x: secret }, format: "jwk" });
    const alg = preset === "wh_1" ? "hmac-sha256" : "ed25519";
    const url = "http://127.0.0.1/hook/path-secret?token=query-secret";
    taken += await verifyHTTP({ id: preset, alg, key }, { method: "POST", url, headers }, Buffer.from(body, "base64")) ? "1" : "0";
  }
  console.log(taken);
})();`, input)
	if got = strings.TrimSpace(got); got != want {
		t.Errorf("taken: %s, want %s", got, want)
	}
}
