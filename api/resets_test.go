package api

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// C106, C107: a program that writes null for what it leaves alone is told what it has taken away.
func TestAChangeSaysWhatItsNullsHaveReset(t *testing.T) {
	const full = `{"queue":"orders","url":"https://example.com/hook","name":"billing","timeout":"10s","headers":{"X-A":"1","X-B":"2"},` +
		`"flow":{"rate":50,"concurrency":8,"breaker":{"min_samples":20}},"policy":{"max_attempts":3},"filter":{"types":["order.paid"]}}`
	for change, want := range map[string][]string{
		`{"flow":{"concurrency":5}}`:                                   nil,
		`{"flow":{"concurrency":5,"rate":null,"burst":null}}`:          {"flow.rate"},
		`{"flow":{"breaker":{"min_samples":null,"probe_after":null}}}`: {"flow.breaker.min_samples"},
		`{"policy":{"max_attempts":null,"max_age":null}}`:              {"policy.max_attempts"},
		`{"filter":null,"timeout":null,"http_version":null}`:           {"filter", "timeout"},
		`{"headers":{"X-A":null}}`:                                     nil, // that is how one is taken away
		`{"headers":null,"name":null}`:                                 {"headers", "name"},
	} {
		h := newHarness(t)
		id := h.register(full).text("id")
		a := h.do(http.StatusOK, "PATCH", "/api/v1/webhooks/"+id, change)
		var got []string
		if list, ok := a.get("warnings").([]any); ok {
			for _, w := range list {
				name, _, _ := strings.Cut(fmt.Sprint(w), " ")
				got = append(got, name)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: warned of %v, want %v: %s", change, got, want, a.body)
		}
	}
}
