package api

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
	"github.com/pushlease/pushlease/webhook/content"
)

// redacted stands for what is not shown.
const redacted = "[redacted]"

// webhookView is a registration as it is shown: secrets without their keys,
// headers without their values, which are credentials more often than not.
type webhookView struct {
	ID             string              `json:"id"`
	Name           string              `json:"name,omitempty"`
	Queue          string              `json:"queue"`
	URL            string              `json:"url"`
	Headers        map[string]string   `json:"headers"`
	Timeout        policy.Duration     `json:"timeout"`
	Enabled        bool                `json:"enabled"`
	DisabledReason string              `json:"disabled_reason,omitempty"`
	DisabledAt     time.Time           `json:"disabled_at,omitzero"`
	Policy         policy.Policy       `json:"policy"`
	Flow           policy.Flow         `json:"flow"`
	Filter         content.Filter      `json:"filter"`
	Format         content.Format      `json:"format"`
	HTTPVersion    string              `json:"http_version"`
	Signatures     *webhook.Signatures `json:"signatures,omitempty"`
	Auth           *webhook.Auth       `json:"auth,omitempty"`
	TLS            *webhook.TLS        `json:"tls,omitempty"`
	CertificateEnd time.Time           `json:"certificate_expires_at,omitzero"`
	SigningKeys    []signingKeyView    `json:"signing_keys,omitempty"`
	Secrets        []secretView        `json:"secrets"`
	ResetAt        time.Time           `json:"reset_at,omitzero"`
	CreatedAt      time.Time           `json:"created_at"`
	UpdatedAt      time.Time           `json:"updated_at"`
	// Status is in answers to GET alone: right after a change it would tell of before.
	Status *statusView `json:"status,omitempty"`
	// Others are in the answer about one webhook alone: how it fares in other instances.
	Others []otherView `json:"others,omitempty"`
	// Secret is shown once: in the answer to its creation or rotation.
	Secret   string   `json:"secret,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
	// Plan is in the answer to a dry run alone.
	Plan *planView `json:"plan,omitempty"`
}

type secretView struct {
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

// webhookList also names the rows that can't be read, so that one of them does not
// hide the others.
type webhookList struct {
	web.List[webhookView]
	Unreadable []unreadableView `json:"unreadable,omitempty"`
}

type unreadableView struct {
	ID      string `json:"id"`
	Problem string `json:"problem"`
}

// view shows reg to the caller of r. The query of a URL, or a long part of its path, is often a key that
// lets its bearer POST, so only those see it who may set it.
func (a *API) view(r *http.Request, reg tables.Registration) webhookView {
	v := webhookView{
		ID: reg.ID, Name: reg.Name, Queue: reg.Queue, URL: reg.URL, Headers: map[string]string{},
		Timeout: policy.Duration(reg.Timeout), Enabled: reg.Enabled, DisabledReason: reg.DisabledReason,
		DisabledAt: web.UTC(reg.DisabledAt), Policy: reg.Policy, Flow: reg.Flow.OrDefault(), Filter: reg.Filter, Format: cmp.Or(reg.Format, content.FormatRaw), HTTPVersion: httpVersionOf(reg), Signatures: reg.Signatures.Shown(redacted), Auth: a.shownAuth(r, reg), TLS: reg.TLS.Shown(redacted), CertificateEnd: certificateEnd(reg), SigningKeys: shownKeys(reg.SigningKeys), Secrets: []secretView{},
		ResetAt: web.UTC(reg.ResetAt), CreatedAt: web.UTC(reg.CreatedAt), UpdatedAt: web.UTC(reg.UpdatedAt),
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		v.Status = a.status(r, reg)
	}
	v.URL = shownURL(reg.URL, a.may(r, ScopeAdmin))
	for name := range reg.Headers {
		v.Headers[name] = redacted
	}
	for _, s := range reg.Secrets {
		v.Secrets = append(v.Secrets, secretView{web.UTC(s.CreatedAt), web.UTC(s.ExpiresAt)})
	}
	slices.SortStableFunc(v.Secrets, func(a, b secretView) int { return b.CreatedAt.Compare(a.CreatedAt) })
	return v
}

// shownURL leaves out what may be a key for those who may not see it, and a user and
// password for everybody: none can be registered, but a row can be older than that
// rule, or edited by hand.
func shownURL(raw string, whole bool) string {
	base, _, _ := strings.Cut(raw, "?")
	shown := raw
	if !whole {
		shown = webhook.ShownURL(raw)
	}
	start := 0
	if i := strings.Index(base, "//"); i >= 0 {
		start = i + 2
	}
	end := len(base)
	if i := strings.IndexAny(base[start:], `/\#`); i >= 0 {
		end = start + i
	}
	if at := strings.LastIndexByte(base[start:end], '@'); at >= 0 {
		shown = shown[:start] + redacted + shown[start+at:]
	}
	return shown
}

func (a *API) writeWebhook(w http.ResponseWriter, r *http.Request, status int, reg tables.Registration) error {
	w.Header().Set("ETag", web.EtagOf(reg.ETag))
	return web.WriteJSON(w, status, a.view(r, reg))
}

// listWebhooks lists the registrations in ascending order of id.
func (a *API) listWebhooks(w http.ResponseWriter, r *http.Request) error {
	q := web.ReadQuery(r, "queue", "enabled", "contains", "trouble", "limit", "cursor")
	name, enabled, find := q.Queue(), q.Bool("enabled"), readFinding(q)
	page := q.Page()
	if err := q.Err(); err != nil {
		return err
	}
	all, bad, err := a.registrations(r.Context())
	if err != nil {
		return web.StorageFault("list the webhooks", err)
	}
	all = slices.DeleteFunc(all, func(reg tables.Registration) bool {
		return name != "" && reg.Queue != name || q.Values.Has("enabled") && reg.Enabled != enabled || !find.takes(reg.ID, reg.Name, reg.Queue) || find.trouble && !a.isTroubled(reg)
	})
	all, next, err := web.PageByName("webhooks", all, func(reg tables.Registration) string { return reg.ID }, page)
	if err != nil {
		return err
	}
	views := make([]webhookView, len(all))
	for i, reg := range all {
		views[i] = a.view(r, reg)
	}
	answer := webhookList{List: web.NewList(views, next)}
	for _, b := range bad {
		problem := "its row in storage can't be read: who knew it sends as it was, otherwise its messages wait; put the row back, or delete and register it again"
		if errors.Is(b.Err, tables.ErrVanished) {
			problem = "its row is gone from storage, and nobody has deleted it through pushlease: who knew it sends as it was; put the row back, or delete the webhook if it is to be gone"
		}
		answer.Unreadable = append(answer.Unreadable, unreadableView{b.ID, problem})
	}
	return web.WriteJSON(w, http.StatusOK, answer)
}

// registrations are all that there are, and what is wrong with others. Where all are missed that is said of each:
// a list is how people find out.
func (a *API) registrations(ctx context.Context) ([]tables.Registration, []tables.RowError, error) {
	all, bad, err := a.Webhooks.ListWebhooks(ctx)
	var none *tables.VanishedError
	if errors.As(err, &none) {
		return nil, none.Missed, nil
	}
	return all, bad, err
}

func (a *API) getWebhook(w http.ResponseWriter, r *http.Request) error {
	if err := web.ReadQuery(r).Err(); err != nil {
		return err
	}
	reg, err := a.loadWebhook(r)
	if err != nil {
		return err
	}
	view := a.view(r, reg)
	a.tellLastFailure(r.Context(), reg, view.Status)
	a.tellOthers(r.Context(), reg, &view)
	view.Warnings = identityWarnings(reg)
	return web.WriteVersion(w, r, reg.ETag, view)
}

// patchWebhook changes what the merge patch (RFC 7396) names.
func (a *API) patchWebhook(w http.ResponseWriter, r *http.Request) error {
	if err := web.ReadQuery(r).Err(); err != nil {
		return err
	}
	in, err := web.ReadFields(w, r, false)
	if err != nil {
		return err
	}
	var warnings []string
	reg, err := a.change(r, func(reg *tables.Registration) error {
		before, change := *reg, in
		if isMergePatch(r) {
			warnings = a.resets(before, in)
		} else {
			change, warnings = a.withoutNulls(before, in)
		}
		if err := a.edit(reg, change, changing); err != nil {
			return err
		}
		if _, changed := in["filter"]; changed {
			warnings = append(warnings, a.waitingWarnings(r.Context(), *reg)...)
		}
		beginAnew(reg, before)
		return nil
	})
	if err != nil {
		return err
	}
	view := a.view(r, reg)
	if _, changed := in["filter"]; changed {
		warnings = append(warnings, a.filterWarnings(r.Context(), reg)...)
	}
	if _, changed := in["url"]; changed {
		warnings = append(warnings, a.twinWarnings(r.Context(), reg)...)
	}
	view.Warnings = slices.Concat(warnings, identityWarnings(reg))
	w.Header().Set("ETag", web.EtagOf(reg.ETag))
	return web.WriteJSON(w, http.StatusOK, view)
}

// beginAnew forgets how a webhook fared when it was given another URL, or enabled.
func beginAnew(reg *tables.Registration, before tables.Registration) {
	if reg.URL != before.URL || reg.Enabled && !before.Enabled {
		reg.ResetAt = time.Now().UTC()
	}
}

// enableWebhook also makes one that is enabled begin anew: its breaker may be open.
func (a *API) enableWebhook(w http.ResponseWriter, r *http.Request) error {
	return a.switchWebhook(w, r, true)
}

func (a *API) disableWebhook(w http.ResponseWriter, r *http.Request) error {
	return a.switchWebhook(w, r, false)
}

func (a *API) switchWebhook(w http.ResponseWriter, r *http.Request, on bool) error {
	if err := errors.Join(web.ReadQuery(r).Err(), web.NoBody(w, r)); err != nil {
		return err
	}
	return a.changeAndShow(w, r, func(reg *tables.Registration) error {
		setEnabled(reg, on)
		if on {
			reg.ResetAt = time.Now().UTC()
		}
		return nil
	})
}

// setEnabled does nothing to a webhook that already is so: why and since when it
// was disabled stays known.
func setEnabled(reg *tables.Registration, on bool) {
	if reg.Enabled == on {
		return
	}
	reg.Enabled, reg.DisabledReason, reg.DisabledAt = on, "", time.Time{}
	if !on {
		reg.DisabledReason, reg.DisabledAt = "operator", time.Now().UTC()
	}
}

// deleteWebhook ends a registration. What is queued for it alone is held, with that
// reason: the note about the queue, which is written before, makes the dispatcher watch
// over it. A row that can't be read can be deleted too; most say on which queue all the same. So can
// one that has vanished: it stays in force until then.
func (a *API) deleteWebhook(w http.ResponseWriter, r *http.Request) error {
	if err := errors.Join(web.ReadQuery(r).Err(), web.NoBody(w, r)); err != nil {
		return err
	}
	id, etag, vanished := web.PathParam(r, "id"), "", false
	change := tables.Audit{Action: tables.WebhookDeleted, WebhookID: id}
	if !webhookID(id) {
		return noWebhook
	}
	all, bad, err := a.registrations(r.Context())
	if err != nil {
		return web.StorageFault("read the webhook", err)
	}
	if i := slices.IndexFunc(all, func(reg tables.Registration) bool { return reg.ID == id }); i >= 0 {
		if err := web.Preconditions(r, all[i].ETag); err != nil {
			return err
		}
		if web.IfMatch(r) != "" {
			etag = all[i].ETag
		}
		change.Queue = all[i].Queue
	} else if web.IfMatch(r) != "" { // it is gone, or can't be read and compared
		if _, err := a.loadWebhook(r); err != nil {
			return err
		}
		return web.ErrPrecondition
	} else if i := slices.IndexFunc(bad, func(e tables.RowError) bool { return e.ID == id }); i >= 0 {
		vanished = errors.Is(bad[i].Err, tables.ErrVanished)
		change.Queue = bad[i].Queue
	}
	if err := a.noteLeft(r.Context(), change.Queue); err != nil {
		return err
	}
	switch err := a.Webhooks.DeleteWebhook(r.Context(), id, etag); {
	case errors.Is(err, tables.ErrNotFound) && vanished:
	case errors.Is(err, tables.ErrNotFound):
		return noWebhook
	case errors.Is(err, tables.ErrConflict):
		return web.ErrPrecondition
	case err != nil:
		return web.StorageFault("delete the webhook", err)
	}
	a.forgetHealth(r.Context(), id)
	a.registryChanged()
	a.audit(r, change)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// noteLeft notes that a queue loses a webhook, where that is known.
func (a *API) noteLeft(ctx context.Context, queueName string) error {
	if queueName == "" {
		return nil
	}
	err := a.LeftQueues.PutLeftQueue(ctx, tables.LeftQueue{Queue: queueName, At: time.Now().UTC().Truncate(time.Millisecond)})
	if err != nil {
		return web.StorageFault("note that the queue loses a webhook", err)
	}
	return nil
}

var noWebhook = web.Missing("No webhook has that id. It may have been deleted.", "id", "take an id from GET /api/v1/webhooks")

// webhookID reports whether an id can be one: storage is not asked for others.
func webhookID(id string) bool {
	return id != "" && len(id) <= 64 && !strings.ContainsFunc(id, func(c rune) bool {
		return c != '_' && c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
	})
}

func (a *API) loadWebhook(r *http.Request) (tables.Registration, error) {
	id := web.PathParam(r, "id")
	if !webhookID(id) {
		return tables.Registration{}, noWebhook
	}
	reg, err := a.Webhooks.GetWebhook(r.Context(), id)
	switch {
	case errors.Is(err, tables.ErrNotFound):
		return tables.Registration{}, noWebhook
	case err != nil:
		return tables.Registration{}, webhookFault(err)
	}
	return reg, nil
}

// webhookFault says why a registration could not be read.
func webhookFault(err error) error {
	if errors.Is(err, tables.ErrDamaged) {
		return web.NewProblem(web.Damaged, "The webhook's row in storage can't be read. A process that knew it before sends as it was then; otherwise its messages wait. Asking again does not help.",
			web.Wrong("id", "is of a webhook whose row another program has changed", "delete the webhook and register it again under the same id (PUT), or put the row back as it was"))
	}
	return web.StorageFault("read the webhook", err)
}

func (a *API) changeAndShow(w http.ResponseWriter, r *http.Request, f func(*tables.Registration) error) error {
	reg, err := a.change(r, f)
	if err != nil {
		return err
	}
	return a.writeWebhook(w, r, http.StatusOK, reg)
}

// change reads a registration, applies f and writes it, all again when someone
// else wrote in between. A caller who sent If-Match wants to know instead, and the
// next round finds out. Nothing is written when f changed nothing.
func (a *API) change(r *http.Request, f func(*tables.Registration) error) (tables.Registration, error) {
	for range web.MaxTries {
		reg, err := a.loadWebhook(r)
		if err == nil {
			err = web.Preconditions(r, reg.ETag)
		}
		if err != nil {
			return reg, err
		}
		next := reg
		if err := f(&next); err != nil {
			return reg, err
		}
		if reflect.DeepEqual(reg, next) {
			return reg, nil
		}
		next.UpdatedAt = time.Now().UTC()
		saved, err := a.Webhooks.PutWebhook(r.Context(), next)
		switch {
		case err == nil:
			if !saved.ResetAt.Equal(reg.ResetAt) {
				a.forgetHealth(r.Context(), saved.ID)
			}
			a.registryChanged()
			a.auditChange(r, reg, saved)
			return saved, nil
		case errors.Is(err, tables.ErrNotFound):
			return reg, noWebhook
		case !errors.Is(err, tables.ErrConflict):
			return reg, web.StorageFault("change the webhook", err)
		}
	}
	return tables.Registration{}, web.ErrBusyRow
}
