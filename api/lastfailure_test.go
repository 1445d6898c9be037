package api

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

// C42: whoever looks at a webhook whose name leads inwards is told so, with the name, since
// when, how long its messages are tried, and what to do.
func TestTheStatusNamesAHostNameThatLeadsInwards(t *testing.T) {
	at := time.Now().UTC().Truncate(time.Second)
	failed := status.Webhook{State: status.Failing, Breaker: policy.BreakerState{Phase: policy.BreakerClosed}, LastFailureAt: at, Failing: policy.AutoDisableState{FailingSince: at.Add(-time.Minute), FailedMessages: 3}}
	healed := failed
	healed.Failing = policy.AutoDisableState{LastSuccess: at.Add(time.Second)}
	for name, tt := range map[string]struct {
		url   string
		state status.Webhook
		class policy.ErrorClass
		want  bool
	}{
		"a name":              {"https://billing.example.com/hook", failed, policy.ClassBlocked, true},
		"another fault":       {"https://billing.example.com/hook", failed, policy.ClassConnect, false},
		"it succeeded since":  {"https://billing.example.com/hook", healed, policy.ClassBlocked, false},
		"an address":          {"https://93.184.215.14/hook", failed, policy.ClassBlocked, false},
		"an address of IPv6 ": {"https://[2606:4700::1111]/hook", failed, policy.ClassBlocked, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			h.view.webhook = func(string) (status.Webhook, bool) { return tt.state, true }
			id := h.register(`{"queue":"orders","url":"` + tt.url + `","policy":{"max_attempts":5,"max_age":"2h"}}`).text("id")
			key := tables.MessageKey{Queue: "orders", MessageID: "m1", Day: at}
			h.record(tables.Record{Attempts: []tables.Attempt{{MessageKey: key, WebhookID: id, Number: 1, StartedAt: at, ErrorClass: tt.class, Action: policy.Abandon, Reason: policy.RetryableError}}})
			text := h.do(http.StatusOK, "GET", "/api/v1/webhooks/"+id, "").text("status", "text")
			if got := strings.Contains(text, "forbidden"); got != tt.want {
				t.Fatalf("the text is %q", text)
			}
			for _, part := range []string{"billing.example.com", web.Stamp(at), web.Stamp(at.Add(-time.Minute)), "5 attempts", "2h0m0s", "allow_cidrs", "BlockedAddress"} {
				if tt.want && !strings.Contains(text, part) {
					t.Errorf("no %q in %q", part, text)
				}
			}
		})
	}
}

// C95: whoever looks at a webhook that fails reads what was seen, as in the list of attempts.
func TestTheStatusSaysWhatTheLastAttemptMet(t *testing.T) {
	at := time.Now().UTC().Truncate(time.Second)
	healthy := status.Webhook{State: status.Healthy, Breaker: policy.BreakerState{Phase: policy.BreakerClosed}}
	failed := healthy
	failed.LastFailureAt, failed.Failing = at, policy.AutoDisableState{FailingSince: at, FailedMessages: 1}
	healed := failed
	healed.Failing = policy.AutoDisableState{LastSuccess: at.Add(time.Second)}
	for name, tt := range map[string]struct {
		state status.Webhook
		last  tables.Attempt
		want  string
	}{
		"no answer":           {failed, tables.Attempt{ErrorClass: policy.ClassTLS, Error: "the certificate has expired"}, "got no answer (tls): the certificate has expired."},
		"an answer":           {failed, tables.Attempt{Status: 503}, "was answered 503."},
		"a redirect":          {failed, tables.Attempt{Status: 307, RedirectHost: "login.example.com"}, "was answered 307, which points to login.example.com; redirects are not followed."},
		"it succeeded since":  {healed, tables.Attempt{Status: 503}, ""},
		"it has never failed": {healthy, tables.Attempt{Status: 503}, ""},
	} {
		h := newHarness(t)
		h.view.webhook = func(string) (status.Webhook, bool) { return tt.state, true }
		id := h.register(hook).text("id")
		a := tt.last
		a.MessageKey, a.WebhookID, a.Number, a.StartedAt = tables.MessageKey{Queue: "orders", MessageID: "m1", Day: at}, id, 1, at
		a.Action, a.Reason = policy.Abandon, policy.RetryableError
		h.record(tables.Record{Attempts: []tables.Attempt{a}})
		text := h.do(http.StatusOK, "GET", "/api/v1/webhooks/"+id, "").text("status", "text")
		if told := strings.Contains(text, "Its last attempt, at "+web.Stamp(at)+", "); told != (tt.want != "") || !strings.Contains(text, tt.want) {
			t.Errorf("%s: %s", name, text)
		}
	}
}
