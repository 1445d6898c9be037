package webhook_test

import (
	"encoding/base64"
	"strconv"
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
	if input := got.Header.Get("Signature-Input"); input != `sig1=("@authority" "content-type" "webhook-id");created=`+stamp+`;keyid="ours";alg="hmac-sha256"` {
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
}

// httpChecks is what the page's check has to say of a POST of a webhook: with the keys that are right, by id, and with one that is wrong.
func httpChecks(t *testing.T, w *webhook.Webhook, body, id, right, wrong string) []checked {
	t.Helper()
	got := received(t, w, body)
	input, created := got.Header.Get("Signature-Input"), got.Header.Get("Webhook-Timestamp")
	seconds, err := strconv.Atoi(created)
	if err != nil || strings.Count(input, "created="+created) != 1 {
		t.Fatalf("it was made at %q: %s", created, input)
	}
	moved := got
	moved.Header = got.Header.Clone()
	moved.Header.Set("Signature-Input", strings.Replace(input, "created="+created, "created="+strconv.Itoa(seconds-1), 1))
	all := []checked{check(id, right, got, body, true), check(id, wrong, got, body, false), check(id, right, got, body+"x", false), check(id, right, moved, body, false)}
	for _, ahead := range []int{-301, -300, -2, 300, 301} {
		c := check(id, right, got, body, -300 <= ahead && ahead <= 300)
		c.Clock = ahead
		all = append(all, c)
	}
	return all
}

// thePagesCheckSays runs the page's check, of keys that stand with commas between them, as their ids do.
func thePagesCheckSays(t *testing.T, all []checked) {
	t.Helper()
	input, want := encodedChecks(t, all)
	got := npmtest.SDKs.Run(t, snippetOf(t, "js", "httpbis")+`
(async () => {
  const requests = JSON.parse(require("node:fs").readFileSync(0));
  let taken = "";
  for (const { preset, secret, headers, body, clock: ahead } of requests) {
    const ids = preset.split(",");
    const keys = secret.split(",").map((text, i) => ids[i] === "wh_1"
      ? { id: ids[i], alg: "hmac-sha256", key: createSecretKey(Buffer.from(text, "base64")) }
      : { id: ids[i], alg: "ed25519", key: createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x: text }, format: "jwk" }) });
    const url = "http://127.0.0.1/hook/path-secret?token=query-secret";
    Date.now = () => (Number(headers["webhook-timestamp"]) + ahead) * 1000;
    taken += await verifyHTTP(keys, { method: "POST", url, headers }, Buffer.from(body, "base64")) ? "1" : "0";
  }
  console.log(taken);
})();`, input)
	if got = strings.TrimSpace(got); got != want {
		t.Errorf("taken: %s, want %s", got, want)
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
		all = append(all, httpChecks(t, shared, body, "wh_1", secret, base64.StdEncoding.EncodeToString(make([]byte, 24)))...)
		all = append(all, httpChecks(t, pair, body, public.ID(), public.X(), (&webhook.SigningKey{Key: webhook.NewSigningKey(time.Now()).Key}).Public().X())...)
	}
	nameless := withHTTP(webhook.HTTPSignature{Algorithm: "hmac-sha256", Components: []string{"@method", "user-agent", "content-digest"}})
	nameless.Headers = map[string]string{"User-Agent": ""} // which is not sent
	all = append(all, httpChecks(t, nameless, "x", "wh_1", secret, base64.StdEncoding.EncodeToString(make([]byte, 24)))...)
	thePagesCheckSays(t, all)
}

// The library goes by the last of several signatures, and others refuse a request that has two.
func TestReceiversTakeHTTPSignaturesThroughARotation(t *testing.T) {
	now := time.Now()
	text := func(s webhook.Secret) string { return strings.TrimPrefix(s.Key, "whsec_") }
	first, second := webhook.Secret{Key: secretOf(24)}, webhook.Secret{Key: secretOf(32)}
	ends := func(s webhook.Secret) webhook.Secret { s.ExpiresAt = now.Add(time.Hour); return s }
	ended := func(s webhook.Secret) webhook.Secret { s.ExpiresAt = now.Add(-time.Hour); return s }
	var all []checked
	for _, secrets := range [][]webhook.Secret{{second, ends(first)}, {ends(second), first}, {second, ended(first)}, {ended(second), first}} {
		w := withHTTP(webhook.HTTPSignature{Algorithm: "hmac-sha256"})
		w.Secrets = secrets
		signs, other := first, second
		if secrets[1].ExpiresAt.Before(now) && !secrets[1].ExpiresAt.IsZero() {
			signs, other = second, first
		}
		all = append(all, httpChecks(t, w, "x", "wh_1", text(signs), text(other))...)
		all = append(all, httpChecks(t, w, "x", "wh_1,wh_1", text(other)+","+text(signs), text(other)+","+text(other))...)
	}
	old, fresh := keyOf(t, vectorKey), webhook.NewSigningKey(now)
	ids := func(keys ...webhook.SigningKey) (id, x string) {
		for i := range keys {
			id, x = id+","+keys[i].Public().ID(), x+","+keys[i].Public().X()
		}
		return id[1:], x[1:]
	}
	for _, over := range []bool{false, true} {
		signs, other := old, fresh
		old.ExpiresAt = now.Add(time.Hour)
		if over {
			signs, other = fresh, old
			old.ExpiresAt = now.Add(-time.Hour)
		}
		w := withHTTP(webhook.HTTPSignature{Algorithm: "ed25519"})
		w.SigningKeys = []webhook.SigningKey{fresh, old}
		id, x := ids(signs)
		_, otherX := ids(other)
		all = append(all, httpChecks(t, w, "x", id, x, otherX)...)
		id, x = ids(other, signs)
		all = append(all, httpChecks(t, w, "x", id, x, otherX+","+otherX)...)
	}
	thePagesCheckSays(t, all)
}
