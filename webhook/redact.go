package webhook

import (
	"bytes"
	"encoding/base64"
	"iter"
	"net/url"
	"strings"
)

const (
	// redactedMark stands for what was taken out of a text.
	redactedMark = "[redacted]"
	// maxRedacted bounds the text that Redact returns, well above what is recorded.
	maxRedacted = 4 << 10
	// shortSecret is the length below which a secret is left: it is none, and is everywhere.
	shortSecret = 4
	// piece is how long a part of a secret, or a whole value of a body, is that is hidden.
	piece = 8
	// copied is how long a part of a body is that is no coincidence.
	copied = 24
	// longSegment is from which length on a segment of a URL's path counts as a secret:
	// some services keep their keys there.
	longSegment = 16
)

// publicHeaders are a webhook's own headers whose values are no secrets.
var publicHeaders = map[string]bool{"accept": true, "content-type": true, "user-agent": true}

// Redact takes out of an answer's text what the webhook was sent in confidence: its
// secrets, the values of its headers, the query and long path segments of its URL, and the
// message: what was POSTed, and what that was made of, whose other members are headers of a
// CloudEvent. Receivers that echo their request are common, and answers are recorded.
// They echo it in other letters, escaped for JSON, HTML, or a URL, in hex or base64 alone or
// within more, cut off, or value by value, so all of that is undone before it is compared.
// Parts of 8 characters of a secret are hidden, parts of 24 of the body, and its longer
// values; of hex and base64 all that stands together. A text that is escaped more than three
// times is hidden whole. The text is cut at 4 KiB; the work grows with it and little with the body.
func (w *Webhook) Redact(text string, bodies ...[]byte) string {
	return redact(text, w.confidential(), bodies)
}

// Snippet is what may be recorded of the answer of a POST to the webhook: it is redacted, of the token and the
// signature too that the receiver was shown.
func (r *Result) Snippet(w *Webhook, bodies ...[]byte) string {
	if len(r.Body) == 0 {
		return ""
	}
	secrets := w.confidential()
	if scheme, token, shown := strings.Cut(string(r.authorization), " "); shown {
		secrets = append(secrets, scheme+" "+token, token)
	}
	return redact(string(r.Body), append(secrets, string(r.signature)), bodies)
}

func redact(text string, secrets []string, bodies [][]byte) string {
	text = strings.ToValidUTF8(text[:min(len(text), maxRedacted)], "\uFFFD")
	if len(text) < shortSecret {
		return text
	}
	v, settled := newView(text)
	if !settled {
		return redactedMark
	}
	v.addDecoded()
	pieces := newParts(v, piece)
	for _, secret := range secrets {
		if secret := lowered(undoneAll([]byte(secret))); len(secret) >= piece {
			pieces.hide(secret)
		} else if len(secret) >= shortSecret {
			v.hideAll(secret)
		}
	}
	for i, body := range bodies {
		if i > 0 && bytes.Equal(body, bodies[0]) {
			continue
		}
		if !v.hideBody(body, pieces) {
			return redactedMark
		}
	}
	return v.text()
}

// confidential are the secrets of a registration.
func (w *Webhook) confidential() []string {
	var all []string
	for name, value := range w.Headers {
		if publicHeaders[strings.ToLower(name)] {
			continue
		}
		all = append(all, value)
		if _, credentials, ok := strings.Cut(value, " "); ok { // Bearer, Basic, …
			all = append(all, credentials)
			value = credentials
		}
		if plain, err := base64.StdEncoding.DecodeString(value); err == nil {
			all = append(all, string(plain))
		}
	}
	for _, s := range w.Secrets {
		key := strings.TrimPrefix(s.Key, secretPrefix)
		all = append(all, key)
		if plain, err := base64.StdEncoding.DecodeString(key); err == nil {
			all = append(all, string(plain))
		}
	}
	for i := range w.SigningKeys {
		all = append(all, strings.TrimPrefix(string(w.SigningKeys[i].Key), signingKeyPrefix))
	}
	all = append(all, w.Auth.confidential()...)
	all = append(all, w.Signatures.confidential()...)
	if w.TLS != nil {
		all = append(all, linesOf(w.TLS.ClientKey)...)
	}
	return append(all, confidentialOf(w.URL)...)
}

// confidential are the secrets of an Auth.
func (a *Auth) confidential() (all []string) {
	if a == nil || a.OAuth2 == nil {
		return nil
	}
	o := a.OAuth2
	all = append(all, string(o.ClientSecret))
	if o.PrivateKeyJWT != nil {
		all = append(all, linesOf(o.PrivateKeyJWT.Key)...)
	}
	for _, value := range o.Params {
		all = append(all, string(value))
	}
	return append(all, confidentialOf(o.TokenURL)...)
}

// linesOf are the lines of a key in PEM that hold it.
func linesOf(key Hidden) (all []string) {
	for line := range strings.Lines(string(key)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "-----") {
			all = append(all, line)
		}
	}
	return all
}

// confidentialOf are the parts of a URL that may hold a key.
func confidentialOf(raw string) []string {
	u, err := url.Parse(raw)
	if err != nil || u.RawQuery == "" && len(u.Path) < longSegment {
		return nil
	}
	var all []string
	for segment := range strings.SplitSeq(u.Path, "/") {
		if len(segment) >= longSegment {
			all = append(all, segment)
		}
	}
	if u.RawQuery != "" {
		all = append(all, u.RawQuery)
		for _, list := range u.Query() {
			for _, value := range list {
				if len(value) >= piece {
					all = append(all, value)
				}
			}
		}
	}
	return all
}

// ShownURL is a webhook's URL for people who may not use it: without its query and the segments of
// its path that may be a key.
func ShownURL(raw string) string {
	base, query, hasQuery := strings.Cut(raw, "?")
	authority, path := base, ""
	if i := strings.Index(base, "//"); i >= 0 {
		if j := strings.IndexByte(base[i+2:], '/'); j >= 0 {
			authority, path = base[:i+2+j], base[i+2+j:]
		}
	}
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		if len(segment) >= longSegment {
			segments[i] = redactedMark
		}
	}
	shown := authority + strings.Join(segments, "/")
	if hasQuery && query != "" {
		shown += "?" + redactedMark
	}
	return shown
}

// maxSearches bounds how many values of a body are looked for; a text with that many of
// their beginnings is not worth more.
const maxSearches = 200

// hideBody hides what the text has in common with the body; false when that is too much.
func (v *view) hideBody(body []byte, pieces *parts) bool {
	content := lowered(undoneAll(body))
	if len(content) >= copied {
		if len(v.folded) >= copied { // a shorter text holds no part that long
			newParts(v, copied).hide(content)
		}
	} else if len(content) >= shortSecret {
		v.hideAll(content)
	}
	searches, beginning := 0, make([]byte, piece)
	for value, escaped := range longValues(body) {
		for i := range beginning {
			beginning[i] = foldedBytes[value[i]]
		}
		if !escaped && !pieces.hold(beginning) {
			continue // nearly always, so nothing is made for it
		}
		if value := lowered(undoneAll(value)); len(value) >= piece && pieces.hold(value) {
			if searches++; searches > maxSearches {
				return false
			}
			v.hideAll(value)
		}
	}
	return true
}

// longValues yields the texts and numbers of a body in JSON that are no names, and that are
// as long as a value that is hidden, and whether there are escapes in them. What is no JSON
// yields what looks so.
func longValues(body []byte) iter.Seq2[[]byte, bool] {
	return func(yield func([]byte, bool) bool) {
		for i := 0; i < len(body); {
			start := i
			switch c := body[i]; {
			case c == '"':
				escaped := false
				for i++; i < len(body) && body[i] != '"'; i++ {
					switch body[i] {
					case '\\':
						i++
						escaped = true
					case '%', '&':
						escaped = true
					}
				}
				end := min(i, len(body))
				rest := bytes.TrimLeft(body[min(i+1, len(body)):], " \t\r\n")
				i = len(body) - len(rest)
				isName := len(rest) > 0 && rest[0] == ':'
				if !isName && end-start > piece && !yield(body[start+1:end], escaped) {
					return
				}
			case c == '-' || '0' <= c && c <= '9':
				for i < len(body) && !strings.ContainsRune(" \t\r\n,:}]", rune(body[i])) {
					i++
				}
				if i-start >= piece && !yield(body[start:i], false) {
					return
				}
			default:
				i++
			}
		}
	}
}
