package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
	"github.com/pushlease/pushlease/webhook/content"
)

// Bounds of what a registration can say. A timeout above ten minutes would hold
// leases and connections for receivers that are better off answering at once and
// working later.
const (
	defaultTimeout = 30 * time.Second
	minTimeout     = time.Second
	maxTimeout     = 10 * time.Minute
	maxNameRunes   = 200
	// maxHeaderChanges bounds the headers that one request names, since each is
	// compared with the others; a webhook has far fewer.
	maxHeaderChanges = 200
	// secretPrefix marks a stored secret (Standard Webhooks 1.0).
	secretPrefix = "whsec_"
)

// intent is what a request does to a registration.
type intent int

const (
	creating intent = iota
	replacing
	changing
)

var (
	createFields = []string{"queue", "url", "name", "headers", "secret", "signing_key", "timeout", "enabled", "policy", "flow", "filter", "format", "http_version", "signatures", "auth", "tls"}
	changeFields = []string{"url", "name", "headers", "timeout", "enabled", "policy", "flow", "filter", "format", "http_version", "signatures", "auth", "tls"}
)

// edit applies the fields of a request to reg: a merge patch (RFC 7396), where null
// means the default. It gathers everything that is wrong.
func (a *API) edit(reg *tables.Registration, in web.Fields, as intent) error {
	e := &editor{api: a, reg: reg, as: as}
	if as != changing {
		for _, required := range []string{"queue", "url"} {
			if _, ok := in[required]; !ok {
				e.fail(required, "is missing", e.cureOf(required))
			}
		}
	}
	if _, ok := in["secret"]; !ok && as == creating {
		e.secret(json.RawMessage("null"))
	}
	for _, name := range in.Names() {
		e.set(name, in[name])
	}
	e.checkFormat(in)
	e.checkIdentity(in)
	e.checkSigningKey(in)
	if len(e.problems) > 0 {
		return web.Invalid(e.problems...)
	}
	return nil
}

type editor struct {
	api      *API
	reg      *tables.Registration
	as       intent
	problems []web.FieldError
}

func (e *editor) fail(field, what, cure string) {
	e.problems = append(e.problems, web.Wrong(field, what, cure))
}

// refuse says what the webhook package has against a field.
func (e *editor) refuse(field string, err error) {
	var wrong *content.FieldError
	if errors.As(err, &wrong) {
		e.fail(field, "can't be used: "+wrong.Problem, wrong.Cure)
		return
	}
	e.fail(field, "can't be used: "+err.Error(), e.cureOf(field))
}

func (e *editor) cureOf(field string) string {
	if strings.HasPrefix(field, "headers.") {
		return "give the value as a string, or null to take the header away"
	}
	if strings.HasPrefix(field, "signatures") {
		return `give an object such as {"hmac":{"preset":"github"}} or {"v1a":true}`
	}
	if strings.HasPrefix(field, "auth") {
		return `give an object such as {"oauth2":{"token_url":"https://login.example.com/token","client_id":"…","client_secret":"…","scopes":["…"]}}`
	}
	if strings.HasPrefix(field, "tls") {
		return `give an object such as {"client_certificate":"-----BEGIN CERTIFICATE-----…","client_key":"-----BEGIN PRIVATE KEY-----…"}`
	}
	switch field {
	case "queue":
		return `name the queue whose messages are pushed, such as "orders"`
	case "url":
		return `give the address to POST to, such as "https://example.com/hook"`
	case "name":
		return `give a text for people, such as "billing"`
	case "headers":
		return `give an object of names and values, such as {"X-Api-Key":"…"}`
	case "secret":
		return `leave it out to have one made, or give "whsec_" and the standard base64 of 24 to 64 random bytes`
	case "signing_key":
		return `leave it out to have one made, or give "whsk_" and standard base64, or a private key of Ed25519 in PEM`
	case "timeout":
		return fmt.Sprintf(`give a duration from %s to %s, such as "30s"`, minTimeout, maxTimeout)
	case "enabled":
		return "give true or false"
	case "http_version":
		return `give "auto" (HTTP/2 where the receiver takes it) or "1.1"`
	case "format":
		return `give "raw", "cloudevents-structured" or "cloudevents-binary"`
	}
	return `give an object, such as {"preset":"standard","max_attempts":5}`
}

// read decodes raw into v and says whether it could.
func (e *editor) read(field string, raw json.RawMessage, v any) bool {
	if problem := web.Decode(field, raw, v, e.cureOf(field)); problem != nil {
		e.problems = append(e.problems, *problem)
		return false
	}
	return true
}

func (e *editor) set(name string, raw json.RawMessage) {
	switch name {
	case "queue":
		e.queue(raw)
	case "url":
		e.url(raw)
	case "name":
		e.name(raw)
	case "headers":
		e.headers(raw)
	case "secret":
		e.secret(raw)
	case "signing_key":
		e.signingKey(raw)
	case "timeout":
		e.timeout(raw)
	case "enabled":
		var on bool
		switch {
		case web.IsNull(raw): // a client that writes null for what it did not set must not enable what an operator disabled
			e.fail(name, "is null", e.cureOf(name)+", or leave it out")
		case e.read(name, raw, &on):
			setEnabled(e.reg, on)
		}
	case "policy":
		e.policy(raw)
	case "flow":
		e.flow(raw)
	case "filter":
		e.filter(raw)
	case "format":
		e.format(raw)
	case "http_version":
		e.httpVersion(raw)
	case "signatures":
		e.signatures(raw)
	case "auth":
		e.auth(raw)
	case "tls":
		e.tls(raw)
	case "id", "secrets", "signing_keys", "created_at", "updated_at", "disabled_reason", "disabled_at", "reset_at", "status", "warnings", "certificate_expires_at":
		e.fail(name, "is set by pushlease", "leave it out")
	default:
		known := changeFields
		if e.as != changing {
			known = createFields
		}
		e.problems = append(e.problems, web.UnknownField(name, known))
	}
}

func (e *editor) queue(raw json.RawMessage) {
	var name string
	if !e.read("queue", raw, &name) {
		return
	}
	if err := queue.ValidateName(name); err != nil {
		e.problems = append(e.problems, web.BadQueue(err))
		return
	}
	if e.as != creating && name != e.reg.Queue {
		e.fail("queue", "can't be changed: what is under way belongs to the old queue", "register another webhook for the new queue, then disable or delete this one")
		return
	}
	e.reg.Queue = name
}

func (e *editor) url(raw json.RawMessage) {
	var address string
	if !e.read("url", raw, &address) {
		return
	}
	if strings.Contains(address, redacted) {
		e.fail("url", "has a part that is not shown to your key", "give it whole; a PATCH without url keeps it")
		return
	}
	if err := e.api.ValidateURL(address); err != nil {
		e.refuse("url", err)
		return
	}
	e.reg.URL = address
}

func (e *editor) name(raw json.RawMessage) {
	var name string
	if !e.read("name", raw, &name) { // null gives the empty name
		return
	}
	if utf8.RuneCountInString(name) > maxNameRunes || strings.ContainsFunc(name, noLetter) {
		e.fail("name", "is too long, or has control characters or some that turn the direction of the text around it", fmt.Sprintf("give at most %d characters on one line", maxNameRunes))
		return
	}
	e.reg.Name = name
}

// noLetter reports whether a character has no place in a name: it would break or turn the sentence that the name stands in.
func noLetter(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }

// headers merges: a header whose value is null is taken away.
func (e *editor) headers(raw json.RawMessage) {
	if web.IsNull(raw) {
		e.reg.Headers = nil
		return
	}
	var patch web.Fields
	if !e.read("headers", raw, &patch) {
		return
	}
	if len(patch) > maxHeaderChanges {
		e.fail("headers", fmt.Sprintf("names %d headers", len(patch)), fmt.Sprintf("name at most %d at once", maxHeaderChanges))
		return
	}
	merged := map[string]string{}
	for name, value := range e.reg.Headers {
		merged[name] = value
	}
	for _, name := range patch.Names() {
		for have := range merged {
			if strings.EqualFold(have, name) { // header names are the same in any case
				delete(merged, have)
			}
		}
		field, value := "headers."+web.ShownName(name), ""
		switch {
		case web.IsNull(patch[name]):
			continue
		case !e.read(field, patch[name], &value):
			return
		case value == redacted:
			e.fail(field, "has the mark that stands for a hidden value", e.keepHidden())
			return
		}
		merged[name] = value
	}
	if err := webhook.ValidateHeaders(merged); err != nil {
		e.refuse("headers", err)
		return
	}
	if len(merged) == 0 {
		merged = nil
	}
	e.reg.Headers = merged
}

func (e *editor) secret(raw json.RawMessage) {
	rotate := "use POST /api/v1/webhooks/" + e.reg.ID + "/rotate-secret, which lets the old one sign for a while"
	if e.as == changing {
		e.fail("secret", "is not changed here", rotate)
		return
	}
	if e.as == replacing && web.IsNull(raw) {
		return
	}
	s, ok := e.readSecret(raw, e.reg.CreatedAt)
	switch {
	case !ok:
	case e.as == creating:
		e.reg.Secrets = []webhook.Secret{s}
	case !slices.ContainsFunc(e.reg.Secrets, func(have webhook.Secret) bool { return have.Key == s.Key }):
		e.fail("secret", "is not the webhook's", "leave it out to keep the secret, or "+rotate)
	}
}

// readSecret reads a secret in either form that ParseSecret takes; null has one
// made.
func (e *editor) readSecret(raw json.RawMessage, now time.Time) (webhook.Secret, bool) {
	if web.IsNull(raw) {
		return webhook.NewSecret(now), true
	}
	var text string
	if !e.read("secret", raw, &text) {
		return webhook.Secret{}, false
	}
	if _, err := webhook.ParseSecret(text); err != nil {
		e.refuse("secret", err)
		return webhook.Secret{}, false
	}
	return webhook.Secret{Key: secretPrefix + strings.TrimPrefix(text, secretPrefix), CreatedAt: now}, true
}

func (e *editor) timeout(raw json.RawMessage) {
	timeout := policy.Duration(e.api.WebhookTimeout)
	if !web.IsNull(raw) && !e.read("timeout", raw, &timeout) {
		return
	}
	if t := time.Duration(timeout); t < minTimeout || t > maxTimeout {
		e.fail("timeout", "is out of range", e.cureOf("timeout"))
		return
	}
	e.reg.Timeout = time.Duration(timeout)
}

func (e *editor) policy(raw json.RawMessage) {
	p, err := policy.Overlay(e.reg.Policy, raw)
	if err == nil {
		err = p.Validate()
	}
	if err != nil {
		e.refuseParts("policy", raw, err)
		return
	}
	e.reg.Policy = p
}

func (e *editor) flow(raw json.RawMessage) {
	f, err := policy.OverlayFlow(e.reg.Flow, raw)
	if err == nil {
		err = f.Validate()
	}
	if err != nil {
		e.refuseParts("flow", raw, err)
		return
	}
	e.reg.Flow = f
}

// refuseParts says what the policy package has against parts of a field. Of parts that do not go
// together it blames one that was sent.
func (e *editor) refuseParts(field string, raw json.RawMessage, err error) {
	for _, f := range policy.FieldErrors(err) {
		blamed := f.Field
		if i := slices.IndexFunc(f.With, func(part string) bool { return sent(raw, part) }); i >= 0 && !sent(raw, blamed) {
			blamed = f.With[i]
		}
		path := field
		if blamed != field {
			path += "." + blamed
		}
		e.fail(path, "is not right: "+f.Problem, f.Cure)
	}
}

// sent reports whether an object names a part, such as backoff.max.
func sent(raw json.RawMessage, part string) bool {
	name, rest, deeper := strings.Cut(part, ".")
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) != nil {
		return false
	}
	value, ok := object[name]
	return ok && (!deeper || sent(value, rest))
}
