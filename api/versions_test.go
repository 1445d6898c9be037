package api

import (
	"net/http"
	"strings"
	"testing"

	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/policy"
)

// rowVersion is the part of the ETag that is the registration's or dead letter's.
func (a answer) rowVersion() string {
	row, _, _ := strings.Cut(strings.Trim(a.header.Get("ETag"), `"`), ".")
	return row
}

// A caller that has an answer gets a 304 while it would be the same, and never for another one:
// what a webhook's status says is part of it.
func TestAnAnswerThatTheCallerHasIsNotSentAgain(t *testing.T) {
	h := newHarness(t)
	webhook := "/api/v1/webhooks/" + h.register(`{"queue":"orders","url":"https://example.com/hook"}`).text("id")
	letter := "/api/v1/dead-letters/" + h.putDeadLetter(dead("m", "", "payload")).ID
	for _, target := range []string{webhook, letter} {
		tag := h.do(http.StatusOK, "GET", target, "").header.Get("ETag")
		for _, method := range []string{"GET", "HEAD"} {
			for _, have := range []string{tag, "W/" + tag, `"x", ` + tag, "*"} {
				a := h.do(http.StatusNotModified, method, target, "", "If-None-Match", have)
				if a.header.Get("ETag") != tag || len(a.body) != 0 {
					t.Errorf("%s with If-None-Match %s: ETag %s, body %s", method, have, a.header.Get("ETag"), a.body)
				}
			}
			for _, want := range []string{tag, `"x", ` + tag, "*"} {
				h.do(http.StatusOK, method, target, "", "If-Match", want)
			}
			row, _, _ := strings.Cut(tag, ".")
			for _, have := range []string{`"x"`, row + `"`, row, "x"} {
				h.do(http.StatusOK, method, target, "", "If-None-Match", have)
			}
			for _, want := range []string{`"x"`, "W/" + tag, row + `.0"`} {
				h.do(http.StatusPreconditionFailed, method, target, "", "If-Match", want)
			}
		}
	}
	before := h.do(http.StatusOK, "GET", webhook, "").header.Get("ETag")
	h.view.webhook = func(string) (status.Webhook, bool) {
		return status.Webhook{State: status.Healthy, Delivered: 1, Breaker: policy.BreakerState{Phase: policy.BreakerClosed}}, true
	}
	after := h.do(http.StatusOK, "GET", webhook, "", "If-None-Match", before)
	if after.get("status", "delivered") != 1.0 || after.header.Get("ETag") == before {
		t.Errorf("status %v under ETag %s, and before it was %s", after.get("status"), after.header.Get("ETag"), before)
	}
	// The status is not what is changed.
	h.do(http.StatusOK, "PATCH", webhook, `{"name":"a"}`, "If-Match", before)
	h.do(http.StatusPreconditionFailed, "PATCH", webhook, `{"name":"b"}`, "If-Match", before)
}

// If-None-Match refuses a change to what is there.
func TestAChangeThatWantsNothingThereIsRefused(t *testing.T) {
	h := newHarness(t)
	reg := h.register(`{"queue":"orders","url":"https://example.com/hook"}`)
	webhook := "/api/v1/webhooks/" + reg.text("id")
	letter := "/api/v1/dead-letters/" + h.putDeadLetter(dead("m", "", "payload")).ID
	for _, change := range []struct{ method, target, body string }{
		{"PATCH", webhook, `{"name":"b"}`}, {"PUT", webhook, `{"queue":"orders","url":"https://example.com/b"}`},
		{"POST", webhook + "/disable", ""}, {"POST", webhook + "/enable", ""}, {"POST", webhook + "/rotate-secret", ""}, {"DELETE", webhook, ""},
		{"POST", letter + "/replay", ""}, {"DELETE", letter, ""},
	} {
		h.do(http.StatusPreconditionFailed, change.method, change.target, change.body, "If-None-Match", "*").wantProblem("If-None-Match")
	}
	h.do(http.StatusPreconditionFailed, "PATCH", webhook, `{"name":"b"}`, "If-None-Match", reg.header.Get("ETag"))
	if got := h.do(http.StatusOK, "PATCH", webhook, `{"name":"b"}`, "If-None-Match", `"other"`); got.text("name") != "b" {
		t.Errorf("name %v", got.get("name"))
	}
	h.do(http.StatusNotFound, "PATCH", "/api/v1/webhooks/nobody", `{"name":"b"}`, "If-None-Match", "*")
}
