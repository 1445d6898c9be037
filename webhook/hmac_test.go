package webhook_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/npmtest"
	"github.com/pushlease/pushlease/webhook"
	"github.com/pushlease/pushlease/webhook/webhooktest"
)

// received POSTs a body to a receiver and gives what arrived.
func received(t *testing.T, w *webhook.Webhook, body string) webhooktest.Received {
	t.Helper()
	receiver := webhooktest.NewReceiver(nil)
	t.Cleanup(receiver.Close)
	s := newSender(t, receiver.Dial)
	wantAnswer(t, s.Send(t.Context(), w, message(body)), http.StatusOK)
	return receiver.Received()[0]
}

func withHMAC(h webhook.HMAC, secrets ...webhook.Secret) *webhook.Webhook {
	w := hook()
	w.Signatures = &webhook.Signatures{HMAC: &h}
	if len(secrets) > 0 {
		w.Secrets = secrets
	}
	return w
}

// The example in GitHub's documentation.
func TestAGitHubSignatureIsThePublishedOne(t *testing.T) {
	got := received(t, withHMAC(webhook.HMAC{Preset: "github", Secret: "It's a Secret to Everybody"}), "Hello, World!")
	const want = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
	if value := got.Header.Get("X-Hub-Signature-256"); value != want {
		t.Errorf("got %q, want %q", value, want)
	}
	if got.Header.Get("Webhook-Signature") == "" {
		t.Error("that of Standard Webhooks is missing")
	}
}

func TestEachSchemeIsWhatItsDataSays(t *testing.T) {
	const secret, body = "a secret of the receiver", "\xff{\"a\": 1}\r\n"
	sum := func(text string) []byte {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(text))
		return mac.Sum(nil)
	}
	mac512 := hmac.New(sha512.New, []byte(secret))
	mac512.Write([]byte(body))
	for _, c := range []struct {
		scheme webhook.HMAC
		header string
		want   func(stamp string) string
	}{
		{webhook.HMAC{Preset: "github"}, "X-Hub-Signature-256", func(string) string { return "sha256=" + hex.EncodeToString(sum(body)) }},
		{webhook.HMAC{Preset: "shopify"}, "X-Shopify-Hmac-Sha256", func(string) string { return base64.StdEncoding.EncodeToString(sum(body)) }},
		{webhook.HMAC{Preset: "stripe"}, "Stripe-Signature", func(stamp string) string {
			return "t=" + stamp + ",v1=" + hex.EncodeToString(sum(stamp+"."+body))
		}},
		{webhook.HMAC{Header: "X-Paystack-Signature", Algorithm: "sha512"}, "X-Paystack-Signature", func(string) string { return hex.EncodeToString(mac512.Sum(nil)) }},
		{webhook.HMAC{Header: "x-signature", Signed: "timestamp.body", Encoding: "base64", Prefix: "v0="}, "X-Signature", func(stamp string) string {
			return "v0=" + base64.StdEncoding.EncodeToString(sum(stamp+"."+body))
		}},
	} {
		c.scheme.Secret = secret
		got := received(t, withHMAC(c.scheme), body)
		if value, want := got.Header.Get(c.header), c.want(got.Header.Get("Webhook-Timestamp")); value != want {
			t.Errorf("%s: got %q, want %q", c.header, value, want)
		}
	}
}

// Without a secret of its own the scheme goes by the webhook's, whole as they are shown, and so by their rotation.
func TestWithoutASecretOfItsOwnTheWebhooksAreTheKeys(t *testing.T) {
	now := time.Now()
	old := webhook.Secret{Key: secretOf(24), ExpiresAt: now.Add(time.Hour)}
	fresh, ended := webhook.Secret{Key: secretOf(32)}, webhook.Secret{Key: secretOf(40), ExpiresAt: now.Add(-time.Hour)}
	sum := func(secret webhook.Secret, text string) string {
		mac := hmac.New(sha256.New, []byte(secret.Key))
		mac.Write([]byte(text))
		return hex.EncodeToString(mac.Sum(nil))
	}
	for _, secrets := range [][]webhook.Secret{{fresh, old, ended}, {ended, old, fresh}} {
		inForce := slices.DeleteFunc(slices.Clone(secrets), func(s webhook.Secret) bool { return s == ended })
		github := received(t, withHMAC(webhook.HMAC{Preset: "github"}, secrets...), "x").Header.Get("X-Hub-Signature-256")
		if want := "sha256=" + sum(inForce[1], "x"); github != want {
			t.Errorf("github: got %q, want %q, that of the secret which signs first", github, want)
		}
		got := received(t, withHMAC(webhook.HMAC{Preset: "stripe"}, secrets...), "x")
		stamp := got.Header.Get("Webhook-Timestamp")
		want := "t=" + stamp + ",v1=" + sum(inForce[1], stamp+".x") + ",v1=" + sum(inForce[0], stamp+".x")
		if stripe := got.Header.Get("Stripe-Signature"); stripe != want {
			t.Errorf("stripe: got %q, want %q", stripe, want)
		}
	}
}

func TestASignaturesSecretIsShownNowhere(t *testing.T) {
	const secret = "PLANTED-hmac-secret"
	w := withHMAC(webhook.HMAC{Preset: "github", Secret: secret})
	if text := fmt.Sprintf("%v %+v %#v", *w.Signatures.HMAC, *w.Signatures.HMAC, *w.Signatures.HMAC); strings.Contains(text, secret) {
		t.Errorf("it prints: %s", text)
	}
	if text := w.Redact("your key is "+secret, nil); strings.Contains(text, secret) {
		t.Errorf("it stays in an answer: %s", text)
	}
	shown := w.Signatures.Shown("[redacted]")
	if shown.HMAC.Secret != "[redacted]" || w.Signatures.HMAC.Secret != secret {
		t.Error("what is shown is the secret, or the mark has taken its place in the webhook")
	}
}

// One over the body alone is good for ever, with the body.
func TestASignatureThatAReceiverEchoesIsNotRecorded(t *testing.T) {
	for _, preset := range []string{"github", "stripe", "shopify"} {
		seen := ""
		receiver := webhooktest.NewReceiver(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for _, name := range []string{"X-Hub-Signature-256", "Stripe-Signature", "X-Shopify-Hmac-Sha256"} {
				seen += r.Header.Get(name)
			}
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprintf(w, "bad signature %s", seen)
		}))
		w := withHMAC(webhook.HMAC{Preset: preset, Secret: "a secret of the receiver"})
		result := newSender(t, receiver.Dial).Send(t.Context(), w, message("x"))
		receiver.Close()
		if snippet := result.Snippet(w); seen == "" || !strings.HasPrefix(snippet, "bad signature ") || strings.Contains(snippet, seen[len(seen)-12:]) || strings.Contains(snippet, seen[8:20]) {
			t.Errorf("%s: %q is recorded of %q", preset, snippet, seen)
		}
	}
}

// What another version has written is no reason to send without a signature.
func TestNothingIsSentWithASignatureThatIsNotKnown(t *testing.T) {
	var hooks []*webhook.Webhook
	for _, h := range []webhook.HMAC{{Preset: "other"}, {Header: "X-Signature", Algorithm: "sha1"}, {Header: "X-Signature", Encoding: "base32"}, {Header: "X-Signature", Signed: "url.body"}} {
		hooks = append(hooks, withHMAC(h))
	}
	for _, h := range []webhook.HTTPSignature{{Algorithm: "other"}, {Algorithm: "hmac-sha256", Components: []string{"@method", "@query-param"}}, {Algorithm: "hmac-sha256", Components: []string{"@method", "content-length", "x-other"}}} {
		hooks = append(hooks, withHTTP(h))
	}
	for _, w := range hooks {
		receiver := webhooktest.NewReceiver(nil)
		result := newSender(t, receiver.Dial).Send(t.Context(), w, message("x"))
		wantFailure(t, result, "request")
		if len(receiver.Received()) > 0 {
			t.Errorf("%+v: it was sent", *w.Signatures)
		}
		receiver.Close()
	}
}

// snippetOf is the code of a language in the page on signatures that has a text in it.
func snippetOf(t *testing.T, language, with string) string {
	t.Helper()
	page, err := os.ReadFile("../docs/signatures.md")
	if err != nil {
		t.Fatal(err)
	}
	rest := string(page)
	for {
		_, after, ok := strings.Cut(rest, "```"+language+"\n")
		code, next, ends := strings.Cut(after, "\n```")
		switch {
		case !ok || !ends:
			t.Fatalf("the page has no code in %s with %s", language, with)
		case strings.Contains(code, with):
			return code + "\n"
		}
		rest = next
	}
}

// checked is one request for a snippet, and whether it is to be taken.
type checked struct {
	Preset  string            `json:"preset"`
	Secret  string            `json:"secret"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`  // in base64
	Clock   int               `json:"clock"` // by how many seconds the receiver's is ahead, where the check sets it
	taken   bool
}

func check(preset, secret string, got webhooktest.Received, body string, taken bool) checked {
	headers := map[string]string{}
	for name := range got.Header {
		headers[strings.ToLower(name)] = got.Header.Get(name)
	}
	return checked{preset, secret, headers, base64.StdEncoding.EncodeToString([]byte(body)), 0, taken}
}

// encodedChecks are requests for a snippet, and what it is to print of them.
func encodedChecks(t *testing.T, all []checked) (input, want string) {
	t.Helper()
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		want += map[bool]string{true: "1", false: "0"}[c.taken]
	}
	return string(text), want
}

// The libraries that receivers check these signatures with take them, as the page says.
func TestThePublishedVerifiersTakeThePresets(t *testing.T) {
	const own = "whsec_of the receiver"
	fresh, old := webhook.Secret{Key: secretOf(32)}, webhook.Secret{Key: secretOf(24), ExpiresAt: time.Now().Add(time.Hour)}
	var all []checked
	for _, body := range []string{`{"a":1}`, `{"name":"Zoë 🙂"}`, " {\"a\": 1}\r\n"} {
		for _, preset := range []string{"github", "stripe"} {
			mine := received(t, withHMAC(webhook.HMAC{Preset: preset, Secret: own}), body)
			both := received(t, withHMAC(webhook.HMAC{Preset: preset}, fresh, old), body)
			all = append(all, check(preset, own, mine, body, true), check(preset, own, mine, body+" ", false), check(preset, own, both, body, false),
				check(preset, old.Key, both, body, true), check(preset, fresh.Key, both, body, preset == "stripe"))
		}
	}
	input, want := encodedChecks(t, all)
	got := npmtest.SDKs.Run(t, snippetOf(t, "js", "verifyGitHub")+`
(async () => {
  const requests = JSON.parse(require("node:fs").readFileSync(0));
  const verify = { github: verifyGitHub, stripe: verifyStripe };
  const taken = await Promise.all(requests.map(({ preset, secret, headers, body }) => verify[preset](secret, headers, Buffer.from(body, "base64"))));
  console.log(taken.map(Number).join(""));
})();`, input)
	if got = strings.TrimSpace(got); got != want {
		t.Errorf("taken: %s, want %s", got, want)
	}
}

func TestThePagesCheckOfShopifyTakesTheSignature(t *testing.T) {
	const own = "hush of the receiver"
	var all []checked
	for _, body := range []string{`{"a":1}`, "", "\xff\xfe\x00\r\n"} {
		mine := received(t, withHMAC(webhook.HMAC{Preset: "shopify", Secret: own}), body)
		all = append(all, check("", own, mine, body, true), check("", own, mine, body+" ", false), check("", own+"x", mine, body, false))
	}
	input, want := encodedChecks(t, all)
	if got := python(t, snippetOf(t, "python", "verify_shopify")+`
import json, sys
print("".join(str(int(verify_shopify(c["secret"], c["headers"], base64.b64decode(c["body"])))) for c in json.load(sys.stdin)))
`, input); got != want {
		t.Errorf("taken: %s, want %s", got, want)
	}
}

// python runs a program, and is left out where there is none outside CI.
func python(t *testing.T, program, input string) string {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("python3 is missing, and CI has to check that the snippets verify")
		}
		t.Skip("THE SNIPPET FOR PYTHON IS NOT CHECKED: python3 is missing")
	}
	cmd := exec.CommandContext(t.Context(), "python3", "-c", program)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}
