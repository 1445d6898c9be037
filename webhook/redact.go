package webhook

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
)

const (
	// redactedMark stands for what was taken out of a text.
	redactedMark = "[redacted]"
	// maxRedacted bounds the text that Redact returns, well above what is recorded.
	maxRedacted = 8 << 10
	// shortSecret and shortValue are the lengths below which a value is left: it is
	// no secret, and is everywhere.
	shortSecret = 4
	shortValue  = 8
	// copied is how long a piece is that is no coincidence.
	copied = 24
)

// Redact takes out of an answer's text what the webhook was sent in confidence: its
// secrets, the values of its headers, the query of its URL, and the message's body.
// Receivers that echo their request are common, and answers are recorded. They echo
// it as a JSON string, in base64 or percent-encoded, cut off, or value by value in a
// layout of their own, so all of that is looked for. The text is cut at 8 KiB.
func (w *Webhook) Redact(text string, body []byte) string {
	if text == "" {
		return ""
	}
	var sources []string
	for _, secret := range append(w.confidential(), string(body)) {
		for _, form := range echoes(secret) {
			text = hide(text, form)
			sources = append(sources, form)
		}
	}
	text = strings.ToValidUTF8(text[:min(len(text), maxRedacted)], "\uFFFD")
	text = hideCopied(text, sources)
	for _, value := range append(w.queryValues(), values(body)...) {
		text = hide(text, value)
	}
	return text
}

// confidential are the secrets of a registration.
func (w *Webhook) confidential() []string {
	var all []string
	for _, value := range w.Headers {
		all = append(all, value)
		if _, credentials, ok := strings.Cut(value, " "); ok { // Bearer, Basic, …
			all = append(all, credentials)
		}
	}
	for _, s := range w.Secrets {
		all = append(all, strings.TrimPrefix(s.Key, secretPrefix))
	}
	if _, query, ok := strings.Cut(w.URL, "?"); ok {
		all = append(all, query)
	}
	return all
}

// queryValues are the longer values in the query of the URL.
func (w *Webhook) queryValues() []string {
	u, err := url.Parse(w.URL)
	if err != nil {
		return nil
	}
	var all []string
	for _, list := range u.Query() {
		for _, value := range list {
			if len(value) >= shortValue {
				all = append(all, echoes(value)...)
			}
		}
	}
	return all
}

// echoes are the forms in which a receiver may write a text.
func echoes(text string) []string {
	if len(text) < shortSecret {
		return nil
	}
	forms := []string{text, quoted(text, true), quoted(text, false),
		base64.StdEncoding.EncodeToString([]byte(text)), url.QueryEscape(text), url.PathEscape(text)}
	slices.Sort(forms)
	return slices.Compact(forms)
}

// quoted is the inside of a JSON string.
func quoted(text string, escapeHTML bool) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(escapeHTML)
	if enc.Encode(text) != nil { // a string can always be written
		return text
	}
	return strings.TrimSuffix(strings.TrimPrefix(b.String(), `"`), "\"\n")
}

// values are the longer values of a body that is JSON, the longest first so that none
// is cut in two by one that is part of it.
func values(body []byte) []string {
	dec := json.NewDecoder(strings.NewReader(string(body)))
	dec.UseNumber()
	var document any
	if dec.Decode(&document) != nil {
		return nil
	}
	var all []string
	for nodes := []any{document}; len(nodes) > 0; {
		node := nodes[len(nodes)-1]
		nodes = nodes[:len(nodes)-1]
		switch v := node.(type) {
		case map[string]any:
			for _, member := range v {
				nodes = append(nodes, member)
			}
		case []any:
			nodes = append(nodes, v...)
		case string:
			if len(v) >= shortValue {
				all = append(all, v, quoted(v, true), quoted(v, false))
			}
		case json.Number:
			if len(v) >= shortValue {
				all = append(all, v.String())
			}
		}
	}
	slices.SortFunc(all, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b))
	})
	return slices.Compact(all)
}

// hideCopied hides the pieces of the text that are in a source too.
func hideCopied(text string, sources []string) string {
	if len(text) < copied {
		return text
	}
	windows := make(map[string]bool, len(text))
	for i := range len(text) - copied + 1 {
		windows[text[i:i+copied]] = false
	}
	found := false
	for _, source := range sources {
		for i := 0; i+copied <= len(source); i++ {
			if seen, ok := windows[source[i:i+copied]]; ok && !seen {
				windows[source[i:i+copied]], found = true, true
			}
		}
	}
	if !found {
		return text
	}
	var kept strings.Builder
	hiddenUntil := 0
	for i := range len(text) {
		if i+copied <= len(text) && windows[text[i:i+copied]] {
			if i >= hiddenUntil {
				kept.WriteString(redactedMark)
			}
			hiddenUntil = i + copied
		}
		if i >= hiddenUntil {
			kept.WriteByte(text[i])
		}
	}
	return strings.ToValidUTF8(kept.String(), "\uFFFD")
}

// hide leaves very short values.
func hide(text, secret string) string {
	if len(secret) < shortSecret {
		return text
	}
	return strings.ReplaceAll(text, secret, redactedMark)
}
