package webhook

import (
	"cmp"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/pushlease/pushlease/webhook/content"
)

// HTTPSignature is a signature of HTTP messages (RFC 9421), in the headers signature-input and signature.
type HTTPSignature struct {
	// Algorithm is hmac-sha256, with the webhook's secrets, or ed25519, with its signing keys.
	Algorithm string `json:"algorithm,omitempty"`
	// Components are what is covered; defaultComponents without any. A header that a POST does not have is not covered in it.
	Components []string `json:"components,omitempty"`
	// KeyID is what a receiver knows the secrets by; empty for the webhook's id. A signing key has its thumbprint.
	KeyID string `json:"key_id,omitempty"`
}

const (
	algorithmHMAC    = "hmac-sha256"
	algorithmEd25519 = "ed25519"

	keySignatureInput = "Signature-Input"
	keyHTTPSignature  = "Signature"
	keyContentDigest  = "Content-Digest"
)

var (
	defaultComponents = []string{"@method", "@target-uri", "content-digest"}
	// derivedComponents are made of the request's first line and its host (RFC 9421, section 2.2).
	derivedComponents = map[string]func(*http.Request) string{
		"@method":         func(r *http.Request) string { return r.Method },
		"@target-uri":     func(r *http.Request) string { return r.URL.Scheme + "://" + r.Host + r.URL.RequestURI() },
		"@authority":      authorityOf,
		"@scheme":         func(r *http.Request) string { return r.URL.Scheme },
		"@request-target": func(r *http.Request) string { return r.URL.RequestURI() },
		"@path":           func(r *http.Request) string { return cmp.Or(r.URL.EscapedPath(), "/") },
		"@query":          func(r *http.Request) string { return "?" + r.URL.RawQuery },
	}
	// coveredHeaders are those that are the same from here to the receiver.
	coveredHeaders = []string{"content-digest", "content-type", "pushlease-attempt", "pushlease-queue", "user-agent", HeaderID, HeaderTimestamp}
)

// authorityOf is the host as it is normalised: without the scheme's own port.
func authorityOf(r *http.Request) string {
	return strings.TrimSuffix(strings.ToLower(r.Host), map[string]string{"https": ":443", "http": ":80"}[r.URL.Scheme])
}

// components are what is covered.
func (h *HTTPSignature) components() []string {
	if len(h.Components) == 0 {
		return defaultComponents
	}
	return h.Components
}

func canNotCover(name string) bool {
	return derivedComponents[name] == nil && !slices.Contains(coveredHeaders, name)
}

func (h *HTTPSignature) problems() (all []*content.FieldError) {
	add := func(part, problem, cure string) { all = append(all, wrongPart("http."+part, problem, cure)) }
	if h.Algorithm != algorithmHMAC && h.Algorithm != algorithmEd25519 {
		add("algorithm", "it is no algorithm that there is", "give hmac-sha256, with the webhook's secret, or ed25519, with a key whose public half is served")
	}
	for i, name := range h.Components {
		switch {
		case canNotCover(name):
			add("components", "one of them can't be covered", "name some of @method, @target-uri, @authority, @scheme, @request-target, @path, @query, "+strings.Join(coveredHeaders, ", "))
			return all
		case slices.Contains(h.Components[:i], name):
			add("components", "one of them is there twice", "name each once")
			return all
		}
	}
	switch {
	case h.KeyID != "" && h.Algorithm == algorithmEd25519:
		add("key_id", "it is there while the key has a name of its own", "leave it out: the key's thumbprint is its id")
	case len(h.KeyID) > maxID || strings.ContainsFunc(h.KeyID, func(r rune) bool { return notPrintableASCII(r) || r == '"' || r == '\\' }):
		add("key_id", "it can't be sent", "give at most 128 printable ASCII characters, without quotation marks and backslashes")
	}
	return all
}

// signHTTP adds the signature to a request. It is one, whatever else is in force: published verifiers refuse a request that has two, or go by the
// last of them.
func (s *Sender) signHTTP(w *Webhook, r *http.Request, keys []SigningKey, now time.Time, body []byte) error {
	h := w.Signatures.HTTP
	components := h.components()
	if slices.ContainsFunc(components, canNotCover) { // a row that another version has written
		return invalid("the webhook has a signature that this version does not know", "set signatures")
	}
	if slices.Contains(components, "content-digest") {
		sum := sha256.Sum256(body)
		r.Header[keyContentDigest] = []string{"sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"}
	}
	keyID, sign, err := s.httpSigner(w, keys, now)
	if err != nil {
		return err
	}
	base, input := signatureBase(r, components, fmt.Sprintf(`;created=%d;keyid="%s";alg="%s"`, now.Unix(), keyID, h.Algorithm))
	r.Header[keySignatureInput] = []string{"sig1=" + input}
	r.Header[keyHTTPSignature] = []string{"sig1=:" + base64.StdEncoding.EncodeToString(sign([]byte(base))) + ":"}
	return nil
}

// httpSigner signs with the key in force that signs first, of the kind that the algorithm wants.
func (s *Sender) httpSigner(w *Webhook, keys []SigningKey, now time.Time) (keyID string, sign func(base []byte) []byte, err error) {
	switch h := w.Signatures.HTTP; h.Algorithm {
	case algorithmEd25519:
		key, err := s.signingKeys.of(string(keys[0].Key))
		return keys[0].Public().ID(), func(base []byte) []byte { return ed25519.Sign(key, base) }, err
	case algorithmHMAC:
		for i := range slices.Backward(w.Secrets) {
			if !w.Secrets[i].ended(now) {
				key, err := ParseSecret(w.Secrets[i].Key)
				return cmp.Or(h.KeyID, w.ID), func(base []byte) []byte { return hmacOf(key, base) }, err
			}
		}
		return "", nil, invalid("the webhook has no secret that has not expired", "rotate its secret")
	}
	return "", nil, invalid("the webhook has a signature that this version does not know", "set signatures")
}

func hmacOf(key, text []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(text)
	return h.Sum(nil)
}

// signatureBase is what is signed of a request (RFC 9421, section 2.5), and the input that says so: the components that it has, and params.
func signatureBase(r *http.Request, components []string, params string) (base, input string) {
	var lines, names strings.Builder
	for _, name := range components {
		var value string
		if derive := derivedComponents[name]; derive != nil {
			value = derive(r)
		} else if values := r.Header.Values(name); len(values) > 0 && (name != "user-agent" || values[0] != "") {
			value = strings.Join(values, ", ")
		} else { // it is not sent: net/http leaves an empty User-Agent out
			continue
		}
		if names.Len() > 0 {
			names.WriteByte(' ')
		}
		names.WriteString(`"` + name + `"`)
		lines.WriteString(`"` + name + `": ` + value + "\n")
	}
	input = "(" + names.String() + ")" + params
	return lines.String() + `"@signature-params": ` + input, input
}

// signedRequest is what is signed of a POST with these headers.
func signedRequest(target *url.URL, header http.Header) *http.Request {
	return &http.Request{Method: http.MethodPost, URL: target, Host: target.Host, Header: header}
}
