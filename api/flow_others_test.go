package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

// unreadHealth can't be read.
type unreadHealth struct{ tables.Healths }

func (unreadHealth) WebhookHealth(context.Context, string) ([]tables.Health, error) {
	return nil, errors.New("no answer")
}

// Who is on call asks any instance, and is told that another one sends nothing.
func TestStatusTellsHowTheWebhookFaresInOtherInstances(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Instance = "one" })
	id := h.register(`{"queue":"orders","url":"https://example.com/hook"}`).text("id")
	closed := policy.BreakerState{Phase: policy.BreakerClosed}
	h.view.webhook = func(string) (status.Webhook, bool) {
		return status.Webhook{State: status.Healthy, Breaker: closed}, true
	}
	get := func() answer { return h.do(http.StatusOK, "GET", "/api/v1/webhooks/"+id, "") }
	if others := get().get("others"); others != nil {
		t.Errorf("others %v, and there is none", others)
	}
	now := time.Now()
	open := policy.BreakerState{Phase: policy.BreakerOpen, Since: now, NextProbe: now.Add(time.Minute), Samples: 20, Failures: 19}
	due := open
	due.NextProbe = now.Add(-time.Second)
	rows := []tables.Health{
		{Instance: "closed", Breaker: closed, Window: 12},
		{Instance: "dead", Breaker: open},
		{Instance: "due", Breaker: due},
		{Instance: "limited", Breaker: closed, Pace: policy.PaceState{Rate: 19.25, Since: now}},
		{Instance: "old", Breaker: open, UpdatedAt: now.Add(-time.Hour)},
		{Instance: "one", Breaker: open},
		{Instance: "open", Breaker: open, Failing: policy.AutoDisableState{FailingSince: now, FailedMessages: 3}},
		{Instance: "paused", Breaker: closed, PausedUntil: now.Add(time.Hour)},
	}
	for _, r := range rows {
		if r.WebhookID = id; r.UpdatedAt.IsZero() {
			r.UpdatedAt = now.Add(time.Second)
		}
		seen := now
		if r.Instance == "dead" {
			seen = now.Add(-10 * time.Minute)
		}
		if err := errors.Join(h.db.PutHealth(t.Context(), r), h.db.PutInstance(t.Context(), tables.Instance{Name: r.Instance, SeenAt: seen})); err != nil {
			t.Fatal(err)
		}
	}
	reg, err := h.db.GetWebhook(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	reg.ResetAt = now.Add(-time.Minute) // it was enabled since "old" told
	if _, err := h.db.PutWebhook(t.Context(), reg); err != nil {
		t.Fatal(err)
	}
	a := get()
	var got []string
	for _, o := range a.get("others").([]any) {
		o := o.(map[string]any)
		got = append(got, fmt.Sprint(o["instance"], " ", o["state"], " ", o["until"] != nil, " ", o["failed_messages"], " ", o["window"], " ", o["learned_rate"]))
	}
	want := []string{"closed healthy false 0 12 <nil>", "due probing false 0 0 <nil>", "limited limited false 0 0 19.3", "open failing true 3 0 <nil>", "paused paused true 0 0 <nil>"}
	if !slices.Equal(got, want) {
		t.Errorf("others\n%q, want\n%q", got, want)
	}
	if text := a.text("status", "text"); !strings.Contains(text, "It is sent to as messages come. Instance due told at ") || !strings.Contains(text, "that it is probing there. So did 2 more.") {
		t.Errorf("text %q", text)
	}
	h.view.webhook = func(string) (status.Webhook, bool) { return status.Webhook{State: status.Failing, Breaker: open}, true }
	if text := get().text("status", "text"); strings.Contains(text, "Instance due") {
		t.Errorf("it fails here too, and the text says %q", text)
	}
	if list := h.do(http.StatusOK, "GET", "/api/v1/webhooks", ""); list.get("data", 0, "others") != nil {
		t.Errorf("the list asks for rows of each: %v", list.get("data", 0))
	}
	h.view.webhook = func(string) (status.Webhook, bool) { return status.Webhook{}, false }
	if a := get(); a.get("status") != nil || len(a.get("others").([]any)) != len(want) {
		t.Errorf("of one that this instance has not met: %v", a.body)
	}
	h.view.webhook = func(string) (status.Webhook, bool) { return status.Webhook{State: status.Failing, Breaker: open}, true }
	h.api.Healths = unreadHealth{h.api.Healths}
	if a := get(); a.get("others") != nil || !strings.HasSuffix(a.text("status", "text"), "How it fares in other instances can't be read now.") {
		t.Errorf("%v", a.get("status"))
	}
}
