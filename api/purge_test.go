package api

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

func TestPurgeDeletesWhatMatchesButNoReplayUnderWay(t *testing.T) {
	h := newHarness(t)
	ids := h.putMany("orders", 5, func(i int, d *tables.DeadLetter) {
		switch i {
		case 0:
			// Its message may wait for a next attempt, or for its webhook, much longer than
			// tables.ReplayPatience.
			d.Status, d.ReplayedAt = tables.Replaying, time.Now().Add(-queue.DefaultTTL)
		case 1:
			d.Status, d.ReplayedAt = tables.Replaying, time.Now().Add(-queue.ReplayLife)
			d.Replays = 1
		case 2:
			d.Status, d.Replays = tables.Replayed, 1
		}
	})
	other := h.putMany("refunds", 1, nil)[0]
	if a := h.do(http.StatusOK, "POST", purgePath, `{"queue":"orders","dry_run":true}`); a.get("matched") != 5.0 || a.get("kept") != 1.0 || a.get("purged") != 0.0 || a.get("never_replayed") != 2.0 {
		t.Errorf("dry run: %s", a.body)
	}
	if a := h.do(http.StatusOK, "POST", purgePath, `{"queue":"orders","status":"replayed"}`); a.get("purged") != 1.0 || a.get("kept") != 0.0 {
		t.Errorf("purge of replayed ones: %s", a.body)
	}
	if a := h.do(http.StatusOK, "POST", purgePath, `{"queue":"orders"}`); a.get("purged") != 3.0 || a.get("kept") != 1.0 || a.get("never_replayed") != 2.0 || a.get("next_cursor") != nil {
		t.Errorf("purge: %s", a.body)
	}
	h.loadDead(ids[0])
	h.loadDead(other)
	for _, id := range ids[1:] {
		h.do(http.StatusNotFound, "GET", "/api/v1/dead-letters/"+id, "")
	}
	if a := h.do(http.StatusOK, "POST", purgePath, `{"queue":"orders"}`); a.get("purged") != 0.0 || a.get("kept") != 1.0 {
		t.Errorf("a second purge: %s", a.body)
	}
}

// Clients that write null for what was not set must not do more than they were told to.
func TestNullIsRefusedWhereItWouldDoMore(t *testing.T) {
	h := withJobs(t)
	id := h.register(hook).text("id")
	h.do(http.StatusOK, "POST", "/api/v1/webhooks/"+id+"/disable", "")
	ids := h.putMany("orders", 3, nil)
	for _, path := range []string{purgePath, replayPath} {
		known := replayFields
		if path == purgePath {
			known = purgeFields
		}
		for _, field := range known {
			body := `{"queue":"orders","` + field + `":null}`
			if field == "queue" {
				body = `{"reason":"MaxDeliveryCountExceeded","queue":null}`
			}
			if field == "cursor" {
				continue // null is what the last page gave
			}
			h.do(http.StatusBadRequest, "POST", path, body).wantProblem(field)
		}
	}
	h.do(http.StatusBadRequest, "POST", purgePath, `{"all":true}`).wantProblem("dry_run")
	h.do(http.StatusBadRequest, "PATCH", "/api/v1/webhooks/"+id, `{"name":"x","enabled":null}`, "Content-Type", mergePatch).wantProblem("enabled")
	h.do(http.StatusBadRequest, "POST", "/api/v1/webhooks", `{"queue":"orders","url":"https://example.com/hook","enabled":null}`).wantProblem("enabled")
	for _, id := range ids {
		if d := h.loadDead(id); d.Status != tables.Waiting {
			t.Errorf("%s is %s", id, d.Status)
		}
	}
	if a := h.do(http.StatusOK, "GET", "/api/v1/webhooks/"+id, ""); a.get("enabled") != false || a.text("name") != "billing" {
		t.Errorf("changed by a refused request: %s", a.body)
	}
	h.do(http.StatusOK, "POST", "/api/v1/webhooks/"+id+"/rotate-secret", "null", "Content-Type", "application/json")
	if a := h.do(http.StatusOK, "POST", purgePath, `{"queue":"orders","limit":2,"cursor":null}`); a.get("purged") != 2.0 {
		t.Errorf("purge: %s", a.body)
	}
	if a := h.do(http.StatusOK, "POST", purgePath, `{"all":true,"dry_run":false}`); a.get("purged") != 1.0 {
		t.Errorf("purge of all: %s", a.body)
	}
}

// No body of a request has a boolean that may be null: what such a one means is a guess.
func TestNoBooleanOfARequestMayBeNull(t *testing.T) {
	checked := 0
	for name, schema := range document(t).Components.Schemas {
		if !slices.Contains([]string{"WebhookCreate", "WebhookPatch", "ReplayRequest", "PurgeRequest", "Rotate"}, name) {
			continue
		}
		for property, of := range schema.Value.Properties {
			if !of.Value.Type.Is("boolean") {
				continue
			}
			checked++
			if of.Value.Nullable {
				t.Errorf("%s.%s may be null", name, property)
			}
		}
	}
	if checked < 7 {
		t.Errorf("%d booleans were found", checked)
	}
}

func TestPurgeGoesOnAtItsCursor(t *testing.T) {
	h := newHarness(t)
	h.putMany("orders", 5, nil)
	cursor, purged := "", 0.0
	for range 5 {
		a := h.do(http.StatusOK, "POST", purgePath, `{"queue":"orders","limit":2,"cursor":"`+cursor+`"}`)
		purged += a.get("purged").(float64)
		next, more := a.get("next_cursor").(string)
		if !more {
			break
		}
		cursor = next
	}
	rows, _, err := h.db.ListDeadLetters(t.Context(), tables.DeadLetterFilter{}, tables.Page{Limit: 10})
	if purged != 5 || err != nil || len(rows) != 0 {
		t.Errorf("%v purged, %d left, %v", purged, len(rows), err)
	}
}

func TestQueueShowsItsDeadLettersAndHowBadThatIs(t *testing.T) {
	h := newHarness(t)
	h.register(hook)
	state := func() (any, string) {
		a := h.do(http.StatusOK, "GET", "/api/v1/queues/orders", "")
		return a.get("dead_letters", "waiting"), a.text("dead_letters", "level")
	}
	if n, level := state(); n != 0.0 || level != "ok" {
		t.Errorf("%v, %s", n, level)
	}
	h.putMany("orders", warningWaiting+1, func(i int, d *tables.DeadLetter) {
		if i == 0 {
			d.Status = tables.Replayed
		}
	})
	if n, _ := state(); n != 0.0 {
		t.Errorf("%v: it was counted again although a count was fresh", n)
	}
	for _, step := range []struct {
		more           int
		waiting        float64
		level          string
		handled, given int
	}{
		{0, warningWaiting, "ok", minHandled - 1, minHandled - 1},
		{0, warningWaiting, "critical", minHandled, 3},
		{0, warningWaiting, "ok", minHandled, 2},
		{1, warningWaiting + 1, "warning", 0, 0},
	} {
		h.putMany("orders", step.more, func(_ int, d *tables.DeadLetter) { d.MessageID = "more" })
		h.view.queues["orders"] = status.Queue{Handled: step.handled, DeadLettered: step.given}
		if err := h.api.countBacklog(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n, level := state(); n != step.waiting || level != step.level {
			t.Errorf("%v, %s, want %v, %s", n, level, step.waiting, step.level)
		}
	}
	if a := h.do(http.StatusOK, "GET", "/api/v1/queues", ""); a.text("data", 0, "dead_letters", "level") != "warning" {
		t.Errorf("list: %s", a.body)
	}
}

func TestALevelOfDeadLettersSaysWhy(t *testing.T) {
	for name, tt := range map[string]struct {
		waiting       waiting
		state         status.Queue
		level, reason string
		text          string
	}{
		"ok":                        {waiting{n: 1}, status.Queue{Handled: 40, DeadLettered: 4}, "ok", "", ""},
		"many":                      {waiting{n: 101}, status.Queue{}, "warning", "waiting", "More than 100 dead letters wait."},
		"very many":                 {waiting{n: 1001}, status.Queue{Handled: 40, DeadLettered: 30}, "critical", "waiting", "More than 1000"},
		"a share, although none is": {waiting{}, status.Queue{Handled: 40, DeadLettered: 30}, "critical", "share", "30 of the 40 messages"},
	} {
		v := newBacklogView(tt.waiting, tt.state)
		if v.Level != tt.level || string(v.Reason) != tt.reason || !strings.HasPrefix(v.Text, tt.text) || (v.Text == "") != (tt.level == "ok") ||
			v.Handled != tt.state.Handled || v.DeadLettered != tt.state.DeadLettered {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// The list says of dead letters what is said about each queue, with or without a webhook
// and a round of counting.
func TestTheListOfQueuesCountsDeadLetters(t *testing.T) {
	h := newHarness(t)
	h.register(hook)
	h.do(http.StatusAccepted, "POST", "/api/v1/queues/alone/messages", "x")
	h.do(http.StatusAccepted, "POST", "/api/v1/queues/empty/messages", "x")
	h.putMany("alone", 2, nil)
	for _, counted := range []string{"on demand", "in a round"} {
		a := h.do(http.StatusOK, "GET", "/api/v1/queues", "")
		for i, want := range []float64{2, 0, 0} {
			one := h.do(http.StatusOK, "GET", "/api/v1/queues/"+a.text("data", i, "name"), "").get("dead_letters", "waiting")
			if n := a.get("data", i, "dead_letters", "waiting"); n != want || one != want {
				t.Errorf("%s: %v in the list, %v alone, want %v: %s", counted, n, one, want, a.body)
			}
		}
		if err := h.api.countBacklog(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	h.api.DeadLetters = uncountedDeadLetters{h.api.DeadLetters}
	if a := h.do(http.StatusOK, "GET", "/api/v1/queues", ""); a.get("data", 0, "dead_letters", "waiting") != 2.0 || a.get("data", 1, "dead_letters") == nil {
		t.Errorf("counted again although a round was made: %s", a.body)
	}
	h.api.backlog.replace(map[string]waiting{}, time.Time{})
	if a := h.do(http.StatusOK, "GET", "/api/v1/queues", ""); a.get("data", 1, "dead_letters") != nil {
		t.Errorf("what can't be counted: %s", a.body)
	}
	h.do(http.StatusServiceUnavailable, "GET", "/api/v1/queues/alone", "")
}

type uncountedDeadLetters struct{ tables.DeadLetters }

func (uncountedDeadLetters) ListDeadLetters(context.Context, tables.DeadLetterFilter, tables.Page) ([]tables.DeadLetter, tables.Cursor, error) {
	return nil, "", errors.New("throttled")
}

// Counting ends where the level can't get worse, and one queue that is full does not
// hide another.
func TestCountingDeadLettersIsBounded(t *testing.T) {
	h := newHarness(t)
	h.register(hook)
	h.putMany("orders", criticalWaiting+5, nil)
	h.putMany("refunds", 2, nil)
	h.register(`{"queue":"refunds","url":"https://example.com/hook"}`)
	if err := h.api.countBacklog(t.Context()); err != nil {
		t.Fatal(err)
	}
	a := h.do(http.StatusOK, "GET", "/api/v1/queues", "")
	for i, want := range []struct {
		waiting float64
		exact   bool
		level   string
	}{{criticalWaiting + 1, false, "critical"}, {2, true, "ok"}} {
		if a.get("data", i, "dead_letters", "waiting") != want.waiting || a.get("data", i, "dead_letters", "exact") != want.exact || a.text("data", i, "dead_letters", "level") != want.level {
			t.Errorf("queue %d: %s", i, a.body)
		}
	}
}

// What this process made of a queue's messages, or did to its dead letters, shows at once;
// what others did, a minute later at most, and the answer says when it counted.
func TestDeadLettersAreCountedAnewWhenThisProcessMadeOrEndedSome(t *testing.T) {
	h := newHarness(t)
	h.register(hook)
	waiting := func() any {
		return h.do(http.StatusOK, "GET", "/api/v1/queues/orders", "").get("dead_letters", "waiting")
	}
	if n := waiting(); n != 0.0 {
		t.Fatalf("%v wait", n)
	}
	ids := h.putMany("orders", 3, nil)
	if n := waiting(); n != 0.0 {
		t.Errorf("%v: counted anew although nothing happened here", n)
	}
	counted := h.api.backlog.byQueue["orders"]
	counted.at = time.Now().Add(-recountEvery)
	h.api.backlog.put("orders", counted)
	age := func() time.Duration {
		at, err := time.Parse(time.RFC3339, h.do(http.StatusOK, "GET", "/api/v1/queues/orders", "").text("dead_letters", "counted_at"))
		if err != nil {
			t.Fatal(err)
		}
		return time.Since(at)
	}
	if got := age(); got < recountEvery {
		t.Errorf("the count is said to be %s old, and is %s old at least", got, recountEvery)
	}
	h.view.queues["orders"] = status.Queue{DeadLettered: 3}
	if n := waiting(); n != 3.0 {
		t.Errorf("%v wait, want the 3 that this process made", n)
	}
	if got, now := age(), h.api.backlog.byQueue["orders"].at; got > time.Since(now)+time.Second || !now.After(counted.at) {
		t.Errorf("the new count is said to be %s old", got)
	}
	if exact := h.do(http.StatusOK, "GET", "/api/v1/queues/orders", "").get("dead_letters", "exact"); exact != true {
		t.Errorf("exact: %v", exact)
	}
	h.do(http.StatusNoContent, "DELETE", "/api/v1/dead-letters/"+ids[0], "")
	if n := waiting(); n != 2.0 {
		t.Errorf("%v wait after one was deleted", n)
	}
	h.do(http.StatusAccepted, "POST", "/api/v1/dead-letters/"+ids[1]+"/replay?force=true", "")
	if n := waiting(); n != 1.0 {
		t.Errorf("%v wait after one of two was replayed", n)
	}
	h.do(http.StatusOK, "POST", purgePath, `{"queue":"orders"}`)
	if n := waiting(); n != 0.0 {
		t.Errorf("%v wait after the purge", n)
	}
}

// C65: what is deleted here may be on a poison queue still, which the answer says.
func TestDeletingSaysWhichCopiesStay(t *testing.T) {
	h := newHarness(t)
	var ids []string
	for i, name := range []string{"m1", "m2", "m3", "m4"} {
		d := dead(name, "wh_1", "payload")
		if i > 0 {
			d.CopiedToQueue = "orders-poison"
		}
		ids = append(ids, h.putDeadLetter(d).ID)
	}
	for i, want := range []string{"", "orders-poison"} {
		if a := h.do(http.StatusNoContent, "DELETE", "/api/v1/dead-letters/"+ids[i], ""); a.header.Get(copyLeft) != want {
			t.Errorf("deleted, the copy is said to be on %q, want %q", a.header.Get(copyLeft), want)
		}
	}
	for _, body := range []string{`{"queue":"orders","dry_run":true}`, `{"queue":"orders"}`} {
		if a := h.do(http.StatusOK, "POST", purgePath, body); a.get("copies_left") != 2.0 {
			t.Errorf("%s: %s", body, a.body)
		}
	}
}
