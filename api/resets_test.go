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
		a := h.do(http.StatusOK, "PATCH", "/api/v1/webhooks/"+id, change, "Content-Type", mergePatch)
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

// C106, C107: a program that writes null for all that it was not given changes what it was given, and
// nothing else, also where null could be no value. It is told what its nulls might have meant.
func TestNullsOfAProgramChangeNothing(t *testing.T) {
	h := newHarness(t)
	const full = `{"queue":"orders","url":"https://example.com/hook","name":"billing","timeout":"10s","headers":{"X-A":"1","X-B":"2"},` +
		`"flow":{"rate":50,"concurrency":8},"policy":{"max_attempts":3},"filter":{"types":["order.paid"]}}`
	target := "/api/v1/webhooks/" + h.register(full).text("id")
	a := h.do(http.StatusOK, "PATCH", target, `{"name":"new","queue":null,"url":null,"enabled":null,"timeout":null,"headers":null,"secret":null,`+
		`"flow":{"concurrency":5,"rate":null,"breaker":{"min_samples":null}},"policy":null,"filter":{"types":null},"format":null,"http_version":null}`)
	if a.text("name") != "new" || a.text("url") != "https://example.com/hook" || a.text("timeout") != "10s" || a.get("enabled") != true ||
		len(a.get("headers").(map[string]any)) != 2 || a.get("flow", "rate") != 50.0 || a.get("flow", "concurrency") != 5.0 ||
		a.get("policy", "max_attempts") != 3.0 || len(a.get("filter", "types").([]any)) != 1 {
		t.Errorf("changed: %s", a.body)
	}
	list, _ := a.get("warnings").([]any)
	if text := fmt.Sprint(list); !strings.Contains(text, "headers was null, which leaves it as it is") || !strings.Contains(text, "flow.rate was null") || strings.Contains(text, "format was null") {
		t.Errorf("told %s", text)
	}
	a = h.do(http.StatusOK, "PATCH", target, `{"headers":{"X-A":null}}`)
	if left := a.get("headers").(map[string]any); len(left) != 1 {
		t.Errorf("headers after one was taken away: %v", left)
	}
	h.do(http.StatusBadRequest, "PATCH", target, `{"flow":{"rtae":null,"rate":"x"}}`).wantProblem("flow.rate")
}
