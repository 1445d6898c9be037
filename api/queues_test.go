package api

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

func TestQueuesShowDepthPollerAndWebhooks(t *testing.T) {
	h := newHarness(t)
	h.view.queues["orders"] = status.Queue{Polling: true, InFlight: 3, Lease: 90 * time.Second, LastPollAt: time.Now(), LastError: "storage is busy", LastErrorAt: time.Now(), Webhooks: 1}
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

// C39: what is in work counts as work, what waits for its time does not.
func TestWorkIsToldApartFromWhatIsDelayed(t *testing.T) {
	h := newHarness(t)
	h.register(hook)
	depth := func(field string) any {
		return h.do(http.StatusOK, "GET", "/api/v1/queues/orders", "").get("depth", field)
	}
	h.do(http.StatusAccepted, "POST", publishTarget, "in work")
	q, err := h.db.Queues().Queue("orders")
	if err != nil {
		t.Fatal(err)
	}
	got, err := q.Receive(t.Context(), 1, 10*time.Minute)
	if err != nil || len(got) != 1 {
		t.Fatalf("%d messages, %v", len(got), err)
	}
	h.view.queues["orders"] = status.Queue{Polling: true, InFlight: 1, Webhooks: 1}
	for field, want := range map[string]float64{"total": 1, "visible": 0, "in_flight": 1, "delayed": 0, "work": 1} {
		if got := depth(field); got != want {
			t.Errorf("one in work: %s = %v, want %v", field, got, want)
		}
	}
	for range 100 {
		h.do(http.StatusAccepted, "POST", publishTarget+"?delay=1h", "x")
	}
	h.view.queues["orders"] = status.Queue{Polling: true, Webhooks: 1} // given back for later
	if err := q.Abandon(t.Context(), got[0], time.Hour); err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]float64{"total": 101, "visible": 0, "in_flight": 0, "delayed": 101, "work": 0} {
		if got := depth(field); got != want {
			t.Errorf("all delayed: %s = %v, want %v", field, got, want)
		}
	}
}

func TestQueueShowsLeaseRecommendationTimesAndDeletions(t *testing.T) { // R1, R2
	h := newHarness(t)
	h.register(hook)
	h.do(http.StatusAccepted, "POST", publishTarget, "x")
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	h.view.queues["orders"] = status.Queue{
		Polling: true, Webhooks: 1, Lease: 90 * time.Second,
		Recommended: policy.RecommendLease(policy.Estimate{Average: 45 * time.Second}, policy.Measured{}),
		Processing:  status.Processing{Samples: 7, P50: 45 * time.Second, P95: 72 * time.Second, P99: 81 * time.Second},
		Deletions: status.Deletions{Total: 200, Successful: 199, Failed: 1, Unverified: 1,
			LastFailures: []status.DeletionFailure{{MessageID: "m2", Error: "unverified", At: at}, {MessageID: "m1", Error: "busy", At: at}}},
	}
	a := h.do(http.StatusOK, "GET", "/api/v1/queues/orders", "")
	for _, tt := range []struct {
		want any
		path []any
	}{
		{"1m30s", []any{"lease"}}, {"auto", []any{"lease_mode"}},
		{"1m30s", []any{"recommendation", "lease"}}, {"45s", []any{"recommendation", "base"}},
		{0.0, []any{"recommendation", "samples"}}, {0.75, []any{"recommendation", "buffer"}}, {false, []any{"recommendation", "at_risk"}},
		{7.0, []any{"processing", "samples"}}, {"1m12s", []any{"processing", "p95"}},
		{0.5, []any{"utilisation", "p50"}}, {0.8, []any{"utilisation", "p95"}}, {0.9, []any{"utilisation", "p99"}},
		{200.0, []any{"deletions", "total"}}, {0.995, []any{"deletions", "success_rate"}}, {1.0, []any{"deletions", "unverified"}},
		{"busy", []any{"deletions", "last_failures", 1, "error"}}, {"2026-01-02T03:04:05Z", []any{"deletions", "last_failures", 0, "at"}},
	} {
		if got := a.get(tt.path...); got != tt.want {
			t.Errorf("%v = %v, want %v", tt.path, got, tt.want)
		}
	}
	if !strings.Contains(a.text("recommendation", "reasoning"), "45s") {
		t.Errorf("reasoning: %s", a.body)
	}
	h.view.queues["orders"] = status.Queue{Lease: 2 * time.Second, LeaseFixed: true}
	a = h.do(http.StatusOK, "GET", "/api/v1/queues/orders", "")
	if a.text("lease_mode") != "fixed" || a.get("deletions", "success_rate") != nil || a.get("processing", "samples") != 0.0 {
		t.Errorf("nothing measured: %s", a.body)
	}
	if list := h.do(http.StatusOK, "GET", "/api/v1/queues", ""); list.get("data", 0, "recommendation") != nil {
		t.Errorf("the list tells more than it should: %s", list.body)
	}
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

// Rows that somebody wrote by hand do not hide the others.
func TestQueuesWithInvalidNamesHideNoOthers(t *testing.T) {
	h := newHarness(t)
	h.register(`{"queue":"orders","url":"https://example.com/hook"}`)
	for i, name := range []string{"", "No Queue!", "../..", "$logs", "\x00", strings.Repeat("q", 5000)} {
		reg := tables.Registration{Webhook: webhook.Webhook{ID: fmt.Sprint("wh_bad", i), Queue: name, URL: ":", Timeout: -1}}
		if _, err := h.db.PutWebhook(h.Context(), reg); err != nil {
			t.Fatal(err)
		}
	}
	for _, target := range []string{"/api/v1/queues", "/api/v1/webhooks"} {
		if a := h.do(http.StatusOK, "GET", target, ""); len(a.get("data").([]any)) < 6 {
			t.Errorf("%s: %s", target, a.body)
		}
	}
	h.do(http.StatusOK, "GET", "/api/v1/webhooks/wh_bad1", "")
	h.do(http.StatusOK, "GET", "/api/v1/queues/orders", "")
}
