package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/pushlease/pushlease/functions/hosttest"
	"github.com/pushlease/pushlease/queue"
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
		from := queueName("gone")
		h := p.register(from, gone.url, nil)
		p.publish(from, `{"n":1}`)
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

// C48: what happens is told under a host too: on the queue of events, by the process that the host started.
func TestUnderAHostWhatHappensIsTold(t *testing.T) {
	t.Parallel()
	name, told := queueName("gone"), queueName("told")
	root := packaged(t, name)
	quickly(t, root, nil)
	h := startHosted(t, root, hosttest.Options{}, "PUSHLEASE_EVENTS_QUEUE="+told)
	gone := newInbox(t, receiverOptions{Answer: reply{Status: http.StatusGone}})
	hook := h.process.register(name, gone.url, nil)
	if _, err := accountQueue(t, name).Send(t.Context(), []byte(`{"n":1}`), queue.SendOptions{}); err != nil {
		t.Fatal(err)
	}
	events := accountQueue(t, told)
	seen := map[string]bool{}
	waitUntil(t, 60*time.Second, func() string {
		messages, err := events.Receive(t.Context(), 32, time.Minute)
		if err != nil && !errors.Is(err, queue.ErrQueueNotFound) {
			t.Fatal(err)
		}
		for _, m := range messages {
			var e struct {
				Type string
				Data struct {
					WebhookID string `json:"webhook_id"`
				}
			}
			if err := json.Unmarshal(m.Text, &e); err != nil || e.Data.WebhookID != hook.ID {
				t.Fatalf("told %s, %v", m.Text, err)
			}
			seen[e.Type] = true
		}
		if !seen["pushlease.webhook.disabled"] { // the dead letter is told after a minute
			return fmt.Sprintf("told so far: %v", seen)
		}
		return ""
	})
}
