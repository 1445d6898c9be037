package api

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/queue"
)

// What waits can be looked at, and nothing is changed by that.
func TestMessagesThatWaitAreLookedAt(t *testing.T) {
	h := newHarness(t, withKeys)
	as := func(key string) []string { return []string{"Authorization", "Bearer " + key} }
	if a := h.do(http.StatusOK, "GET", publishTarget, "", as("read")...); len(a.get("data").([]any)) != 0 {
		t.Errorf("a queue that nobody has made: %s", a.body)
	}
	h.do(http.StatusAccepted, "POST", publishTarget, `{"order":1}`, as("admin")...)
	h.do(http.StatusAccepted, "POST", publishTarget, "\xff", as("admin")...)
	h.do(http.StatusAccepted, "POST", publishTarget+"?delay=1h", "delayed", as("admin")...)
	for range 2 {
		a := h.do(http.StatusOK, "GET", publishTarget, "", as("read")...)
		if len(a.get("data").([]any)) != 2 || a.get("data", 0, "size") != 11.0 || a.get("data", 1, "size") != 1.0 || a.text("data", 0, "message_id") == "" || a.text("data", 0, "inserted_at") == "" {
			t.Errorf("%s", a.body)
		}
		if strings.Contains(string(a.body), "order\\\"") || strings.Contains(string(a.body), "base64") {
			t.Errorf("who may only read sees a body: %s", a.body)
		}
	}
	a := h.do(http.StatusOK, "GET", publishTarget+"?body=true", "", as("operate")...)
	if a.text("data", 0, "body", "text") != `{"order":1}` || a.get("data", 1, "body", "text") != nil || a.text("data", 1, "body", "base64") != "/w==" {
		t.Errorf("%s", a.body)
	}
	h.do(http.StatusForbidden, "GET", publishTarget+"?body=true", "", as("read")...)
	h.do(http.StatusBadRequest, "GET", "/api/v1/queues/Orders/messages", "", as("read")...)
	q, err := h.db.Queues().Queue("orders")
	if err != nil {
		t.Fatal(err)
	}
	got, err := q.Receive(t.Context(), queue.MaxReceive, time.Minute)
	if err != nil || len(got) != 2 || got[0].DequeueCount != 1 {
		t.Errorf("%d messages, %v: want both, as nobody has received them", len(got), err)
	}
}
