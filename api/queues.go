package api

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// queueView is one queue as it is shown.
type queueView struct {
	Name string `json:"name"`
	// Exists is false for a queue that has webhooks but no message yet: it is
	// made by the first message.
	Exists bool `json:"exists"`
	// Depth is null where there is no queue to count, or storage did not count.
	Depth    *depthView      `json:"depth"`
	Encoding queue.Encoding  `json:"encoding"`
	Lease    policy.Duration `json:"lease,omitzero"`
	// Expired counts the messages that expired before they were settled, as this process knows since its start.
	Expired int `json:"expired"`
	// DeadLetters is null where they have not been counted lately.
	DeadLetters *backlogView `json:"dead_letters"`
	*processView
	// Poller is null for a queue that the dispatcher does not know.
	Poller *pollerView `json:"poller"`
	// Held is null but for a queue whose last webhook was deleted while messages were
	// on it.
	Held     *heldView      `json:"held"`
	Webhooks []queueWebhook `json:"webhooks"`
}

// depthView keeps apart what waits for a worker, what is being worked on, and what
// nobody can work on yet: an autoscaler that takes them for one kills what is at work,
// or starts what has nothing to do.
type depthView struct {
	Total   int64 `json:"total"`
	Visible int64 `json:"visible"`
	// InFlight is what the process that answers is at work on.
	InFlight int64 `json:"in_flight"`
	// Delayed is the rest: what waits for its time, or other processes are at work on.
	Delayed int64 `json:"delayed"`
	// Work is Visible + InFlight, the figure to scale by.
	Work  int64 `json:"work"`
	Exact bool  `json:"exact"`
}

func newDepthView(d queue.Depth, s status.Queue) *depthView {
	inFlight, visible := int64(s.InFlight), visibleOf(d, s)
	return &depthView{
		Total: d.Total, Visible: visible, InFlight: inFlight, Delayed: max(d.Total-visible-inFlight, 0),
		Work: visible + inFlight, Exact: d.Exact,
	}
}

// visibleOf is how many messages wait for a receive. Where storage counts no further than one receive takes, all that this
// process is not at work on may wait: autoscalers count so too, and the bound itself would hide how much it is.
func visibleOf(d queue.Depth, s status.Queue) int64 {
	if d.Exact || d.Visible < queue.MaxReceive {
		return d.Visible
	}
	return max(d.Total-int64(s.InFlight), d.Visible)
}

type pollerView struct {
	Polling bool `json:"polling"`
	// Hosted: the Functions host calls for its messages, by a trigger or for the pump.
	Hosted      bool      `json:"hosted"`
	InFlight    int       `json:"in_flight"`
	Webhooks    int       `json:"webhooks"`
	LastPollAt  time.Time `json:"last_poll_at,omitzero"`
	LastError   string    `json:"last_error,omitempty"`
	LastErrorAt time.Time `json:"last_error_at,omitzero"`
	// GoneAt is about when somebody deleted the queue.
	GoneAt time.Time `json:"gone_at,omitzero"`
	// GoneText says it in a sentence, with how many of its messages waited for another attempt.
	GoneText string `json:"gone_text,omitempty"`
}

// heldView says why and since when messages of a queue are held for want of a webhook.
type heldView struct {
	Reason policy.Reason `json:"reason"`
	Since  time.Time     `json:"since"`
}

type queueWebhook struct {
	ID      string `json:"id"`
	Name    string `json:"name,omitempty"`
	Enabled bool   `json:"enabled"`
}

// listQueues lists the queues of the store and those that webhooks name.
func (a *API) listQueues(w http.ResponseWriter, r *http.Request) error {
	q := web.ReadQuery(r, "contains", "trouble", "limit", "cursor")
	page, find := q.Page(), readFinding(q)
	if err := q.Err(); err != nil {
		return err
	}
	stored, err := a.Queues.List(r.Context())
	if err != nil {
		return web.StorageFault("list the queues", err)
	}
	registered, err := a.webhooksByQueue(r.Context())
	if err != nil {
		return err
	}
	names := slices.Clone(stored)
	for name := range registered {
		names = append(names, name)
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		return !find.takes(name) || find.trouble && !a.isQueueTroubled(name, len(registered[name]))
	})
	slices.Sort(names)
	names, next, err := web.PageByName("queues", slices.Compact(names), func(s string) string { return s }, page)
	if err != nil {
		return err
	}
	views, err := a.queueViews(r.Context(), names, registered)
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, web.NewList(views, next))
}

func (a *API) getQueue(w http.ResponseWriter, r *http.Request) error {
	name, err := web.QueueParam(r)
	if err != nil {
		return err
	}
	if err := web.ReadQuery(r).Err(); err != nil {
		return err
	}
	registered, err := a.webhooksByQueue(r.Context())
	if err != nil {
		return err
	}
	view, err := a.queueView(r.Context(), name, registered[name])
	if err != nil {
		return err
	}
	if !view.Exists && len(view.Webhooks) == 0 {
		return web.Missing("There is no queue of that name and no webhook for it.", "queue", "take a name from GET /api/v1/queues, or publish a message to it: the first one makes the queue")
	}
	if s, ok := a.Dispatcher.Queue(name); ok {
		view.processView = newProcessView(s)
	}
	return web.WriteJSON(w, http.StatusOK, view)
}

// depthsAtOnce bounds how many queues one request counts at the same time.
const depthsAtOnce = 8

func (a *API) queueViews(ctx context.Context, names []string, registered map[string][]queueWebhook) ([]queueView, error) {
	views, errs := make([]queueView, len(names)), make([]error, len(names))
	slots := make(chan struct{}, depthsAtOnce)
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if views[i], errs[i] = a.queueView(ctx, name, registered[name]); views[i].Depth != nil {
				errs[i] = nil // what else is not known is null
			}
		})
	}
	wg.Wait()
	// One queue that is being deleted must not hide the others; a store that
	// counts none of them is down.
	if i := slices.IndexFunc(errs, func(err error) bool { return err == nil }); i < 0 && len(errs) > 0 {
		return nil, errs[0]
	}
	return views, nil
}

// queueView describes a queue as far as it can: the view is good but for its depth
// or its dead letters when there is an error.
func (a *API) queueView(ctx context.Context, name string, webhooks []queueWebhook) (queueView, error) {
	view := queueView{Name: name, Encoding: a.Encoding(name), Webhooks: web.OrEmpty(webhooks)}
	s, ok := a.Dispatcher.Queue(name)
	view.Expired = s.Expired
	counted, uncounted := a.waiting(ctx, name)
	if uncounted == nil {
		view.DeadLetters = newBacklogView(counted, s)
	}
	if ok {
		view.Lease = policy.Duration(s.Lease)
		view.Poller = &pollerView{
			Polling: s.Polling, Hosted: a.Hosted && !s.Polling && s.Webhooks > 0, InFlight: s.InFlight, Webhooks: s.Webhooks, LastPollAt: web.UTC(s.LastPollAt),
			LastError: s.LastError, LastErrorAt: web.UTC(s.LastErrorAt), GoneAt: web.UTC(s.GoneAt), GoneText: s.GoneText,
		}
	}
	if !s.LeftAt.IsZero() {
		view.Held = &heldView{policy.WebhookDeleted, web.UTC(s.LeftAt)}
	}
	depth, err := a.depth(ctx, name)
	switch {
	case errors.Is(err, queue.ErrQueueNotFound):
		return view, uncounted
	case err != nil:
		view.Exists = true
		return view, web.StorageFault("count the messages of a queue", err)
	}
	view.Exists, view.Depth = true, newDepthView(depth, s)
	return view, uncounted
}

// depth counts a queue. Its name may come from the store, which can hold queues
// that ValidateName refuses ($logs and its like).
func (a *API) depth(ctx context.Context, name string) (queue.Depth, error) {
	q, err := a.Queues.Queue(name)
	if err != nil {
		return queue.Depth{}, queue.ErrQueueNotFound
	}
	return q.Depth(ctx)
}

func (a *API) webhooksByQueue(ctx context.Context) (map[string][]queueWebhook, error) {
	all, _, err := a.Webhooks.ListWebhooks(ctx)
	if err != nil {
		return nil, web.StorageFault("read the webhooks", err)
	}
	byQueue := map[string][]queueWebhook{}
	for _, reg := range all {
		byQueue[reg.Queue] = append(byQueue[reg.Queue], shortView(reg))
	}
	return byQueue, nil
}

func shortView(reg tables.Registration) queueWebhook {
	return queueWebhook{ID: reg.ID, Name: reg.Name, Enabled: reg.Enabled}
}
