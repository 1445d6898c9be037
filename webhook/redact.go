package webhook

import "strings"

// redactedMark stands for what was taken out of a text.
const redactedMark = "[redacted]"

// Redact takes out of an answer's text what the webhook was sent in confidence: its
// secrets, the values of its headers, the query of its URL, and the message's body.
// Receivers that echo their request are common, and answers are recorded.
func (w *Webhook) Redact(text string, body []byte) string {
	text = hide(text, string(body))
	for _, value := range w.Headers {
		text = hide(text, value)
		if _, credentials, ok := strings.Cut(value, " "); ok { // Bearer, Basic, …
			text = hide(text, credentials)
		}
	}
	for _, s := range w.Secrets {
		text = hide(text, strings.TrimPrefix(s.Key, secretPrefix))
	}
	if _, query, ok := strings.Cut(w.URL, "?"); ok {
		text = hide(text, query)
	}
	return text
}

// hide leaves very short values: they are no secrets, and are everywhere.
func hide(text, secret string) string {
	if len(secret) < 4 {
		return text
	}
	return strings.ReplaceAll(text, secret, redactedMark)
}
