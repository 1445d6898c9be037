package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/queue"
)

// publish publishes to a queue that the caller's key may publish to.
func (a *API) publish(w http.ResponseWriter, r *http.Request) error {
	if name, bad := web.QueueParam(r); bad == nil {
		if err := a.mayPublish(r, name); err != nil {
			return err
		}
	}
	return a.publisher.Publish(w, r)
}

// mayPublish refuses a key that may only publish what is not for it: to make queues, which stay and cost
// something, and to tell as pushlease does what happened.
func (a *API) mayPublish(r *http.Request, name string) error {
	switch {
	case name == a.EventsQueue && !a.may(r, ScopeAdmin):
		return web.NewProblem(web.ScopeMissing,
			"The queue "+name+" is the one on which pushlease tells what happens (events_queue). Publishing to it needs the scope admin.",
			web.Wrong("queue", "is the setting events_queue", "publish to another queue, or use a key that may admin"))
	case a.may(r, ScopeOperate) || a.isThere(r.Context(), name):
		return nil
	}
	known, _ := a.queuesWithWebhooks(r.Context()) // only for a hint
	return web.Missing("There is no queue "+name+", and this key may not make one: nothing was published."+didYouMean(name, known),
		"queue", fmt.Sprintf("correct the name, register a webhook on the queue first, or publish to it once with a key that may %s", ScopeOperate))
}

// isThere reports whether a queue has a webhook, or exists, as far as storage can be asked: what it
// does not answer now it answers to the publish. Most queues have webhooks, which costs nothing to know.
func (a *API) isThere(ctx context.Context, name string) bool {
	if s, ok := a.Dispatcher.Queue(name); ok && s.Webhooks > 0 {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, warningTimeout)
	defer cancel()
	if hooked, err := a.queuesWithWebhooks(ctx); err != nil || slices.Contains(hooked, name) {
		return true
	}
	q, err := a.Queues.Queue(name)
	if err != nil {
		return true
	}
	_, err = q.Depth(ctx)
	return !errors.Is(err, queue.ErrQueueNotFound)
}
