package api

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// An error names a field that the request has: a rule over several is broken by the one that was sent.
func TestAnErrorBlamesWhatWasSent(t *testing.T) {
	h := newHarness(t)
	target := "/api/v1/webhooks/" + h.register(`{"queue":"orders","url":"https://example.com/hook","headers":{"ce-id":"7"}}`).text("id")
	for _, tt := range []struct{ body, field string }{
		{`{"policy":{"backoff":{"initial":"2h"}}}`, "policy.backoff.initial"},
		{`{"policy":{"backoff":{"max":"1s"}}}`, "policy.backoff.max"},
		{`{"policy":{"backoff":{"initial":"2h","max":"1h"}}}`, "policy.backoff.max"},
		{`{"policy":{"max_age":"1s"}}`, "policy.max_age"},
		{`{"policy":{"backoff":{"delays":["48h"]}}}`, "policy.backoff.delays"},
		{`{"policy":{"backoff":{"initial":"48h","max":"48h"}}}`, "policy.backoff.initial"},
		{`{"policy":{"backoff":{"delays":["1m"],"initial":"1s"}}}`, "policy.backoff.initial"},
		{`{"policy":{"backoff":{"delays":["1m"],"factor":3}}}`, "policy.backoff.factor"},
		{`{"policy":{"preset":"none such"}}`, "policy.preset"},
		{`{"flow":{"breaker":{"probe_after":"1h"}}}`, "flow.breaker.probe_after"},
		{`{"flow":{"breaker":{"probe_max":"1s"}}}`, "flow.breaker.probe_max"},
		{`{"flow":{"breaker":{"probe_after":"2h","probe_max":"1h"}}}`, "flow.breaker.probe_max"},
		{`{"flow":{"burst":5}}`, "flow.burst"},
		{`{"format":"cloudevents-binary"}`, "format"},
		{`{"format":"cloudevents-binary","headers":{"CE-ID":"8"}}`, "headers.CE-ID"},
	} {
		a := h.do(http.StatusBadRequest, "PATCH", target, tt.body)
		a.wantProblem(tt.field)
		var p struct{ Errors []struct{ Field string } }
		if err := json.Unmarshal(a.body, &p); err != nil {
			t.Fatal(err)
		}
		for _, e := range p.Errors {
			last := e.Field[strings.LastIndexByte(e.Field, '.')+1:]
			if !strings.Contains(tt.body, `"`+last+`"`) {
				t.Errorf("%s: %s was not sent: %s", tt.body, e.Field, a.body)
			}
		}
	}
	h.do(http.StatusOK, "PATCH", target, `{"format":"cloudevents-binary","headers":{"ce-id":null}}`)
	h.do(http.StatusOK, "PATCH", target, `{"policy":{"backoff":{"delays":["1m","2m"]}}}`)
}
