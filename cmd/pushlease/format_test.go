package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// Every format prints the same rows, and nothing that could steer a terminal.
func TestFormatsOfAList(t *testing.T) {
	const list = `{"data":[{"id":"a","queue":"orders","name":"x\u001b[2J","url":"https://a.example/","timeout":"5s","enabled":true,"policy":{"preset":"realtime","max_attempts":9007199254740993},"created_at":"2026-01-01T00:00:00Z"},` +
		`{"id":"b","queue":"refunds","name":"y","url":"https://b.example/","timeout":"30s","enabled":false,"policy":{"preset":"patient","max_attempts":3}}],"next_cursor":null}`
	for format, want := range map[string]string{
		"text":   "ID  QUEUE    URL                 STATE     NAME\na   orders   https://a.example/  enabled   x�[2J\nb   refunds  https://b.example/  disabled  y\n",
		"ndjson": `{"created_at":"2026-01-01T00:00:00Z","enabled":true,"id":"a","name":"x\u001b[2J","policy":{"max_attempts":9007199254740993,"preset":"realtime"},"queue":"orders","timeout":"5s","url":"https://a.example/"}` + "\n" + `{"enabled":false,"id":"b",`,
		"wide":   "STATE     NAME   TIMEOUT  POLICY    ATTEMPTS          FORMAT  FILTER  CREATED\n",
		"yaml":   "data:\n- ",
		"json":   `{"data":[{"id":"a","queue":"orders","name":"x\u001b[2J",`,

		"jsonpath=$.data[*].id":                            "a\nb\n",
		"jsonpath=$.data[?@.enabled==false].policy":        `{"max_attempts":3,"preset":"patient"}` + "\n",
		"jsonpath=$.data[0].policy.max_attempts":           "9007199254740993\n",
		"jsonpath=$.data[?@.policy.max_attempts<=3]['id']": "b\n",
		"jsonpath=$.data[0]['name','queue']":               "x�[2J\norders\n",
		"jsonpath=$.nothing":                               "",
	} {
		newFakeAPI(t, map[string]canned{"GET /api/v1/webhooks": {200, list}})
		r := execute(t, "", "webhooks", "list", "-o", format)
		if r.code != exitOK || !strings.Contains(r.out, want) || strings.HasPrefix(format, "jsonpath") && r.out != want {
			t.Errorf("%s: %d %s\n%q, want\n%q", format, r.code, r.err, r.out, want)
		}
		if strings.ContainsRune(r.out, '\x1b') {
			t.Errorf("%s steers the terminal: %q", format, r.out)
		}
	}
	for format, want := range map[string]string{"jsonpath=": "such as '$.data[*].id'", "jsonpath={.items}": "such as '$.data[*].id'", "go": "use text, wide", "json=1": "use text, wide"} {
		if r := execute(t, "", "webhooks", "list", "-o", format); r.code != exitUsage || !strings.Contains(r.err, want) {
			t.Errorf("%s: %d %s", format, r.code, r.err)
		}
	}
}

// One document is one row; what goes on prints one after the other.
func TestFormatsOfOneDocument(t *testing.T) {
	for format, want := range map[string]string{
		"ndjson": `{"created_at":"2026-01-01T00:00:00Z",`, "yaml": "id: wh_1\n", "wide": "enabled", "jsonpath=$.policy.preset": "standard\n",
	} {
		newFakeAPI(t, map[string]canned{"GET /api/v1/webhooks/wh_1": {200, webhookJSON}})
		if r := execute(t, "", "webhooks", "get", "wh_1", "-o", format); r.code != exitOK || !strings.Contains(r.out, want) {
			t.Errorf("%s: %d %s%s, want %q", format, r.code, r.out, r.err, want)
		}
	}
	var out strings.Builder
	o := output{format: "yaml"}
	for _, n := range []int{1, 2} {
		if err := o.print(&out, map[string]int{"count": n}); err != nil {
			t.Fatal(err)
		}
	}
	if out.String() != "count: 1\n---\ncount: 2\n" {
		t.Errorf("two documents: %q", out.String())
	}
}

// What YAML shows of a text is the text, also where it has characters that are not seen, such as the joiners of Persian and of emoji.
func TestYAMLKeepsEachCharacter(t *testing.T) {
	for _, text := range []string{"a\u200db", "👩\u200d💻 \"at work\"", "x\x1b[2J\r\n\ty", "a\U000e0001\u00ad\ufeff", "\u0085\u2028", "plain: text", "1e3"} {
		raw, err := json.Marshal(map[string]any{"webhooks": []any{map[string]any{"id": "hook", "queue": "orders", "url": "https://a.example/", "name": text}}})
		if err != nil {
			t.Fatal(err)
		}
		list := strings.Replace(string(raw), `{"webhooks":`, `{"next_cursor":null,"data":`, 1)
		newFakeAPI(t, map[string]canned{"GET /api/v1/webhooks": {200, list}})
		for _, command := range [][]string{{"webhooks", "list", "-o", "yaml"}, {"export"}} {
			r := execute(t, "", command...)
			var doc map[string]any
			if err := yaml.Unmarshal([]byte(r.out), &doc); err != nil || r.code != exitOK {
				t.Errorf("%v of %q: %v\n%s%s", command, text, err, r.out, r.err)
				continue
			}
			rows, _ := doc["webhooks"].([]any)
			if command[0] != "export" {
				rows, _ = doc["data"].([]any)
			}
			if got := rows[0].(map[string]any)["name"]; got != text || clean(r.out) != r.out {
				t.Errorf("%v of %q: %q in\n%q", command, text, got, r.out)
			}
		}
	}
}
