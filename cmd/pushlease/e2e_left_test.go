package main

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

// C13: what waits for a webhook that is deleted is held, message by message, with the
// reason; nothing is sent or deleted; and a new webhook gets it.
func TestMessagesOfADeletedWebhookAreHeldUntilAnotherOneTakesThem(t *testing.T) {
	onStores(t, func(t *testing.T, s *store) {
		p, other := s.start(t), s.start(t)
		in := newInbox(t, receiverOptions{})
		queue := queueName("left")
		h := p.register(queue, in.url, map[string]any{"enabled": false})
		var ids []string
		for i := range 10 {
			ids = append(ids, p.publish(queue, fmt.Sprintf(`{"n":%d}`, i)))
		}
		waitUntil(t, 60*time.Second, func() string { // otherwise it may hear of the deletion only 10 minutes later
			var q struct{ Poller *struct{} }
			other.call(http.MethodGet, "/api/v1/queues/"+queue, "", http.StatusOK, &q)
			if q.Poller == nil {
				return "the other process does not know the webhook"
			}
			return ""
		})
		p.call(http.MethodDelete, "/api/v1/webhooks/"+h.ID, "", http.StatusNoContent, nil)
		for _, id := range ids {
			if state := other.waitState(60*time.Second, queue, id, "", "held"); state.Reason != "WebhookDeleted" {
				t.Errorf("held because of %s", state.Reason)
			}
		}
		for _, each := range []*process{p, other} {
			waitUntil(t, 60*time.Second, func() string {
				var q struct {
					Held  *struct{ Reason string }
					Depth struct{ Total int }
				}
				each.call(http.MethodGet, "/api/v1/queues/"+queue, "", http.StatusOK, &q)
				if q.Held == nil || q.Held.Reason != "WebhookDeleted" || q.Depth.Total != len(ids) {
					return fmt.Sprintf("the queue is shown as %+v", q)
				}
				return ""
			})
		}
		if n := len(in.all()); n != 0 {
			t.Errorf("%d POSTs, want none", n)
		}
		next := p.register(queue, in.url, nil)
		in.wait(t, len(ids))
		for _, id := range ids {
			p.waitState(20*time.Second, queue, id, next.ID, "delivered")
		}
		p.waitEmpty(10*time.Second, queue)
	})
}
