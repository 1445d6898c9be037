package api

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"time"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/tables"
)

// auditTime bounds how long an answer waits until it is written who asked for the change.
const auditTime = 5 * time.Second

// audit remembers a change that the request has made. The change stands whatever becomes of the row, so what could not be
// written is in the log.
func (a *API) audit(r *http.Request, c tables.Audit) {
	n := web.NoteOf(r)
	now := time.Now().UTC()
	c.ID, c.At, c.Key, c.Instance, c.RequestID = tables.AuditID(now, n.ID), now.Truncate(time.Millisecond), n.Key, a.Instance, n.ID
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), auditTime)
	defer cancel()
	if err := a.Audits.PutAudit(ctx, c); err != nil {
		a.Logger.Error("a change was made and could not be written to the audit", "action", c.Action, "api_key", c.Key, "request_id", c.RequestID,
			"queue", c.Queue, "webhook", c.WebhookID, "dead_letter", c.DeadLetterID, "replay", c.ReplayID, "fields", c.Fields, "count", c.Count, "filter", string(c.Filter), "error", err)
	}
}

// auditChange remembers what the request has changed of a registration. How a default is spelt changes nothing.
func (a *API) auditChange(r *http.Request, before, after tables.Registration) {
	c := tables.Audit{Action: tables.WebhookChanged, Queue: after.Queue, WebhookID: after.ID}
	plan, err := a.planOf(r, before, after)
	if err != nil {
		a.Logger.Error("which settings of a webhook a request has changed can't be told in the audit", "webhook", after.ID, "error", err)
	}
	for _, change := range plan.Changes {
		c.Fields = append(c.Fields, change.Field)
	}
	if !reflect.DeepEqual(before.Secrets, after.Secrets) {
		c.Fields = append(c.Fields, "secrets")
	}
	if !reflect.DeepEqual(before.SigningKeys, after.SigningKeys) {
		c.Fields = append(c.Fields, "signing_keys")
	}
	switch {
	case before.Enabled && !after.Enabled:
		c.Action = tables.WebhookDisabled
	case after.Enabled && (!before.Enabled || len(c.Fields) == 0 && !after.ResetAt.Equal(before.ResetAt)): // one that is enabled already begins anew
		c.Action = tables.WebhookEnabled
	case err == nil && len(c.Fields) == 0:
		return
	}
	a.audit(r, c)
}

// encoded is the filter as it is kept.
func (v filterView) encoded() json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil { // no type that is in it can fail
		panic(err)
	}
	return text
}

// auditView is one change as it is shown.
type auditView struct {
	At           time.Time          `json:"at"`
	Action       tables.AuditAction `json:"action"`
	Key          string             `json:"key,omitempty"`
	Reason       string             `json:"reason,omitempty"`
	Instance     string             `json:"instance,omitempty"`
	RequestID    string             `json:"request_id,omitempty"`
	Queue        string             `json:"queue,omitempty"`
	WebhookID    string             `json:"webhook_id,omitempty"`
	DeadLetterID string             `json:"dead_letter_id,omitempty"`
	ReplayID     string             `json:"replay_id,omitempty"`
	Fields       []string           `json:"fields"`
	Count        int64              `json:"count,omitempty"`
	Filter       json.RawMessage    `json:"filter,omitempty"`
}

// listAudit tells who changed what, newest first.
func (a *API) listAudit(w http.ResponseWriter, r *http.Request) error {
	q := web.ReadQuery(r, "queue", "webhook", "action", "key", "from", "until", "limit", "cursor")
	f := tables.AuditFilter{Queue: q.Queue(), WebhookID: q.Text("webhook"), Action: web.OneOf(q, "action", tables.AuditActions()), Key: q.Text("key")}
	f.From, f.Until = q.Span()
	page := q.Page()
	if err := q.Err(); err != nil {
		return err
	}
	all, next, err := a.Audits.ListAudits(r.Context(), f, page)
	if err != nil {
		return web.ListFault("read who changed what", err)
	}
	views := make([]auditView, len(all))
	for i, c := range all {
		views[i] = auditView{
			At: web.UTC(c.At), Action: c.Action, Key: c.Key, Reason: c.Reason, Instance: c.Instance, RequestID: c.RequestID, Queue: c.Queue, WebhookID: c.WebhookID,
			DeadLetterID: c.DeadLetterID, ReplayID: c.ReplayID, Fields: web.OrEmpty(c.Fields), Count: c.Count, Filter: c.Filter,
		}
	}
	return web.WriteJSON(w, http.StatusOK, web.NewList(views, next))
}
