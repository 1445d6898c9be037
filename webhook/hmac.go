package webhook

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pushlease/pushlease/webhook/content"
)

// HMAC is a signature of a scheme that receivers check already: a preset, or a scheme of its own, of which Header is required then.
type HMAC struct {
	// Preset is github, stripe or shopify; with it no other member but Secret is set.
	Preset string `json:"preset,omitempty"`
	// Header carries the signature.
	Header string `json:"header,omitempty"`
	// Algorithm is sha256, the default, or sha512.
	Algorithm string `json:"algorithm,omitempty"`
	// Signed is what is signed: body, the default, or timestamp.body, the seconds of webhook-timestamp before it.
	Signed string `json:"signed,omitempty"`
	// Encoding of the signature is hex, the default, or base64.
	Encoding string `json:"encoding,omitempty"`
	// Prefix stands before the signature.
	Prefix string `json:"prefix,omitempty"`
	// TimestampPrefix and the seconds begin the header, unless it is empty; then a comma, and the signatures with commas between
	// them, one for each secret in force. Without it the header holds one signature.
	TimestampPrefix string `json:"timestamp_prefix,omitempty"`
	// Secret is the key as text; empty for the webhook's secrets, whole with their whsec_.
	Secret Hidden `json:"secret,omitempty"`
}

// hmacScheme is how a signature is made and written.
type hmacScheme struct {
	header           string
	algorithm        func() hash.Hash
	withTimestamp    bool
	encode           func([]byte) string
	prefix, tsPrefix string
	// known is whether this version can make it.
	known bool
}

const (
	defaultAlgorithm = "sha256"
	signedBody       = "body"
	signedTimestamp  = "timestamp.body"
	defaultEncoding  = "hex"

	minHMACSecret = 8
	maxHMACSecret = 1024
	maxPrefix     = 64
)

var (
	// hmacPresets are what the receivers' own libraries check.
	hmacPresets = map[string]HMAC{
		"github":  {Header: "X-Hub-Signature-256", Prefix: "sha256="},
		"stripe":  {Header: "Stripe-Signature", Signed: signedTimestamp, Prefix: "v1=", TimestampPrefix: "t="},
		"shopify": {Header: "X-Shopify-Hmac-Sha256", Encoding: "base64"},
	}
	hmacAlgorithms = map[string]func() hash.Hash{defaultAlgorithm: sha256.New, "sha512": sha512.New}
	hmacEncodings  = map[string]func([]byte) string{defaultEncoding: hex.EncodeToString, "base64": base64.StdEncoding.EncodeToString}
	hmacSigned     = map[string]bool{signedBody: false, signedTimestamp: true}
	// notForSignatures are headers that say something else of a POST.
	notForSignatures = map[string]bool{
		"accept": true, "authorization": true, "content-digest": true, "content-encoding": true, "content-type": true, "cookie": true, "date": true,
		"signature": true, "signature-input": true, "user-agent": true,
	}
)

// HMACPresets are the names of the presets, in order.
func HMACPresets() []string { return slices.Sorted(maps.Keys(hmacPresets)) }

func (h *HMAC) scheme() hmacScheme {
	d := *h
	if preset, ok := hmacPresets[h.Preset]; ok {
		d = preset
	}
	s := hmacScheme{
		header: d.Header, algorithm: hmacAlgorithms[cmp.Or(d.Algorithm, defaultAlgorithm)],
		encode: hmacEncodings[cmp.Or(d.Encoding, defaultEncoding)], prefix: d.Prefix, tsPrefix: d.TimestampPrefix,
	}
	var known bool
	s.withTimestamp, known = hmacSigned[cmp.Or(d.Signed, signedBody)]
	s.known = known && s.header != "" && s.algorithm != nil && s.encode != nil
	return s
}

func (h *HMAC) problems() (all []*content.FieldError) {
	add := func(part, problem, cure string) { all = append(all, wrongPart("hmac."+part, problem, cure)) }
	own := *h
	own.Preset, own.Secret = "", ""
	switch _, known := hmacPresets[h.Preset]; {
	case h.Preset != "" && !known:
		add("preset", "it is no preset that there is", "give one of "+strings.Join(HMACPresets(), ", ")+", or null and a scheme of your own: header, algorithm, signed, encoding, prefix")
	case h.Preset != "" && own != HMAC{}:
		add("preset", "it is there beside members that say the same", "keep the preset and secret alone, or set preset to null, with Content-Type: application/merge-patch+json")
	case h.Preset == "":
		h.ownProblems(add)
	}
	if s := string(h.Secret); s != "" && (len(s) < minHMACSecret || len(s) > maxHMACSecret || strings.TrimSpace(s) != s || !fitsParam(s)) {
		add("secret", "it has less than 8 bytes or more than 1024, blanks around it, or control characters", "give the text that the receiver has, without a line's end, or leave it out: then the webhook's secret is the key")
	}
	return all
}

// ownProblems are those of a scheme without a preset.
func (h *HMAC) ownProblems(add func(part, problem, cure string)) {
	lower := strings.ToLower(h.Header)
	switch err := validateHeaderName(h.Header); {
	case h.Header == "":
		add("header", "it is missing", "give the name of the header that the receiver reads, such as X-Signature, or a preset: "+strings.Join(HMACPresets(), ", "))
	case err != nil || notForSignatures[lower] || strings.HasPrefix(lower, "ce-"):
		add("header", "it is no name that a signature can have", "give the header that the receiver reads, such as X-Signature; what HTTP and pushlease set themselves can't carry it")
	}
	if hmacAlgorithms[cmp.Or(h.Algorithm, defaultAlgorithm)] == nil {
		add("algorithm", "it is no algorithm that there is", "give sha256, the default, or sha512")
	}
	if _, known := hmacSigned[cmp.Or(h.Signed, signedBody)]; !known {
		add("signed", "it is nothing that can be signed", "give body, the default, or timestamp.body")
	}
	if hmacEncodings[cmp.Or(h.Encoding, defaultEncoding)] == nil {
		add("encoding", "it is no encoding that there is", "give hex, the default, or base64")
	}
	if !fitsPrefix(h.Prefix) {
		add("prefix", "it can't stand before a signature", "give at most 64 printable ASCII characters, without blanks and commas, such as sha256=")
	}
	switch {
	case !fitsPrefix(h.TimestampPrefix):
		add("timestamp_prefix", "it can't stand before a timestamp", "give at most 64 printable ASCII characters, without blanks and commas, such as t=")
	case h.TimestampPrefix != "" && !hmacSigned[h.Signed]:
		add("timestamp_prefix", "it is there while the timestamp is not signed", "set signed to timestamp.body, or leave timestamp_prefix out")
	}
}

func fitsPrefix(text string) bool {
	return len(text) <= maxPrefix && !strings.ContainsFunc(text, func(r rune) bool { return notPrintableASCII(r) || r == ' ' || r == ',' })
}

// sign makes the header's value. Which of several secrets is the one of a header with one signature is as for
// Standard Webhooks: that which signs first.
func (h *HMAC) sign(secrets []Secret, now time.Time, body []byte) (string, error) {
	s := h.scheme()
	if !s.known { // a row that another version has written
		return "", invalid("the webhook has a signature that this version does not know", "set signatures")
	}
	stamp := strconv.FormatInt(now.Unix(), 10)
	var parts []string
	if s.tsPrefix != "" {
		parts = append(parts, s.tsPrefix+stamp)
	}
	for key := range h.keys(secrets, now) {
		mac := hmac.New(s.algorithm, []byte(key))
		if s.withTimestamp {
			mac.Write([]byte(stamp + "."))
		}
		mac.Write(body)
		parts = append(parts, s.prefix+s.encode(mac.Sum(nil)))
		if s.tsPrefix == "" {
			break
		}
	}
	return strings.Join(parts, ","), nil
}

// keys are those in force, the one that signs first first.
func (h *HMAC) keys(secrets []Secret, now time.Time) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		if h.Secret != "" {
			yield(string(h.Secret))
			return
		}
		for i := range slices.Backward(secrets) {
			if secret := &secrets[i]; !secret.ended(now) && !yield(secret.Key) {
				return
			}
		}
	}
}
