package api

import (
	"net/http"
	"time"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

// messageRowView is where one message stands with one webhook, in a list.
type messageRowView struct {
	MessageID string `json:"message_id"`
	Queue     string `json:"queue"`
	nextView
	LastStatus     int               `json:"last_status,omitempty"`
	LastErrorClass policy.ErrorClass `json:"last_error_class,omitempty"`
	Size           int               `json:"size"`
	InsertedAt     time.Time         `json:"inserted_at,omitzero"`
	UpdatedAt      time.Time         `json:"updated_at,omitzero"`
	ExpiresAt      time.Time         `json:"expires_at,omitzero"`
}

// messageList says too where a page ended before it was full.
type messageList struct {
	web.List[messageRowView]
	StoppedEarly bool `json:"stopped_early"`
}

// listMessages tells where messages stand, those of the newest day first.
func (a *API) listMessages(w http.ResponseWriter, r *http.Request) error {
	q := web.ReadQuery(r, "queue", "webhook", "state", "from", "until", "limit", "cursor")
	f := tables.DeliveryFilter{Queue: q.Queue(), WebhookID: q.Text("webhook"), State: web.OneOf(q, "state", tables.States())}
	f.From, f.Until = q.Span()
	page := q.Page()
	if err := q.Err(); err != nil {
		return err
	}
	ds, next, err := tables.ListDeliveries(r.Context(), a.History, a.Deliveries, f, page)
	if err != nil {
		return web.ListFault("list the messages", err)
	}
	dead, now := a.lettersBeingMade(r.Context(), ds), time.Now()
	views := make([]messageRowView, len(ds))
	for i, d := range ds {
		views[i] = messageRowView{
			MessageID: d.MessageID, Queue: d.Queue, nextView: newNextView(d, dead, now), LastStatus: d.LastStatus, LastErrorClass: d.LastErrorClass,
			Size: d.Size, InsertedAt: web.UTC(d.Day), UpdatedAt: web.UTC(d.UpdatedAt), ExpiresAt: web.UTC(d.ExpiresAt),
		}
		a.tellWhatKeeps(&views[i].nextView)
	}
	return web.WriteJSON(w, http.StatusOK, messageList{web.NewList(views, next), next != "" && len(views) < page.Limit})
}
