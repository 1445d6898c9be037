package api

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

const summaryPath = "/api/v1/dead-letters/summary"

func TestDeadLettersAreGroupedByWhatTheyHaveInCommon(t *testing.T) {
	h := newHarness(t)
	h.putMany("orders", 6, func(i int, d *tables.DeadLetter) {
		d.Reason, d.LastStatus, d.Description = policy.MaxDeliveryCountExceeded, 503, fmt.Sprintf("The webhook answered 503: attempt %d of 8 failed, so the attempts are used up.", i)
		if i < 2 {
			d.Reason, d.LastStatus, d.LastErrorClass, d.Description = policy.Expired, 0, "timeout", "The message's life ended."
		}
		if i == 5 {
			d.Status = tables.Replayed
		}
	})
	h.putMany("refunds", 1, func(_ int, d *tables.DeadLetter) { d.Reason, d.LastStatus = policy.Expired, 0 })
	for target, want := range map[string]string{
		summaryPath:                                                              "MaxDeliveryCountExceeded 4, Expired 3",
		summaryPath + "?group_by=queue":                                          "orders 6, refunds 1",
		summaryPath + "?group_by=answer&queue=orders":                            "503 4, timeout 2",
		summaryPath + "?group_by=cause&queue=orders":                             "The webhook answered 503 4, The message's life ended 2",
		summaryPath + "?group_by=reason&status=replayed":                         "MaxDeliveryCountExceeded 1",
		summaryPath + "?group_by=reason&reason=Expired":                          "Expired 3",
		summaryPath + "?answer=503":                                              "MaxDeliveryCountExceeded 4",
		summaryPath + "?answer=timeout&group_by=queue":                           "orders 2",
		summaryPath + "?group_by=answer&cause=The%20webhook%20answered%20503":    "503 4",
		summaryPath + "?group_by=answer&cause=The%20message%27s%20life%20ended":  "timeout 2",
		summaryPath + "?group_by=answer&cause=The%20message%27s%20life%20ended.": "",
	} {
		a := h.do(http.StatusOK, "GET", target, "")
		got, total := "", 0.0
		for i, g := range a.get("groups").([]any) {
			group := g.(map[string]any)
			if i > 0 {
				got += ", "
			}
			got += fmt.Sprintf("%v %v", group["key"], group["count"])
			total += group["count"].(float64)
			if h.do(http.StatusOK, "GET", "/api/v1/dead-letters/"+group["example"].(string), ""); group["newest"].(string) < group["oldest"].(string) {
				t.Errorf("%s: %v", target, group)
			}
		}
		if got != want || a.get("total") != total || a.get("exact") != true {
			t.Errorf("%s: %q in all %v, want %q", target, got, a.get("total"), want)
		}
	}
	if a := h.do(http.StatusOK, "GET", "/api/v1/dead-letters?answer=timeout&cause=The%20message%27s%20life%20ended", ""); len(a.get("data").([]any)) != 2 {
		t.Errorf("the list has %s", a.body)
	}
	for body, want := range map[string]any{
		`{"answer":"503","dry_run":true}`: 4.0, `{"answer":"504","dry_run":true}`: nil, `{"answer":"timeout","cause":"The message's life ended","dry_run":true}`: 2.0, `{"cause":"The webhook answered 503","dry_run":true}`: 4.0,
	} {
		if a := h.do(http.StatusOK, "POST", purgePath, body); a.get("matched") != want {
			t.Errorf("%s: %s", body, a.body)
		}
	}
	for _, field := range []string{"answer", "cause"} {
		h.do(http.StatusBadRequest, "POST", purgePath, `{"`+field+`":"","dry_run":true}`).wantProblem(field)
	}
	h.do(http.StatusBadRequest, "GET", summaryPath+"?cause="+strings.Repeat("x", maxCause+1), "").wantProblem("cause")
	for _, bad := range []string{"group_by=colour", "queue=Not_A_Queue", "from=yesterday", "limit=5"} {
		h.do(http.StatusBadRequest, "GET", summaryPath+"?"+bad, "")
	}
}

// Of very many groups the largest are told, and how many are in the others.
func TestSummaryIsBounded(t *testing.T) {
	h := newHarness(t)
	h.putMany("orders", summaryGroups+5, func(i int, d *tables.DeadLetter) { d.WebhookID = fmt.Sprintf("wh_%03d", i%(summaryGroups+4)) })
	a := h.do(http.StatusOK, "GET", summaryPath+"?group_by=webhook", "")
	groups := a.get("groups").([]any)
	if len(groups) != summaryGroups || a.get("others") != 4.0 || groups[0].(map[string]any)["key"] != "wh_000" || groups[0].(map[string]any)["count"] != 2.0 {
		t.Errorf("%d groups, the first %v, others %v", len(groups), groups[0], a.get("others"))
	}
}

// A job that another instance goes on with is about the dead letters that it was begun for: its filter is stored whole.
func TestAStoredJobHasItsWholeFilter(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	want := tables.DeadLetterFilter{Queue: "orders", WebhookID: "wh_1", MessageID: "m", Reason: policy.Expired, Answer: "503", Cause: "It failed", Status: tables.Waiting, From: at, Until: at.Add(time.Hour)}
	for field, value := range reflect.ValueOf(want).Fields() {
		if value.IsZero() {
			t.Errorf("the test leaves %s out", field.Name)
		}
	}
	if got := bulkOf(replayJobView{Filter: bulk{filter: want}.view()}).filter; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
