package api

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

func TestDeletingAWebhookNotesThatItsQueueIsLeft(t *testing.T) { // C13
	h := newHarness(t)
	h.do(http.StatusNoContent, "DELETE", "/api/v1/webhooks/"+h.register(hook).text("id"), "")
	notes, err := h.db.ListLeftQueues(t.Context())
	if err != nil || len(notes) != 1 || notes[0].Queue != "orders" || time.Since(notes[0].At) > time.Minute {
		t.Errorf("notes: %v, %v; want one about orders, of now", notes, err)
	}
}

type noNotes struct{ tables.LeftQueues }

func (noNotes) PutLeftQueue(context.Context, tables.LeftQueue) error { return errors.New("away") }

func TestWebhookStaysWhenItsQueueCanNotBeNoted(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.LeftQueues = noNotes{o.LeftQueues} })
	target := "/api/v1/webhooks/" + h.register(hook).text("id")
	h.do(http.StatusServiceUnavailable, "DELETE", target, "")
	h.do(http.StatusOK, "GET", target, "")
}

// vanishing has lost rows that nobody has deleted.
type vanishing struct {
	tables.Webhooks
	gone map[string]string // queues, by webhook
}

func (v vanishing) ListWebhooks(ctx context.Context) ([]tables.Registration, []tables.RowError, error) {
	all, bad, err := v.Webhooks.ListWebhooks(ctx)
	for _, id := range slices.Sorted(maps.Keys(v.gone)) {
		bad = append(bad, tables.RowError{ID: id, Queue: v.gone[id], Err: fmt.Errorf("%w: injected", tables.ErrVanished)})
	}
	return all, bad, err
}

func (v vanishing) DeleteWebhook(ctx context.Context, id, etag string) error {
	delete(v.gone, id)
	return v.Webhooks.DeleteWebhook(ctx, id, etag)
}

// C85: one that has vanished is deleted like any other.
func TestAWebhookThatHasVanishedCanBeDeleted(t *testing.T) {
	v := vanishing{gone: map[string]string{"wh_a": "orders", "wh_b": "orders", "wh_c": "refunds"}}
	h := newHarness(t, func(o *Options) {
		v.Webhooks = o.Webhooks
		o.Webhooks = v
	})
	there := h.register(hook).text("id") // of orders
	list := h.do(http.StatusOK, "GET", "/api/v1/webhooks", "")
	if problem := list.text("unreadable", 0, "problem"); !strings.Contains(problem, "gone from storage") {
		t.Errorf("the list says %q", problem)
	}
	for _, step := range []struct{ id, notes string }{
		{there, "orders"}, {"wh_a", "orders"}, {"wh_c", "orders refunds"}, {"wh_b", "orders refunds"},
	} {
		h.do(http.StatusNoContent, "DELETE", "/api/v1/webhooks/"+step.id, "")
		h.do(http.StatusNotFound, "DELETE", "/api/v1/webhooks/"+step.id, "")
		notes, err := h.db.ListLeftQueues(t.Context())
		var queues []string
		for _, l := range notes {
			queues = append(queues, l.Queue)
		}
		if got := strings.Join(queues, " "); err != nil || got != step.notes {
			t.Errorf("notes of %q, %v when %s was deleted, want %q", got, err, step.id, step.notes)
		}
	}
}

// C85: where all have vanished the list says so of each, and each can be deleted.
func TestAllWebhooksThatHaveVanishedAreListedAndCanBeDeleted(t *testing.T) {
	h := newHarness(t)
	for _, id := range []string{"wh_a", "wh_b"} {
		if err := h.db.PutHealth(t.Context(), tables.Health{WebhookID: id, Instance: "i", UpdatedAt: testTime}); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"wh_a", "wh_b"} {
		if id := h.do(http.StatusOK, "GET", "/api/v1/webhooks", "").text("unreadable", 0, "id"); id != want {
			t.Errorf("missed is %s, want %s", id, want)
		}
		h.do(http.StatusNotFound, "DELETE", "/api/v1/webhooks/wh_other", "")
		h.do(http.StatusNoContent, "DELETE", "/api/v1/webhooks/"+want, "")
	}
	if a := h.do(http.StatusOK, "GET", "/api/v1/webhooks", ""); a.get("unreadable") != nil {
		t.Errorf("missed still: %s", a.body)
	}
}

func TestQueueShowsThatItsMessagesAreHeldForADeletedWebhook(t *testing.T) {
	h := newHarness(t)
	h.do(http.StatusAccepted, "POST", publishTarget, "x")
	if a := h.do(http.StatusOK, "GET", "/api/v1/queues/orders", ""); a.get("held") != nil {
		t.Errorf("held without a reason: %s", a.body)
	}
	h.view.queues["orders"] = status.Queue{LeftAt: testTime}
	a := h.do(http.StatusOK, "GET", "/api/v1/queues/orders", "")
	if a.text("held", "reason") != "WebhookDeleted" || a.text("held", "since") != testTime.Format(time.RFC3339Nano) || a.get("depth", "total") != 1.0 {
		t.Errorf("held: %s", a.body)
	}
}

// What was being tried for the deleted webhook is not said to go on.
func TestMessageOfADeletedWebhookIsShownAsHeldOnly(t *testing.T) {
	h := newHarness(t)
	key := tables.MessageKey{Queue: "orders", MessageID: "m-left", Day: testTime}
	err := h.db.Record(t.Context(), tables.Record{Deliveries: []tables.Delivery{
		{MessageKey: key, WebhookID: "wh_gone", State: tables.Pending, Reason: policy.RetryableError, Attempts: 2, NextAt: testTime, UpdatedAt: testTime},
		{MessageKey: key, State: tables.Held, Reason: policy.WebhookDeleted, UpdatedAt: testTime.Add(time.Minute), ExpiresAt: testTime.Add(time.Hour)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	a := h.do(http.StatusOK, "GET", "/api/v1/messages/m-left", "")
	if n := len(a.get("next").([]any)); n != 1 || a.text("next", 0, "state") != "held" || a.text("next", 0, "reason") != "WebhookDeleted" {
		t.Errorf("next: %s", a.body)
	}
}
