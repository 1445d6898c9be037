package webhook

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"hash"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The headers of Standard Webhooks 1.0.
const (
	HeaderID        = "webhook-id"
	HeaderTimestamp = "webhook-timestamp"
	HeaderSignature = "webhook-signature"
)

const (
	secretPrefix = "whsec_"
	// Standard Webhooks 1.0 wants 24 to 64 bytes.
	minSecretBytes = 24
	maxSecretBytes = 64
	newSecretBytes = 32
	signaturePart  = "v1,"
)

// What Verify finds wrong with a request.
var (
	ErrUnsigned       = errors.New("a header of webhook-id, webhook-timestamp and webhook-signature is missing or malformed")
	ErrStaleSignature = errors.New("webhook-timestamp is too far from the present time")
	ErrBadSignature   = errors.New("no signature was made with one of the secrets over this id, timestamp and body")
)

// NewSecret makes a signing secret that does not expire.
func NewSecret(now time.Time) Secret {
	key := make([]byte, newSecretBytes)
	rand.Read(key) // never fails: it ends the process instead
	return Secret{Key: secretPrefix + base64.StdEncoding.EncodeToString(key), CreatedAt: now}
}

// ParseSecret gives the key of a secret's text: standard padded base64 of 24 to
// 64 bytes, with or without the prefix whsec_. Nothing else is taken, since a
// forgiving decoder turns a typing error into a short key. The error is a
// *content.FieldError that does not repeat the text.
func ParseSecret(text string) ([]byte, error) {
	const form = "write whsec_ and standard base64 of 24 to 64 random bytes, or leave the secret out to have one made"
	encoded := strings.TrimPrefix(text, secretPrefix)
	switch {
	case encoded == "":
		return nil, invalid("the secret is empty", form)
	case len(encoded) > base64.StdEncoding.EncodedLen(maxSecretBytes):
		return nil, invalid("the secret is longer than 64 bytes", form)
	case strings.Contains(encoded, ","): // v1 alone is base64 as good as any
		return nil, invalid("the secret has the form of a signature or of a list", "give one secret, without v1, before it")
	case strings.ContainsRune(encoded, '_') && strings.HasPrefix(encoded, "wh"):
		return nil, invalid("the secret has the prefix of another kind of key", form)
	case strings.ContainsAny(encoded, " \t\r\n"):
		return nil, invalid("the secret has blanks or line ends in it", "remove them")
	case strings.ContainsAny(encoded, "-_"):
		return nil, invalid("the secret is in the URL-safe alphabet", "use standard base64, with + and /")
	case len(encoded)%4 != 0:
		return nil, invalid("the secret is not padded base64", "keep its = signs, and check that no character is missing")
	}
	key, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil {
		return nil, invalid("the secret is not base64", form)
	}
	if len(key) < minSecretBytes || len(key) > maxSecretBytes {
		return nil, invalid("the secret has "+strconv.Itoa(len(key))+" bytes", form)
	}
	return key, nil
}

// Sign makes one signature of Standard Webhooks v1: v1, and base64 of
// HMAC-SHA256 over id.timestamp.body. The id is the value of the header
// webhook-id; the timestamp counts in whole seconds.
func Sign(secret, id string, timestamp time.Time, body []byte) (string, error) {
	s, err := newSigner(secret)
	if err != nil {
		return "", err
	}
	return s.sign(id, timestamp, body), nil
}

// signer signs with one secret. Safe for concurrent use.
type signer struct {
	hashes sync.Pool // of *signing; the key is hashed into each once
}

// signing is one HMAC in use, with room for the texts before and after it.
type signing struct {
	hash hash.Hash
	text []byte
	sum  [sha256.Size]byte
}

// newSigner reads a secret; see ParseSecret for the error.
func newSigner(secret string) (*signer, error) {
	key, err := ParseSecret(secret)
	if err != nil {
		return nil, err
	}
	return &signer{hashes: sync.Pool{New: func() any { return &signing{hash: hmac.New(sha256.New, key)} }}}, nil
}

// sign is Sign with the signer's secret.
func (s *signer) sign(id string, timestamp time.Time, body []byte) string {
	h := s.hashes.Get().(*signing)
	defer s.hashes.Put(h)
	h.hash.Reset()
	h.text = append(append(h.text[:0], id...), '.')
	h.text = append(strconv.AppendInt(h.text, timestamp.Unix(), 10), '.')
	h.hash.Write(h.text)
	h.hash.Write(body)
	h.text = append(h.text[:0], signaturePart...)
	h.text = base64.StdEncoding.AppendEncode(h.text, h.hash.Sum(h.sum[:0]))
	return string(h.text)
}

// signAll signs with every secret that has not expired, so that a receiver with any of them
// can verify during a rotation. Some libraries read the first signature only: it is that of the
// last secret, the oldest unless a rotation asked for the new one's.
func (s *Sender) signAll(secrets []Secret, id string, now time.Time, body []byte) (string, error) {
	var signatures string
	for i := range slices.Backward(secrets) {
		secret := &secrets[i]
		if secret.ended(now) {
			continue
		}
		signer, err := s.signers.of(secret.Key)
		if err != nil {
			return "", err
		}
		if signatures != "" {
			signatures += " "
		}
		signatures += signer.sign(id, now, body)
	}
	if signatures == "" {
		return "", invalid("the webhook has no secret that has not expired", "rotate its secret")
	}
	return signatures, nil
}

// Verify is for receivers: it checks the signature of a request with any of the
// secrets, or of the public keys (whpk_…, for v1a) among them, and that its timestamp is within the tolerance of now. The body is
// the raw bytes as received. The error is ErrUnsigned, ErrStaleSignature or
// ErrBadSignature, or a *content.FieldError about a secret.
func Verify(secrets []string, header http.Header, body []byte, now time.Time, tolerance time.Duration) error {
	id, stamp := header.Get(HeaderID), header.Get(HeaderTimestamp)
	given := strings.Fields(strings.Join(header.Values(HeaderSignature), " "))
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || id == "" || len(given) == 0 {
		return ErrUnsigned
	}
	// Compared as seconds: a Duration between far dates would overflow.
	span := int64(tolerance / time.Second)
	if seconds < now.Unix()-span || seconds > now.Unix()+span {
		return ErrStaleSignature
	}
	match := false
	for _, secret := range secrets {
		if strings.HasPrefix(secret, publicKeyPrefix) {
			ok, err := verifiesV1A(secret, given, append([]byte(id+"."+stamp+"."), body...))
			if err != nil {
				return err
			}
			match = match || ok
			continue
		}
		key, err := ParseSecret(secret)
		if err != nil {
			return err
		}
		want := []byte(signaturePart + base64.StdEncoding.EncodeToString(mac(key, id, seconds, body)))
		for _, signature := range given {
			if hmac.Equal([]byte(signature), want) {
				match = true
			}
		}
	}
	if !match {
		return ErrBadSignature
	}
	return nil
}

func mac(key []byte, id string, seconds int64, body []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(id + "." + strconv.FormatInt(seconds, 10) + "."))
	h.Write(body)
	return h.Sum(nil)
}
