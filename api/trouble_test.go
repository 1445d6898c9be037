package api

import (
	"net/http"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/policy"
)

// Of thousands of webhooks and queues those are found whose name one knows in part, and those that somebody should look at.
func TestListsAreSearchedByNameAndTrouble(t *testing.T) {
	h := newHarness(t)
	ids := map[string]string{}
	for _, name := range []string{"well", "failing", "refusing", "since", "tokenless", "off"} {
		ids[name] = h.register(`{"name":"Customer ` + name + `","queue":"queue-` + name + `","url":"https://example.com/"}`).text("id")
	}
	states := map[string]status.Webhook{
		ids["well"]: {State: status.Healthy, RecentPosts: 5, RecentRefused: 2}, ids["failing"]: {State: status.Failing}, ids["tokenless"]: {State: status.NoToken}, ids["refusing"]: {State: status.Busy, RecentPosts: 4, RecentRefused: 2},
		ids["since"]: {State: status.Healthy, Failing: policy.AutoDisableState{FailingSince: time.Now()}}, ids["off"]: {State: status.Disabled},
	}
	h.view.webhook = func(id string) (status.Webhook, bool) {
		s, met := states[id]
		s.Breaker.Phase = policy.BreakerClosed
		return s, met
	}
	h.do(http.StatusOK, "POST", "/api/v1/webhooks/"+ids["off"]+"/disable", "")
	h.view.queues["queue-well"] = status.Queue{Polling: true, LastPollAt: time.Now()}
	h.view.queues["queue-failing"] = status.Queue{LastError: "denied", LastErrorAt: time.Now()}
	h.view.queues["queue-since"] = status.Queue{Polling: true, LastError: "denied", LastErrorAt: time.Now().Add(-time.Hour), LastPollAt: time.Now()}
	h.view.queues["queue-off"] = status.Queue{LeftAt: time.Now()}
	h.view.queues["of-nobody"] = status.Queue{Polling: true}
	h.do(http.StatusAccepted, "POST", "/api/v1/queues/of-nobody/messages", "x")
	for target, want := range map[string][]string{
		"/api/v1/webhooks?contains=customer%20FAIL":        {"Customer failing"},
		"/api/v1/webhooks?contains=queue-we":               {"Customer well"},
		"/api/v1/webhooks?contains=nothing":                {},
		"/api/v1/webhooks?trouble=true":                    {"Customer failing", "Customer refusing", "Customer since", "Customer tokenless"},
		"/api/v1/webhooks?trouble=true&contains=refus":     {"Customer refusing"},
		"/api/v1/webhooks?trouble=false&contains=Customer": {"Customer well", "Customer failing", "Customer refusing", "Customer since", "Customer tokenless", "Customer off"},
		"/api/v1/queues?contains=FAIL":                     {"queue-failing"},
		"/api/v1/queues?trouble=true":                      {"of-nobody", "queue-failing", "queue-off"},
	} {
		list, got := h.do(http.StatusOK, "GET", target, ""), map[string]bool{}
		for i := range list.get("data").([]any) {
			got[list.text("data", i, "name")] = true
		}
		for _, name := range want {
			if !got[name] {
				t.Errorf("%s does not find %s", target, name)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s finds %v, want %q", target, got, want)
		}
	}
	h.do(http.StatusBadRequest, "GET", "/api/v1/queues?trouble=perhaps", "").wantProblem("trouble")
}
