package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

// signingKeyView is a signing key as it is shown: its public half.
type signingKeyView struct {
	ID        string    `json:"id"`
	PublicKey string    `json:"public_key"`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

func shownKeys(keys []webhook.SigningKey) (views []signingKeyView) {
	for i := range keys {
		public := keys[i].Public()
		views = append(views, signingKeyView{public.ID(), public.String(), web.UTC(keys[i].CreatedAt), web.UTC(keys[i].ExpiresAt)})
	}
	return views
}

// signingKey takes a key that was given, where the webhook has none.
func (e *editor) signingKey(raw json.RawMessage) {
	const field = "signing_key"
	rotate := "use POST /api/v1/webhooks/" + e.reg.ID + "/rotate-signing-key, which lets the old one sign for a while"
	if e.as == changing {
		e.fail(field, "is not changed here", rotate)
		return
	}
	if web.IsNull(raw) {
		return
	}
	key, ok := e.readSigningKey(raw, time.Now().UTC())
	switch {
	case !ok:
	case len(e.reg.SigningKeys) == 0:
		e.reg.SigningKeys = []webhook.SigningKey{key}
	case !slices.ContainsFunc(e.reg.SigningKeys, func(have webhook.SigningKey) bool { return have.Key == key.Key }):
		e.fail(field, "is not the webhook's", "leave it out to keep the key, or "+rotate)
	}
}

func (e *editor) readSigningKey(raw json.RawMessage, now time.Time) (key webhook.SigningKey, ok bool) {
	var text string
	if !e.read("signing_key", raw, &text) {
		return key, false
	}
	key, err := webhook.ReadSigningKey(text, now)
	if err != nil {
		e.refuse("signing_key", err)
	}
	return key, err == nil
}

// checkSigningKey has a key made where one is needed and none is there.
func (e *editor) checkSigningKey(in web.Fields) {
	if raw, given := in["signing_key"]; given && !web.IsNull(raw) && !e.reg.Signatures.NeedKey() {
		e.fail("signing_key", "would sign nothing", `leave it out, or set "signatures":{"v1a":true} or {"http":{"algorithm":"ed25519"}}`)
	}
	if e.reg.Signatures.NeedKey() && len(e.reg.SigningKeys) == 0 {
		e.reg.SigningKeys = []webhook.SigningKey{webhook.NewSigningKey(time.Now().UTC())}
	}
}

// keysView is the answer to a rotation of signing keys.
type keysView struct {
	SigningKeys []signingKeyView `json:"signing_keys"`
}

// rotateSigningKey adds a new key and lets the old ones sign beside it until the overlap ends: receivers that keep public keys have that long to
// get the new one.
func (a *API) rotateSigningKey(w http.ResponseWriter, r *http.Request) error {
	if err := web.ReadQuery(r).Err(); err != nil {
		return err
	}
	in, err := web.ReadFields(w, r, true)
	if err != nil {
		return err
	}
	if err := web.OnlyFields(in, "signing_key", "overlap"); err != nil {
		return err
	}
	now := time.Now().UTC()
	e := &editor{as: creating}
	fresh := webhook.NewSigningKey(now)
	if raw, ok := in["signing_key"]; ok && !web.IsNull(raw) {
		fresh, _ = e.readSigningKey(raw, now)
	}
	overlap, field := e.overlap(in)
	if len(e.problems) > 0 {
		return web.Invalid(e.problems...)
	}
	saved, err := a.change(r, func(reg *tables.Registration) error { return addSigningKey(reg, fresh, now, overlap, field) })
	if err != nil {
		return err
	}
	w.Header().Set("ETag", web.EtagOf(saved.ETag))
	return web.WriteJSON(w, http.StatusOK, keysView{shownKeys(saved.SigningKeys)})
}

func addSigningKey(reg *tables.Registration, fresh webhook.SigningKey, now time.Time, overlap time.Duration, overlapField string) error {
	if !reg.Signatures.NeedKey() {
		return web.Invalid(web.Wrong("request", "is about a webhook that signs with no such key", `set "signatures":{"v1a":true} or {"http":{"algorithm":"ed25519"}} first, which makes one`))
	}
	keys, end := []webhook.SigningKey{fresh}, now.Add(overlap)
	for _, old := range reg.SigningKeys {
		if old.Key == fresh.Key {
			return web.Invalid(web.Wrong("signing_key", "is one that the webhook has already", "give another one, or leave it out to have one made"))
		}
		if old.ExpiresAt.IsZero() || old.ExpiresAt.After(end) {
			old.ExpiresAt = end
		}
		if !old.Ended(now) {
			keys = append(keys, old)
		}
	}
	if len(keys) > maxSecrets {
		return web.NewProblem(web.TooManySecrets,
			fmt.Sprintf("A webhook signs with at most %d signing keys.", maxSecrets),
			web.Wrong(overlapField, "would keep too many old keys", "wait until an old one has ended (see signing_keys of the webhook), or rotate with a shorter overlap; 0s ends them all"))
	}
	reg.SigningKeys = keys
	return nil
}

// overlap is how long what is old signs beside what is new, and which field says so; the request as a whole where it is left out.
func (e *editor) overlap(in web.Fields) (time.Duration, string) {
	overlap, raw := policy.Duration(defaultOverlap), in["overlap"]
	if raw == nil || web.IsNull(raw) {
		return defaultOverlap, "request"
	}
	cure := fmt.Sprintf(`give a duration from 0s (the old ones end at once) to %s, such as "24h"`, maxOverlap)
	if problem := web.Decode("overlap", raw, &overlap, cure); problem != nil {
		e.problems = append(e.problems, *problem)
	} else if overlap < 0 || time.Duration(overlap) > maxOverlap {
		e.fail("overlap", "is out of range", cure)
	}
	return time.Duration(overlap), "overlap"
}

// publicKeysFresh is for how long keys are served after they were read, or that they could not be. Whoever asks for them has no key of
// the API, so storage is asked once in that time, however many ask.
const publicKeysFresh = 5 * time.Second

// publicKeysTime bounds how long they are read.
const publicKeysTime = 10 * time.Second

// publicKeys are the webhooks' public keys, as they were read last.
type publicKeys struct {
	mu      sync.Mutex
	at      time.Time
	keys    map[string][]webhook.SigningKey
	err     error
	reading chan struct{} // closed when the reading that is under way has ended
	changes int           // that this process made: what was read before one is not kept
}

// forget has them read anew: this process has changed a registration.
func (p *publicKeys) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at = time.Time{}
	p.changes++
}

// of gives a webhook's keys. One caller reads, and the others wait for what comes of it. The one that reads gives what it read, kept or not:
// while webhooks are changed all the time it would read for ever.
func (p *publicKeys) of(ctx context.Context, id string, read func(context.Context) (map[string][]webhook.SigningKey, error)) ([]webhook.SigningKey, error) {
	for {
		p.mu.Lock()
		if time.Since(p.at) < publicKeysFresh {
			defer p.mu.Unlock()
			return p.keys[id], p.err
		}
		reading := p.reading
		if reading == nil {
			p.reading = make(chan struct{})
			p.mu.Unlock()
			keys, err := p.read(context.WithoutCancel(ctx), read) // who hangs up does not have it begin anew
			return keys[id], err
		}
		p.mu.Unlock()
		select {
		case <-reading:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (p *publicKeys) read(ctx context.Context, read func(context.Context) (map[string][]webhook.SigningKey, error)) (keys map[string][]webhook.SigningKey, err error) {
	p.mu.Lock()
	changes := p.changes
	p.mu.Unlock()
	err = errors.New("reading the keys was cut off") // by a panic
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if changes == p.changes {
			p.at, p.keys, p.err = time.Now(), keys, err
		}
		close(p.reading)
		p.reading = nil
	}()
	ctx, cancel := context.WithTimeout(ctx, publicKeysTime)
	defer cancel()
	return read(ctx)
}

// jwk is a public key of Ed25519 (RFC 7517, RFC 8037), with the text that libraries of Standard Webhooks take.
type jwk struct {
	Kty       string    `json:"kty"`
	Crv       string    `json:"crv"`
	X         string    `json:"x"`
	Kid       string    `json:"kid"`
	Use       string    `json:"use"`
	Alg       string    `json:"alg"`
	PublicKey string    `json:"public_key"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

type jwks struct {
	Keys []jwk `json:"keys"`
}

// wellKnownKeys serves the public keys with which a webhook signs, to anybody who is let in without a key of the API: they are no secret, and receivers have none. They are of one
// webhook each, so that a receiver does not take for its own what was signed for another one.
func (a *API) wellKnownKeys(w http.ResponseWriter, r *http.Request) error {
	if err := web.ReadQuery(r).Err(); err != nil {
		return err
	}
	keys, err := a.publicKeys.of(r.Context(), web.PathParam(r, "id"), a.readPublicKeys)
	if err != nil {
		return web.StorageFault("read the webhook's keys", err)
	}
	now, answer := time.Now(), jwks{}
	for i := range keys {
		if public := keys[i].Public(); public != nil && !keys[i].Ended(now) {
			answer.Keys = append(answer.Keys, jwk{"OKP", "Ed25519", public.X(), public.ID(), "sig", "EdDSA", public.String(), web.UTC(keys[i].ExpiresAt)})
		}
	}
	if len(answer.Keys) == 0 {
		return noWebhook
	}
	w.Header().Set("Cache-Control", "public, max-age=5")
	return web.WriteJSON(w, http.StatusOK, answer)
}

// readPublicKeys reads those of all webhooks that sign with one.
func (a *API) readPublicKeys(ctx context.Context) (map[string][]webhook.SigningKey, error) {
	all, _, err := a.Webhooks.ListWebhooks(ctx)
	keys := map[string][]webhook.SigningKey{}
	for i := range all {
		if all[i].Signatures.NeedKey() {
			keys[all[i].ID] = all[i].SigningKeys
		}
	}
	return keys, err
}
