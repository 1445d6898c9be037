package api

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/go-chi/chi/v5"
	"github.com/google/go-cmp/cmp"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook/content"
)

func TestDocumentIsValid(t *testing.T) {
	if err := document(t).Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// ofPage reports whether a route is one of the page's files, which are no part of the API.
func ofPage(route string) bool {
	return route == "/" || route == "/ui" || strings.HasPrefix(route, "/ui/")
}

func TestDocumentHasEveryRouteAndNoOther(t *testing.T) {
	h := newHarness(t)
	var routes, documented []string
	err := chi.Walk(h.api.router, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		if !ofPage(route) {
			routes = append(routes, method+" "+route)
		}
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
		"State":            append(texts(tables.States()), string(damagedState), string(lostState)),
		"Format":           texts(content.Formats()),
		"Op":               texts(content.Ops()),
		"AuditAction":      texts(tables.AuditActions()),
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

// A client that is made of the document sends the defaults of what it was not given. Where
// a missing field means as it is, that would change it.
func TestNoBodyOfARequestHasDefaults(t *testing.T) {
	seen := map[*openapi3.Schema]bool{}
	var walk func(path string, s *openapi3.Schema)
	walk = func(path string, s *openapi3.Schema) {
		if s == nil || seen[s] {
			return
		}
		seen[s] = true
		if s.Default != nil {
			t.Errorf("%s has the default %v", path, s.Default)
		}
		for name, property := range s.Properties {
			walk(path+"."+name, property.Value)
		}
		if s.Items != nil {
			walk(path+"[]", s.Items.Value)
		}
	}
	for path, item := range document(t).Paths.Map() {
		for method, operation := range item.Operations() {
			if operation.RequestBody == nil {
				continue
			}
			for _, media := range operation.RequestBody.Value.Content {
				walk(method+" "+path, media.Schema.Value)
			}
		}
	}
	if len(seen) < 50 {
		t.Errorf("%d schemas were found: the walk is wrong", len(seen))
	}
}

// Each answer has one form, whichever way it came about: clients read one type for it.
func TestAnAnswerHasOneForm(t *testing.T) {
	for path, item := range document(t).Paths.Map() {
		for method, operation := range item.Operations() {
			forms := map[string]bool{}
			for status, response := range operation.Responses.Map() {
				media := response.Value.Content.Get("application/json")
				if !strings.HasPrefix(status, "2") || media == nil {
					continue
				}
				if forms[media.Schema.Ref] = true; media.Schema.Ref == "" || len(media.Schema.Value.OneOf) > 0 {
					t.Errorf("%s %s: %s has no form of its own", method, path, status)
				}
			}
			if len(forms) > 1 {
				t.Errorf("%s %s has several: %v", method, path, forms)
			}
		}
	}
}
