package webhook

import (
	"net/http"
	"strconv"
	"time"

	"github.com/pushlease/pushlease/webhook/content"
)

// Signatures are made beside that of Standard Webhooks v1, for receivers that check another scheme.
type Signatures struct {
	// V1A are those of Standard Webhooks with Ed25519, in the header webhook-signature after those of v1.
	V1A  bool  `json:"v1a,omitempty"`
	HMAC *HMAC `json:"hmac,omitempty"`
}

// Problems says what is wrong with Signatures that are being registered. No text repeats a value.
func (g *Signatures) Problems() []*content.FieldError {
	if *g == (Signatures{}) {
		return []*content.FieldError{wrongPart("", "they are empty", `give {"hmac":{"preset":"github"}} or {"v1a":true}, or null for none, with Content-Type: application/merge-patch+json`)}
	}
	if g.HMAC != nil {
		return g.HMAC.problems()
	}
	return nil
}

// NeedKey reports whether one of them is made with a signing key.
func (g *Signatures) NeedKey() bool { return g != nil && g.V1A }

// HeaderNames are the headers that carry them, in the form of net/http.
func (g *Signatures) HeaderNames() (names []string) {
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
func (s *Sender) signBeside(w *Webhook, header http.Header, id string, now time.Time, body []byte) error {
	if h := w.Signatures.HMAC; h != nil {
		value, err := h.sign(w.Secrets, now, body)
		if err != nil {
			return err
		}
		header.Set(h.scheme().header, value)
	}
	if !w.Signatures.NeedKey() {
		return nil
	}
	keys, err := inForce(w.SigningKeys, now)
	if err != nil {
		return err
	}
	if w.Signatures.V1A {
		more, err := s.signV1A(keys, id, strconv.FormatInt(now.Unix(), 10), body)
		if err != nil {
			return err
		}
		header[keySignature] = []string{header[keySignature][0] + more}
	}
	return nil
}
