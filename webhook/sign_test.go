package webhook_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/pushlease/pushlease/webhook"
	"github.com/pushlease/pushlease/webhook/content"
)

// The vector that Standard Webhooks publishes (C28).
const (
	vectorID        = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	vectorTime      = 1614265330
	vectorBody      = `{"test": 2432232314}`
	vectorSignature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
)

func secretOf(size int) string {
	return "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{0xfb}, size))
}

func signed(id string, at time.Time, signature string) http.Header {
	h := http.Header{}
	h.Set("webhook-id", id)
	h.Set("webhook-timestamp", strconv.FormatInt(at.Unix(), 10))
	h.Set("webhook-signature", signature)
	return h
}

func TestSignatureIsThePublishedVector(t *testing.T) {
	for _, secret := range []string{testSecret, strings.TrimPrefix(testSecret, "whsec_")} {
		got, err := webhook.Sign(secret, vectorID, time.Unix(vectorTime, 999), []byte(vectorBody))
		if err != nil || got != vectorSignature {
			t.Errorf("signature %q, error %v", got, err)
		}
	}
	library, err := standardwebhooks.NewWebhook(testSecret)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := library.Sign(vectorID, time.Unix(vectorTime, 0), []byte(vectorBody)); err != nil || got != vectorSignature {
		t.Errorf("the published library: %q, error %v", got, err)
	}
}

func TestSignaturesAgreeWithThePublishedLibrary(t *testing.T) {
	for _, body := range []string{"", "{}", "\xff\x00\r\n", strings.Repeat("a", 70_000)} {
		secret := webhook.NewSecret(time.Now())
		library, err := standardwebhooks.NewWebhook(secret.Key)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		ours, err := webhook.Sign(secret.Key, "id-1", now, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		if err := library.Verify([]byte(body), signed("id-1", now, ours)); err != nil {
			t.Errorf("the library refuses ours: %v", err)
		}
		theirs, err := library.Sign("id-1", now, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		if err := webhook.Verify([]string{secret.Key}, signed("id-1", now, theirs), []byte(body), now, time.Minute); err != nil {
			t.Errorf("we refuse the library's: %v", err)
		}
	}
}

func TestNewSecretIsFreshAndValid(t *testing.T) {
	now := time.Now()
	a, b := webhook.NewSecret(now), webhook.NewSecret(now)
	key, err := webhook.ParseSecret(a.Key)
	if err != nil || len(key) != 32 || a.Key == b.Key || !a.CreatedAt.Equal(now) || !a.ExpiresAt.IsZero() || !strings.HasPrefix(a.Key, "whsec_") {
		t.Errorf("%d bytes, error %v, made %v, expires %v", len(key), err, a.CreatedAt, a.ExpiresAt)
	}
}

// C28: a secret in the wrong form is refused at registration.
// One secret in 4096 that we make begins so.
func TestASecretMayBeginLikeASignature(t *testing.T) {
	text := "whsec_v1" + strings.TrimPrefix(secretOf(24), "whsec_")[2:]
	if key, err := webhook.ParseSecret(text); err != nil || len(key) != 24 {
		t.Errorf("ParseSecret(%q) = %d bytes, %v", text, len(key), err)
	}
}

func TestParseSecretTakesOneFormOnly(t *testing.T) {
	for _, size := range []int{24, 25, 26, 32, 64} {
		for _, text := range []string{secretOf(size), strings.TrimPrefix(secretOf(size), "whsec_")} {
			if key, err := webhook.ParseSecret(text); err != nil || len(key) != size {
				t.Errorf("%d bytes: got %d, %v", size, len(key), err)
			}
		}
	}
	good := strings.TrimPrefix(testSecret, "whsec_")
	for name, text := range map[string]string{
		"empty":             "",
		"prefix only":       "whsec_",
		"two prefixes":      "whsec_" + testSecret,
		"signature prefix":  "v1," + testSecret,
		"signature":         vectorSignature,
		"two secrets":       testSecret + "," + testSecret,
		"two with a blank":  testSecret + " " + testSecret,
		"private key":       "whsk_" + good,
		"public key":        "whpk_" + good,
		"upper-case prefix": "WHSEC_" + good,
		"plain text":        "correct horse battery staple!",
		"URL-safe alphabet": strings.NewReplacer("+", "-", "/", "_").Replace(secretOf(32)),
		"no padding":        strings.TrimRight(secretOf(32), "="),
		"too much padding":  good + "====",
		"padding inside":    "whsec_QUJD=" + good[5:],
		"trailing bits":     secretOf(32)[:len(secretOf(32))-2] + "9=",
		"leading blank":     " " + testSecret,
		"trailing newline":  testSecret + "\n",
		"newline inside":    testSecret[:10] + "\r\n\r\n" + testSecret[10:],
		"tab":               "whsec_\t" + good,
		"23 bytes":          secretOf(23),
		"65 bytes":          secretOf(65),
		"one byte":          "whsec_QQ==",
		"NUL":               testSecret + "\x00\x00\x00\x00",
		"full-width":        "whsec_" + strings.Repeat("Ａ", 32),
		"long":              "whsec_" + strings.Repeat("A", 1<<20),
	} {
		t.Run(name, func(t *testing.T) {
			key, err := webhook.ParseSecret(text)
			var field *content.FieldError
			if !errors.As(err, &field) || field.Problem == "" || field.Cure == "" || key != nil {
				t.Fatalf("key of %d bytes, error %v", len(key), err)
			}
			if len(text) > 8 && strings.Contains(err.Error(), text) || strings.Contains(err.Error(), good) {
				t.Errorf("the error repeats the secret: %v", err)
			}
		})
	}
}

func TestVerifyRefusesWhatWasChanged(t *testing.T) {
	now := time.Unix(vectorTime, 0)
	body := []byte(vectorBody)
	other := secretOf(32)
	for name, c := range map[string]struct {
		secrets []string
		header  http.Header
		body    []byte
		now     time.Time
		want    error
	}{
		"right":              {[]string{testSecret}, signed(vectorID, now, vectorSignature), body, now, nil},
		"one of two secrets": {[]string{other, testSecret}, signed(vectorID, now, vectorSignature), body, now, nil},
		"one of several":     {[]string{testSecret}, signed(vectorID, now, "v1a,x v1,AAAA "+vectorSignature), body, now, nil},
		"edge of tolerance":  {[]string{testSecret}, signed(vectorID, now, vectorSignature), body, now.Add(300 * time.Second), nil},
		"other secret":       {[]string{other}, signed(vectorID, now, vectorSignature), body, now, webhook.ErrBadSignature},
		"no secret":          {nil, signed(vectorID, now, vectorSignature), body, now, webhook.ErrBadSignature},
		"other id":           {[]string{testSecret}, signed("x", now, vectorSignature), body, now, webhook.ErrBadSignature},
		"other time":         {[]string{testSecret}, signed(vectorID, now.Add(time.Second), vectorSignature), body, now, webhook.ErrBadSignature},
		"other body":         {[]string{testSecret}, signed(vectorID, now, vectorSignature), []byte("{}"), now, webhook.ErrBadSignature},
		"other version":      {[]string{testSecret}, signed(vectorID, now, "v2"+vectorSignature[2:]), body, now, webhook.ErrBadSignature},
		"old":                {[]string{testSecret}, signed(vectorID, now, vectorSignature), body, now.Add(301 * time.Second), webhook.ErrStaleSignature},
		"from the future":    {[]string{testSecret}, signed(vectorID, now, vectorSignature), body, now.Add(-301 * time.Second), webhook.ErrStaleSignature},
		"no id":              {[]string{testSecret}, signed("", now, vectorSignature), body, now, webhook.ErrUnsigned},
		"no signature":       {[]string{testSecret}, signed(vectorID, now, ""), body, now, webhook.ErrUnsigned},
		"no headers":         {[]string{testSecret}, nil, body, now, webhook.ErrUnsigned},
		"far time":           {[]string{testSecret}, http.Header{"Webhook-Id": {"x"}, "Webhook-Timestamp": {"9223372036854775807"}, "Webhook-Signature": {"v1,x"}}, body, now, webhook.ErrStaleSignature},
		"text for time":      {[]string{testSecret}, http.Header{"Webhook-Id": {"x"}, "Webhook-Timestamp": {"now"}, "Webhook-Signature": {"v1,x"}}, body, now, webhook.ErrUnsigned},
	} {
		t.Run(name, func(t *testing.T) {
			if err := webhook.Verify(c.secrets, c.header, c.body, c.now, 5*time.Minute); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

// C29: constant, without a dot, and different for different ids.
func TestEscapeID(t *testing.T) {
	for id, want := range map[string]string{
		"5e0b1f6a-3c1e-4f6b-9d53-0a8c2b1f7d11": "5e0b1f6a-3c1e-4f6b-9d53-0a8c2b1f7d11",
		"msg_123":                              "msg_123",
		"a.b":                                  "a~2Eb",
		"a~2Eb":                                "a~7E2Eb",
		"é\r\n":                                "~C3~A9~0D~0A",
		"\xff":                                 "~FF",
		"":                                     "~",
		strings.Repeat("a", 128):               strings.Repeat("a", 128),
		strings.Repeat("a", 129):               "~~c12cb024a2e5551cca0e08fce8f1c5e314555cc3fef6329ee994a3db752166ae",
	} {
		if got := webhook.EscapeID(id); got != want {
			t.Errorf("EscapeID(%q) = %q, want %q", id, got, want)
		}
	}
}

func FuzzEscapeID(f *testing.F) {
	f.Add("a.b", "a~2Eb")
	f.Add("", "~")
	f.Add(strings.Repeat(".", 43), strings.Repeat(".", 42))
	f.Fuzz(func(t *testing.T, a, b string) {
		got := webhook.EscapeID(a)
		if got == "" || len(got) > 128 || strings.Trim(got, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_~") != "" {
			t.Errorf("EscapeID(%q) = %q", a, got)
		}
		if a != b && got == webhook.EscapeID(b) {
			t.Errorf("%q and %q both give %q", a, b, got)
		}
	})
}

func FuzzParseSecret(f *testing.F) {
	f.Add(testSecret)
	f.Add("v1,whsec_AAAA")
	f.Add("whsec_" + strings.Repeat("A", 30) + "\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		key, err := webhook.ParseSecret(text)
		if err != nil {
			return
		}
		if len(key) < 24 || len(key) > 64 {
			t.Errorf("%d bytes", len(key))
		}
		// There is one text for one key.
		if want := base64.StdEncoding.EncodeToString(key); strings.TrimPrefix(text, "whsec_") != want {
			t.Errorf("%q gives the key of %q", text, want)
		}
	})
}
