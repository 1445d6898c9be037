package webhook

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/pushlease/pushlease/webhook/content"
)

// Signatures are made beside that of Standard Webhooks v1, for receivers that check another scheme.
type Signatures struct {
	// V1A are those of Standard Webhooks with Ed25519, in the header webhook-signature after those of v1.
	V1A  bool           `json:"v1a,omitempty"`
	HMAC *HMAC          `json:"hmac,omitempty"`
	HTTP *HTTPSignature `json:"http,omitempty"`
}

// Problems says what is wrong with Signatures that are being registered. No text repeats a value.
func (g *Signatures) Problems() []*content.FieldError {
	if *g == (Signatures{}) {
		return []*content.FieldError{wrongPart("", "they are empty", `give {"hmac":{"preset":"github"}} or {"v1a":true}, or null for none, with Content-Type: application/merge-patch+json`)}
	}
	var all []*content.FieldError
	if g.HMAC != nil {
		all = g.HMAC.problems()
	}
	if g.HTTP != nil {
		all = append(all, g.HTTP.problems()...)
	}
	return all
}

// NeedKey reports whether one of them is made with a signing key.
func (g *Signatures) NeedKey() bool {
	return g != nil && (g.V1A || g.HTTP != nil && g.HTTP.Algorithm == algorithmEd25519)
}

// HeaderNames are the headers that carry them, in the form of net/http.
func (g *Signatures) HeaderNames() (names []string) {
	if g != nil && g.HTTP != nil {
		names = append(names, keySignatureInput, keyHTTPSignature)
		if slices.Contains(g.HTTP.components(), "content-digest") {
			names = append(names, keyContentDigest)
		}
	}
	if g != nil && g.HMAC != nil {
		names = append(names, http.CanonicalHeaderKey(g.HMAC.scheme().header))
	}
	return names
}

// Shown is what may be shown of Signatures: mark stands for each text in confidence.
func (g *Signatures) Shown(mark string) *Signatures {
	if g == nil || g.HMAC == nil || g.HMAC.Secret == "" {
		return g
	}
	shown, h := *g, *g.HMAC
	h.Secret = Hidden(mark)
	shown.HMAC = &h
	return &shown
}

func (g *Signatures) confidential() []string {
	if g == nil || g.HMAC == nil {
		return nil
	}
	return []string{string(g.HMAC.Secret)}
}

const keySignature = "Webhook-Signature"

// signBeside adds the signatures that a webhook has beside that of Standard Webhooks v1 to the headers of a POST.
func (s *Sender) signBeside(w *Webhook, target *url.URL, header http.Header, id string, now time.Time, body []byte) error {
	if h := w.Signatures.HMAC; h != nil {
		value, err := h.sign(w.Secrets, now, body)
		if err != nil {
			return err
		}
		header.Set(h.scheme().header, value)
	}
	var keys []SigningKey
	if w.Signatures.NeedKey() {
		var err error
		if keys, err = inForce(w.SigningKeys, now); err != nil {
			return err
		}
	}
	if w.Signatures.V1A {
		more, err := s.signV1A(keys, id, strconv.FormatInt(now.Unix(), 10), body)
		if err != nil {
			return err
		}
		header[keySignature] = []string{header[keySignature][0] + more}
	}
	if w.Signatures.HTTP != nil {
		return s.signHTTP(w, signedRequest(target, header), keys, now, body)
	}
	return nil
}
