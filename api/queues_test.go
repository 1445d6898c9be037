package api

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/queue"
)

func TestQueuesShowDepthPollerAndWebhooks(t *testing.T) {
	h := newHarness(t)
	h.view.queues["orders"] = QueueState{Polling: true, InFlight: 3, Lease: 90 * time.Second, LastPollAt: time.Now(), LastError: "storage is busy", LastErrorAt: time.Now(), Webhooks: 1}
	id := h.register(hook).text("id")
	h.register(`{"queue":"unborn","url":"https://example.com/","enabled":false}`)
	h.do(http.StatusAccepted, "POST", publishTarget, "x")
	h.do(http.StatusAccepted, "POST", publishTarget+"?delay=1h", "x")
	h.do(http.StatusAccepted, "POST", "/api/v1/queues/alone/messages", "x")

	a := h.do(http.StatusOK, "GET", "/api/v1/queues/orders", "")
	if a.get("depth", "total") != 2.0 || a.get("depth", "visible") != 1.0 || a.text("lease") != "1m30s" || a.text("encoding") != "auto" ||
		a.get("poller", "in_flight") != 3.0 || a.text("poller", "last_error") != "storage is busy" || a.text("webhooks", 0, "id") != id {
		t.Errorf("orders: %s", a.body)
	}
	list := h.do(http.StatusOK, "GET", "/api/v1/queues", "")
	for i, want := range []string{"alone", "orders", "unborn"} {
		if got := list.text("data", i, "name"); got != want {
			t.Errorf("queue %d is %s, want %s", i, got, want)
		}
	}
	if list.get("data", 2, "exists") != false || list.get("data", 2, "depth") != nil || list.get("data", 0, "poller") != nil || list.get("next_cursor") != nil {
		t.Errorf("list: %s", list.body)
	}
	page := h.do(http.StatusOK, "GET", "/api/v1/queues?limit=2", "")
	rest := h.do(http.StatusOK, "GET", "/api/v1/queues?limit=2&cursor="+page.text("next_cursor"), "")
	if rest.text("data", 0, "name") != "unborn" || rest.get("next_cursor") != nil {
		t.Errorf("second page: %s", rest.body)
	}
	h.do(http.StatusNotFound, "GET", "/api/v1/queues/nobody", "")
	h.do(http.StatusBadRequest, "GET", "/api/v1/queues?cursor=!!", "").wantProblem("cursor")
}

// uncountable is a store that can't count one of its queues.
type uncountable struct {
	queue.Service
	name string
}

func (s uncountable) Queue(name string) (queue.Queue, error) {
	q, err := s.Service.Queue(name)
	if strings.HasPrefix(name, s.name) {
		return uncounted{q}, err
	}
	return q, err
}

type uncounted struct{ queue.Queue }

func (uncounted) Depth(context.Context) (queue.Depth, error) { return queue.Depth{}, queue.ErrBusy }

func TestOneQueueThatCanNotBeCountedDoesNotHideTheOthers(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Queues = uncountable{o.Queues, "orders"} })
	h.do(http.StatusAccepted, "POST", publishTarget, "x")
	h.do(http.StatusAccepted, "POST", "/api/v1/queues/alone/messages", "x")
	a := h.do(http.StatusOK, "GET", "/api/v1/queues", "")
	if a.get("data", 0, "depth", "total") != 1.0 || a.get("data", 1, "exists") != true || a.get("data", 1, "depth") != nil {
		t.Errorf("list: %s", a.body)
	}
	h.do(http.StatusServiceUnavailable, "GET", "/api/v1/queues/orders", "")

	down := newHarness(t, func(o *Options) { o.Queues = uncountable{o.Queues, ""} })
	down.do(http.StatusAccepted, "POST", publishTarget, "x")
	down.do(http.StatusServiceUnavailable, "GET", "/api/v1/queues", "")
}
