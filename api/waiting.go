package api

import (
	"errors"
	"net/http"
	"time"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// waitingView is a message that waits on its queue.
type waitingView struct {
	MessageID  string    `json:"message_id"`
	Queue      string    `json:"queue"`
	Size       int       `json:"size"`
	InsertedAt time.Time `json:"inserted_at"`
	ExpiresAt  time.Time `json:"expires_at,omitzero"`
	Body       *bodyView `json:"body,omitempty"`
}

// listWaiting looks at the messages at the front of a queue, and takes none. Bodies only to a key that may
// operate, and only when asked.
func (a *API) listWaiting(w http.ResponseWriter, r *http.Request) error {
	name, err := web.QueueParam(r)
	if err != nil {
		return err
	}
	params := web.ReadQuery(r, "body")
	withBody := params.Bool("body")
	if err := params.Err(); err != nil {
		return err
	}
	if withBody {
		if err := a.authorize(r, ScopeOperate); err != nil {
			return err
		}
	}
	q, err := a.Queues.Queue(name)
	if err != nil {
		return web.StorageFault("open the queue", err)
	}
	peeked, err := q.Peek(r.Context(), queue.MaxReceive)
	if err != nil && !errors.Is(err, queue.ErrQueueNotFound) { // the first message makes it
		return web.StorageFault("look at the queue", err)
	}
	views := make([]waitingView, len(peeked))
	for i, p := range peeked {
		body := a.readBody(tables.DeadLetter{MessageKey: tables.MessageKey{Queue: name, MessageID: p.ID}, Text: p.Text, Encoding: string(a.Encoding(name))})
		views[i] = waitingView{MessageID: p.ID, Queue: name, Size: len(body.Base64), InsertedAt: web.UTC(p.InsertedAt), ExpiresAt: web.UTC(p.ExpiresAt)}
		if withBody {
			views[i].Body = body
		}
	}
	return web.WriteJSON(w, http.StatusOK, web.NewList(views, ""))
}
