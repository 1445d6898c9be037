package api

import (
	"bytes"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/tables"
)

const billing = "/api/v1/webhooks/billing-eu"

// warnsOfATwin reports whether an answer names another webhook with the same URL.
func warnsOfATwin(a answer) bool { return bytes.Contains(a.body, []byte("same URL")) }

// countWebhooks asks for the list.
func (h *harness) countWebhooks() int {
	h.Helper()
	return len(h.do(http.StatusOK, "GET", "/api/v1/webhooks", "").get("data").([]any))
}

func TestARegistrationThatIsRepeatedWithItsKeyIsOne(t *testing.T) {
	h := newHarness(t)
	first := h.do(http.StatusCreated, "POST", "/api/v1/webhooks", hook, web.IdempotencyHeader, "deploy-7")
	id := first.text("id")
	again := h.do(http.StatusCreated, "POST", "/api/v1/webhooks", strings.ReplaceAll(hook, ",", ", "), web.IdempotencyHeader, `"deploy-7"`)
	if again.text("id") != id || again.text("secret") != first.text("secret") || again.header.Get("Location") != first.header.Get("Location") || again.header.Get("ETag") != first.header.Get("ETag") {
		t.Errorf("answered %s, then %s", first.body, again.body)
	}
	if again.header.Get("Idempotency-Replayed") != "true" || first.header.Get("Idempotency-Replayed") != "" || warnsOfATwin(again) {
		t.Errorf("the repetition has %v: %s", again.header, again.body)
	}
	h.do(http.StatusUnprocessableEntity, "POST", "/api/v1/webhooks", `{"queue":"orders","url":"https://example.com/other"}`, web.IdempotencyHeader, "deploy-7").wantProblem(web.IdempotencyHeader)
	if n := h.countWebhooks(); n != 1 {
		t.Fatalf("%d webhooks, want 1", n)
	}
	// What happened to it since is shown, and a secret that signs no more is not.
	h.do(http.StatusOK, "PATCH", "/api/v1/webhooks/"+id, `{"name":"renamed"}`)
	if now := h.do(http.StatusCreated, "POST", "/api/v1/webhooks", hook, web.IdempotencyHeader, "deploy-7"); now.text("name") != "renamed" || now.get("secret") == nil {
		t.Errorf("after a change: %s", now.body)
	}
	h.do(http.StatusOK, "POST", "/api/v1/webhooks/"+id+"/rotate-secret", `{"overlap":"0s"}`)
	if now := h.do(http.StatusCreated, "POST", "/api/v1/webhooks", hook, web.IdempotencyHeader, "deploy-7"); now.get("secret") != nil {
		t.Error("the secret is shown after a rotation")
	}
	// Another key, or none, is another webhook, and says so.
	for _, key := range []string{"deploy-8", ""} {
		r := request("POST", "/api/v1/webhooks", hook)
		if key != "" {
			r.Header.Set(web.IdempotencyHeader, key)
		}
		if other := h.serve(http.StatusCreated, r); other.text("id") == id || !warnsOfATwin(other) {
			t.Errorf("with the key %q: %s", key, other.body)
		}
	}
	h.do(http.StatusNoContent, "DELETE", "/api/v1/webhooks/"+id, "")
	if made := h.do(http.StatusCreated, "POST", "/api/v1/webhooks", hook, web.IdempotencyHeader, "deploy-7"); made.header.Get("Idempotency-Replayed") != "" || made.text("secret") == first.text("secret") {
		t.Errorf("after its deletion: %s", made.body)
	} else if reg, err := h.db.GetWebhook(t.Context(), id); err != nil || reg.ResetAt.IsZero() {
		t.Errorf("made anew under its id, it can't be told from the one that was deleted: %+v, %v", reg.ResetAt, err)
	}
	for _, bad := range []string{`"open`, strings.Repeat("k", 300), "a b"} {
		h.do(http.StatusBadRequest, "POST", "/api/v1/webhooks", hook, web.IdempotencyHeader, bad).wantProblem(web.IdempotencyHeader)
	}
}

func TestTheSecretOfARepeatedRegistrationIsShownForADay(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.do(http.StatusCreated, "POST", "/api/v1/webhooks", hook, web.IdempotencyHeader, "deploy-7")
		time.Sleep(secretShownFor - time.Nanosecond)
		if a := h.do(http.StatusCreated, "POST", "/api/v1/webhooks", hook, web.IdempotencyHeader, "deploy-7"); a.get("secret") == nil {
			t.Error("the secret is not shown within a day")
		}
		time.Sleep(time.Nanosecond)
		if a := h.do(http.StatusCreated, "POST", "/api/v1/webhooks", hook, web.IdempotencyHeader, "deploy-7"); a.get("secret") != nil {
			t.Error("the secret is shown after a day")
		}
	})
}

func TestPutMakesAWebhookUnderAChosenIdAndReplacesIt(t *testing.T) {
	h := newHarness(t)
	made := h.do(http.StatusCreated, "PUT", billing, hook)
	if made.text("id") != "billing-eu" || made.header.Get("Location") != billing || made.text("secret") == "" {
		t.Errorf("made %s", made.body)
	}
	same := h.do(http.StatusOK, "PUT", billing, hook)
	if same.header.Get("ETag") != made.header.Get("ETag") || same.get("secret") != nil || warnsOfATwin(same) {
		t.Errorf("the same request again: %s", same.body)
	}
	const other = `{"queue":"orders","url":"https://example.com/other","timeout":"5s"}`
	h.do(http.StatusPreconditionFailed, "PUT", billing, other, "If-None-Match", "*").wantProblem("If-None-Match")
	h.do(http.StatusPreconditionFailed, "PUT", billing, other, "If-Match", `"x"`).wantProblem("If-Match")
	h.do(http.StatusPreconditionFailed, "PUT", "/api/v1/webhooks/nobody", other, "If-Match", `"x"`).wantProblem("If-Match")
	h.do(http.StatusBadRequest, "PUT", billing, other, "If-None-Match", `"x"`).wantProblem("If-None-Match")
	replaced := h.do(http.StatusOK, "PUT", billing, other, "If-Match", made.header.Get("ETag"))
	if replaced.text("url") != "https://example.com/other" || replaced.text("timeout") != "5s" || replaced.get("name") != nil || len(replaced.get("headers").(map[string]any)) > 0 {
		t.Errorf("what is not named did not get its default: %s", replaced.body)
	}
	if replaced.get("reset_at") == made.get("reset_at") {
		t.Error("how it fared at its old URL still counts")
	}
	h.do(http.StatusCreated, "PUT", "/api/v1/webhooks/new_one", other, "If-None-Match", "*")
	if n := h.countWebhooks(); n != 2 {
		t.Errorf("%d webhooks, want 2", n)
	}
	// One that pushlease named is replaced by its id too.
	id := h.register(`{"queue":"refunds","url":"https://example.com/r"}`).text("id")
	h.do(http.StatusOK, "PUT", "/api/v1/webhooks/"+id, `{"queue":"refunds","url":"https://example.com/r2"}`)
	for _, id := range []string{"-rm", "a.b", "%2e%2e", "a%2Fb", strings.Repeat("a", 65), "%20", "é"} {
		h.do(http.StatusBadRequest, "PUT", "/api/v1/webhooks/"+id, hook).wantProblem("id")
	}
}

func TestPutKeepsWhatItDoesNotName(t *testing.T) {
	h := newHarness(t)
	secret := h.do(http.StatusCreated, "PUT", billing, hook).text("secret")
	h.do(http.StatusOK, "POST", billing+"/disable", "")
	disabled := h.do(http.StatusOK, "PUT", billing, hook)
	if disabled.get("enabled") != false || disabled.text("disabled_reason") != "operator" {
		t.Errorf("a repeated request enabled it: %s", disabled.body)
	}
	with := func(more string) string { return strings.TrimSuffix(hook, "}") + "," + more + "}" }
	h.do(http.StatusOK, "PUT", billing, with(`"secret":"`+secret+`","enabled":true`))
	if now := h.do(http.StatusOK, "PUT", billing, with(`"secret":null`)); now.get("enabled") != true {
		t.Errorf("it is not enabled: %s", now.body)
	}
	stored, err := h.db.GetWebhook(t.Context(), "billing-eu")
	if err != nil || len(stored.Secrets) != 1 || stored.Secrets[0].Key != secret {
		t.Errorf("secrets %d, %v", len(stored.Secrets), err)
	}
	for field, body := range map[string]string{
		"secret":                with(`"secret":"whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"`),
		"queue":                 `{"queue":"refunds","url":"https://example.com/hook"}`,
		"url":                   `{"queue":"orders"}`,
		"headers.Authorization": `{"queue":"orders","url":"https://example.com/hook","headers":{"Authorization":"[redacted]"}}`,
		"created_at":            with(`"created_at":"2026-01-01T00:00:00Z"`),
	} {
		h.do(http.StatusBadRequest, "PUT", billing, body).wantProblem(field)
	}
}

// Of two instances that register the same webhook at once, one makes it and the other finds
// it as it wants it.
func TestPutsAtTheSameTimeMakeOneWebhook(t *testing.T) {
	var h *harness
	var once sync.Once
	h = newHarness(t, func(o *Options) {
		o.Webhooks = racingWebhooks{o.Webhooks, func() {
			once.Do(func() {
				reg := tables.Registration{Enabled: true}
				reg.ID, reg.Queue, reg.URL = "billing-eu", "orders", "https://example.com/earlier"
				if _, err := h.db.PutWebhook(t.Context(), reg); err != nil {
					t.Error(err)
				}
			})
		}}
	})
	a := h.do(http.StatusOK, "PUT", billing, `{"queue":"orders","url":"https://example.com/hook"}`)
	if a.text("url") != "https://example.com/hook" || h.countWebhooks() != 1 {
		t.Errorf("got %s", a.body)
	}
}
