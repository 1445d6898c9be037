package api

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const dryBilling = billing + "?dry_run=true"

func TestADryRunSaysWhatAPutWouldDoAndWritesNothing(t *testing.T) {
	h := newHarness(t)
	plan := func(a answer) map[string]any { return a.get("plan").(map[string]any) }
	if a := h.do(http.StatusOK, "PUT", dryBilling, hook); plan(a)["action"] != "create" || a.header.Get("ETag") != "" || a.get("secret") != nil {
		t.Errorf("of a new one: %s", a.body)
	}
	if n := h.countWebhooks(); n != 0 {
		t.Fatalf("%d webhooks after a dry run", n)
	}
	made := h.do(http.StatusCreated, "PUT", billing, hook)
	same := h.do(http.StatusOK, "PUT", dryBilling, hook)
	if plan(same)["action"] != "nothing" || len(plan(same)["changes"].([]any)) != 0 || same.header.Get("ETag") != made.header.Get("ETag") {
		t.Errorf("of the same: %s", same.body)
	}
	const other = `{"queue":"orders","url":"https://example.com/other","enabled":false,"policy":{"max_attempts":9},"filter":{"types":["a.*"]},
		"headers":{"X-New":"secret-one"}}`
	changed := h.do(http.StatusOK, "PUT", dryBilling, other)
	fields := map[string][2]any{}
	for _, c := range plan(changed)["changes"].([]any) {
		c := c.(map[string]any)
		fields[c["field"].(string)] = [2]any{c["from"], c["to"]}
	}
	want := map[string][2]any{
		"url": {"https://example.com/hook?[redacted]", "https://example.com/other"}, "name": {"billing", ""}, "enabled": {true, false},
		"policy.max_attempts": {8.0, 9.0}, "filter.types": {nil, []any{"a.*"}},
		"headers.X-New": {nil, "[redacted]"}, "headers.Authorization": {"[redacted]", nil},
	}
	if diff := cmp.Diff(want, fields); diff != "" || plan(changed)["action"] != "replace" || strings.Contains(string(changed.body), "secret-one") || strings.Contains(string(changed.body), "SIGNED") {
		t.Errorf("of another one: %s\n%s", diff, changed.body)
	}
	if now := h.do(http.StatusOK, "GET", billing, ""); now.text("url") != made.text("url") || now.get("updated_at") != made.get("updated_at") || now.get("plan") != nil {
		t.Errorf("a dry run changed it: %s", now.body)
	}
	h.do(http.StatusOK, "PUT", billing, other)
	if a := h.do(http.StatusOK, "PUT", dryBilling, strings.Replace(other, "secret-one", "secret-two", 1)); len(plan(a)["changes"].([]any)) != 1 || strings.Contains(string(a.body), "secret-") {
		t.Errorf("of another value of a header: %s", a.body)
	}
	if a := h.do(http.StatusOK, "PUT", dryBilling, other); plan(a)["action"] != "nothing" {
		t.Errorf("of what was just put: %s", a.body)
	}
}

func TestADryRunRefusesWhatThePutRefuses(t *testing.T) {
	h := newHarness(t)
	h.do(http.StatusPreconditionFailed, "PUT", dryBilling, hook, "If-Match", `"x"`).wantProblem("If-Match")
	h.do(http.StatusCreated, "PUT", billing, hook)
	h.do(http.StatusPreconditionFailed, "PUT", dryBilling, hook, "If-Match", `"x"`).wantProblem("If-Match")
	h.do(http.StatusPreconditionFailed, "PUT", dryBilling, hook, "If-None-Match", "*").wantProblem("If-None-Match")
	h.do(http.StatusBadRequest, "PUT", billing+"?dry_run=yes", hook).wantProblem("dry_run")
	h.do(http.StatusBadRequest, "PUT", dryBilling, `{"queue":"others","url":"https://example.com/hook"}`).wantProblem("queue")
	bad := h.do(http.StatusBadRequest, "PUT", "/api/v1/webhooks/none?dry_run=true", `{"queue":"orders","url":"ftp://example.com","timout":"1s"}`)
	bad.wantProblem("url")
	bad.wantProblem("timout")
}
