package api

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// deletedQueueView is what went with a queue and what stays.
type deletedQueueView struct {
	Queue string `json:"queue"`
	// Messages were on the queue just before.
	Messages int64 `json:"messages"`
	Exact    bool  `json:"exact"`
	// DeadLetters wait still; null where they could not be counted.
	DeadLetters *int `json:"dead_letters"`
}

// deleteQueue removes a queue that has no webhooks, and with force the messages on it.
func (a *API) deleteQueue(w http.ResponseWriter, r *http.Request) error {
	name, err := web.QueueParam(r)
	if err != nil {
		return err
	}
	q := web.ReadQuery(r, "force")
	force := q.Bool("force")
	if err := errors.Join(q.Err(), web.NoBody(w, r)); err != nil {
		return err
	}
	if err := a.withoutWebhooks(r, name); err != nil {
		return err
	}
	depth, err := a.depth(r.Context(), name)
	if err == nil {
		err = a.Queues.Delete(r.Context(), name, !force)
	}
	switch {
	case errors.Is(err, queue.ErrQueueNotFound):
		return web.Missing("There is no queue of that name.", "queue", "take a name from GET /api/v1/queues")
	case errors.Is(err, queue.ErrNotEmpty):
		return web.NewProblem(web.QueueInUse, fmt.Sprintf("The queue has messages: %s.", estimate(depth)),
			web.Wrong("messages", "are on the queue, and nobody would get them", "wait until they are delivered, or add ?force=true to delete them with the queue"))
	case err != nil:
		return web.StorageFault("delete the queue", err)
	}
	a.Logger.Info("queue deleted", "queue", name, "messages", depth.Total, "force", force, "api_key", web.NoteOf(r).Key)
	a.audit(r, tables.Audit{Action: tables.QueueDeleted, Queue: name, Count: depth.Total})
	view := deletedQueueView{Queue: name, Messages: depth.Total, Exact: depth.Exact}
	if waiting, err := a.countWaiting(r.Context(), name); err == nil {
		view.DeadLetters = &waiting.n
	}
	return web.WriteJSON(w, http.StatusOK, view)
}

// estimate says how many messages there are, as far as storage says.
func estimate(d queue.Depth) string {
	switch {
	case d.Exact:
		return fmt.Sprint(d.Total)
	case d.Total == 0: // they came after the count
		return "some"
	}
	return fmt.Sprintf("about %d", d.Total)
}

// withoutWebhooks refuses where webhooks are registered for the queue, also those whose row
// can't be read.
func (a *API) withoutWebhooks(r *http.Request, name string) error {
	all, bad, err := a.Webhooks.ListWebhooks(r.Context())
	if err != nil {
		return web.StorageFault("read the webhooks", err)
	}
	var ids []string
	for _, reg := range all {
		if reg.Queue == name {
			ids = append(ids, reg.ID)
		}
	}
	for _, row := range bad {
		if row.Queue == name {
			ids = append(ids, row.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	return web.NewProblem(web.QueueInUse, "The queue has webhooks.",
		web.Wrong("webhooks", "are registered for the queue: "+strings.Join(ids[:min(len(ids), 10)], ", "), "delete them first"))
}
