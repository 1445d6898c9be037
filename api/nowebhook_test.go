package api

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/tables"
)

func TestAMessageOnAQueueWithoutAWebhookSaysThatNothingReceivesIt(t *testing.T) {
	h := newHarness(t)
	h.register(hook)
	next := func(queue string) string {
		id := h.do(http.StatusAccepted, "POST", "/api/v1/queues/"+queue+"/messages", "{}").text("message_id")
		return string(h.do(http.StatusOK, "GET", "/api/v1/messages/"+id+"?queue="+queue, "").body)
	}
	if got := next("ordrs"); !strings.Contains(got, "nothing receives it: the queue ordrs has no webhook") || !strings.Contains(got, "Did you mean the queue orders?") || strings.Contains(got, "free slot") {
		t.Errorf("a name like another: %s", got)
	}
	if got := next("invoices"); !strings.Contains(got, "has no webhook") || strings.Contains(got, "Did you mean") {
		t.Errorf("a name like no other: %s", got)
	}
	if got := next("orders"); strings.Contains(got, "has no webhook") || !strings.Contains(got, "free slot") {
		t.Errorf("a queue with a webhook: %s", got)
	}
}

func TestAPublishToAQueueWithoutAWebhookSaysSo(t *testing.T) {
	h := newHarness(t)
	h.register(hook)
	const event = `{"specversion":"1.0","id":"1","source":"/a","type":"a"}`
	for name, publish := range map[string]func(queue string) answer{
		"plain": func(queue string) answer {
			return h.do(http.StatusAccepted, "POST", "/api/v1/queues/"+queue+"/messages", "{}")
		},
		"with a key, again": func(queue string) answer {
			h.do(http.StatusAccepted, "POST", "/api/v1/queues/"+queue+"/messages", "{}", web.IdempotencyHeader, "k")
			return h.do(http.StatusAccepted, "POST", "/api/v1/queues/"+queue+"/messages", "{}", web.IdempotencyHeader, "k")
		},
		"a batch": func(queue string) answer {
			return h.do(http.StatusAccepted, "POST", "/api/v1/queues/"+queue+"/messages", "["+event+"]", "Content-Type", "application/cloudevents-batch+json")
		},
	} {
		if got := publish("ordrs").text("warnings", 0); !strings.Contains(got, "ordrs has no webhook") || !strings.Contains(got, "Did you mean the queue orders?") {
			t.Errorf("%s: a name like another: %s", name, got)
		}
		if got := publish("invoices").text("warnings", 0); strings.Contains(got, "Did you mean") {
			t.Errorf("%s: a name like no other: %s", name, got)
		}
		if got := publish("orders").get("warnings"); got != nil {
			t.Errorf("%s: a queue with a webhook: %v", name, got)
		}
	}
	// What this process registered or deleted just now is known at once.
	id := h.register(`{"queue":"invoices","url":"https://example.com/i","enabled":false}`).text("id")
	if got := h.do(http.StatusAccepted, "POST", "/api/v1/queues/invoices/messages", "{}").get("warnings"); got != nil {
		t.Errorf("registered just now: %v", got)
	}
	h.do(http.StatusNoContent, "DELETE", "/api/v1/webhooks/"+id, "")
	if got := h.do(http.StatusAccepted, "POST", "/api/v1/queues/invoices/messages", "{}").text("warnings", 0); !strings.Contains(got, "no webhook") {
		t.Errorf("deleted just now: %v", got)
	}
}

// Many messages may go to a queue that another program reads: the store is asked once a
// second, and not at all where the dispatcher knows a webhook.
func TestWarningsOfPublishesCostAQueryASecond(t *testing.T) {
	var asked countedLists
	h := newHarness(t, func(o *Options) {
		asked.Webhooks = o.Webhooks
		o.Webhooks = &asked
	})
	h.view.queues["orders"] = status.Queue{Webhooks: 1}
	for range 20 {
		if a := h.do(http.StatusAccepted, "POST", publishTarget, "{}"); a.get("warnings") != nil {
			t.Fatalf("the dispatcher knows a webhook: %s", a.body)
		}
	}
	if n := asked.lists.Load(); n != 0 {
		t.Errorf("%d lists were read for a queue with a webhook", n)
	}
	begun := time.Now()
	for range 100 {
		h.do(http.StatusAccepted, "POST", "/api/v1/queues/invoices/messages", "{}")
	}
	if n, most := asked.lists.Load(), 2+int64(time.Since(begun)/registeredFresh); n < 1 || n > most {
		t.Errorf("%d lists were read in %v, want 1 to %d", n, time.Since(begun), most)
	}
}

// countedLists counts the lists of webhooks that are asked for.
type countedLists struct {
	tables.Webhooks
	lists atomic.Int64
}

func (c *countedLists) ListWebhooks(ctx context.Context) ([]tables.Registration, []tables.RowError, error) {
	c.lists.Add(1)
	return c.Webhooks.ListWebhooks(ctx)
}

// A late answer about webhooks holds up no publish.
func TestAPublishDoesNotWaitForAWarning(t *testing.T) {
	silent := silentLists{asked: make(chan time.Duration, 1)}
	h := newHarness(t, func(o *Options) {
		silent.Webhooks = o.Webhooks
		o.Webhooks = silent
	})
	a := h.do(http.StatusAccepted, "POST", "/api/v1/queues/invoices/messages", "{}")
	if patience := <-silent.asked; patience > warningTimeout {
		t.Errorf("the list of webhooks was waited for for up to %s", patience)
	}
	if a.get("warnings") != nil {
		t.Errorf("what is not known: %s", a.body)
	}
}

// silentLists never answers, and tells how long its caller would wait.
type silentLists struct {
	tables.Webhooks
	asked chan time.Duration
}

func (s silentLists) ListWebhooks(ctx context.Context) ([]tables.Registration, []tables.RowError, error) {
	until, _ := ctx.Deadline()
	s.asked <- time.Until(until)
	<-ctx.Done()
	return nil, nil, ctx.Err()
}
