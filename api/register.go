package api

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// secretShownFor is how long a repeated creation is still answered with the secret.
const secretShownFor = 24 * time.Hour

// createWebhook registers a webhook. Its secret is in this answer and in no other, but for
// that to the same request with the same Idempotency-Key.
func (a *API) createWebhook(w http.ResponseWriter, r *http.Request) error {
	key, badKey := web.IdempotencyKey(r)
	if err := web.Together(web.ReadQuery(r).Err(), badKey); err != nil {
		return err
	}
	in, err := web.ReadFields(w, r, false)
	if err != nil {
		return err
	}
	id, hash := "wh_"+strings.ToLower(rand.Text()), ""
	if key != "" {
		id = idOfKey(key)
		if hash, err = hashOfFields(in); err != nil {
			return err
		}
	}
	reg, err := a.newRegistration(id, in)
	if err != nil {
		return err
	}
	reg.RequestHash = hash
	if key != "" { // the id is that of the key: one of that id may have been deleted, which not every instance has seen
		reg.ResetAt = reg.CreatedAt
	}
	warnings := a.waitingWarnings(r.Context(), reg) // before anybody receives what waits
	saved, err := a.Webhooks.PutWebhook(r.Context(), reg)
	switch {
	case errors.Is(err, tables.ErrExists) && key != "":
		return a.answerCreationAgain(w, r, reg)
	case err != nil:
		return web.StorageFault("register the webhook", err)
	}
	a.created(r, saved)
	return a.registered(w, r, saved, true, warnings...)
}

// created tells the dispatcher of a registration that the request has made, and then remembers who asked for it.
func (a *API) created(r *http.Request, reg tables.Registration) {
	a.registryChanged()
	a.audit(r, tables.Audit{Action: tables.WebhookCreated, Queue: reg.Queue, WebhookID: reg.ID})
}

// idOfKey makes the id of a webhook of the key that it is created under: a repeated
// request finds what the first one made, whatever became of its answer.
func idOfKey(key string) string {
	sum := sha256.Sum256([]byte("register\n" + key))
	return "wh_" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16]))
}

// hashOfFields tells whether two requests say the same.
func hashOfFields(f web.Fields) (string, error) {
	text, err := json.Marshal(f) // in the order of the names, and without blanks
	return tables.ClaimKey(string(text)), err
}

// answerCreationAgain answers a request whose key was used: mine is what it asked for.
func (a *API) answerCreationAgain(w http.ResponseWriter, r *http.Request, mine tables.Registration) error {
	there, err := a.Webhooks.GetWebhook(r.Context(), mine.ID)
	switch {
	case errors.Is(err, tables.ErrNotFound): // deleted just now
		return web.ErrBusyRow
	case err != nil:
		return webhookFault(err)
	case there.RequestHash != mine.RequestHash:
		return web.NewProblem(web.IdempotencyKeyReused,
			"The webhook "+there.ID+" was registered with this key by a request that said something else.",
			web.Wrong(web.IdempotencyHeader, "was used for another webhook", "use a new key for each webhook, and the old one only to repeat the very same request; PATCH or PUT changes the webhook"))
	}
	a.registryChanged() // the answer to the first request may have been lost here too
	w.Header().Set("Idempotency-Replayed", "true")
	return a.registered(w, r, there, time.Since(there.CreatedAt) < secretShownFor)
}

// putWebhook makes the webhook of that id, or replaces what it says: what is not named has
// its default. Its secrets stay, and whether it is enabled, where the request names neither:
// a deployment that is repeated does not undo what happened to the webhook since.
func (a *API) putWebhook(w http.ResponseWriter, r *http.Request) error {
	id, q := web.PathParam(r, "id"), web.ReadQuery(r, "dry_run")
	dry := q.Bool("dry_run")
	if err := web.Together(q.Err(), checkChosenID(id), checkIfNoneMatch(r)); err != nil {
		return err
	}
	in, err := web.ReadFields(w, r, false)
	switch {
	case err != nil:
		return err
	case dry:
		return a.planWebhook(w, r, id, in)
	}
	for range web.MaxTries {
		if r.Header.Get("If-None-Match") == "" {
			var warnings []string
			reg, err := a.change(r, func(reg *tables.Registration) error {
				err := a.replace(reg, in)
				if err == nil {
					warnings = a.waitingWarnings(r.Context(), *reg)
				}
				return err
			})
			switch {
			case err == nil:
				return a.shown(w, r, http.StatusOK, reg, "", warnings...)
			case !errors.Is(err, noWebhook):
				return err
			case web.IfMatch(r) != "":
				return web.ErrPrecondition
			}
		}
		reg, err := a.newRegistration(id, in)
		if err != nil {
			return err
		}
		reg.ResetAt = reg.CreatedAt // one of that id may have been deleted, which not every instance has seen
		warnings := a.waitingWarnings(r.Context(), reg)
		saved, err := a.Webhooks.PutWebhook(r.Context(), reg)
		switch {
		case err == nil:
			a.created(r, saved)
			return a.registered(w, r, saved, true, warnings...)
		case !errors.Is(err, tables.ErrExists):
			return web.StorageFault("register the webhook", err)
		case r.Header.Get("If-None-Match") != "":
			return errExists
		}
	}
	return web.ErrBusyRow
}

var errExists = web.NewProblem(web.Exists,
	"If-None-Match: * asks for a new webhook, and the id is taken.",
	web.Wrong("If-None-Match", "does not hold: the id is taken", "choose another id, or leave If-None-Match out to replace what the webhook says"))

func checkIfNoneMatch(r *http.Request) error {
	switch r.Header.Get("If-None-Match") {
	case "", "*":
		return nil
	}
	return web.Invalid(web.Wrong("If-None-Match", "names versions", "send * to make a webhook and replace none, or If-Match with an ETag to replace that version"))
}

// checkChosenID is stricter than webhookID: an id that begins with a hyphen looks like
// a flag of the command line.
func checkChosenID(id string) error {
	if webhookID(id) && !strings.HasPrefix(id, "-") {
		return nil
	}
	return web.Invalid(web.Wrong("id", "can't be the id of a webhook", "use 1 to 64 letters, digits, hyphens and underscores, and begin with no hyphen"))
}

// newRegistration is what a request makes where nothing is.
func (a *API) newRegistration(id string, in web.Fields) (tables.Registration, error) {
	now := time.Now().UTC()
	reg, err := a.defaults()
	if err != nil {
		return reg, err
	}
	reg.ID, reg.Enabled, reg.CreatedAt, reg.UpdatedAt = id, true, now, now
	return reg, a.edit(&reg, in, creating)
}

func (a *API) defaults() (reg tables.Registration, err error) {
	reg.Timeout = a.WebhookTimeout
	reg.Policy, err = policy.Preset(policy.DefaultPreset)
	return reg, err
}

// replace makes reg what a request says.
func (a *API) replace(reg *tables.Registration, in web.Fields) error {
	before := *reg
	next, err := a.defaults()
	if err != nil {
		return err
	}
	next.ID, next.Queue, next.ETag, next.RequestHash = before.ID, before.Queue, before.ETag, before.RequestHash
	next.Secrets, next.SigningKeys, next.CreatedAt, next.UpdatedAt, next.ResetAt = before.Secrets, before.SigningKeys, before.CreatedAt, before.UpdatedAt, before.ResetAt
	next.Enabled, next.DisabledReason, next.DisabledAt = before.Enabled, before.DisabledReason, before.DisabledAt
	if err := a.edit(&next, in, replacing); err != nil {
		return err
	}
	beginAnew(&next, before)
	*reg = next
	return nil
}

// registered answers that reg was made. Its first secret is shown while it has no other.
func (a *API) registered(w http.ResponseWriter, r *http.Request, reg tables.Registration, withSecret bool, warnings ...string) error {
	secret := ""
	if withSecret && len(reg.Secrets) == 1 && reg.Secrets[0].CreatedAt.Equal(reg.CreatedAt) {
		secret = reg.Secrets[0].Key
	}
	w.Header().Set("Location", "/api/v1/webhooks/"+reg.ID)
	return a.shown(w, r, http.StatusCreated, reg, secret, warnings...)
}

// shown answers with a registration and what is to be said about it.
func (a *API) shown(w http.ResponseWriter, r *http.Request, status int, reg tables.Registration, secret string, warnings ...string) error {
	view := a.view(r, reg)
	view.Secret = secret
	view.Warnings = slices.Concat(a.warningsOf(r.Context(), reg), warnings)
	w.Header().Set("ETag", web.EtagOf(reg.ETag))
	return web.WriteJSON(w, status, view)
}

// warningsOf are what is to be said of any registration.
func (a *API) warningsOf(ctx context.Context, reg tables.Registration) []string {
	return slices.Concat(a.queueWarnings(ctx, reg.Queue), a.twinWarnings(ctx, reg), a.filterWarnings(ctx, reg), identityWarnings(reg))
}

// queueWarnings says so when the queue is not there yet: a name that was
// misspelt would otherwise wait for messages for ever.
func (a *API) queueWarnings(ctx context.Context, name string) []string {
	if _, err := a.depth(ctx, name); errors.Is(err, queue.ErrQueueNotFound) {
		return []string{"The queue " + name + " does not exist yet: it is made by the first message that is published to it."}
	}
	return nil
}

// twinWarnings says which other webhooks of the queue have the same URL: each gets
// every message, so that a registration that was repeated doubles them.
func (a *API) twinWarnings(ctx context.Context, reg tables.Registration) []string {
	all, _, err := a.Webhooks.ListWebhooks(ctx)
	if err != nil {
		return nil // it is a convenience
	}
	var warnings []string
	for _, other := range all {
		if other.ID != reg.ID && other.Queue == reg.Queue && other.URL == reg.URL {
			warnings = append(warnings, "The webhook "+other.ID+" of this queue has the same URL: messages that both take are POSTed there twice. Delete one of them unless that is meant.")
		}
	}
	return warnings
}
