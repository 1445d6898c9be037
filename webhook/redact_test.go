package webhook

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestAnswerThatEchoesItsRequestKeepsNothingInConfidence(t *testing.T) {
	w := Webhook{
		URL: "https://example.com/hook?code=url-key", Headers: map[string]string{"Authorization": "Bearer header-key"},
		Secrets: []Secret{{Key: "whsec_c2lnbmluZy1rZXk="}},
	}
	got := w.Redact(`saw Bearer header-key, header-key, code=url-key, c2lnbmluZy1rZXk= and {"order":1}; fine`, []byte(`{"order":1}`))
	want := "saw [redacted],[redacted], [redacted], [redacted] and [redacted]; fine"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Of an event in the binary format the POST's body is the data alone: its attributes are headers, and
// data in base64 is POSTed as it was before that.
func TestEchoesOfAnEventsAttributesKeepNothingInConfidence(t *testing.T) {
	w := Webhook{URL: "https://example.com/hook"}
	event := []byte(`{"specversion":"1.0","id":"1","source":"/s","type":"t","subject":"patient/jane.doe@example.com","customerid":"c-4711-0815","data_base64":"ZGF0YSBpbiBjb25maWRlbmNl"}`)
	echo := "ce-subject: patient/jane.doe%40example.com\nce-customerid: c-4711-0815\nbody: data in confidence"
	got := w.Redact(echo, []byte("data in confidence"), event)
	for _, bad := range []string{"jane", "4711", "confidence"} {
		if strings.Contains(got, bad) {
			t.Errorf("%q is in %q", bad, got)
		}
	}
	if !strings.Contains(got, "ce-subject") {
		t.Errorf("names are no secrets: %q", got)
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

// C60: what a receiver does to what it echoes is undone.
func TestSecretsInAnySpellingAreTakenOut(t *testing.T) {
	const secret = "aB3+/=&xK9~q<Zt7!Lm2"
	w := Webhook{
		URL:     "https://example.com/services/T0KENINTHEPATH99/x?sig=QUERY%2BSECRET%3D1",
		Headers: map[string]string{"X-Api-Key": secret, "Authorization": "Basic dXNlcm5hbWU6cGFzc3dvcmQtMTIz", "Content-Type": "application/json"},
		Secrets: []Secret{{Key: "whsec_U0VDUkVUU0VDUkVUU0VDUkVU"}},
	}
	escaped := func(format string) string {
		var b strings.Builder
		for _, r := range secret {
			fmt.Fprintf(&b, format, r)
		}
		return b.String()
	}
	html := strings.NewReplacer("&", "&amp;", "<", "&lt;", "+", "&#43;", "/", "&#x2F;", "=", "&equals;").Replace(secret)
	long := base64.StdEncoding.EncodeToString([]byte(`{"headers":{"x-api-key":"` + secret + `"},"padding":"` + strings.Repeat("p", 90) + `"}`))
	var lines strings.Builder
	for i := 0; i < len(long); i += 76 {
		lines.WriteString(long[i:min(i+76, len(long))] + "\r\n")
	}
	for name, text := range map[string]string{
		"as it is": secret, "HTML": html, "JSON with \\/": strings.ReplaceAll(secret, "/", `\/`), "JSON with \\u": escaped(`\u%04x`), "HTML numbers": escaped("&#%d;"),
		"percent": escaped("%%%02X"), "hex": hex.EncodeToString([]byte(secret)), "HEX": strings.ToUpper(hex.EncodeToString([]byte(secret))), "\\x": escaped(`\x%02x`),
		"upper case": strings.ToUpper(secret), "lower case": strings.ToLower(secret), "the first half": secret[:10], "the second half": secret[10:],
		"base64": base64.StdEncoding.EncodeToString([]byte(secret)), "base64 for URLs": base64.RawURLEncoding.EncodeToString([]byte("x" + secret)),
		"in longer base64": long, "in longer base64, from its middle": long[5:], "in base64 in lines": lines.String(), "in base64 in lines in JSON": strings.ReplaceAll(lines.String(), "\r\n", `\r\n`),
		"JSON in JSON": quoteAgain(t, quoteAgain(t, secret)), "HTML in JSON": quoteAgain(t, html), "JSON in a URL": url.QueryEscape(quoteAgain(t, secret)),
		"path": "Cannot POST /services/T0KENINTHEPATH99/x", "query": "sig was QUERY+SECRET=1", "credentials": "user username:password-123 is locked",
		"key of the signature": "key SECRETSECRETSECRET is bad", "that in hex": hex.EncodeToString([]byte("SECRETSECRETSECRET")),
	} {
		got := w.Redact("it said: "+text+" (and more)", nil)
		if !strings.Contains(got, redactedMark) {
			t.Errorf("%s: %q", name, got)
		}
		left := strings.TrimSuffix(strings.TrimPrefix(got, "it said: "), " (and more)")
		left = strings.ReplaceAll(left, redactedMark, "")
		if len(left) > 30 || strings.Contains(left, secret[:8]) || strings.Contains(strings.ToUpper(left), "SECRET") {
			t.Errorf("%s: %q is left of %q", name, left, text)
		}
	}
	for _, text := range []string{"Content type application/json is not supported", "Cannot POST /services", `{"error":"the signature is older than 5 minutes"}`} {
		if got := w.Redact(text, nil); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
	if got := w.Redact("x "+strings.Repeat("%25", 3)+"2525252541", nil); got == "" {
		t.Error("nothing is left")
	}
	nested := secret
	for range 5 {
		nested = quoteAgain(t, nested+`"`)
	}
	if got := w.Redact(nested, nil); got != redactedMark {
		t.Errorf("escaped five times: %q", got)
	}
}

func quoteAgain(t *testing.T, text string) string {
	raw, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// C78: beside an answer as they are, a long body costs a few readings of it: of a POST that takes milliseconds a
// millisecond at most. It was as much as the POST.
func TestRedactingCostsAFewReadingsOfTheBody(t *testing.T) {
	w := Webhook{URL: "https://example.com/hook?code=url-key-of-some-length", Headers: map[string]string{"Authorization": "Bearer header-key-of-some-length"}, Secrets: []Secret{{Key: "whsec_U0VDUkVUU0VDUkVUU0VDUkVU"}}}
	body := func(size int) []byte {
		return []byte("[" + strings.Repeat(`{"id":12345678,"name":"a name of an order"},`, size/44) + "1]")
	}
	short, long := body(300), body(60_000)
	fastest := func(f func()) time.Duration { // of several, whatever else this machine does
		least := time.Hour
		for range 20 {
			began := time.Now()
			f()
			least = min(least, time.Since(began))
		}
		return least
	}
	for name, text := range map[string]string{"ok": "ok", "JSON": `{"ok":true}`, "300 B": strings.Repeat("the order has no customer ", 12)} {
		var before, after runtime.MemStats
		few := testing.AllocsPerRun(5, func() { w.Redact(text, short) })
		runtime.ReadMemStats(&before)
		many := testing.AllocsPerRun(5, func() { w.Redact(text, long) })
		runtime.ReadMemStats(&after)
		if bytes := int(after.TotalAlloc-before.TotalAlloc) / 6; many > few+10 || bytes > 2*len(long) { // it is called once more to warm up
			t.Errorf("%s: %v allocations, and %v beside a long body, of %d bytes", name, few, many, bytes)
		}
		once, took := fastest(func() { json.Valid(long) }), fastest(func() { w.Redact(text, long) })
		if took > 15*once {
			t.Errorf("%s: it took %s; to read the body once takes %s", name, took, once)
		}
	}
}

// C78: hostile repetition costs no more.
func TestRepetitionCostsNoMoreThanOtherTexts(t *testing.T) {
	w := Webhook{URL: "https://example.com/?q=" + strings.Repeat("a", 1000), Headers: map[string]string{"X-Key": strings.Repeat("a", 4000)}}
	for _, body := range []string{strings.Repeat("a", 64_000), "[" + strings.Repeat(`"aaaaaaaaa",`, 5000) + "1]", strings.Repeat(`\u0061`, 10_000)} {
		for _, text := range []string{strings.Repeat("a", 64_000), strings.Repeat("aaaaaaaab", 7000), strings.Repeat("YWFh", 16_000), strings.Repeat("61", 32_000)} {
			allocs := testing.AllocsPerRun(1, func() { w.Redact(text, []byte(body)) })
			if allocs > 100_000 {
				t.Errorf("%v allocations", allocs)
			}
		}
	}
}

// FuzzRedact: whatever a receiver answers, no secret stays as it is.
func FuzzRedact(f *testing.F) {
	f.Add("", "", "{}")
	f.Add(`\u0048EADER%2Dsecret-99 &amp; `, " aGVhZGVyLXNlY3JldC05OQ== ", `{"a":"valuevalue"}`)
	f.Fuzz(func(t *testing.T, before, after, body string) {
		w := Webhook{URL: "https://example.com/hook", Headers: map[string]string{"X-Key": "header-secret-99"}}
		got := w.Redact(before+"header-secret-99"+after, []byte(body))
		if strings.Contains(got, "header-secret-99") || len(got) > 4*maxRedacted || !utf8.ValidString(got) {
			t.Fatalf("%q", got)
		}
	})
}

func BenchmarkRedactOfAnswers(b *testing.B) {
	w := Webhook{URL: "https://example.com/hook?code=url-key-of-some-length", Headers: map[string]string{"Authorization": "Bearer header-key-of-some-length"}, Secrets: []Secret{{Key: "whsec_U0VDUkVUU0VDUkVUU0VDUkVU"}}}
	for _, size := range []int{300, 60_000} {
		body := []byte("[" + strings.Repeat(`{"id":12345678,"name":"a name of an order"},`, size/44) + "1]")
		for name, text := range map[string]string{"ok": "ok", "JSON": `{"ok":true}`, "300 B": strings.Repeat("the order has no customer ", 12)} {
			b.Run(fmt.Sprintf("%d B of body, %s", size, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					w.Redact(text, body)
				}
			})
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
