package api

import (
	"net/http"
	"time"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

// attemptView is one attempt as it is shown.
type attemptView struct {
	MessageID    string            `json:"message_id"`
	Queue        string            `json:"queue"`
	WebhookID    string            `json:"webhook_id"`
	Generation   int               `json:"generation"`
	Number       int               `json:"number"`
	StartedAt    time.Time         `json:"started_at"`
	Duration     policy.Duration   `json:"duration"`
	Status       int               `json:"status,omitempty"`
	ErrorClass   policy.ErrorClass `json:"error_class,omitempty"`
	Error        string            `json:"error,omitempty"`
	Snippet      string            `json:"snippet,omitempty"`
	RetryAfter   string            `json:"retry_after,omitempty"`
	RedirectHost string            `json:"redirect_host,omitempty"`
	Redials      int               `json:"redials,omitempty"`
	Action       policy.Action     `json:"action,omitempty"`
	Reason       policy.Reason     `json:"reason,omitempty"`
	Charged      bool              `json:"charged"`
	Delay        policy.Duration   `json:"delay,omitzero"`
	NextAt       time.Time         `json:"next_at,omitzero"`
	Explanation  string            `json:"explanation,omitempty"`
	Instance     string            `json:"instance,omitempty"`
	// DequeueCount is 0 of attempts that were recorded before it was.
	DequeueCount int64 `json:"dequeue_count,omitempty"`
	// Damaged names the columns that another program has changed so that they can't be read.
	Damaged string `json:"damaged,omitempty"`
}

func newAttemptView(t tables.Attempt) attemptView {
	return attemptView{
		MessageID: t.MessageID, Queue: t.Queue, WebhookID: t.WebhookID, Generation: t.Generation, Number: t.Number,
		StartedAt: web.UTC(t.StartedAt), Duration: policy.Duration(t.Duration), Status: t.Status, ErrorClass: t.ErrorClass,
		Error: t.Error, Snippet: t.Snippet, RetryAfter: t.RetryAfter, RedirectHost: t.RedirectHost, Redials: t.Redials,
		Action: t.Action, Reason: t.Reason, Charged: t.Charged, Delay: policy.Duration(t.Delay), NextAt: web.UTC(t.NextAt),
		Explanation: t.Explanation, Instance: t.Instance, DequeueCount: t.DequeueCount, Damaged: t.Damage.Columns,
	}
}

// listAttempts lists attempts, newest first.
func (a *API) listAttempts(w http.ResponseWriter, r *http.Request) error {
	q := web.ReadQuery(r, "webhook", "queue", "message", "status", "error_class", "action", "reason", "from", "until", "limit", "cursor")
	filter := tables.AttemptFilter{
		WebhookID:  q.Text("webhook"),
		Queue:      q.Queue(),
		MessageID:  q.Text("message"),
		ErrorClass: web.OneOf(q, "error_class", policy.ErrorClasses()),
		Action:     web.OneOf(q, "action", policy.Actions()),
		Reason:     web.OneOf(q, "reason", policy.Reasons()),
	}
	filter.Status, filter.StatusClass = q.StatusOrClass("status")
	filter.From, filter.Until = q.Span()
	page := q.Page()
	if err := q.Err(); err != nil {
		return err
	}
	attempts, next, err := a.History.Attempts(r.Context(), filter, page)
	if err != nil {
		return web.ListFault("list the attempts", err)
	}
	views := make([]attemptView, len(attempts))
	for i, t := range attempts {
		views[i] = newAttemptView(t)
	}
	return web.WriteJSON(w, http.StatusOK, web.NewList(views, next))
}
