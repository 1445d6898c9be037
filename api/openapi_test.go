package api

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/google/go-cmp/cmp"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

func TestDocumentIsValid(t *testing.T) {
	if err := document(t).Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestDocumentHasEveryRouteAndNoOther(t *testing.T) {
	h := newHarness(t)
	var routes, documented []string
	err := chi.Walk(h.api.router, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		routes = append(routes, method+" "+route)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for path, item := range h.doc.Paths.Map() {
		for method := range item.Operations() {
			documented = append(documented, method+" "+path)
		}
	}
	slices.Sort(routes)
	slices.Sort(documented)
	if diff := cmp.Diff(routes, documented); diff != "" {
		t.Errorf("routes and document differ (-routes +document):\n%s", diff)
	}
}

func TestDocumentListsTheSetsThatAreClosed(t *testing.T) {
	tests := map[string][]string{
		"Action":           texts(policy.Actions()),
		"Reason":           texts(policy.Reasons()),
		"ErrorClass":       texts(policy.ErrorClasses()),
		"State":            texts(tables.States()),
		"Format":           texts(webhook.Formats()),
		"Op":               texts(webhook.Ops()),
		"DeadLetterStatus": texts([]tables.DeadLetterStatus{tables.Waiting, tables.Replaying, tables.Replayed}),
	}
	for name, want := range tests {
		var got []string
		for _, v := range document(t).Components.Schemas[name].Value.Enum {
			got = append(got, v.(string))
		}
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-code +document):\n%s", name, diff)
		}
	}
}

func texts[T ~string](list []T) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = string(v)
	}
	return out
}

func TestDocumentNamesTheFieldsThatCanBeSet(t *testing.T) {
	for name, want := range map[string][]string{"WebhookCreate": createFields, "WebhookPatch": changeFields} {
		var got []string
		for field := range document(t).Components.Schemas[name].Value.Properties {
			got = append(got, field)
		}
		slices.Sort(got)
		if diff := cmp.Diff(slices.Sorted(slices.Values(want)), got); diff != "" {
			t.Errorf("%s (-code +document):\n%s", name, diff)
		}
	}
}

func TestDocumentIsServed(t *testing.T) {
	a := newHarness(t).do(http.StatusOK, "GET", "/api/v1/openapi.yaml", "")
	if !strings.HasPrefix(string(a.body), "openapi: 3.") {
		t.Errorf("served %.40q", a.body)
	}
}

// The pattern in the document must not promise names that storage refuses.
func TestDocumentsQueueNamesAreThoseThatStorageTakes(t *testing.T) {
	schema := document(t).Components.Schemas["QueueName"].Value
	for _, name := range []string{"abc", "a-b", "a--b", "-ab", "ab-", "ab", "ABC", "a_b", "orders-eu-1", strings.Repeat("a", 63), strings.Repeat("a", 64)} {
		if documented, taken := schema.VisitJSONString(name) == nil, queue.ValidateName(name) == nil; documented != taken {
			t.Errorf("%q: the document says %t, storage %t", name, documented, taken)
		}
	}
}
