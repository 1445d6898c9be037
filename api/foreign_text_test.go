package api

import (
	"net/http"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

// C32: what receivers, producers and those who register say is text, wherever it is
// shown. That every answer is JSON with nosniff is looked at by the harness.
func TestForeignTextIsEscapedEverywhere(t *testing.T) {
	const script, image = "</script><script>x</script>", `"><img onerror=x>`
	h := newHarness(t)
	id := h.register(`{"queue":"orders","url":"https://example.com/hook","name":"</script><script>x</script>","headers":{"X-A":"\"><img onerror=x>"}}`).text("id")
	key := tables.MessageKey{Queue: "orders", MessageID: "m-1", Day: testTime}
	h.record(tables.Record{
		Deliveries: []tables.Delivery{{MessageKey: key, WebhookID: id, State: tables.Pending, Attempts: 1, UpdatedAt: testTime, NextAt: testTime}},
		Attempts: []tables.Attempt{{
			MessageKey: key, WebhookID: id, Number: 1, StartedAt: testTime, Duration: time.Second, Status: 302, Snippet: script,
			RetryAfter: image, RedirectHost: image, Error: script, Action: policy.Abandon, Reason: policy.RetryableError, Explanation: script,
		}},
	})
	dead := h.putDeadLetter(tables.DeadLetter{
		MessageKey: tables.MessageKey{Queue: "orders", MessageID: script, Day: testTime}, WebhookID: id, Status: tables.Waiting,
		Reason: policy.NonRetryableError, Description: script, DeadLetteredAt: testTime, Text: []byte(script), Encoding: "none",
	})
	for _, path := range []string{
		"/api/v1/webhooks", "/api/v1/webhooks/" + id, "/api/v1/messages/m-1", "/api/v1/attempts", "/api/v1/queues/orders",
		"/api/v1/dead-letters", "/api/v1/dead-letters/" + dead.ID,
	} {
		a := h.do(http.StatusOK, "GET", path, "")
		for _, bad := range []string{"<", ">"} {
			a.wantNot(bad)
		}
	}
}
