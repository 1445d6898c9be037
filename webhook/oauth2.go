package webhook

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/pushlease/pushlease/webhook/internal/transport"
)

const (
	// maxTokenAnswer bounds an answer of a token endpoint, and maxToken a token, in bytes.
	maxTokenAnswer = 64 << 10
	maxToken       = 16 << 10
	// assertionLife is for how long an assertion is good.
	assertionLife = 5 * time.Minute

	assertionType = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
)

// tokenClient asks token endpoints, over connections that the guard has allowed.
func tokenClient(exchanges http.RoundTripper, userAgent string) *http.Client {
	return &http.Client{
		Transport:     tokenExchange{exchanges, userAgent},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// tokenExchange bounds the answers.
type tokenExchange struct {
	inner     http.RoundTripper
	userAgent string
}

func (e tokenExchange) RoundTrip(r *http.Request) (*http.Response, error) {
	limits := transport.Limits{Start: time.Now(), Timeout: tokenTime, WholeBody: true}
	r = r.Clone(transport.WithLimits(r.Context(), &limits))
	r.Header.Set("User-Agent", e.userAgent)
	response, err := e.inner.RoundTrip(r)
	if err == nil {
		response.Body = &tokenAnswer{ReadCloser: response.Body, left: maxTokenAnswer}
	}
	return response, err
}

// What oauth2 says with other words around it, which are not for people.
var (
	errTokenLong   = errors.New("the token endpoint's answer is too long")
	errTokenBroken = errors.New("the token endpoint's answer broke off, or did not come to its end in time")
)

// tokenAnswer is a body that may not be longer than what is left.
type tokenAnswer struct {
	io.ReadCloser
	left int
}

func (b *tokenAnswer) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch b.left -= n; {
	case b.left < 0:
		return 0, errTokenLong
	case err != nil && !errors.Is(err, io.EOF):
		return n, errTokenBroken
	}
	return n, err
}

// asker asks an issuer for tokens.
type asker struct {
	client *http.Client
	config clientcredentials.Config
	assert *assertion
	proven bool // a token came for a client that was told in this way
}

// newAsker reads what is registered, with which there is no problem (Auth.Problems).
func newAsker(o *OAuth2, client *http.Client, guard GuardOptions) *asker {
	a := &asker{client: client, config: clientcredentials.Config{
		ClientID: o.ClientID, ClientSecret: string(o.ClientSecret), TokenURL: o.TokenURL, Scopes: o.Scopes, EndpointParams: url.Values{}, AuthStyle: oauth2.AuthStyleInHeader,
	}}
	if target, err := parseTarget(o.TokenURL, &guard); err == nil { // its host in the form that is checked
		a.config.TokenURL = target.String()
	}
	if o.Audience != "" {
		a.config.EndpointParams.Set("audience", o.Audience)
	}
	for name, value := range o.Params {
		a.config.EndpointParams.Set(name, string(value))
	}
	if o.PrivateKeyJWT != nil {
		signer, _ := o.PrivateKeyJWT.signer() // there is no problem with it
		a.assert = &assertion{signer: signer, keyID: o.PrivateKeyJWT.KeyID, client: o.ClientID, audience: o.TokenURL}
		a.config.AuthStyle = oauth2.AuthStyleInParams
	}
	return a
}

// token asks for one.
func (a *asker) token(ctx context.Context) (token, *failure) {
	asked := time.Now()
	config := &a.config
	if a.assert != nil {
		text, err := a.assert.text(asked)
		if err != nil {
			return token{}, tokenFailure("the client's assertion could not be signed: set auth.oauth2.private_key_jwt anew")
		}
		config = a.withAssertion(text)
	}
	got, err := a.retrieve(context.WithValue(ctx, oauth2.HTTPClient, a.client), config)
	if err != nil {
		return token{}, a.refused(ctx, err)
	}
	if !strings.EqualFold(got.Type(), "bearer") {
		return token{}, tokenFailure("the token endpoint gave a token of another type than Bearer")
	}
	if len(got.AccessToken) > maxToken || strings.ContainsFunc(got.AccessToken, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return token{}, tokenFailure("the token endpoint gave a token that no header can carry")
	}
	life := time.Duration(0)
	if !got.Expiry.IsZero() {
		life = max(time.Until(got.Expiry), time.Nanosecond)
	}
	return newToken("Bearer "+got.AccessToken, asked, life), nil
}

// retrieve asks once, or twice where the issuer may not take the secret in the way in which it was told (RFC 6749, section 2.3.1). What is
// told then is the answer of the two that knows the client, or the first one: the second way may only have been none of its own.
func (a *asker) retrieve(ctx context.Context, config *clientcredentials.Config) (*oauth2.Token, error) {
	got, err := config.Token(ctx)
	if err == nil || a.proven || a.assert != nil || !mayNotKnow(err) {
		a.proven = a.proven || err == nil
		return got, err
	}
	other := *config
	if other.AuthStyle = oauth2.AuthStyleInParams; config.AuthStyle == other.AuthStyle {
		other.AuthStyle = oauth2.AuthStyleInHeader
	}
	got, otherErr := other.Token(ctx)
	switch {
	case otherErr == nil:
		a.config.AuthStyle, a.proven = other.AuthStyle, true
		return got, nil
	case ctx.Err() != nil: // it had too little time after the first one: it is the first next time
		a.config.AuthStyle = other.AuthStyle
	case !mayNotKnow(otherErr):
		return nil, otherErr
	}
	return nil, err
}

// mayNotKnow is whether an issuer's answer may come of how the client was told. Issuers say that in many ways.
func mayNotKnow(err error) bool {
	var answer *oauth2.RetrieveError
	if !errors.As(err, &answer) {
		return false
	}
	switch answer.ErrorCode {
	case "invalid_scope", "invalid_target", "unsupported_grant_type", "server_error", "temporarily_unavailable":
		return false
	}
	status := answer.Response.StatusCode
	return status < 500 && status != http.StatusTooManyRequests && status/100 != 3
}

func (a *asker) withAssertion(text string) *clientcredentials.Config {
	params := url.Values{"client_assertion_type": {assertionType}, "client_assertion": {text}}
	for name, values := range a.config.EndpointParams {
		params[name] = values
	}
	return &clientcredentials.Config{
		ClientID: a.config.ClientID, TokenURL: a.config.TokenURL, Scopes: a.config.Scopes, EndpointParams: params, AuthStyle: a.config.AuthStyle,
	}
}

// refused says why there is no token, and what to do, without anything that was sent or answered but
// the status and the code of the error.
func (a *asker) refused(ctx context.Context, err error) *failure {
	var answer *oauth2.RetrieveError
	switch {
	case errors.As(err, &answer):
		return a.answered(answer)
	case ctx.Err() != nil:
		return tokenFailure("the token endpoint did not answer within " + tokenTime.String())
	}
	for _, known := range [...]error{errTokenLong, errTokenBroken} {
		if strings.Contains(err.Error(), known.Error()) {
			return tokenFailure(known.Error())
		}
	}
	var e *transport.Error
	if errors.As(err, &e) {
		f := failureOf(ctx, e)
		if f.short {
			return f
		}
		return tokenFailure("the token endpoint could not be asked: " + asItsOwn.Replace(f.text))
	}
	return tokenFailure("the token endpoint's answer holds no token: see that auth.oauth2.token_url is the token endpoint")
}

// asItsOwn says of the token endpoint what is said of receivers. The webhook's tls is for its receiver alone.
var asItsOwn = strings.NewReplacer("the receiver", "it", "the webhook's timeout", tokenTime.String(),
	": set tls.client_certificate and tls.client_key", noneShown, ": set tls.client_certificate", noneShown,
	", or below the webhook's tls.min_version", "", ", or set tls.ca", "")

const noneShown = ", and gets none"

// mostAsked is the longest wait that a token endpoint is believed.
const mostAsked = 10 * time.Minute

// askedWait is until when an issuer wants to be left alone (Retry-After); zero where it does not say.
func askedWait(header http.Header, now time.Time) time.Time {
	value := header.Get("Retry-After")
	at, err := http.ParseTime(value)
	if seconds, failed := strconv.ParseUint(value, 10, 31); failed == nil {
		at, err = now.Add(time.Duration(seconds)*time.Second), nil
	}
	if err != nil || !at.After(now) {
		return time.Time{}
	}
	if most := now.Add(mostAsked); at.After(most) {
		return most
	}
	return at
}

// errorCodes are those of RFC 6749, and what is to be set otherwise then.
var errorCodes = map[string]string{
	"invalid_client": "", "invalid_request": "", "unsupported_grant_type": "",
	"invalid_scope": "scopes", "invalid_target": "audience", "unauthorized_client": "client_id", "invalid_grant": "client_id",
	"access_denied": "client_id", "server_error": "-", "temporarily_unavailable": "-",
}

func (a *asker) answered(answer *oauth2.RetrieveError) *failure {
	text := fmt.Sprintf("the token endpoint answered %d", answer.Response.StatusCode)
	field, known := errorCodes[answer.ErrorCode]
	if known {
		text += " " + answer.ErrorCode
	}
	switch status := answer.Response.StatusCode; {
	case field == "-", status >= 500, status == http.StatusTooManyRequests:
		return &failure{class: classToken, text: text, tokenAt: askedWait(answer.Response.Header, time.Now())}
	case status >= 300 && status < 400:
		return tokenFailure(text + ", a redirect, which is not followed: set auth.oauth2.token_url")
	case status == http.StatusNotFound, status == http.StatusMethodNotAllowed:
		return tokenFailure(text + ": set auth.oauth2.token_url")
	case field != "":
		return tokenFailure(text + ": set auth.oauth2." + field)
	case status != http.StatusUnauthorized && answer.ErrorCode != "invalid_client":
		return tokenFailure(text + ": see client_id, scopes, audience and params of auth.oauth2")
	case a.assert != nil:
		return tokenFailure(text + ": set auth.oauth2.private_key_jwt")
	}
	return tokenFailure(text + ": set auth.oauth2.client_secret")
}

// assertion makes what proves that the client has the key (RFC 7523).
type assertion struct {
	signer                  assertionSigner
	keyID, client, audience string
}

func (a *assertion) text(now time.Time) (string, error) {
	claims := jwt.NewWithClaims(a.signer.method, jwt.MapClaims{
		"iss": a.client, "sub": a.client, "aud": a.audience, "jti": rand.Text(), "iat": now.Unix(), "exp": now.Add(assertionLife).Unix(),
	})
	if a.keyID != "" {
		claims.Header["kid"] = a.keyID
	}
	return claims.SignedString(a.signer.key)
}
