package api

import (
	"net/http"
	"strings"
	"testing"
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
