package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"
)

// C48: a webhook that answers 410 is told once, with the reason; the receiver of the events
// refuses one, and that makes no other.
func TestWhatHappensIsToldOnTheQueueOfEvents(t *testing.T) {
	onStores(t, func(t *testing.T, s *store) {
		told := queueName("told")
		p := s.start(t, "PUSHLEASE_EVENTS_QUEUE="+told)
		ops := newInbox(t, receiverOptions{FailFirst: 1, Failure: reply{Status: http.StatusInternalServerError}})
		gone := newInbox(t, receiverOptions{Answer: reply{Status: http.StatusGone}})
		p.register(told, ops.url, map[string]any{"policy": map[string]any{"preset": "realtime"}})
		queue := queueName("gone")
		h := p.register(queue, gone.url, nil)
		p.publish(queue, `{"n":1}`)
		// Each is refused once and repeated; the dead letter is told after a minute.
		waitUntil(t, 100*time.Second, func() string {
			seen := map[string]int{}
			for _, m := range ops.all() {
				var e struct {
					Type string
					Data struct {
						WebhookID string `json:"webhook_id"`
						Reason    string
						Count     int
					}
				}
				if err := json.Unmarshal(m.Body, &e); err != nil || e.Data.WebhookID != h.ID || e.Data.Count != 1 {
					t.Fatalf("told %s, %v", m.Body, err)
				}
				seen[e.Type+" "+e.Data.Reason]++
			}
			if seen["pushlease.webhook.disabled gone"] != 2 || seen["pushlease.dead_letter WebhookGone"] != 2 || len(seen) != 2 {
				return fmt.Sprintf("told so far: %v", seen)
			}
			return ""
		})
		p.waitEmpty(10*time.Second, told)
	})
}
