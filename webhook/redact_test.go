package webhook

import "testing"

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
