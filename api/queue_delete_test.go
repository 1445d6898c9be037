package api

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
)

// C71: what a typo has made can be removed.
func TestAQueueIsDeletedWhenNothingNeedsIt(t *testing.T) {
	h := newHarness(t)
	h.do(http.StatusAccepted, "POST", "/api/v1/queues/ordrs/messages", "x")
	refused := h.do(http.StatusConflict, "DELETE", "/api/v1/queues/ordrs", "")
	if refused.text("type") != "urn:pushlease:problem:queue-in-use" || !strings.Contains(refused.text("detail"), "messages: 1") {
		t.Errorf("with a message: %s", refused.body)
	}
	refused.wantProblem("messages")
	deleted := h.do(http.StatusOK, "DELETE", "/api/v1/queues/ordrs?force=true", "")
	if deleted.text("queue") != "ordrs" || deleted.get("messages") != 1.0 || deleted.get("exact") != true || deleted.get("dead_letters") != 0.0 {
		t.Errorf("deleted: %s", deleted.body)
	}
	h.do(http.StatusNotFound, "GET", "/api/v1/queues/ordrs", "")
	h.do(http.StatusNotFound, "DELETE", "/api/v1/queues/ordrs", "").wantProblem("queue")
	h.do(http.StatusBadRequest, "DELETE", "/api/v1/queues/Ordrs", "")

	h.do(http.StatusAccepted, "POST", "/api/v1/queues/ordrs/messages", "new")
	if m := h.receive("ordrs"); string(m.Text) != "new" {
		t.Errorf("the queue that was made anew has %q", m.Text)
	}
}

func TestAQueueWithWebhooksIsNotDeleted(t *testing.T) {
	h := newHarness(t)
	id := h.register(hook).text("id")
	h.do(http.StatusAccepted, "POST", publishTarget, "x")
	refused := h.do(http.StatusConflict, "DELETE", "/api/v1/queues/orders?force=true", "")
	refused.wantProblem("webhooks")
	if !strings.Contains(string(refused.body), id) {
		t.Errorf("does not name %s: %s", id, refused.body)
	}
	h.do(http.StatusNoContent, "DELETE", "/api/v1/webhooks/"+id, "")
	h.putDeadLetter(dead("m1", "", "payload"))
	if deleted := h.do(http.StatusOK, "DELETE", "/api/v1/queues/orders?force=true", ""); deleted.get("dead_letters") != 1.0 {
		t.Errorf("does not tell of the dead letter that stays: %s", deleted.body)
	}
}

func TestTheTimelineOfAMessageWhoseQueueWasDeletedSaysSo(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := newHarness(t)
		id := h.do(http.StatusAccepted, "POST", "/api/v1/queues/ordrs/messages", "x").text("message_id")
		h.do(http.StatusOK, "DELETE", "/api/v1/queues/ordrs?force=true", "")
		time.Sleep(quietFor + time.Second)
		a := h.do(http.StatusOK, "GET", "/api/v1/messages/"+id, "")
		if !strings.Contains(a.text("next", 0, "text"), "its queue is gone: somebody deleted it") {
			t.Errorf("next: %s", a.text("next", 0, "text"))
		}
	})
}
