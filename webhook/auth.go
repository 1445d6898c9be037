package webhook

import (
	"crypto/elliptic"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/golang-jwt/jwt/v5"

	"github.com/pushlease/pushlease/webhook/content"
)

// Auth says how a receiver is told by a token who sends, beside the signature. Its one member is set.
type Auth struct {
	OAuth2 *OAuth2 `json:"oauth2,omitempty"`
}

// OAuth2 are client credentials (RFC 6749, section 4.4), and for which token they are given. One of
// ClientSecret and PrivateKeyJWT is set.
type OAuth2 struct {
	// TokenURL is the https URL of the token endpoint.
	TokenURL string `json:"token_url"`
	ClientID string `json:"client_id"`
	// ClientSecret is sent to the token endpoint.
	ClientSecret Hidden `json:"client_secret,omitempty"`
	// PrivateKeyJWT signs what takes the place of a secret.
	PrivateKeyJWT *PrivateKeyJWT `json:"private_key_jwt,omitempty"`
	Scopes        []string       `json:"scopes,omitempty"`
	Audience      string         `json:"audience,omitempty"`
	// Params are sent to the token endpoint too. They may be secrets.
	Params map[string]Hidden `json:"params,omitempty"`
}

// PrivateKeyJWT is the key of a client's assertions (RFC 7523).
type PrivateKeyJWT struct {
	// Key is a private key in PEM: of RSA, which signs with RS256, or of the curve P-256, with ES256.
	Key Hidden `json:"key"`
	// KeyID tells the token endpoint which key it is.
	KeyID string `json:"kid,omitempty"`
}

const (
	maxAuthText = 4096
	maxKeyPEM   = 16 << 10
	maxScopes   = 50
	maxParams   = 20
	minRSABits  = 2048
)

// ownParams are those that pushlease sends itself.
var ownParams = map[string]bool{
	"grant_type": true, "client_id": true, "client_secret": true, "client_assertion": true, "client_assertion_type": true, "scope": true, "audience": true,
}

// Problems says what is wrong with an Auth that is being registered. No text repeats a value.
func (a *Auth) Problems(guard GuardOptions) []*content.FieldError {
	if a.OAuth2 == nil {
		return []*content.FieldError{wrongPart("oauth2", "it is missing", `give {"oauth2":{"token_url":…,"client_id":…,"client_secret":…}}, or null for no token`)}
	}
	return a.OAuth2.problems(guard)
}

func (o *OAuth2) problems(guard GuardOptions) (all []*content.FieldError) {
	add := func(part, problem, cure string) { all = append(all, wrongPart("oauth2."+part, problem, cure)) }
	if err := validateTokenURL(o.TokenURL, guard); err != nil {
		add("token_url", err.Problem, err.Cure)
	}
	if !fitsParam(o.ClientID) {
		add("client_id", "it is missing, too long, or has control characters", "give the id under which the token endpoint knows this client")
	}
	switch {
	case o.ClientSecret == "" && o.PrivateKeyJWT == nil:
		add("client_secret", "it is missing", "give the client's secret, or private_key_jwt with a key")
	case o.ClientSecret != "" && o.PrivateKeyJWT != nil:
		add("client_secret", "it is there beside private_key_jwt", "keep one of the two, and set the other to null, with Content-Type: application/merge-patch+json")
	case o.PrivateKeyJWT != nil:
		if _, err := o.PrivateKeyJWT.signer(); err != nil {
			add("private_key_jwt.key", err.Problem, err.Cure)
		}
		if o.PrivateKeyJWT.KeyID != "" && !fitsParam(o.PrivateKeyJWT.KeyID) {
			add("private_key_jwt.kid", "it is too long or has control characters", "give the key's id as the token endpoint knows it, or leave it out")
		}
	case !fitsParam(string(o.ClientSecret)):
		add("client_secret", "it is too long or has control characters", "give the secret on one line")
	}
	if len(o.Scopes) > maxScopes || slices.ContainsFunc(o.Scopes, notScope) {
		add("scopes", "they can't be sent", "give a list of at most 50 texts without blanks")
	}
	if o.Audience != "" && !fitsParam(o.Audience) {
		add("audience", "it is too long or has control characters", "give the audience on one line")
	}
	if len(o.Params) > maxParams {
		add("params", "there are too many", "keep at most 20")
	}
	for _, name := range slices.Sorted(maps.Keys(o.Params)) {
		if ownParams[name] || !fitsParam(name) || !fitsParam(string(o.Params[name])) {
			add("params", "one of them is sent by pushlease itself, or can't be sent", "name only further parameters, each with a text")
		}
	}
	return all
}

func wrongPart(field, problem, cure string) *content.FieldError {
	return &content.FieldError{Field: field, Problem: problem, Cure: cure}
}

// validateTokenURL takes what may be a webhook's URL and is https: the client's secret goes there.
func validateTokenURL(raw string, guard GuardOptions) *content.FieldError {
	if strings.HasPrefix(strings.ToLower(raw), "http:") && !guard.AllowPrivate {
		return wrongPart("", "the URL is not https", "use https, since a secret is sent there; for development there is serve --dev")
	}
	guard.AllowHTTP = nil
	var wrong *content.FieldError
	errors.As(ValidateURL(raw, guard), &wrong) // it gives no other
	return wrong
}

func fitsParam(text string) bool {
	return text != "" && len(text) <= maxAuthText && !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f })
}

func notScope(scope string) bool { return !fitsParam(scope) || strings.ContainsRune(scope, ' ') }

// assertionSigner signs a client's assertions.
type assertionSigner struct {
	method jwt.SigningMethod
	key    any
}

// signer reads the key.
func (p *PrivateKeyJWT) signer() (assertionSigner, *content.FieldError) {
	const form = "give a private key in PEM, without a passphrase: of RSA with 2048 bits or more, or of the curve P-256"
	text := []byte(p.Key)
	if len(text) == 0 || len(text) > maxKeyPEM {
		return assertionSigner{}, wrongPart("", "the key is missing or too long", form)
	}
	if key, err := jwt.ParseRSAPrivateKeyFromPEM(text); err == nil {
		if key.N.BitLen() < minRSABits {
			return assertionSigner{}, wrongPart("", "the key has too few bits", form)
		}
		return assertionSigner{jwt.SigningMethodRS256, key}, nil
	}
	key, err := jwt.ParseECPrivateKeyFromPEM(text)
	if err != nil || key.Curve != elliptic.P256() {
		return assertionSigner{}, wrongPart("", "the key is no private key that can be used", form)
	}
	return assertionSigner{jwt.SigningMethodES256, key}, nil
}

// Shown is what may be shown of an Auth: mark stands for each text in confidence.
func (a *Auth) Shown(mark string) *Auth {
	if a == nil || a.OAuth2 == nil {
		return a
	}
	o := *a.OAuth2
	if o.ClientSecret != "" {
		o.ClientSecret = Hidden(mark)
	}
	if o.PrivateKeyJWT != nil {
		o.PrivateKeyJWT = &PrivateKeyJWT{Hidden(mark), o.PrivateKeyJWT.KeyID}
	}
	if o.Params != nil {
		o.Params = maps.Clone(o.Params)
		for name := range o.Params {
			o.Params[name] = Hidden(mark)
		}
	}
	return &Auth{OAuth2: &o}
}
