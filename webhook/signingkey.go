package webhook

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"slices"
	"strings"
	"time"

	"github.com/pushlease/pushlease/webhook/content"
)

const (
	// The prefixes of Standard Webhooks 1.0 for a private key of Ed25519, and for a public one.
	signingKeyPrefix = "whsk_"
	publicKeyPrefix  = "whpk_"
	v1aPart          = "v1a,"
)

// SigningKey is a private key of Ed25519.
type SigningKey struct {
	// Key is whsk_ and standard base64 of the seed and the public key.
	Key Hidden `json:"key"`
	// CreatedAt is when it was made.
	CreatedAt time.Time `json:"created_at"`
	// ExpiresAt ends its use for signing; zero means never.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

// Ended reports whether it signs no more.
func (k *SigningKey) Ended(now time.Time) bool {
	return !k.ExpiresAt.IsZero() && !now.Before(k.ExpiresAt)
}

// NewSigningKey makes a key that does not expire.
func NewSigningKey(now time.Time) SigningKey {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil { // the source never fails: it ends the process instead
		panic(err)
	}
	return SigningKey{Key: textOfKey(key), CreatedAt: now}
}

func textOfKey(key ed25519.PrivateKey) Hidden {
	return Hidden(signingKeyPrefix + base64.StdEncoding.EncodeToString(key))
}

// ReadSigningKey reads a key that somebody gives: whsk_ and standard base64 of the seed, with the public key after it or without,
// or PKCS #8 in PEM. The error is a *content.FieldError that does not repeat the text.
func ReadSigningKey(text string, now time.Time) (SigningKey, error) {
	text = strings.TrimSpace(text)
	if block, rest := pem.Decode([]byte(text)); block != nil && len(rest) == 0 {
		parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if key, ok := parsed.(ed25519.PrivateKey); err == nil && ok {
			return SigningKey{Key: textOfKey(key), CreatedAt: now}, nil
		}
		return SigningKey{}, noSigningKey("it is in PEM, and is no private key of Ed25519")
	}
	key, wrong := privateKey(text)
	if wrong != nil {
		return SigningKey{}, wrong
	}
	return SigningKey{Key: textOfKey(key), CreatedAt: now}, nil
}

func noSigningKey(problem string) *content.FieldError {
	return wrongPart("", problem, "give whsk_ and standard base64, or a private key in PEM as openssl genpkey -algorithm ed25519 makes it, or leave it out to have one made")
}

// privateKey reads a key as it is kept.
func privateKey(text string) (ed25519.PrivateKey, *content.FieldError) {
	encoded, ok := strings.CutPrefix(text, signingKeyPrefix)
	if !ok {
		return nil, noSigningKey("it does not begin with whsk_")
	}
	bytes, err := base64.StdEncoding.Strict().DecodeString(encoded)
	switch {
	case err == nil && len(bytes) == ed25519.SeedSize:
		return ed25519.NewKeyFromSeed(bytes), nil
	case err != nil || len(bytes) != ed25519.PrivateKeySize:
		return nil, noSigningKey("it is not the base64 of 32 or 64 bytes")
	}
	key := ed25519.NewKeyFromSeed(bytes[:ed25519.SeedSize])
	if !key.Equal(ed25519.PrivateKey(bytes)) {
		return nil, noSigningKey("its public half is not that of its private half")
	}
	return key, nil
}

func parsedSigningKey(text string) (ed25519.PrivateKey, error) {
	key, wrong := privateKey(text)
	if wrong != nil {
		return nil, wrong
	}
	return key, nil
}

// PublicKey is a public key of Ed25519.
type PublicKey ed25519.PublicKey

// Public is the public half; nil of a key that can't be read.
func (k *SigningKey) Public() PublicKey {
	key, wrong := privateKey(string(k.Key))
	if wrong != nil {
		return nil
	}
	return PublicKey(key.Public().(ed25519.PublicKey))
}

// String is the key as Standard Webhooks writes it, with whpk_.
func (p PublicKey) String() string { return publicKeyPrefix + base64.StdEncoding.EncodeToString(p) }

// X is the key as a JWK writes it (RFC 8037).
func (p PublicKey) X() string { return base64.RawURLEncoding.EncodeToString(p) }

// ID is the key's thumbprint (RFC 7638, RFC 8037), which it has wherever it goes.
func (p PublicKey) ID() string {
	sum := sha256.Sum256([]byte(`{"crv":"Ed25519","kty":"OKP","x":"` + p.X() + `"}`))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// signV1A makes the signatures of Standard Webhooks v1a, one for each key in force, each after a blank.
func (s *Sender) signV1A(keys []SigningKey, id, stamp string, body []byte) (string, error) {
	text := slices.Concat([]byte(id+"."+stamp+"."), body)
	var signatures strings.Builder
	for i := range keys {
		key, err := s.signingKeys.of(string(keys[i].Key))
		if err != nil {
			return "", err
		}
		signatures.WriteString(" " + v1aPart + base64.StdEncoding.EncodeToString(ed25519.Sign(key, text)))
	}
	return signatures.String(), nil
}

// inForce are the keys that sign, the one that signs first first; there is one at least.
func inForce(keys []SigningKey, now time.Time) ([]SigningKey, error) {
	left := slices.DeleteFunc(slices.Clone(keys), func(k SigningKey) bool { return k.Ended(now) })
	if len(left) == 0 {
		return nil, invalid("the webhook has no signing key that has not expired", "rotate its signing key")
	}
	slices.Reverse(left)
	return left, nil
}

// verifiesV1A reports whether one of the signatures was made with the private half of a public key, which is whpk_ and base64.
func verifiesV1A(public string, given []string, text []byte) (bool, error) {
	key, err := base64.StdEncoding.Strict().DecodeString(strings.TrimPrefix(public, publicKeyPrefix))
	if err != nil || len(key) != ed25519.PublicKeySize {
		return false, invalid("the public key is not the base64 of 32 bytes", "give whpk_ and the base64 that the sender shows")
	}
	for _, signature := range given {
		encoded, ok := strings.CutPrefix(signature, v1aPart)
		if made, err := base64.StdEncoding.DecodeString(encoded); ok && err == nil && ed25519.Verify(key, text, made) {
			return true, nil
		}
	}
	return false, nil
}
