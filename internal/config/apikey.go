package config

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Scopes are what an API key can be allowed: publish (send messages), read,
// operate (replay, enable, purge) and admin (webhooks, secrets, deleting queues).
func Scopes() []string { return []string{"publish", "read", "operate", "admin"} }

// APIKey is one caller that the API accepts. It prints without its hash.
type APIKey struct {
	// Name tells the keys apart in logs.
	Name string
	// Scopes are among Scopes.
	Scopes []string

	hash [sha256.Size]byte
}

// Hash is the SHA-256 of the token.
func (k APIKey) Hash() [sha256.Size]byte { return k.hash }

// NewAPIKey describes the key of which token is the secret half.
func NewAPIKey(name string, scopes []string, token string) (APIKey, error) {
	k := APIKey{Name: name, Scopes: scopes, hash: sha256.Sum256([]byte(token))}
	return k, k.validate()
}

// Setting is the key in the form that api_keys takes.
func (k APIKey) Setting() string {
	return k.Name + ":" + strings.Join(k.Scopes, "+") + ":" + hex.EncodeToString(k.hash[:])
}

// String is Setting with the hash redacted.
func (k APIKey) String() string {
	return k.Name + ":" + strings.Join(k.Scopes, "+") + ":[redacted]"
}

// Format makes every verb print what String says.
func (k APIKey) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, k.String()) }

func (k APIKey) validate() error {
	if k.Name == "" || len(k.Name) > maxNameBytes || !only(k.Name, nameChars) {
		return errors.New("the name of an API key has 1 to 64 letters, digits, '-', '_' and '.'")
	}
	if len(k.Scopes) == 0 {
		return errors.New("an API key needs at least one scope: " + strings.Join(Scopes(), ", "))
	}
	for _, s := range k.Scopes {
		if !slices.Contains(Scopes(), s) {
			return fmt.Errorf("key %s has a scope that does not exist; scopes are %s, joined by +", k.Name, strings.Join(Scopes(), ", "))
		}
	}
	return nil
}

// parseAPIKeys never quotes v in an error: someone may have put a token there.
func parseAPIKeys(v string) ([]APIKey, error) {
	var keys []APIKey
	for i, line := range splitList(v) {
		k, err := parseAPIKey(line)
		if err != nil {
			return nil, fmt.Errorf("key %d: %w", i+1, err)
		}
		for _, other := range keys {
			switch {
			case other.Name == k.Name:
				return nil, fmt.Errorf("key %d: the name %s is used twice; give each key a name of its own", i+1, k.Name)
			case other.hash == k.hash:
				return nil, fmt.Errorf("keys %s and %s have the same hash; make one token per key with: pushlease api-key new", other.Name, k.Name)
			}
		}
		keys = append(keys, k)
	}
	return keys, nil
}

func parseAPIKey(line string) (APIKey, error) {
	const form = "write name:scope+scope:sha256-hex, or make one with: pushlease api-key new"
	parts := strings.Split(line, ":")
	if len(parts) != 3 {
		return APIKey{}, errors.New("it does not have three parts; " + form)
	}
	raw, err := hex.DecodeString(strings.ToLower(parts[2]))
	if err != nil || len(raw) != sha256.Size {
		return APIKey{}, errors.New("its last part is not 64 hex digits, the SHA-256 of the token (not the token itself); " + form)
	}
	k := APIKey{Name: parts[0], hash: [sha256.Size]byte(raw)}
	if parts[1] != "" {
		k.Scopes = strings.Split(parts[1], "+")
	}
	return k, k.validate()
}
