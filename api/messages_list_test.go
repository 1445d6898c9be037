package api

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

// Where messages stand is listed once for each webhook, by state, queue, webhook and time, page by page.
func TestMessagesAreListedAsTheyStand(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		time.Sleep(time.Hour) // they are listed by days, and its clock begins with one
		h := newHarness(t)
		now := time.Now().UTC().Truncate(time.Millisecond)
		for i, d := range []tables.Delivery{
			{WebhookID: "a", State: tables.Pending, Reason: policy.RetryableError, Attempts: 1, Charged: 1, LastStatus: 503, NextAt: now.Add(time.Hour)},
			{WebhookID: "a", State: tables.Held, Reason: policy.WebhookDisabled},
			{WebhookID: "b", State: tables.Pending, ExpiresAt: now.Add(-time.Hour)}, // its life is over
			{WebhookID: "b", State: tables.Delivered, Attempts: 1, Charged: 1, LastStatus: 200},
		} {
			d.MessageKey, d.UpdatedAt = tables.MessageKey{Queue: "orders", MessageID: fmt.Sprint("m-", i), Day: now.Add(-time.Duration(i) * time.Second)}, now
			if i == 3 {
				d.Queue = "bills"
			}
			h.record(tables.Record{Deliveries: []tables.Delivery{d}})
		}
		d := tables.Delivery{MessageKey: tables.MessageKey{Queue: "orders", MessageID: "m-0", Day: now}, WebhookID: "a", State: tables.DeadLettered, Reason: policy.NonRetryableError, Attempts: 2, Charged: 2, UpdatedAt: now}
		for query, want := range map[string]string{
			"?queue=orders":                   "m-2 lost, m-1 held, m-0 pending",
			"?webhook=b":                      "m-3 delivered, m-2 lost",
			"?state=held":                     "m-1 held",
			"?state=pending&limit=1":          "m-2 lost, m-0 pending",
			"?state=unmatched":                "",
			"?from=" + at(now.Add(time.Hour)): "",
			"?queue=bills&until=" + at(now.Add(time.Minute)): "m-3 delivered",
		} {
			got, cursor := "", ""
			for range 10 {
				a := h.do(http.StatusOK, "GET", "/api/v1/messages"+query+cursor, "")
				for i := range a.get("data").([]any) {
					if got != "" {
						got += ", "
					}
					got += a.text("data", i, "message_id") + " " + a.text("data", i, "state")
				}
				if a.get("stopped_early") != false {
					t.Errorf("%s: it stopped early at four rows", query)
				}
				next, more := a.get("next_cursor").(string)
				if !more {
					break
				}
				cursor = "&cursor=" + next
			}
			if got != want {
				t.Errorf("%s: %q, want %q", query, got, want)
			}
		}
		row := h.do(http.StatusOK, "GET", "/api/v1/messages?state=pending&webhook=a", "").get("data", 0).(map[string]any)
		if row["last_status"] != 503.0 || row["attempts"] != 1.0 || row["reason"] != "RetryableError" || row["inserted_at"] != now.Format("2006-01-02T15:04:05.999Z07:00") || row["text"] == "" {
			t.Errorf("%v", row)
		}
		h.record(tables.Record{Deliveries: []tables.Delivery{d}})
		if n := len(h.do(http.StatusOK, "GET", "/api/v1/messages?state=pending&webhook=a", "").get("data").([]any)); n != 0 {
			t.Errorf("%d pending, want none once it is dead-lettered", n)
		}
		h.do(http.StatusBadRequest, "GET", "/api/v1/messages?state=eaten", "").wantProblem("state")
		h.do(http.StatusBadRequest, "GET", "/api/v1/messages?cursor=x", "").wantProblem("cursor")
	})
}
