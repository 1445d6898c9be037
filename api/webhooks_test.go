package api

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/webhook"
)

const hook = `{"queue":"orders","url":"https://example.com/hook?sig=SIGNED","headers":{"Authorization":"Bearer T0KEN-VALUE"},"name":"billing"}`

func TestRegistrationShowsItsSecretOnceAndNeverItsHeaders(t *testing.T) {
	h := newHarness(t)
	a := h.register(hook)
	id, secret := a.text("id"), a.text("secret")
	if !regexp.MustCompile(`^wh_[a-z2-7]{26}$`).MatchString(id) {
		t.Errorf("id = %q", id)
	}
	if _, err := webhook.ParseSecret(secret); err != nil {
		t.Errorf("secret: %v", err)
	}
	if got := a.header.Get("Location"); got != "/api/v1/webhooks/"+id {
		t.Errorf("Location = %q", got)
	}
	if !strings.Contains(a.text("warnings", 0), "orders does not exist yet") {
		t.Errorf("warnings = %v", a.get("warnings"))
	}
	if h.view.changes != 1 {
		t.Errorf("the dispatcher was told %d times, want once", h.view.changes)
	}
	one := h.do(http.StatusOK, "GET", "/api/v1/webhooks/"+id, "")
	list := h.do(http.StatusOK, "GET", "/api/v1/webhooks?queue=orders&enabled=true", "")
	changed := h.do(http.StatusOK, "PATCH", "/api/v1/webhooks/"+id, `{"name":"x"}`)
	for _, later := range []answer{one, list, changed} {
		later.wantNot(strings.TrimPrefix(secret, "whsec_"))
		later.wantNot("T0KEN-VALUE")
	}
	a.wantNot("T0KEN-VALUE")
	if one.text("headers", "Authorization") != redacted || list.text("data", 0, "id") != id {
		t.Errorf("got %s and %s", one.body, list.body)
	}
	if one.text("timeout") != "30s" || one.text("policy", "preset") != "standard" || one.get("enabled") != true {
		t.Errorf("defaults: %s", one.body)
	}
	if one.rowVersion() != a.rowVersion() {
		t.Errorf("ETag = %s, then %s", a.header.Get("ETag"), one.header.Get("ETag"))
	}
	h.do(http.StatusAccepted, "POST", "/api/v1/queues/orders/messages", "first")
	if b := h.register(`{"queue":"orders","url":"https://example.com/another"}`); b.get("warnings") != nil {
		t.Errorf("warnings although the queue is there: %v", b.get("warnings"))
	}
}

func TestQueryOfAURLIsShownOnlyToThoseWhoMaySetIt(t *testing.T) {
	h := newHarness(t, withKeys)
	a := h.do(http.StatusCreated, "POST", "/api/v1/webhooks", hook, "Authorization", "Bearer admin")
	target := "/api/v1/webhooks/" + a.text("id")
	h.do(http.StatusOK, "GET", target, "", "Authorization", "Bearer read").wantNot("SIGNED")
	h.do(http.StatusOK, "POST", target+"/disable", "", "Authorization", "Bearer operate").wantNot("SIGNED")
	if got := h.do(http.StatusOK, "GET", target, "", "Authorization", "Bearer admin").text("url"); !strings.HasSuffix(got, "?sig=SIGNED") {
		t.Errorf("url for an admin = %q", got)
	}
	h.do(http.StatusBadRequest, "PATCH", target, `{"url":"https://example.com/hook?[redacted]"}`, "Authorization", "Bearer admin").wantProblem("url")
	h.do(http.StatusBadRequest, "PATCH", target, `{"url":"https://example.com/[redacted]/hook"}`, "Authorization", "Bearer admin").wantProblem("url")
}

func TestUserAndPasswordOfAnOldRowAreShownToNobody(t *testing.T) {
	for raw, want := range map[string][2]string{ // shown to an admin, and to others
		"https://example.com/a@b?c=d":                                           {"https://example.com/a@b?c=d", "https://example.com/a@b?[redacted]"},
		"https://us@er:p@example.com/x?c=d":                                     {"https://[redacted]@example.com/x?c=d", "https://[redacted]@example.com/x?[redacted]"},
		"https://hooks.example.com/services/T024BE7LD/abcdefghijklmnopqrstuvwx": {"https://hooks.example.com/services/T024BE7LD/abcdefghijklmnopqrstuvwx", "https://hooks.example.com/services/T024BE7LD/[redacted]"},
		"https://example.com/abcdefghijklmnop/x?c":                              {"https://example.com/abcdefghijklmnop/x?c", "https://example.com/[redacted]/x?[redacted]"},
		"https://user:pw@example.com":                                           {"https://[redacted]@example.com", "https://[redacted]@example.com"},
		"user:pw@example.com/x":                                                 {"[redacted]@example.com/x", "[redacted]@example.com/x"},
		"https://example.com?a=b@c":                                             {"https://example.com?a=b@c", "https://example.com?[redacted]"},
		"":                                                                      {"", ""},
	} {
		if admin, other := shownURL(raw, true), shownURL(raw, false); admin != want[0] || other != want[1] {
			t.Errorf("%s is shown as %s and %s", raw, admin, other)
		}
	}
}

func TestBadRegistrationsNameTheFieldAndTheCure(t *testing.T) {
	h := newHarness(t)
	const good = `"queue":"orders","url":"https://example.com/hook"`
	deep := strings.Repeat(`{"a":`, 20) + "1" + strings.Repeat("}", 20)
	tests := []struct{ name, body, field string }{
		{"nothing", `{}`, "queue"},
		{"nothing", `{}`, "url"},
		{"no object", `{"queue"`, "body"},
		{"text after it", `{` + good + `} {}`, "body"},
		{"too deep", `{` + good + `,"policy":` + deep + `}`, "body"},
		{"a name twice", `{` + good + `,"url":"https://example.com/other"}`, "body"},
		{"a name twice in another case", `{` + good + `,"URL":"https://example.com/other"}`, "body"},
		{"no UTF-8", "{" + good + ",\"name\":\"\xff\"}", "body"},
		{"unknown field", `{` + good + `,"urll":"x"}`, "urll"},
		{"field in upper case", `{"QUEUE":"orders","url":"https://example.com/hook"}`, "QUEUE"},
		{"field of an answer", `{` + good + `,"created_at":"2026-01-01T00:00:00Z"}`, "created_at"},
		{"queue of the wrong type", `{"queue":7,"url":"https://example.com/hook"}`, "queue"},
		{"queue in upper case", `{"queue":"Orders","url":"https://example.com/hook"}`, "queue"},
		{"queue with two hyphens", `{"queue":"or--ders","url":"https://example.com/hook"}`, "queue"},
		{"queue null", `{"queue":null,"url":"https://example.com/hook"}`, "queue"},
		{"hostile queue", `{"queue":"../../etc","url":"https://example.com/hook"}`, "queue"},
		{"url null", `{"queue":"orders","url":null}`, "url"},
		{"url with userinfo", `{"queue":"orders","url":"https://u:p@example.com/"}`, "url"},
		{"url on a private address", `{"queue":"orders","url":"https://10.0.0.1/"}`, "url"},
		{"url on loopback", `{"queue":"orders","url":"https://127.1/"}`, "url"},
		{"url on metadata", `{"queue":"orders","url":"https://169.254.169.254/"}`, "url"},
		{"url http", `{"queue":"orders","url":"http://example.com/"}`, "url"},
		{"url of another kind", `{"queue":"orders","url":"file:///etc/passwd"}`, "url"},
		{"name too long", `{` + good + `,"name":"` + strings.Repeat("é", 201) + `"}`, "name"},
		{"name on two lines", `{` + good + `,"name":"a\nb"}`, "name"},
		{"headers of the wrong type", `{` + good + `,"headers":["a"]}`, "headers"},
		{"header value of the wrong type", `{` + good + `,"headers":{"X-A":1}}`, "headers.X-A"},
		{"header with a line end", `{` + good + `,"headers":{"X-A":"a\r\nX: 1"}}`, "headers"},
		{"header with a NUL", `{` + good + `,"headers":{"X-A":"\u0000"}}`, "headers"},
		{"header not ASCII", `{` + good + `,"headers":{"X-A":"é"}}`, "headers"},
		{"header of 100 KB", `{` + good + `,"headers":{"X-A":"` + strings.Repeat("a", 100<<10) + `"}}`, "headers"},
		{"header without name", `{` + good + `,"headers":{"":"a"}}`, "headers"},
		{"header reserved", `{` + good + `,"headers":{"Webhook-Signature":"a"}}`, "headers"},
		{"header of HTTP itself", `{` + good + `,"headers":{"content-length":"1"}}`, "headers"},
		{"header twice", `{` + good + `,"headers":{"X-A":"1","x-a":"2"}}`, "body"},
		{"header with the mark", `{` + good + `,"headers":{"X-A":"[redacted]"}}`, "headers.X-A"},
		{"secret too short", `{` + good + `,"secret":"whsec_YWJj"}`, "secret"},
		{"secret with a version", `{` + good + `,"secret":"v1,whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}`, "secret"},
		{"secret URL-safe", `{` + good + `,"secret":"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLa-_"}`, "secret"},
		{"secret of the wrong type", `{` + good + `,"secret":{}}`, "secret"},
		{"timeout a number", `{` + good + `,"timeout":30}`, "timeout"},
		{"timeout without unit", `{` + good + `,"timeout":"30"}`, "timeout"},
		{"timeout too long", `{` + good + `,"timeout":"11m"}`, "timeout"},
		{"timeout negative", `{` + good + `,"timeout":"-1s"}`, "timeout"},
		{"enabled a string", `{` + good + `,"enabled":"yes"}`, "enabled"},
		{"policy a string", `{` + good + `,"policy":"standard"}`, "policy"},
		{"policy field", `{` + good + `,"policy":{"max_attemptz":3}}`, "policy.max_attemptz"},
		{"policy preset", `{` + good + `,"policy":{"preset":"fast"}}`, "policy.preset"},
		{"policy type", `{` + good + `,"policy":{"backoff":{"factor":"x"}}}`, "policy.backoff.factor"},
		{"policy value", `{` + good + `,"policy":{"max_attempts":0}}`, "policy.max_attempts"},
		{"flow a number", `{` + good + `,"flow":5}`, "flow"},
		{"flow field", `{` + good + `,"flow":{"concurency":3}}`, "flow.concurency"},
		{"flow type", `{` + good + `,"flow":{"breaker":{"min_samples":"x"}}}`, "flow.breaker.min_samples"},
		{"flow value", `{` + good + `,"flow":{"concurrency":0}}`, "flow.concurrency"},
		{"flow rate", `{` + good + `,"flow":{"rate":-1}}`, "flow.rate"},
		{"flow never", `{` + good + `,"flow":{"auto_disable_after":"0s"}}`, "flow.auto_disable_after"},
		{"policy rule", `{` + good + `,"policy":{"rules":[{"match":"999","action":"complete"}]}}`, "policy.rules[0].match"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h.do(http.StatusBadRequest, "POST", "/api/v1/webhooks", tt.body).wantProblem(tt.field)
		})
	}
	h.do(http.StatusBadRequest, "POST", "/api/v1/webhooks", `[]`, "Content-Type", "application/json").wantProblem("body")
	h.do(http.StatusBadRequest, "POST", "/api/v1/webhooks", `null`, "Content-Type", "application/json").wantProblem("body")
	h.do(http.StatusBadRequest, "POST", "/api/v1/webhooks", ``, "Content-Type", "application/json").wantProblem("body")
	h.do(http.StatusUnsupportedMediaType, "POST", "/api/v1/webhooks", `"x"`, "Content-Type", "text/plain").wantProblem("Content-Type")
	h.do(http.StatusRequestEntityTooLarge, "POST", "/api/v1/webhooks", `{"name":"`+strings.Repeat("a", web.MaxJSONBytes)+`"}`).wantProblem("body")
	if got := h.do(http.StatusOK, "GET", "/api/v1/webhooks", "").get("data"); len(got.([]any)) != 0 {
		t.Errorf("something was registered: %v", got)
	}
}

func TestARequestOfManyFieldsHasABoundedAnswer(t *testing.T) {
	h := newHarness(t)
	var many strings.Builder
	for i := range 9_000 {
		fmt.Fprintf(&many, `"x-%d":"a",`, i)
	}
	members := strings.TrimSuffix(many.String(), ",")
	for i := range 60_000 {
		fmt.Fprintf(&many, `"y-%d":"a",`, i)
	}
	a := h.do(http.StatusBadRequest, "POST", "/api/v1/webhooks", "{"+members+"}")
	if len(a.body) > 64<<10 || !strings.Contains(a.text("detail"), " more.") {
		t.Errorf("an answer of %d bytes", len(a.body))
	}
	a = h.do(http.StatusBadRequest, "POST", "/api/v1/webhooks", "{"+strings.TrimSuffix(many.String(), ",")+"}")
	a.wantProblem("body")
	// Comparing each with all others would take seconds.
	h.do(http.StatusBadRequest, "POST", "/api/v1/webhooks",
		`{"queue":"orders","url":"https://example.com/","headers":{`+members+`}}`).wantProblem("headers")
}

func TestSecretsAreNotRepeatedInProblems(t *testing.T) {
	h := newHarness(t)
	const secret = "whsec_TOPSECRETTOPSECRET"
	h.do(http.StatusBadRequest, "POST", "/api/v1/webhooks",
		`{"queue":"orders","url":"https://user:TOPSECRET@example.com/","secret":"`+secret+`","headers":{"X-A":"TOPSECRET\n"}}`).wantNot("TOPSECRET")
}

func TestPatchMergesAndNullGivesTheDefault(t *testing.T) {
	h := newHarness(t)
	id := h.register(`{"queue":"orders","url":"https://example.com/hook","name":"n","timeout":"5s","headers":{"X-A":"1","X-B":"2"},"policy":{"preset":"short","max_attempts":2}}`).text("id")
	target := "/api/v1/webhooks/" + id

	h.do(http.StatusOK, "PATCH", target, `{"headers":{"x-a":null,"X-C":"3"},"policy":{"max_attempts":7}}`, "Content-Type", "application/merge-patch+json")
	reg, err := h.db.GetWebhook(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if len(reg.Headers) != 2 || reg.Headers["X-B"] != "2" || reg.Headers["X-C"] != "3" {
		t.Errorf("headers = %v", reg.Headers)
	}
	if reg.Policy.Preset != "short" || reg.Policy.MaxAttempts != 7 || reg.Name != "n" {
		t.Errorf("changed: %+v", reg)
	}
	a := h.do(http.StatusOK, "PATCH", target, `{"headers":null,"timeout":null,"name":null,"policy":{"preset":"standard"},"queue":"orders"}`, "Content-Type", mergePatch)
	if a.text("timeout") != "30s" || a.get("name") != nil || a.get("policy", "max_attempts") != 8.0 || len(a.get("headers").(map[string]any)) != 0 {
		t.Errorf("after null: %s", a.body)
	}
	h.do(http.StatusBadRequest, "PATCH", target, `{"queue":"others"}`).wantProblem("queue")
	h.do(http.StatusBadRequest, "PATCH", target, `{"secret":null}`, "Content-Type", mergePatch).wantProblem("secret")
	h.do(http.StatusBadRequest, "PATCH", target, `{"id":"wh_1"}`).wantProblem("id")
	h.do(http.StatusBadRequest, "PATCH", target, `{"nme":"x"}`).wantProblem("nme")
}

func TestFlowIsMergedAndAnOldRowShowsTheDefault(t *testing.T) {
	h := newHarness(t)
	a := h.register(`{"queue":"orders","url":"https://example.com/hook","flow":{"rate":0.5,"breaker":{"min_samples":3},"auto_disable_after":"never"}}`)
	if a.get("flow", "concurrency") != 64.0 || a.get("flow", "rate") != 0.5 || a.get("flow", "breaker", "enabled") != true || a.text("flow", "auto_disable_after") != "never" {
		t.Errorf("created: %s", a.body)
	}
	target := "/api/v1/webhooks/" + a.text("id")
	a = h.do(http.StatusOK, "PATCH", target, `{"flow":{"concurrency":2,"rate":null,"breaker":{"enabled":false}}}`, "Content-Type", mergePatch)
	if a.get("flow", "concurrency") != 2.0 || a.get("flow", "rate") != 0.0 || a.get("flow", "breaker", "enabled") != false ||
		a.get("flow", "breaker", "min_samples") != 3.0 || a.text("flow", "auto_disable_after") != "never" {
		t.Errorf("changed: %s", a.body)
	}
	if a = h.do(http.StatusOK, "PATCH", target, `{"flow":null}`, "Content-Type", mergePatch); a.get("flow", "concurrency") != 64.0 || a.text("flow", "auto_disable_after") != "120h" {
		t.Errorf("after null: %s", a.body)
	}
	old, err := h.db.GetWebhook(t.Context(), a.text("id"))
	if err != nil {
		t.Fatal(err)
	}
	old.Flow = policy.Flow{}
	if _, err := h.db.PutWebhook(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	for _, a := range []answer{h.do(http.StatusOK, "GET", target, ""), h.do(http.StatusOK, "PATCH", target, `{"name":"n"}`)} {
		if a.get("flow", "concurrency") != 64.0 {
			t.Errorf("a row of before there was any: %s", a.body)
		}
	}
}

func TestIfMatchGuardsAChange(t *testing.T) {
	h := newHarness(t)
	a := h.register(hook)
	target, first := "/api/v1/webhooks/"+a.text("id"), a.header.Get("ETag")
	second := h.do(http.StatusOK, "PATCH", target, `{"name":"b"}`, "If-Match", first).header.Get("ETag")
	if second == first {
		t.Fatal("the ETag did not change")
	}
	for _, method := range []string{"PATCH", "DELETE"} {
		for _, etag := range []string{first, "W/" + second, "nonsense"} {
			body := ""
			if method == "PATCH" {
				body = `{"name":"c"}`
			}
			h.do(http.StatusPreconditionFailed, method, target, body, "If-Match", etag).wantProblem("If-Match")
		}
	}
	h.do(http.StatusPreconditionFailed, "POST", target+"/disable", "", "If-Match", first)
	h.do(http.StatusPreconditionFailed, "POST", target+"/rotate-secret", "", "If-Match", first)
	if got := h.do(http.StatusOK, "PATCH", target, `{"name":"b"}`).header.Get("ETag"); got != second {
		t.Error("a patch that changes nothing made a new version")
	}
	h.do(http.StatusOK, "PATCH", target, `{"name":"c"}`, "If-Match", `"other", *`)
	h.do(http.StatusNoContent, "DELETE", target, "", "If-Match", "*")
	h.do(http.StatusNotFound, "DELETE", target, "")
	h.do(http.StatusNotFound, "GET", target, "")
	h.do(http.StatusNotFound, "PATCH", target, `{"name":"c"}`)
}

func TestAChangeIsTriedAgainWhenAnotherOneCameBetween(t *testing.T) {
	var races int
	var h *harness
	h = newHarness(t, func(o *Options) {
		o.Webhooks = racingWebhooks{o.Webhooks, func() {
			if races <= 0 {
				return
			}
			races--
			all, _, err := h.db.ListWebhooks(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, reg := range all {
				reg.Headers = map[string]string{"X-Race": strings.Repeat("x", races+1)}
				if _, err := h.db.PutWebhook(t.Context(), reg); err != nil {
					t.Fatal(err)
				}
			}
		}}
	})
	a := h.register(hook)
	target := "/api/v1/webhooks/" + a.text("id")

	races = 2
	got := h.do(http.StatusOK, "PATCH", target, `{"name":"mine"}`)
	if got.text("name") != "mine" || got.text("headers", "X-Race") != redacted {
		t.Errorf("one of the changes was lost: %s", got.body)
	}
	races = 1
	h.do(http.StatusPreconditionFailed, "PATCH", target, `{"name":"guarded"}`, "If-Match", got.header.Get("ETag"))
	races = 100
	h.do(http.StatusConflict, "PATCH", target, `{"name":"unlucky"}`).wantProblem("request")
}

func TestDisablingKeepsWhyAndSinceWhen(t *testing.T) {
	h := newHarness(t)
	target := "/api/v1/webhooks/" + h.register(hook).text("id")
	a := h.do(http.StatusOK, "POST", target+"/disable", "")
	if a.get("enabled") != false || a.text("disabled_reason") != "operator" || a.text("disabled_at") == "" {
		t.Errorf("disabled: %s", a.body)
	}
	again := h.do(http.StatusOK, "POST", target+"/disable", "{}")
	if again.text("disabled_at") != a.text("disabled_at") || again.header.Get("ETag") != a.header.Get("ETag") {
		t.Errorf("disabled twice: %s", again.body)
	}
	b := h.do(http.StatusOK, "POST", target+"/enable", "")
	if b.get("enabled") != true || b.get("disabled_reason") != nil || b.get("disabled_at") != nil {
		t.Errorf("enabled: %s", b.body)
	}
	h.do(http.StatusBadRequest, "POST", target+"/enable", `{"reason":"x"}`).wantProblem("reason")
	h.do(http.StatusBadRequest, "POST", target+"/enable?now=1", "").wantProblem("now")
	h.do(http.StatusNotFound, "POST", "/api/v1/webhooks/wh_none/enable", "")
}

func TestWebhooksAreListedInPages(t *testing.T) {
	h := newHarness(t)
	want := map[string]bool{}
	for range 5 {
		want[h.register(hook).text("id")] = true
	}
	h.register(`{"queue":"others","url":"https://example.com/"}`)
	cursor := ""
	for page := 0; ; page++ {
		a := h.do(http.StatusOK, "GET", "/api/v1/webhooks?queue=orders&limit=2&cursor="+cursor, "")
		for _, w := range a.get("data").([]any) {
			id := w.(map[string]any)["id"].(string)
			if !want[id] {
				t.Errorf("%s is there twice or should not be", id)
			}
			delete(want, id)
		}
		next, more := a.get("next_cursor").(string)
		if !more {
			if page != 2 {
				t.Errorf("%d pages, want 3", page+1)
			}
			break
		}
		cursor = next
	}
	if len(want) != 0 {
		t.Errorf("not listed: %v", want)
	}
	h.do(http.StatusBadRequest, "GET", "/api/v1/webhooks?enabled=yes", "").wantProblem("enabled")
}

func TestHostileIdsAreNotFound(t *testing.T) {
	h := newHarness(t)
	for _, id := range []string{"%2e%2e", "a%2Fb", "%00", "'%3B--", strings.Repeat("a", 3<<10), "%ff", "é"} {
		h.do(http.StatusNotFound, "GET", "/api/v1/webhooks/"+id, "")
		h.do(http.StatusNotFound, "DELETE", "/api/v1/webhooks/"+id, "")
		h.do(http.StatusNotFound, "GET", "/api/v1/dead-letters/"+id, "")
		h.do(http.StatusNotFound, "POST", "/api/v1/dead-letters/"+id+"/replay", "")
		h.do(http.StatusNotFound, "GET", "/api/v1/messages/"+id, "")
		h.do(http.StatusBadRequest, "GET", "/api/v1/queues/"+id, "").wantProblem("queue")
		h.do(http.StatusBadRequest, "POST", "/api/v1/queues/"+id+"/messages", "x").wantProblem("queue")
	}
}

// A registration that was repeated doubles every message, which nobody would look for.
func TestATwinOfAWebhookIsToldAtItsRegistration(t *testing.T) {
	h := newHarness(t)
	first := h.register(hook).text("id")
	found := false
	for _, w := range h.register(hook).get("warnings").([]any) {
		found = found || strings.Contains(w.(string), first)
	}
	if !found {
		t.Error("the twin is not told")
	}
	for _, other := range []string{`{"queue":"refunds","url":"https://example.com/hook?sig=SIGNED"}`, `{"queue":"orders","url":"https://example.com/other"}`} {
		if a := h.register(other); bytes.Contains(a.body, []byte("same URL")) {
			t.Errorf("no twin: %s", a.body)
		}
	}
	put := h.do(http.StatusCreated, "PUT", "/api/v1/webhooks/own", `{"queue":"orders","url":"https://example.com/third"}`)
	if bytes.Contains(put.body, []byte("same URL")) {
		t.Errorf("no twin: %s", put.body)
	}
	for _, change := range []struct {
		method, body string
		twin         bool
	}{
		{"PATCH", `{"name":"third"}`, false},
		{"PATCH", `{"url":"https://example.com/other"}`, true},
		{"PATCH", `{"url":"https://example.com/third"}`, false},
		{"PUT", `{"queue":"orders","url":"https://example.com/other"}`, true},
	} {
		if a := h.do(http.StatusOK, change.method, "/api/v1/webhooks/own", change.body); bytes.Contains(a.body, []byte("same URL")) != change.twin {
			t.Errorf("%s %s: %s", change.method, change.body, a.body)
		}
	}
}

// A compressed body is refused wherever one is sent: read as it is it would be something else.
// C99: a host that forwards, or a proxy, may drop Content-Encoding.
func TestACompressedBodyIsRefusedWithoutItsHeaderToo(t *testing.T) {
	h := newHarness(t)
	var zipped, deflated bytes.Buffer
	z, d := gzip.NewWriter(&zipped), zlib.NewWriter(&deflated)
	for _, w := range []io.WriteCloser{z, d} {
		_, _ = io.WriteString(w, `{"order":1,"text":"quite long, quite long, quite long"}`)
		_ = w.Close()
	}
	brotli := "\x1b\x0e\x00\xf8\x8d\x94\x6e\xde" // of a short JSON object
	for _, body := range []string{zipped.String(), deflated.String(), "\x28\xb5\x2f\xfd\x04\x00\x99", brotli} {
		a := h.do(http.StatusUnsupportedMediaType, "POST", publishTarget, body, "Content-Type", "application/json")
		a.wantProblem("body")
		h.do(http.StatusUnsupportedMediaType, "POST", publishTarget, body, "Content-Type", "application/vnd.x+json; charset=utf-8")
		h.do(http.StatusAccepted, "POST", publishTarget, body, "Content-Type", "application/octet-stream")
		h.do(http.StatusAccepted, "POST", publishTarget, body)
	}
	h.do(http.StatusUnsupportedMediaType, "POST", publishTarget, zipped.String(), "Content-Type", "text/plain")
	for _, brotli := range []string{ // of 96 kB of a JSON list, which begins with [ by chance, of texts, and of XML
		"5b7077312aea31a9855506878d83200c7e773422828d53066630916a9d404f63a3f879485a307105161978afc02f7adea51ca3a391c7e7d65e5fc1c4844e8820",
		"5b994512510dab888a5880e84c30cffd21ec662de24f896bd3b161b725778122334b1097b97c3bc3239a1c809dca6f81e69125926158b003b0e1e16304014118",
		"1b8f01888c94a8e35b10e6a147e88172e92629e0845a6554d81be1e20064f72a13c84bc86bd06985737575bc9e68c74b610ec27bdb7fb45331e1d0410f038c30",
		"1b3900301c076e2ccd6b46eed90895de3c3e3174f3c58d2e7dcaf060030ed8d3f011763fda6022370fb0e802975e32e27e3744c410b26c",
	} {
		body, err := hex.DecodeString(brotli)
		if err != nil {
			t.Fatal(err)
		}
		for _, declared := range []string{"application/json", "text/plain; charset=utf-8", "text/html", "application/xml", "image/svg+xml"} {
			h.do(http.StatusUnsupportedMediaType, "POST", publishTarget, string(body), "Content-Type", declared).wantProblem("body")
		}
		h.do(http.StatusAccepted, "POST", publishTarget, string(body), "Content-Type", "application/octet-stream")
	}
	for _, fine := range [][2]string{
		{"x\x01 is a text", "text/plain"}, {"caf\xe9", "text/plain; charset=iso-8859-1"}, {"\ufeff{}", "application/json"}, {"{", "application/json"},
		{zipped.String(), "application/gzip"}, {"x", "application/json"}, {"{\"a\":\"caf\xe9\"}\f", "application/json"},
		{"\xff\xfe<\x00a\x00/\x00>\x00", "application/xml"}, {"a\x00\xe9\x00", "text/plain; charset=UTF-16LE"}, {"\x93\xfa\x96\x7b\r\n", "text/plain; charset=shift_jis"},
		{"\x1b[31mcaf\xe9", "text/plain; charset=ISO-8859-1"}, {"\xc8\x85\x93\x93\x96\x15", "text/plain; charset=ibm037"}, {"a\x00\xe9\x00", "text/plain; charset=ucs-2"},
	} {
		h.do(http.StatusAccepted, "POST", publishTarget, fine[0], "Content-Type", fine[1])
	}
}

func TestACompressedBodyIsRefusedEverywhere(t *testing.T) {
	h := newHarness(t)
	id := h.register(hook).text("id")
	for _, to := range [][2]string{
		{"POST", "/api/v1/webhooks"}, {"PATCH", "/api/v1/webhooks/" + id}, {"POST", "/api/v1/webhooks/" + id + "/rotate-secret"},
		{"POST", purgePath}, {"POST", replayPath}, {"POST", publishTarget}, {"POST", "/api/v1/queues/orders/match"},
	} {
		h.do(http.StatusUnsupportedMediaType, to[0], to[1], `{"queue":"orders"}`, "Content-Encoding", "gzip").wantProblem("Content-Encoding")
	}
}

// C88: a webhook may be kept to HTTP/1.1.
func TestHTTPVersionIsSetShownAndKept(t *testing.T) {
	h := newHarness(t)
	a := h.register(`{"queue":"orders","url":"https://example.com/hook","http_version":"1.1"}`)
	target := "/api/v1/webhooks/" + a.text("id")
	for _, step := range []struct{ change, want string }{
		{`{"name":"x"}`, "1.1"}, {`{"http_version":"auto"}`, "auto"}, {`{"http_version":"1.1"}`, "1.1"}, {`{"http_version":null}`, "auto"},
	} {
		if got := h.do(http.StatusOK, "PATCH", target, step.change, "Content-Type", mergePatch).text("http_version"); got != step.want {
			t.Errorf("after %s: %q, want %q", step.change, got, step.want)
		}
	}
	for _, bad := range []string{`"2"`, `1.1`, `""`} {
		h.do(http.StatusBadRequest, "PATCH", target, `{"http_version":`+bad+`}`).wantProblem("http_version")
	}
	if got := h.register(hook).text("http_version"); got != "auto" {
		t.Errorf("without a word about it: %q", got)
	}
}
