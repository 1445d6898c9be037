package api

import (
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

func TestStatusSaysWhyAndWhatNext(t *testing.T) {
	at := time.Date(2026, 5, 6, 3, 0, 0, 0, time.UTC)
	until := at.Add(time.Minute)
	open := policy.BreakerState{Phase: policy.BreakerOpen, Since: at, NextProbe: until}
	tests := []struct {
		name    string
		state   status.Webhook
		disable string // its reason; empty leaves it enabled
		want    status.FlowState
		text    []string
		not     string
	}{
		{name: "healthy", state: status.Webhook{State: status.Healthy}, want: status.Healthy, text: []string{"It is sent to as messages come."}, not: "enable"},
		{name: "healthy and failing", state: status.Webhook{State: status.Healthy, Failing: policy.AutoDisableState{FailingSince: at, FailedMessages: 3}}, want: status.Healthy,
			text: []string{"No 2xx was seen by instance one since 2026-05-06T03:00:00Z, while attempts of 3 messages failed", "disabled at 2026-05-11T03:00:00Z or when those of 20 messages have failed"}},
		{name: "busy", state: status.Webhook{State: status.Busy, InFlight: 4, Window: 4, Concurrency: 64}, want: status.Busy, text: []string{"4 POSTs are in flight", "grow to 64"}},
		{name: "healthy and refusing", state: status.Webhook{State: status.Healthy, RecentPosts: 40, RecentRefused: 38}, want: status.Healthy,
			text: []string{"It is sent to as messages come. It refused 38 of the 40 POSTs that instance one made to it", "GET /api/v1/attempts?webhook=wh_"}},
		{name: "disabled and refusing", state: status.Webhook{State: status.Disabled, RecentPosts: 40, RecentRefused: 38}, disable: "operator", want: status.Disabled, text: []string{"An operator"}, not: "refused"},
		{name: "rate", state: status.Webhook{State: status.Busy, Until: until}, want: status.Busy, text: []string{"rate of 2 a second", "2026-05-06T03:01:00Z"}},
		{name: "limited", state: status.Webhook{State: status.Limited, Pace: policy.PaceState{Rate: 19.5, Since: at, Refused: 12, Noise: 0.3}, PaceOfAll: 19.5}, want: status.Limited,
			text: []string{"It throttles what is beyond a limit", "12 POSTs since 2026-05-06T03:00:00Z, as seen by instance one", "sent about 19.5 a second", "Nothing has to be done",
				"About 30 % are throttled whatever the rate", "Its flow.rate of 2 a second", "/enable forgets"}, not: "share its limit"},
		{name: "limited beside one that sends most", state: status.Webhook{State: status.Limited, Pace: policy.PaceState{Rate: 0.5, Since: at}, PaceOfAll: 20, Leader: "two"}, want: status.Limited,
			text: []string{"It is sent about 20 a second, as was learned from that, and more now and then; instance two sends most of it, and this one about one POST in 2s, since all instances share its limit; that costs"}},
		{name: "limited to little", state: status.Webhook{State: status.Limited, Pace: policy.PaceState{Rate: 0.02, Since: at}, PaceOfAll: 0.02}, want: status.Limited, text: []string{"sent about one POST in 50s"}, not: "whatever the rate"},
		{name: "without a token", state: status.Webhook{State: status.NoToken, Until: until, Why: "the token endpoint answered 500"}, want: status.NoToken,
			text: []string{"No token can be had to show it: the token endpoint answered 500. Nothing is sent", "asked for again at 2026-05-06T03:01:00Z", "no attempt charged", "Mend what the token endpoint says (POST /api/v1/webhooks/wh_", "/enable"}},
		{name: "paused", state: status.Webhook{State: status.Paused, Until: until}, want: status.Paused, text: []string{"asked for a pause", "until 2026-05-06T03:01:00Z", "no attempt charged", "/enable", "/queues/orders"}},
		{name: "failing", state: status.Webhook{State: status.Failing, Until: until, Breaker: open}, want: status.Failing,
			text: []string{"open since 2026-05-06T03:00:00Z", "probe is due at 2026-05-06T03:01:00Z", "down to one in 15m0s", "Mend the receiver; POST /api/v1/webhooks/wh_"}},
		{name: "quota used up", state: status.Webhook{State: status.Failing, Until: until, Breaker: open, Throttles: true}, want: status.Failing,
			text: []string{"It answers 429, or asks for waits, as where a quota is used up, and its breaker has been open since 2026-05-06T03:00:00Z", "probe is due at 2026-05-06T03:01:00Z",
				"Nothing has to be done unless that lasts; POST /api/v1/webhooks/wh_"}, not: "Mend"},
		{name: "probing", state: status.Webhook{State: status.Probing, Breaker: open}, want: status.Probing, text: []string{"is the probe"}},
		{name: "operator", state: status.Webhook{State: status.Disabled}, disable: "operator", want: status.Disabled, text: []string{"An operator disabled it at 2026-05-06T03:00:00Z.", "sends to it again"}},
		{name: "gone", state: status.Webhook{State: status.Disabled}, disable: "gone", want: status.Disabled, text: []string{"410 Gone", "/test tries it"}},
		{name: "auto", state: status.Webhook{State: status.Disabled}, disable: "failing", want: status.Disabled, text: []string{"failed for 120h without one 2xx"}},
		{name: "rule", state: status.Webhook{State: status.Disabled}, disable: "rule", want: status.Disabled, text: []string{"A rule of its policy"}},
		{name: "receiver", state: status.Webhook{State: status.Disabled}, disable: "receiver", want: status.Disabled, text: []string{"It asked for it"}},
		{name: "foreign reason", state: status.Webhook{State: status.Disabled}, disable: "x", want: status.Disabled, text: []string{"It is disabled at"}},
		{name: "disabled a moment ago", state: status.Webhook{State: status.Failing, Until: until, Breaker: open}, disable: "operator", want: status.Disabled, text: []string{"may send to it for a moment"}, not: "probe"},
		{name: "enabled a moment ago", state: status.Webhook{State: status.Disabled}, want: status.Disabled, text: []string{"It was enabled; instance one has not read that yet"}, not: "/enable"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHarness(t, func(o *Options) { o.Instance = "one" })
			id := h.register(`{"queue":"orders","url":"https://example.com/hook","flow":{"rate":2}}`).text("id")
			if tt.disable != "" {
				reg, err := h.db.GetWebhook(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				reg.Enabled, reg.DisabledReason, reg.DisabledAt = false, tt.disable, at
				if _, err := h.db.PutWebhook(t.Context(), reg); err != nil {
					t.Fatal(err)
				}
			}
			tt.state.Breaker.Phase = policy.BreakerClosed
			if !tt.state.Breaker.Since.IsZero() {
				tt.state.Breaker.Phase = policy.BreakerOpen
			}
			h.view.webhook = func(string) (status.Webhook, bool) { return tt.state, true }
			a := h.do(http.StatusOK, "GET", "/api/v1/webhooks/"+id, "")
			text := a.text("status", "text")
			if a.text("status", "state") != string(tt.want) || a.text("status", "instance") != "one" {
				t.Errorf("status %v", a.get("status"))
			}
			for _, want := range tt.text {
				if !strings.Contains(text, want) {
					t.Errorf("%q is not in: %s", want, text)
				}
			}
			if tt.not != "" && strings.Contains(text, tt.not) {
				t.Errorf("%q is in: %s", tt.not, text)
			}
			if list := h.do(http.StatusOK, "GET", "/api/v1/webhooks", ""); list.text("data", 0, "status", "text") != text {
				t.Errorf("the list says %v", list.get("data", 0, "status"))
			}
		})
	}
}

func TestStatusHasTheLearnedRate(t *testing.T) {
	at := time.Date(2026, 5, 6, 3, 0, 0, 0, time.UTC)
	h := newHarness(t, func(*Options) {})
	id := h.register(`{"queue":"orders","url":"https://example.com/hook"}`).text("id")
	for _, tt := range []struct {
		state status.Webhook
		want  any
	}{
		{status.Webhook{}, nil},
		{status.Webhook{Pace: policy.PaceState{Rate: 19.1234, Since: at, Refused: 12}, PaceOfAll: 19.1234},
			map[string]any{"per_second": 19.1, "own_per_second": 19.1, "since": "2026-05-06T03:00:00Z", "throttled": 12.0}},
		{status.Webhook{Pace: policy.PaceState{Rate: 0.0333, Since: at, Refused: 12}, PaceOfAll: 19.1234, Leader: "two"},
			map[string]any{"per_second": 19.1, "own_per_second": 0.033, "leader": "two", "since": "2026-05-06T03:00:00Z", "throttled": 12.0}},
	} {
		tt.state.State, tt.state.Breaker.Phase = status.Limited, policy.BreakerClosed
		h.view.webhook = func(string) (status.Webhook, bool) { return tt.state, true }
		if got := h.do(http.StatusOK, "GET", "/api/v1/webhooks/"+id, "").get("status", "learned_rate"); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("learned_rate is %v, want %v", got, tt.want)
		}
	}
}

func TestStatusIsLeftOutWhereItWouldTellOfBefore(t *testing.T) {
	h := newHarness(t)
	id := h.register(hook).text("id")
	if a := h.do(http.StatusOK, "GET", "/api/v1/webhooks/"+id, ""); a.get("status") != nil {
		t.Errorf("of a webhook that was not met: %s", a.body)
	}
	h.view.webhook = func(string) (status.Webhook, bool) {
		return status.Webhook{State: status.Healthy, Breaker: policy.BreakerState{Phase: policy.BreakerClosed}}, true
	}
	if a := h.do(http.StatusOK, "POST", "/api/v1/webhooks/"+id+"/disable", ""); a.get("status") != nil {
		t.Errorf("after a change: %s", a.body)
	}
}

// Enabling and another URL begin anew, and so does enabling one that is enabled; other
// changes must not restart the clock of auto-disable.
func TestWhatBeginsAnew(t *testing.T) {
	tests := []struct {
		name, method, suffix, body string
		anew                       bool
	}{
		{"enable", "POST", "/enable", "", true},
		{"another URL", "PATCH", "", `{"url":"https://example.com/other"}`, true},
		{"the same URL", "PATCH", "", `{"url":"https://example.com/hook"}`, false},
		{"enabled by patch though it is", "PATCH", "", `{"enabled":true,"name":"x"}`, false},
		{"a name", "PATCH", "", `{"name":"x"}`, false},
		{"disable", "POST", "/disable", "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHarness(t)
			id := h.register(`{"queue":"orders","url":"https://example.com/hook"}`).text("id")
			if err := h.db.PutHealth(t.Context(), tables.Health{WebhookID: id, Instance: "other", UpdatedAt: time.Now()}); err != nil {
				t.Fatal(err)
			}
			a := h.do(http.StatusOK, tt.method, "/api/v1/webhooks/"+id+tt.suffix, tt.body)
			rows, err := h.db.ListHealth(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if (a.get("reset_at") != nil) != tt.anew || (len(rows) == 0) != tt.anew {
				t.Errorf("reset_at %v, %d rows of health; anew: %t", a.get("reset_at"), len(rows), tt.anew)
			}
		})
	}
	h := newHarness(t)
	id := h.register(`{"queue":"orders","url":"https://example.com/hook","enabled":false}`).text("id")
	if a := h.do(http.StatusOK, "PATCH", "/api/v1/webhooks/"+id, `{"enabled":true}`); a.get("reset_at") == nil {
		t.Errorf("enabled by patch: %s", a.body)
	}
	if err := h.db.PutHealth(t.Context(), tables.Health{WebhookID: id, Instance: "other", UpdatedAt: time.Now()}); err != nil {
		t.Fatal(err)
	}
	h.do(http.StatusNoContent, "DELETE", "/api/v1/webhooks/"+id, "")
	if rows, err := h.db.ListHealth(t.Context()); err != nil || len(rows) != 0 {
		t.Errorf("%d rows of health of a deleted webhook, %v", len(rows), err)
	}
}
