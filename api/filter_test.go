package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook/content"
)

func TestFilterAndFormatAreSetShownAndChanged(t *testing.T) {
	h := newHarness(t)
	a := h.register(`{"queue":"orders","url":"https://example.com/hook"}`)
	if a.text("format") != "raw" || len(a.get("filter").(map[string]any)) != 0 {
		t.Errorf("by default: %s", a.body)
	}
	const filter = `{"types":["a.*"],"fields":[{"field":"n","op":"in","value":[12345678901234567890,"é"]}]}`
	target := "/api/v1/webhooks/" + h.register(`{"queue":"orders","url":"https://example.com/hook","format":"cloudevents-binary","filter":`+filter+`}`).text("id")

	shown := func(a answer, wantFilter, wantFormat string) {
		t.Helper()
		var got struct {
			Filter json.RawMessage `json:"filter"`
			Format string          `json:"format"`
		}
		if err := json.Unmarshal(a.body, &got); err != nil {
			t.Fatal(err)
		}
		if string(got.Filter) != wantFilter || got.Format != wantFormat {
			t.Errorf("filter %s, format %s; want %s, %s", got.Filter, got.Format, wantFilter, wantFormat)
		}
	}
	shown(h.do(http.StatusOK, "GET", target, ""), filter, "cloudevents-binary")
	shown(h.do(http.StatusOK, "PATCH", target, `{"filter":{"fields":null,"sources":["s"]},"format":"cloudevents-structured"}`, "Content-Type", mergePatch), `{"types":["a.*"],"sources":["s"]}`, "cloudevents-structured")
	shown(h.do(http.StatusOK, "PATCH", target, `{"name":"x"}`), `{"types":["a.*"],"sources":["s"]}`, "cloudevents-structured")
	shown(h.do(http.StatusOK, "PATCH", target, `{"filter":null,"format":null}`, "Content-Type", mergePatch), `{}`, "raw")
}

func TestBadFiltersAndFormatsNameTheFieldAndTheCure(t *testing.T) {
	h := newHarness(t)
	for body, field := range map[string]string{
		`"filter":"a"`:                        "filter",
		`"filter":{"type":["a"]}`:             "filter.type",
		`"filter":{"types":[""]}`:             "filter.types[0]",
		`"filter":{"fields":[{"field":"a"}]}`: "filter.fields[0].op",
		`"format":"xml"`:                      "format",
		`"format":1`:                          "format",
		`"format":"cloudevents-structured","headers":{"Content-Type":"text/plain"}`: "headers.Content-Type",
		`"format":"cloudevents-binary","headers":{"CE-Type":"x"}`:                   "headers.CE-Type",
	} {
		h.do(http.StatusBadRequest, "POST", "/api/v1/webhooks", `{"queue":"orders","url":"https://example.com/hook",`+body+`}`).wantProblem(field)
	}
	target := "/api/v1/webhooks/" + h.register(`{"queue":"orders","url":"https://example.com/hook","headers":{"Content-Type":"text/plain"}}`).text("id")
	h.do(http.StatusBadRequest, "PATCH", target, `{"format":"cloudevents-binary"}`).wantProblem("format")
	h.do(http.StatusOK, "PATCH", target, `{"format":"cloudevents-binary","headers":{"content-type":null}}`)
}

func TestMatchSaysWhoWouldTakeAMessage(t *testing.T) {
	h := newHarness(t)
	const target = "/api/v1/queues/orders/match"
	const event = `{"specversion":"1.0","id":"7","source":"/s","type":"order.paid","subject":"x","data":{"secret-text":1}}`
	if a := h.do(http.StatusOK, "POST", target, event); a.text("outcome") != "held" || len(a.get("webhooks").([]any)) != 0 {
		t.Errorf("without a webhook: %s", a.body)
	}
	for _, body := range []string{
		`"name":"paid","filter":{"types":["order.paid"]}`,
		`"name":"big","filter":{"fields":[{"field":"data.total","op":"gt","value":10}]}`,
		`"name":"off","enabled":false,"filter":{"types":["order.*"]}`,
	} {
		h.register(`{"queue":"orders","url":"https://example.com/hook",` + body + `}`)
	}
	h.register(`{"queue":"others","url":"https://example.com/hook"}`)

	type row struct {
		Name, Reason   string
		Enabled, Takes bool
	}
	ask := func(body string, headers ...string) (outcome string, event bool, rows map[string]row) {
		t.Helper()
		a := h.do(http.StatusOK, "POST", target, body, headers...)
		a.wantNot("secret-text")
		var got struct {
			Outcome  string
			Event    *struct{ ID, Source, Type, Subject string }
			Webhooks []row
		}
		if err := json.Unmarshal(a.body, &got); err != nil {
			t.Fatal(err)
		}
		rows = map[string]row{}
		for _, r := range got.Webhooks {
			rows[r.Name] = r
		}
		if got.Event != nil && got.Event.ID != "7" {
			t.Errorf("event %+v", got.Event)
		}
		return got.Outcome, got.Event != nil, rows
	}
	outcome, isEvent, rows := ask(event)
	if diff := cmp.Diff(map[string]row{
		"paid": {"paid", "every condition holds", true, true},
		"big":  {"big", "fields[0] (data.total gt): the field is not there", true, false},
		"off":  {"off", "every condition holds", false, true},
	}, rows); diff != "" || outcome != "delivered" || !isEvent {
		t.Error(outcome, isEvent, diff)
	}
	if outcome, _, _ := ask(`{"specversion":"1.0","id":"7","source":"/s","type":"order.sent"}`); outcome != "held" {
		t.Errorf("what only a disabled one takes: %s", outcome)
	}
	if outcome, isEvent, _ := ask(`secret-text`); outcome != "unmatched" || isEvent {
		t.Errorf("what none takes: %s", outcome)
	}
	if _, isEvent, _ := ask(" "+event, "Content-Type", "text/plain"); isEvent {
		t.Error("an event in a body that is not marked as JSON")
	}
	if outcome, _, _ := ask(`{"data":{"total":11}}`); outcome != "delivered" {
		t.Errorf("by its body: %s", outcome)
	}
	h.do(http.StatusBadRequest, "POST", target, "").wantProblem("body")
	h.do(http.StatusBadRequest, "POST", "/api/v1/queues/Orders/match", "x").wantProblem("queue")
	if depth, err := h.api.depth(t.Context(), "orders"); err == nil && depth.Total > 0 {
		t.Error("something was published")
	}
}

func TestMatchIsCarefulAboutRowsThatCannotBeRead(t *testing.T) {
	reg := tables.Registration{Enabled: true}
	reg.Filter.Types = []string{"a"}
	c := content.Read([]byte("x"), "text/plain")
	if v := newMatchView(c, []tables.Registration{reg}, true); v.Outcome != "held" {
		t.Errorf("outcome %s", v.Outcome)
	}
	if v := newMatchView(c, []tables.Registration{reg}, false); v.Outcome != "unmatched" {
		t.Errorf("outcome %s", v.Outcome)
	}
}

// C70: what waits on the queue of a webhook is seen before its filter throws it away.
func TestAFilterIsTriedWithWhatWaits(t *testing.T) {
	for queueName, become := range map[string]string{"kept": "they become dead letters (Unmatched)", "orders": "they are deleted"} {
		h := newHarness(t)
		for n := range 3 {
			h.do(http.StatusAccepted, "POST", "/api/v1/queues/"+queueName+"/messages", fmt.Sprintf(`{"specversion":"1.0","id":"%d","source":"/s","type":"order.placed"}`, n))
		}
		wrong := `"filter":{"types":["order.plcaed"]}`
		warns := func(a answer, want bool) {
			t.Helper()
			text := "Of the 3 messages at the front of this queue no filter takes 3, this one neither: " + become
			if got := strings.Contains(string(a.body), text); got != want {
				t.Errorf("says %q: %v, want %v: %s", text, got, want, a.body)
			}
		}
		registered := h.register(`{"queue":"` + queueName + `","url":"https://example.com/hook",` + wrong + `}`)
		warns(registered, true)
		target := "/api/v1/webhooks/" + registered.text("id")
		warns(h.do(http.StatusOK, "PATCH", target, `{"filter":{"types":["order.placed"]}}`), false)
		warns(h.do(http.StatusOK, "PATCH", target, "{"+wrong+"}"), true)
		warns(h.do(http.StatusOK, "PATCH", target, `{"name":"x"}`), false)
		warns(h.do(http.StatusOK, "PUT", target, `{"queue":"`+queueName+`","url":"https://example.com/hook",`+wrong+`}`), true)
		warns(h.do(http.StatusOK, "PUT", target, `{"queue":"`+queueName+`","url":"https://example.com/hook"}`), false)
		warns(h.register(`{"queue":"`+queueName+`","url":"https://example.com/other",`+wrong+`}`), false) // the other one takes them
		warns(h.do(http.StatusCreated, "PUT", "/api/v1/webhooks/mine", `{"queue":"none","url":"https://example.com/other",`+wrong+`}`), false)
	}
}

// C70: a typo in a filter shows when it is written, by the messages that no filter took so far.
func TestAFilterIsTriedWithWhatNoFilterTook(t *testing.T) {
	h := newHarness(t)
	const body = `{"specversion":"1.0","id":"1","source":"/s","type":"order.placed"}`
	h.putMany("orders", 3, func(i int, d *tables.DeadLetter) {
		if d.Text, d.Size = []byte(body), len(body); i > 0 {
			d.Reason = policy.Unmatched
		}
	})
	registered := h.register(`{"queue":"orders","url":"https://example.com/hook","filter":{"types":["order.plcaed"]}}`)
	if !strings.Contains(string(registered.body), "this one takes none of the newest 2 either") {
		t.Errorf("with a typo: %s", registered.body)
	}
	target := "/api/v1/webhooks/" + registered.text("id")
	if a := h.do(http.StatusOK, "PATCH", target, `{"filter":{"types":["order.placed"]}}`); !strings.Contains(string(a.body), "This filter takes 2 of the newest 2 messages") {
		t.Errorf("put right: %s", a.body)
	}
	if a := h.do(http.StatusOK, "PATCH", target, `{"name":"x"}`); strings.Contains(string(a.body), "newest") {
		t.Errorf("the filter is as it was: %s", a.body)
	}
	if a := h.register(`{"queue":"orders","url":"https://example.com/other"}`); strings.Contains(string(a.body), "newest") {
		t.Errorf("without a filter: %s", a.body)
	}
}
