package api

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/pushlease/pushlease/tables"
)

// A queue that is made stays, and is counted with each look at the queues.
func TestAKeyThatMayOnlyPublishMakesNoQueues(t *testing.T) {
	h := newHarness(t, withKeys)
	as := func(key string) []string { return []string{"Authorization", "Bearer " + key} }
	publish := func(want int, key, queueName string) answer {
		t.Helper()
		return h.do(want, "POST", "/api/v1/queues/"+queueName+"/messages", "hello", as(key)...)
	}
	h.do(http.StatusCreated, "POST", "/api/v1/webhooks", `{"queue":"orders","url":"https://example.com/hook"}`, as("admin")...)
	publish(http.StatusAccepted, "publish", "orders") // has a webhook, and is made
	a := publish(http.StatusNotFound, "publish", "order")
	a.wantProblem("queue")
	if !strings.Contains(a.text("detail"), "Did you mean the queue orders?") {
		t.Errorf("%s", a.body)
	}
	if names, err := h.db.Queues().List(t.Context()); err != nil || !slices.Equal(names, []string{"orders"}) {
		t.Errorf("queues %v, %v", names, err)
	}
	publish(http.StatusAccepted, "admin", "order")
	publish(http.StatusAccepted, "publish", "order") // is there, without a webhook
}

func TestAPublishIsNotRefusedForAFaultOfStorage(t *testing.T) {
	h := newHarness(t, withKeys, func(o *Options) { o.Webhooks = unreadableWebhooks{o.Webhooks} })
	h.do(http.StatusAccepted, "POST", publishTarget, "hello", "Authorization", "Bearer publish")
}

// Whoever publishes to the queue of events speaks as pushlease to who is on call.
func TestOnlyAnAdminPublishesToTheQueueOfEvents(t *testing.T) {
	h := newHarness(t, withKeys, func(o *Options) { o.EventsQueue = "ops-events" })
	h.do(http.StatusCreated, "POST", "/api/v1/webhooks", `{"queue":"ops-events","url":"https://example.com/hook"}`, "Authorization", "Bearer admin")
	for _, kind := range []string{"application/json", "application/cloudevents-batch+json"} {
		h.do(http.StatusForbidden, "POST", "/api/v1/queues/ops-events/messages", "[]", "Authorization", "Bearer publish", "Content-Type", kind).wantProblem("queue")
	}
	h.do(http.StatusAccepted, "POST", "/api/v1/queues/ops-events/messages", "[]", "Authorization", "Bearer admin")
}

func TestWithoutKeysAPublishMakesItsQueue(t *testing.T) {
	newHarness(t).do(http.StatusAccepted, "POST", publishTarget, "hello")
}

// unreadableWebhooks can't be listed.
type unreadableWebhooks struct{ tables.Webhooks }

func (unreadableWebhooks) ListWebhooks(context.Context) ([]tables.Registration, []tables.RowError, error) {
	return nil, nil, errors.New("storage is away")
}
