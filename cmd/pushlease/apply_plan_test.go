package main

import (
	"strings"
	"testing"
)

// What somebody changes between the plan and the write is left alone, and said; what is gone by then was to be deleted.
func TestApplyWritesOnlyWhatItHasPlanned(t *testing.T) {
	const changed = `{"title":"The webhook has changed","status":412,"detail":"Read it again."}`
	const listed = `{"data":[{"id":"old-1","queue":"orders"},{"id":"old-2","queue":"orders"}],"next_cursor":null}`
	const replace = `{"id":"billing","queue":"orders","plan":{"action":"replace","changes":[{"field":"timeout","from":"1s","to":"2s"}]}}`
	file := writeFile(t, t.TempDir(), "webhooks.yaml", "webhooks:\n  - {id: billing, queue: orders, url: 'https://example.com/'}\n")
	for name, c := range map[string]struct {
		answers map[string]canned
		etag    string
		code    int
		text    string            // in what is printed
		wrote   map[string]string // what was sent besides looks, and its If-Match
	}{
		"all as planned": {
			map[string]canned{}, `"v1"`, exitOK, "0 created, 1 replaced, 2 deleted, 0 unchanged.",
			map[string]string{"PUT /api/v1/webhooks/billing": `"v1"`, "DELETE /api/v1/webhooks/old-1": `"v1"`, "DELETE /api/v1/webhooks/old-2": `"v1"`},
		},
		"what compresses on the way makes weak ETags": {
			map[string]canned{}, `W/"v1"`, exitOK, "0 created, 1 replaced, 2 deleted, 0 unchanged.",
			map[string]string{"PUT /api/v1/webhooks/billing": `"v1"`, "DELETE /api/v1/webhooks/old-1": `"v1"`, "DELETE /api/v1/webhooks/old-2": `"v1"`},
		},
		"one is changed before its deletion": {
			map[string]canned{"DELETE /api/v1/webhooks/old-1": {412, changed}}, `"v1"`, exitRefused, "old-1: somebody has changed it since it was checked; 1 of 3 were done before it",
			map[string]string{"PUT /api/v1/webhooks/billing": `"v1"`, "DELETE /api/v1/webhooks/old-1": `"v1"`},
		},
		"one is deleted before its deletion": {
			map[string]canned{"DELETE /api/v1/webhooks/old-1": {404, changed}}, `"v1"`, exitOK, "0 created, 1 replaced, 2 deleted, 0 unchanged.",
			map[string]string{"PUT /api/v1/webhooks/billing": `"v1"`, "DELETE /api/v1/webhooks/old-1": `"v1"`, "DELETE /api/v1/webhooks/old-2": `"v1"`},
		},
		"one is deleted after the list": {
			map[string]canned{"GET /api/v1/webhooks/old-1": {404, changed}}, `"v1"`, exitOK, "0 created, 1 replaced, 1 deleted, 0 unchanged.",
			map[string]string{"PUT /api/v1/webhooks/billing": `"v1"`, "DELETE /api/v1/webhooks/old-2": `"v1"`},
		},
		"one is changed before it is replaced": {
			map[string]canned{"PUT /api/v1/webhooks/billing": {412, changed}}, `"v1"`, exitRefused, "billing: somebody has changed it since it was checked; 0 of 3 were done before it",
			map[string]string{"PUT /api/v1/webhooks/billing": `"v1"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeAPI(t, map[string]canned{
				"GET /api/v1/webhooks": {200, listed}, "GET /api/v1/webhooks/old-1": {200, webhookJSON}, "GET /api/v1/webhooks/old-2": {200, webhookJSON},
				"PUT /api/v1/webhooks/billing?dry_run=true": {200, replace}, "PUT /api/v1/webhooks/billing": {200, replace},
				"DELETE /api/v1/webhooks/old-1": {204, ""}, "DELETE /api/v1/webhooks/old-2": {204, ""},
			})
			f.etag = c.etag
			for line, a := range c.answers {
				f.answers[line] = a
			}
			r := execute(t, "", "apply", "-f", file, "--prune", "--yes")
			if r.code != c.code || !strings.Contains(r.out+r.err, c.text) {
				t.Errorf("code %d, want %d and %q:\n%s%s", r.code, c.code, c.text, r.out, r.err)
			}
			wrote := 0
			for _, got := range f.requests {
				if strings.HasPrefix(got.line, "GET ") || strings.HasSuffix(got.line, "dry_run=true") {
					continue
				}
				wrote++
				if want, planned := c.wrote[got.line]; !planned || got.header.Get("If-Match") != want {
					t.Errorf("sent %s with If-Match %s, want %v", got.line, got.header.Get("If-Match"), c.wrote)
				}
			}
			if wrote != len(c.wrote) {
				t.Errorf("wrote %d times, want %d", wrote, len(c.wrote))
			}
		})
	}
}

// Each value that is not shown has a variable of its own, whose name does not go over to another value when a webhook goes.
func TestExportNamesAVariableForEachValue(t *testing.T) {
	hook := func(id string) string {
		return `{"id":"` + id + `","queue":"orders","url":"https://example.com/[redacted]","headers":{"Url":"[redacted]","X-Key":"[redacted]"},"timeout":"30s","enabled":true,"policy":{},"flow":{},"filter":{}}`
	}
	variables := func(ids ...string) string {
		t.Helper()
		for i, id := range ids {
			ids[i] = hook(id)
		}
		newFakeAPI(t, map[string]canned{"GET /api/v1/webhooks": {200, `{"data":[` + strings.Join(ids, ",") + `],"next_cursor":null}`}})
		r := execute(t, "", "export")
		_, line, _ := strings.Cut(r.out, "Before, set what is not shown: ")
		line, body, _ := strings.Cut(line, "\n")
		seen := map[string]bool{}
		for name := range strings.SplitSeq(line, ", ") {
			if seen[name] || strings.Count(body, "env: "+name+"\n") != 1 {
				t.Errorf("%s stands for more or less than one value:\n%s", name, r.out)
			}
			seen[name] = true
		}
		if len(seen) != 3*len(ids) {
			t.Errorf("%d variables for %d values: %s", len(seen), 3*len(ids), line)
		}
		return line
	}
	both, alone := variables("a-b", "a_b"), variables("a_b", "c")
	for name := range strings.SplitSeq(alone, ", ") {
		if strings.HasPrefix(name, "HOOK_A_B_X_KEY") && strings.Contains(both, name+",") {
			t.Errorf("%s is a value of a-b or a_b in one export, and of a_b in the next one: %s", name, both)
		}
	}
	if !strings.Contains(alone, "HOOK_C_X_KEY") {
		t.Errorf("a name that is no other's has more than it needs: %s", alone)
	}
}
