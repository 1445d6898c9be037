package api

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

// oneAtATime is a store whose lists look at one row a page, as both do after some thousands, and
// that takes its time for each.
type oneAtATime struct {
	tables.DeadLetters
	each time.Duration
}

func (s oneAtATime) ListDeadLetters(ctx context.Context, f tables.DeadLetterFilter, page tables.Page) (passed []tables.DeadLetter, next tables.Cursor, err error) {
	time.Sleep(s.each)
	page.Limit = 1
	rows, next, err := s.DeadLetters.ListDeadLetters(ctx, tables.DeadLetterFilter{Queue: f.Queue, From: f.From, Until: f.Until}, page)
	for _, d := range rows {
		if f.Matches(d) {
			passed = append(passed, d)
		}
	}
	return passed, next, err
}

// putBehind puts a dead letter of the message m-1, and many others of later messages.
func (h *harness) putBehind(others int) tables.DeadLetter {
	h.Helper()
	for i := range others {
		d := dead("other-"+strconv.Itoa(i), "wh_1", "x")
		d.Day, d.DeadLetteredAt = testTime.Add(-time.Minute), testTime.Add(-time.Duration(i)*time.Second)
		h.putDeadLetter(d)
	}
	d := dead("m-1", "wh_1", "x")
	d.Day, d.DeadLetteredAt = testTime.Add(-30*time.Hour), testTime.Add(-29*time.Hour)
	d.Reason, d.Description = policy.NonRetryableError, "The webhook answered 400."
	return h.putDeadLetter(d)
}

func TestADeadLetterThatIsBehindManyOthersIsNotCalledDeleted(t *testing.T) {
	h := newHarness(t)
	h.api.DeadLetters = oneAtATime{h.db, 0}
	d := h.putBehind(3)
	h.record(tables.Record{Deliveries: []tables.Delivery{
		{MessageKey: d.MessageKey, WebhookID: "wh_1", State: tables.DeadLettered, Reason: d.Reason, DeadLetterID: d.ID, Attempts: 1, UpdatedAt: d.DeadLetteredAt},
	}})
	told := func() string {
		a := h.do(http.StatusOK, "GET", "/api/v1/messages/m-1", "")
		for i := range a.get("events").([]any) {
			if a.text("events", i, "event") == string(eventDeadLettered) {
				return a.text("events", i, "text")
			}
		}
		return ""
	}
	if got := told(); got != "Dead-lettered (NonRetryableError). The webhook answered 400." {
		t.Errorf("while it is there: %q", got)
	}
	if err := h.db.DeleteDeadLetter(t.Context(), d.ID, ""); err != nil {
		t.Fatal(err)
	}
	if got := told(); !strings.Contains(got, "has since been deleted") {
		t.Errorf("after its delete: %q", got)
	}
}

func TestAMessageWithoutRecordsIsFoundByItsDeadLetters(t *testing.T) {
	h := newHarness(t)
	h.api.DeadLetters = oneAtATime{h.db, 0}
	d := h.putBehind(3)
	second := d
	second.ID, second.WebhookID, second.DeadLetteredAt = "", "wh_2", d.Day.Add(time.Minute)
	h.putDeadLetter(second)
	if got := h.do(http.StatusOK, "GET", "/api/v1/messages/m-1", "").get("events").([]any); len(got) != 2 {
		t.Errorf("%d events of two dead letters: %v", len(got), got)
	}
	h.do(http.StatusNotFound, "GET", "/api/v1/messages/m-2", "").wantNot("older ones were not looked at")
}

func TestASearchForAMessageThatIsNotEndedSaysSo(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.api.DeadLetters = oneAtATime{h.db, time.Second}
		h.putBehind(20)
		began := time.Now()
		a := h.do(http.StatusNotFound, "GET", "/api/v1/messages/m-1", "")
		if took := time.Since(began); took > 10*time.Second || !strings.Contains(a.text("detail"), "may be there all the same") {
			t.Errorf("after %s: %s", took, a.body)
		}
	})
}

// What was given up can be sent again while its dead letter waits. Who is told so of one that was replayed yesterday, and delivered, would
// send it twice.
func TestWhatCanComeOfADeadLetterIsToldByHowItStands(t *testing.T) {
	h := newHarness(t)
	d := h.putDeadLetter(dead("m-9", "wh_1", "x"))
	h.record(tables.Record{Deliveries: []tables.Delivery{{
		MessageKey: d.MessageKey, WebhookID: "wh_1", State: tables.DeadLettered, Reason: d.Reason, DeadLetterID: d.ID, UpdatedAt: d.DeadLetteredAt,
	}}})
	for _, tt := range []struct {
		status tables.DeadLetterStatus
		says   string
	}{
		{tables.Waiting, d.ID + "/replay sends it again"},
		{tables.Replaying, "Its replay is under way, which was asked for at 2026-03-01T00:00:00Z: see generation 2."},
		{tables.Replayed, "Nothing: a replay was asked for at 2026-03-01T00:00:00Z, and has ended; what came of it is told under generation 2."},
		{"", "Nothing: its dead letter was deleted or cleaned up."},
	} {
		if tt.status == "" {
			if err := h.db.DeleteDeadLetter(t.Context(), d.ID, ""); err != nil {
				t.Fatal(err)
			}
		} else {
			now, err := h.db.GetDeadLetter(t.Context(), d.ID)
			if err != nil {
				t.Fatal(err)
			}
			now.Status, now.Replays, now.ReplayedAt = tt.status, 2, time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
			if _, err := h.db.UpdateDeadLetter(t.Context(), now); err != nil {
				t.Fatal(err)
			}
		}
		a := h.do(http.StatusOK, "GET", "/api/v1/messages/m-9", "")
		if text := a.text("next", 0, "text"); a.text("next", 0, "state") != "dead_lettered" || !strings.Contains(text, tt.says) {
			t.Errorf("%q: %q, want %q", tt.status, text, tt.says)
		}
	}
	a := h.do(http.StatusOK, "GET", "/api/v1/messages?state=dead_lettered&queue=orders", "")
	if text := a.text("data", 0, "text"); !strings.Contains(text, "While its dead letter waits") { // a list reads no dead letters
		t.Errorf("the list says %q", text)
	}
}
