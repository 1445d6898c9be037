package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

// authMembers are those of auth and of the objects in it, by their path.
var authMembers = map[string][]string{
	"auth":                        {"oauth2"},
	"auth.oauth2":                 {"token_url", "client_id", "client_secret", "private_key_jwt", "scopes", "audience", "params"},
	"auth.oauth2.private_key_jwt": {"key", "kid"},
}

// tlsMembers are those of tls.
var tlsMembers = map[string][]string{"tls": {"client_certificate", "client_key", "ca", "min_version", "server_name"}}

// auth sets by what token the receiver is told who sends. A change is merged, so that it need not repeat a secret.
func (e *editor) auth(raw json.RawMessage) {
	if web.IsNull(raw) {
		e.reg.Auth = nil
		return
	}
	var next webhook.Auth
	if !e.overlay("auth", e.reg.Auth, raw, authMembers, &next) {
		return
	}
	for _, wrong := range e.api.CheckAuth(&next) {
		e.refuse("auth."+wrong.Field, wrong)
	}
	e.reg.Auth = &next
}

// tls sets how connections to the receiver are made; what of it goes together is for checkIdentity.
func (e *editor) tls(raw json.RawMessage) {
	if web.IsNull(raw) {
		e.reg.TLS = nil
		return
	}
	var next webhook.TLS
	if !e.overlay("tls", e.reg.TLS, raw, tlsMembers, &next) {
		return
	}
	// Files end with a line's end, and variables often do not: that is no change.
	next.ClientCertificate, next.CA = webhook.OnlyCertificates(strings.TrimSpace(next.ClientCertificate)), webhook.OnlyCertificates(strings.TrimSpace(next.CA))
	next.ClientKey = webhook.Hidden(strings.TrimSpace(string(next.ClientKey)))
	e.reg.TLS = nil
	if next != (webhook.TLS{}) {
		e.reg.TLS = &next
	}
}

// signaturesMembers are those of signatures and of the objects in it, by their path.
var signaturesMembers = map[string][]string{
	"signatures":      {"hmac", "http", "v1a"},
	"signatures.http": {"algorithm", "components", "key_id"},
	"signatures.hmac": {"preset", "header", "algorithm", "signed", "encoding", "prefix", "timestamp_prefix", "secret"},
}

// signatures sets what is signed beside Standard Webhooks v1. A change is merged, so that it need not repeat a secret.
func (e *editor) signatures(raw json.RawMessage) {
	if web.IsNull(raw) {
		e.reg.Signatures = nil
		return
	}
	var next webhook.Signatures
	if !e.overlay("signatures", e.reg.Signatures, raw, signaturesMembers, &next) {
		return
	}
	for _, wrong := range next.Problems() {
		e.refuse(strings.TrimSuffix("signatures."+wrong.Field, "."), wrong)
	}
	e.reg.Signatures = &next
}

// overlay lays an object over what is there, with all that is in it (RFC 7396), and says whether it could.
func (e *editor) overlay(field string, there any, patch json.RawMessage, members map[string][]string, into any) bool {
	before := len(e.problems)
	e.knownMembers(field, patch, members)
	base, err := json.Marshal(there)
	if err != nil { // no type that is in it can fail
		panic(err)
	}
	return len(e.problems) == before && e.read(field, mergedJSON(base, patch), into)
}

// knownMembers refuses members that there are not, and marks in the place of what is hidden.
func (e *editor) knownMembers(path string, raw json.RawMessage, members map[string][]string) {
	var object web.Fields
	known, isObject := members[path]
	if web.IsNull(raw) || !isObject {
		if hasMark(raw) {
			e.fail(path, "has the mark that stands for a hidden value", e.keepHidden())
		}
		return
	}
	if !e.read(path, raw, &object) {
		return
	}
	for _, name := range object.Names() {
		if !slices.Contains(known, name) {
			wrong := web.UnknownField(name, known)
			wrong.Field = path + "." + wrong.Field
			e.problems = append(e.problems, wrong)
			continue
		}
		e.knownMembers(path+"."+name, object[name], members)
	}
}

// hasMark finds the mark as a value or within one.
func hasMark(raw json.RawMessage) bool {
	var text string
	var members map[string]json.RawMessage
	switch {
	case json.Unmarshal(raw, &text) == nil:
		return strings.Contains(text, redacted)
	case json.Unmarshal(raw, &members) == nil:
		for _, member := range members {
			if hasMark(member) {
				return true
			}
		}
	}
	return false
}

func (e *editor) keepHidden() string {
	if e.as == changing {
		return "leave it out to keep its value, or give the value"
	}
	return "give the value"
}

// mergedJSON is base with a merge patch applied to it.
func mergedJSON(base, patch json.RawMessage) json.RawMessage {
	var old, change map[string]json.RawMessage
	if json.Unmarshal(patch, &change) != nil || change == nil {
		return patch
	}
	if json.Unmarshal(base, &old) != nil || old == nil {
		old = map[string]json.RawMessage{}
	}
	for name, value := range change {
		if web.IsNull(value) {
			delete(old, name)
		} else {
			old[name] = mergedJSON(old[name], value)
		}
	}
	text, err := json.Marshal(old)
	if err != nil { // each member is JSON
		panic(err)
	}
	return text
}

// checkIdentity refuses a header that auth sets itself, and a change that leaves tls as what can't be used.
func (e *editor) checkIdentity(in web.Fields) {
	_, ofTLS := in["tls"]
	if _, ofURL := in["url"]; e.reg.TLS != nil && (ofTLS || ofURL) {
		for _, wrong := range e.reg.TLS.Problems(e.reg.URL, time.Now()) {
			e.refuse(strings.TrimSuffix("tls."+wrong.Field, "."), wrong)
		}
	}
	carriers := e.reg.Signatures.HeaderNames()
	for name := range e.reg.Headers {
		if slices.Contains(carriers, http.CanonicalHeaderKey(name)) {
			e.fail("headers."+name, "is there beside signatures, which set that header", "take the header away (null in a PATCH), or set signatures to null, with Content-Type: application/merge-patch+json")
		}
	}
	if e.reg.Auth == nil {
		return
	}
	for name := range e.reg.Headers {
		if strings.EqualFold(name, "Authorization") {
			e.fail("headers."+name, "is there beside auth, which sets that header", "take the header away (null in a PATCH), or set auth to null, with Content-Type: application/merge-patch+json")
		}
	}
}

// shownAuth is what may be shown of auth to the caller of r.
func (a *API) shownAuth(r *http.Request, reg tables.Registration) *webhook.Auth {
	shown := reg.Auth.Shown(redacted)
	if shown != nil && shown.OAuth2 != nil {
		base, query, hasQuery := strings.Cut(shown.OAuth2.TokenURL, "?") // its path is no key: tenants are named there
		if hasQuery && query != "" && (r == nil || !a.may(r, ScopeAdmin)) {
			shown.OAuth2.TokenURL = base + "?" + redacted
		}
	}
	return shown
}

// identitySettings are the values in signatures, auth and tls by their path, those of lists as a whole.
func (a *API) identitySettings(reg tables.Registration) (map[string]settingView, error) {
	type identity struct {
		Signatures *webhook.Signatures `json:"signatures,omitempty"`
		Auth       *webhook.Auth       `json:"auth,omitempty"`
		TLS        *webhook.TLS        `json:"tls,omitempty"`
	}
	real, realErr := json.Marshal(identity{reg.Signatures, reg.Auth, reg.TLS})
	hidden, hiddenErr := json.Marshal(identity{reg.Signatures.Shown(redacted), a.shownAuth(nil, reg), reg.TLS.Shown(redacted)})
	if err := errors.Join(realErr, hiddenErr); err != nil {
		return nil, fmt.Errorf("encode signatures, auth and tls: %w", err)
	}
	values, shown := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	addLeaves("", real, values)
	addLeaves("", hidden, shown)
	all := map[string]settingView{}
	for path, value := range values {
		all[path] = settingView{string(value), shown[path]}
	}
	return all, nil
}

// certificateWarning is how long before its end a client's certificate is warned of.
const certificateWarning = 30 * 24 * time.Hour

// identityWarnings tell of a certificate that ends soon, or has ended, and of a token that anybody on the way can read.
func identityWarnings(reg tables.Registration) (warnings []string) {
	if reg.Auth != nil && strings.HasPrefix(strings.ToLower(reg.URL), "http:") {
		warnings = append(warnings, "The URL is not https: whoever reads what is sent has the token, and can show it to the receiver until it ends. Use https.")
	}
	end, setting := reg.TLS.Expires()
	renew := " Have it renewed, and set " + setting + "."
	switch left := time.Until(end); {
	case end.IsZero() || left > certificateWarning:
		return warnings
	case left <= 0:
		return append(warnings, "The certificate in "+setting+" has expired at "+web.Stamp(end)+": nothing is sent, and its messages wait."+renew)
	default:
		return append(warnings, "The certificate in "+setting+" expires at "+web.Stamp(end)+"; nothing is sent from then on."+renew)
	}
}

// certificateEnd is when the first certificate of a webhook ends; zero without one.
func certificateEnd(reg tables.Registration) time.Time {
	end, _ := reg.TLS.Expires()
	return web.UTC(end)
}

func addLeaves(path string, raw json.RawMessage, into map[string]json.RawMessage) {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil {
		into[path] = raw
		return
	}
	for name, value := range members {
		addLeaves(strings.TrimPrefix(path+"."+name, "."), value, into)
	}
}
