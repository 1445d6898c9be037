package webhook

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strings"
	"testing"
)

func TestAnswerThatEchoesItsRequestKeepsNothingInConfidence(t *testing.T) {
	w := Webhook{
		URL: "https://example.com/hook?code=url-key", Headers: map[string]string{"Authorization": "Bearer header-key"},
		Secrets: []Secret{{Key: "whsec_c2lnbmluZy1rZXk="}},
	}
	got := w.Redact(`saw Bearer header-key, header-key, code=url-key, c2lnbmluZy1rZXk= and {"order":1}; fine`, []byte(`{"order":1}`))
	want := "saw [redacted], [redacted], [redacted], [redacted] and [redacted]; fine"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestEchoesInOtherFormsKeepNothingInConfidence(t *testing.T) {
	w := Webhook{
		URL:     "https://example.com/hook?code=URL%20SECRET%2F1&format=json",
		Headers: map[string]string{"X-Key": `HEADER "SECRET" <1>`},
		Secrets: []Secret{{Key: "whsec_U0VDUkVUU0VDUkVUU0VDUkVU"}},
	}
	body := `{"name": "BODY \"SECRET\" é", "card": 4111111111111111, "list": [{"iban": "BODYSECRET-00"}]}`
	inside := func(v any) string {
		raw, err := json.MarshalIndent(v, "", "    ")
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	var document any
	if err := json.Unmarshal([]byte(body), &document); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("BODYSECRET ", 6000)
	for name, tt := range map[string]struct{ text, body string }{
		"as a JSON string":            {inside(map[string]any{"data": body, "headers": w.Headers}), body},
		"laid out anew":               {inside(map[string]any{"json": document, "args": map[string]string{"code": "URL SECRET/1"}}), body},
		"one value":                   {`{"error":"BODYSECRET-00 is no IBAN, nor is 4111111111111111"}`, body},
		"in base64":                   {base64.StdEncoding.EncodeToString([]byte(body)), body},
		"percent-encoded":             {"data=" + url.QueryEscape(body), body},
		"cut off":                     {"got: " + long[:60_000], long},
		"from the middle":             {"near: " + long[1000:1040], long},
		"what is no JSON, line break": {inside("line one BODYSECRET\nline two \"BODYSECRET\""), "line one BODYSECRET\nline two \"BODYSECRET\""},
	} {
		t.Run(name, func(t *testing.T) {
			got := w.Redact(tt.text, []byte(tt.body))
			for _, bad := range []string{"SECRET", "4111", base64.StdEncoding.EncodeToString([]byte(body))[8:24]} {
				if strings.Contains(got, bad) {
					t.Errorf("%q is in %q", bad, got)
				}
			}
		})
	}
}

func TestAnswersInTheReceiversOwnWordsStay(t *testing.T) {
	w := Webhook{URL: "https://example.com/hook?v=2", Headers: map[string]string{"X-Env": "eu"}}
	for _, text := range []string{"", "no", `{"error":"the order has no customer"}`, "überlastet, bitte später"} {
		if got := w.Redact(text, []byte(`{"order":{"customer":"","id":17,"kind":"order"}}`)); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

func BenchmarkRedact(b *testing.B) {
	body := []byte("[" + strings.TrimSuffix(strings.Repeat(`"abcdefgh",12345678,`, 3200), ",") + "]")
	w := Webhook{URL: "https://example.com/hook?code=url-key-of-some-length", Headers: map[string]string{"Authorization": "Bearer header-key"}}
	text := strings.Repeat("the order has no customer ", 2500)
	for b.Loop() {
		w.Redact(text, body)
	}
}
