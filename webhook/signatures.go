package webhook

import (
	"net/http"
	"time"

	"github.com/pushlease/pushlease/webhook/content"
)

// Signatures are made beside that of Standard Webhooks v1, for receivers that check another scheme.
type Signatures struct {
	HMAC *HMAC `json:"hmac,omitempty"`
}

// Problems says what is wrong with Signatures that are being registered. No text repeats a value.
func (g *Signatures) Problems() []*content.FieldError {
	if *g == (Signatures{}) {
		return []*content.FieldError{wrongPart("", "they are empty", `give {"hmac":{"preset":"github"}}, or null for none`)}
	}
	if g.HMAC != nil {
		return g.HMAC.problems()
	}
	return nil
}

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

// signBeside adds the signatures that a webhook has beside that of Standard Webhooks v1 to the headers of a POST.
func (w *Webhook) signBeside(header http.Header, now time.Time, body []byte) error {
	if h := w.Signatures.HMAC; h != nil {
		value, err := h.sign(w.Secrets, now, body)
		if err != nil {
			return err
		}
		header.Set(h.scheme().header, value)
	}
	return nil
}
