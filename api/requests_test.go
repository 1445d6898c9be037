package api

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// Every time that RFC 3339 has is taken; before the first and after the last one that can be here
// there is nothing.
func TestEveryTimeOfTheStandardIsTaken(t *testing.T) {
	h := newHarness(t)
	h.putDeadLetter(dead("m", "", "payload")) // at testTime
	at := func(shift time.Duration) string { return testTime.Add(shift).UTC().Format(time.RFC3339Nano) }
	for _, tt := range []struct {
		from, until string
		found       int
	}{
		{"0001-01-01T00:00:00Z", "", 1}, {"0000-01-01T00:00:00+01:00", "", 1}, {"1969-12-31T23:59:59Z", "", 1}, {"", "9999-12-31T23:59:59.9999999Z", 1},
		{"9999-12-31T23:59:59-12:00", "", 0}, {"", "1969-07-20T20:17:40Z", 0}, {"", "0001-01-01T00:00:00Z", 0}, {"1950-01-01T00:00:00Z", "1960-01-01T00:00:00Z", 0},
		{strings.ToLower(at(0)), "", 1}, {"", strings.ToLower(at(0)), 0}, {at(-time.Second), at(time.Second), 1},
		{"2016-12-31T23:59:60Z", "", 1}, {"1990-12-31T15:59:60.5-08:00", "", 1},
	} {
		q := url.Values{}
		for name, v := range map[string]string{"from": tt.from, "until": tt.until} {
			if v != "" {
				q.Set(name, v)
			}
		}
		if got := len(h.do(http.StatusOK, "GET", "/api/v1/dead-letters?"+q.Encode(), "").get("data").([]any)); got != tt.found {
			t.Errorf("from %s until %s: %d found, want %d", tt.from, tt.until, got, tt.found)
		}
		h.do(http.StatusOK, "GET", "/api/v1/attempts?"+q.Encode(), "")
	}
	for _, bad := range []string{"now", "2026-01-31", "2026-01-31T15:04:05", "2026-01-31 15:04:05Z", "2026-1-31T15:04:05Z", "2026-01-31T5:04:05Z", "2026-02-30T00:00:00Z", "2026-01-31T15:04:61Z", "10000-01-01T00:00:00Z", "2026-01-31T15:04:05,5Z", "1769872800"} {
		h.do(http.StatusBadRequest, "GET", "/api/v1/dead-letters?from="+url.QueryEscape(bad), "").wantProblem("from")
		h.do(http.StatusBadRequest, "POST", "/api/v1/dead-letters/purge", fmt.Sprintf(`{"queue":"orders","until":%q}`, bad)).wantProblem("until")
	}
	h.do(http.StatusBadRequest, "GET", "/api/v1/dead-letters?from=1960-01-01T00:00:00Z&until=1950-01-01T00:00:00Z", "").wantProblem("until")
}

// Clients write the first and the last time that they have for none. Such a span filters nothing, so that
// it must not stand for a filter.
func TestASpanOfAllTimeIsNoFilter(t *testing.T) {
	h := newHarness(t)
	id := h.putDeadLetter(dead("m", "", "payload")).ID
	for _, span := range []string{`{"from":"0001-01-01T00:00:00Z"}`, `{"until":"9999-12-31T23:59:59.9999999Z"}`, `{"from":"1970-01-01T00:00:00Z","until":"9999-12-31T23:59:59Z"}`} {
		h.do(http.StatusBadRequest, "POST", "/api/v1/dead-letters/purge", span).wantProblem("filter")
		h.do(http.StatusBadRequest, "POST", "/api/v1/replays", span).wantProblem("filter")
	}
	if a := h.do(http.StatusOK, "POST", "/api/v1/dead-letters/purge", `{"until":"0001-01-01T00:00:00Z"}`); a.get("purged") != 0.0 {
		t.Errorf("purged: %s", a.body)
	}
	h.do(http.StatusOK, "GET", "/api/v1/dead-letters/"+id, "")
}

func TestACursorIsOfOneList(t *testing.T) {
	h := newHarness(t)
	for i := range 3 {
		h.register(fmt.Sprintf(`{"queue":"queue-%d","url":"https://example.com/%d"}`, i, i))
		d := dead(fmt.Sprint("m", i), "", "payload")
		d.DeadLetteredAt = testTime.Add(time.Duration(i) * time.Second)
		h.putDeadLetter(d)
		h.record(tables.Record{Attempts: []tables.Attempt{{MessageKey: d.MessageKey, WebhookID: "wh_1", Number: 1, StartedAt: d.DeadLetteredAt, Status: 500, Action: policy.Abandon, Reason: policy.RetryableError}}})
		h.record(tables.Record{Deliveries: []tables.Delivery{{MessageKey: d.MessageKey, WebhookID: "wh_1", State: tables.Pending, UpdatedAt: d.DeadLetteredAt}}})
	}
	lists := []string{"webhooks", "queues", "dead-letters", "attempts", "messages", "audit"}
	cursors := map[string]string{}
	for _, list := range lists {
		cursors[list] = h.do(http.StatusOK, "GET", "/api/v1/"+list+"?limit=1", "").text("next_cursor")
	}
	for _, list := range lists {
		for from, cursor := range cursors {
			status := http.StatusBadRequest
			if from == list {
				status = http.StatusOK
			}
			if a := h.do(status, "GET", "/api/v1/"+list+"?cursor="+url.QueryEscape(cursor), ""); status == http.StatusBadRequest {
				a.wantProblem("cursor")
			}
		}
	}
	h.do(http.StatusBadRequest, "POST", "/api/v1/dead-letters/purge", fmt.Sprintf(`{"queue":"orders","cursor":%q}`, cursors["attempts"])).wantProblem("cursor")
}

// What is wrong with JSON is told by the character that was sent, not by its first byte.
func TestAnErrorShowsTheCharacterThatWasSent(t *testing.T) {
	h := newHarness(t)
	for _, c := range []string{"ä", "é", "€", "🙂", "“"} {
		for _, body := range []string{c, `{"queue":` + c + `}`, `{"queue":"orders"` + c + `}`, `{` + c + `}`, `{"a":tr` + c + `}`, `{"a":1` + c + `}`} {
			a := h.do(http.StatusBadRequest, "PATCH", "/api/v1/webhooks/wh_1", " "+body, "Content-Type", "application/merge-patch+json")
			if text := a.text("errors", 0, "problem"); !strings.Contains(text, "'"+c+"'") {
				t.Errorf("%s: %s", body, text)
			}
			event := h.do(http.StatusUnprocessableEntity, "POST", publishTarget, body, "Content-Type", "application/cloudevents+json")
			if text := event.text("errors", 0, "problem"); !strings.Contains(text, "'"+c+"'") {
				t.Errorf("event %s: %s", body, text)
			}
		}
	}
	if text := h.do(http.StatusBadRequest, "POST", "/api/v1/webhooks", "{\"a\":'}").text("errors", 0, "problem"); !strings.Contains(text, `'\''`) {
		t.Errorf("a quote: %s", text)
	}
}

// A request that is repeated is the same however it says what it says, and stores the same.
func TestARequestThatSaysTheSameInAnotherWayIsTheSame(t *testing.T) {
	for _, tt := range []struct {
		name, body    string
		first, second func(target string) *http.Request
	}{
		{name: "curl's form and no type", body: `{"a":1}`, first: typed(`{"a":1}`, "application/x-www-form-urlencoded"), second: typed(`{"a":1}`, "")},
		{name: "curl's form and JSON", body: `{"a":1}`, first: typed(`{"a":1}`, "application/x-www-form-urlencoded"), second: typed(`{"a":1}`, "application/json")},
		{name: "JSON with a charset", body: `{"a":1}`, first: typed(`{"a":1}`, "application/json"), second: typed(`{"a":1}`, "Application/JSON; charset=UTF-8")},
		{name: "text", body: "hello", first: typed("hello", "text/plain"), second: typed("hello", "")},
		{name: "the usual ttl", body: "hello", first: typed("hello", ""), second: func(target string) *http.Request { return typed("hello", "")(target + "?ttl=168h") }},
		{name: "no delay", body: "hello", first: func(target string) *http.Request { return typed("hello", "")(target + "?delay=0s") }, second: typed("hello", "")},
		{name: "a ttl in other units", body: "hello", first: func(target string) *http.Request { return typed("hello", "")(target + "?ttl=2h") }, second: func(target string) *http.Request { return typed("hello", "")(target + "?ttl=7200s") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHarness(t)
			for _, pair := range [][2]func(string) *http.Request{{tt.first, tt.second}, {tt.second, tt.first}} {
				name := "orders"
				if h.view.woken != nil {
					name = "others"
				}
				target := "/api/v1/queues/" + name + "/messages"
				first := h.serve(http.StatusAccepted, pair[0](target))
				again := h.serve(http.StatusAccepted, pair[1](target))
				if again.header.Get("Idempotency-Replayed") != "true" || again.text("message_id") != first.text("message_id") || again.text("expires_at") != first.text("expires_at") {
					t.Errorf("first %s, again %s", first.body, again.body)
				}
				stored, err := queue.Decode(queue.EncodingAuto, h.receive(name).Text)
				if err != nil || string(stored.Bytes) != tt.body || stored.ContentType != "" {
					t.Errorf("stored %q of type %q: %v", stored.Bytes, stored.ContentType, err)
				}
			}
		})
	}
}

func typed(body, contentType string) func(target string) *http.Request {
	return func(target string) *http.Request {
		headers := []string{"Idempotency-Key", "k"}
		if contentType != "" {
			headers = append(headers, "Content-Type", contentType)
		}
		return request("POST", target, body, headers...)
	}
}

// null is no body: some clients write it for none.
func TestNullIsNoBodyWhereNoneIsNeeded(t *testing.T) {
	h := newHarness(t)
	reg := h.register(`{"queue":"orders","url":"https://example.com/hook"}`)
	target := "/api/v1/webhooks/" + reg.text("id")
	if a := h.do(http.StatusOK, "POST", target+"/rotate-secret", "null", "Content-Type", "application/json"); a.text("secret") == reg.text("secret") || len(a.get("secrets").([]any)) != 2 {
		t.Errorf("rotated: %s", a.body)
	}
	h.do(http.StatusOK, "POST", target+"/disable", "null", "Content-Type", "application/json")
	h.do(http.StatusOK, "POST", target+"/enable", " null ", "Content-Type", "application/json")
	h.do(http.StatusBadRequest, "PATCH", target, "null", "Content-Type", "application/json").wantProblem("body")
}
