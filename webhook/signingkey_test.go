package webhook_test

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/npmtest"
	"github.com/pushlease/pushlease/webhook"
	"github.com/pushlease/pushlease/webhook/webhooktest"
)

// A pair of keys as others write them.
const (
	vectorKey    = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
	vectorPublic = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="
)

func keyOf(t *testing.T, text string) webhook.SigningKey {
	t.Helper()
	key, err := webhook.ReadSigningKey(text, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func withKeys(keys ...webhook.SigningKey) *webhook.Webhook {
	w := hook()
	w.Signatures, w.SigningKeys = &webhook.Signatures{V1A: true}, keys
	return w
}

func verified(got webhooktest.Received, body string, keys ...string) error {
	return webhook.Verify(keys, got.Header, []byte(body), time.Now(), time.Minute)
}

// The vectors are those of RFC 8037, appendix A.
func TestASigningKeyIsReadInEachFormAndNamedByItsThumbprint(t *testing.T) {
	seed, err := base64.RawURLEncoding.DecodeString("nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A")
	if err != nil {
		t.Fatal(err)
	}
	private := ed25519.NewKeyFromSeed(seed)
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"whsk_" + base64.StdEncoding.EncodeToString(seed), "whsk_" + base64.StdEncoding.EncodeToString(private) + "\n",
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
	} {
		key := keyOf(t, text)
		public := key.Public()
		if public.X() != "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo" || public.ID() != "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k" {
			t.Errorf("%s: its public half is %s, its name %s", text[:5], public.X(), public.ID())
		}
		if key.Key != webhook.Hidden("whsk_"+base64.StdEncoding.EncodeToString(private)) {
			t.Error("it is kept in another form")
		}
	}
	vector := keyOf(t, vectorKey)
	if vector.Public().String() != vectorPublic {
		t.Errorf("the public half is %s", vector.Public())
	}
}

func TestWhatIsNoSigningKeyIsRefusedAndNotRepeated(t *testing.T) {
	halves := base64.StdEncoding.EncodeToString(append(make([]byte, 32), []byte(strings.Repeat("P", 32))...))
	for _, text := range []string{"", "PLANTED", "whsec_" + halves, "whpk_" + halves, "whsk_", "whsk_UExBTlRFRA==", "whsk_PLANTED!", "whsk_" + halves, "-----BEGIN PRIVATE KEY-----\nUExBTlRFRA==\n-----END PRIVATE KEY-----\n"} {
		if _, err := webhook.ReadSigningKey(text, time.Now()); err == nil || strings.Contains(err.Error(), "PLANTED") || strings.Contains(err.Error(), "UExBTlRFRA") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestV1ASignaturesFollowThoseOfV1AndAreVerified(t *testing.T) {
	for _, body := range []string{`{"a":1}`, "", "\xff\xfe\x00\r\n"} {
		got := received(t, withKeys(keyOf(t, vectorKey)), body)
		if value := got.Header.Get("Webhook-Signature"); !strings.HasPrefix(value, "v1,") || strings.Count(value, " v1a,") != 1 {
			t.Errorf("the header is %q", value)
		}
		if err := verified(got, body, vectorPublic); err != nil {
			t.Errorf("by the public key: %v", err)
		}
		if err := verified(got, body, testSecret); err != nil {
			t.Errorf("by the secret: %v", err)
		}
		other := webhook.NewSigningKey(time.Now())
		if verified(got, body+" ", vectorPublic) == nil || verified(got, body, other.Public().String()) == nil {
			t.Error("another body, or another key, is taken")
		}
		if err := verified(got, body, other.Public().String(), vectorPublic); err != nil {
			t.Errorf("by one of two keys: %v", err)
		}
		if verified(got, body, "whpk_short") == nil {
			t.Error("what is no public key is taken")
		}
	}
}

func TestARotationSignsWithBothKeysAndNotWithOneThatHasEnded(t *testing.T) {
	now := time.Now()
	fresh, old, ended := webhook.NewSigningKey(now), webhook.NewSigningKey(now), webhook.NewSigningKey(now)
	old.ExpiresAt, ended.ExpiresAt = now.Add(time.Hour), now.Add(-time.Second)
	got := received(t, withKeys(fresh, old, ended), "x")
	for _, c := range []struct {
		key   webhook.SigningKey
		taken bool
	}{{fresh, true}, {old, true}, {ended, false}} {
		if err := verified(got, "x", c.key.Public().String()); (err == nil) != c.taken {
			t.Errorf("a key that ends at %v: %v", c.key.ExpiresAt, err)
		}
	}
	receiver := webhooktest.NewReceiver(nil)
	defer receiver.Close()
	wantFailure(t, newSender(t, receiver.Dial).Send(t.Context(), withKeys(ended), message("x")), "request")
	if len(receiver.Received()) > 0 {
		t.Error("it was sent without a signature")
	}
}

func TestASigningKeyIsShownNowhere(t *testing.T) {
	key := keyOf(t, vectorKey)
	secret := strings.TrimPrefix(vectorKey, "whsk_")
	if text := fmt.Sprintf("%v %+v %#v", key, key, key); strings.Contains(text, secret) {
		t.Errorf("it prints: %s", text)
	}
	if text := withKeys(key).Redact("your key is "+secret, nil); strings.Contains(text, secret[:12]) {
		t.Errorf("it stays in an answer: %s", text)
	}
}

func TestThePagesCheckOfV1ATakesWhatIsSigned(t *testing.T) {
	fresh, old := webhook.NewSigningKey(time.Now()), keyOf(t, vectorKey)
	jwk := func(k webhook.SigningKey) string {
		text, err := json.Marshal(map[string]any{"keys": []any{map[string]string{"kty": "OKP", "crv": "Ed25519", "x": k.Public().X()}}})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	var all []checked
	for _, body := range []string{`{"a":1}`, "", "\xff\xfe\x00\r\n"} {
		got := received(t, withKeys(fresh, old), body)
		all = append(all, check("", jwk(fresh), got, body, true), check("", jwk(old), got, body, true), check("", jwk(fresh), got, body+" ", false), check("", jwk(webhook.NewSigningKey(time.Now())), got, body, false))
		late := got
		late.Header = http.Header{}
		for name, values := range got.Header {
			late.Header[name] = values
		}
		late.Header.Set("Webhook-Timestamp", "1764538321")
		all = append(all, check("", jwk(fresh), late, body, false))
	}
	input, want := encodedChecks(t, all)
	got := npmtest.SDKs.Run(t, snippetOf(t, "js", "verifyV1a")+`
const requests = JSON.parse(require("node:fs").readFileSync(0));
console.log(requests.map(({ secret, headers, body }) => verifyV1a(JSON.parse(secret).keys, headers, Buffer.from(body, "base64")) ? 1 : 0).join(""));
`, input)
	if got = strings.TrimSpace(got); got != want {
		t.Errorf("taken: %s, want %s", got, want)
	}
}
