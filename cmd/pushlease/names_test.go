package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// oneList is a list of webhooks with one of each name but "twice".
const oneList = `{"data":[{"id":"wh_1","name":"billing","queue":"orders"},{"id":"wh_2","name":"twice","queue":"a"},{"id":"wh_3","name":"twice","queue":"a"},{"id":"own","name":"other","queue":"a"},{"id":"wh_5","name":"own","queue":"a"},{"id":"wh_6","name":"with space","queue":"a"}]}`

func TestAWebhookIsFoundByItsName(t *testing.T) {
	answers := map[string]canned{"GET /api/v1/webhooks": {200, oneList}, "GET /api/v1/attempts": {200, `{"data":[]}`}, "GET /api/v1/dead-letters": {200, `{"data":[]}`},
		"POST /api/v1/dead-letters/purge": {200, `{"matched":1}`}, "GET /api/v1/stats": {200, `{}`}}
	for _, id := range []string{"wh_1", "own", "wh_6"} {
		for _, call := range []string{"GET ", "DELETE ", "PATCH ", "POST ", "POST /disable", "POST /rotate-secret"} {
			method, suffix, _ := strings.Cut(call, " ")
			answers[method+" /api/v1/webhooks/"+id+suffix] = canned{200, webhookJSON}
		}
	}
	for _, tt := range []struct {
		args, last string
		code       int
	}{
		{"webhooks get billing", "GET /api/v1/webhooks/wh_1", exitOK},
		{"webhooks get own", "GET /api/v1/webhooks/own", exitOK}, // an id goes before a name
		{"webhooks delete billing", "DELETE /api/v1/webhooks/wh_1", exitOK},
		{"webhooks disable billing", "POST /api/v1/webhooks/wh_1/disable", exitOK},
		{"webhooks update billing --timeout 5s", "PATCH /api/v1/webhooks/wh_1", exitOK},
		{"webhooks rotate-secret billing", "POST /api/v1/webhooks/wh_1/rotate-secret", exitOK},
		{"webhooks get twice", "GET /api/v1/webhooks?contains=twice&limit=500", exitUsage},
		{"webhooks get nobody", "GET /api/v1/webhooks?contains=nobody&limit=500", exitNotFound},
		{"attempts billing", "GET /api/v1/attempts?limit=50&webhook=wh_1", exitOK},
		{"attempts own", "GET /api/v1/attempts?limit=50&webhook=own", exitOK},
		{"attempts wh_9", "GET /api/v1/attempts?limit=50&webhook=wh_9", exitOK},
		{"dead-letters list --webhook billing", "GET /api/v1/dead-letters?limit=50&webhook=wh_1", exitOK},
		{"stats --webhook billing", "GET /api/v1/stats?webhook=wh_1", exitOK},
	} {
		api := newFakeAPI(t, answers)
		r := execute(t, "", strings.Fields(tt.args)...)
		if got := api.requests[len(api.requests)-1].line; r.code != tt.code || got != tt.last {
			t.Errorf("%s: exit %d %s, last %s; want %d, %s", tt.args, r.code, r.err, got, tt.code, tt.last)
		}
	}
	api := newFakeAPI(t, answers)
	execute(t, "", "dead-letters", "purge", "--webhook", "billing", "--dry-run")
	if body := api.requests[len(api.requests)-1].body; !strings.Contains(body, `"webhook":"wh_1"`) {
		t.Errorf("purge: %s", body)
	}
}

// Several ids are one command; what fails for one is told, and the others are done.
func TestSeveralIDsAtATime(t *testing.T) {
	answers := map[string]canned{"GET /api/v1/webhooks": {200, `{"data":[]}`}}
	for _, id := range []string{"wh_1", "wh_3"} {
		answers["DELETE /api/v1/webhooks/"+id] = canned{204, ""}
		answers["DELETE /api/v1/dead-letters/"+id] = canned{204, ""}
		answers["POST /api/v1/dead-letters/"+id+"/replay"] = canned{202, deadLetterJSON}
		answers["POST /api/v1/webhooks/"+id+"/test"] = canned{200, `{"status":500}`}
	}
	for _, tt := range []struct {
		args string
		code int
		errs string
	}{
		{"webhooks delete wh_1 wh_2 wh_3", exitNotFound, "1 failed\n  wh_2: There is no such address"},
		{"dead-letters delete wh_1 wh_2 wh_3", exitNotFound, "wh_2"},
		{"dead-letters replay wh_1 wh_2 wh_3", exitNotFound, "wh_2"},
		{"webhooks test wh_1 wh_3", exitFailed, "2 failed"},
		{"webhooks delete wh_1 wh_3 --if-match x", exitUsage, "--if-match"},
		{"dead-letters delete wh_1 wh_3 --if-match x", exitUsage, "--if-match"},
	} {
		api := newFakeAPI(t, answers)
		r := execute(t, "", strings.Fields(tt.args)...)
		if r.code != tt.code || !strings.Contains(r.err, tt.errs) {
			t.Errorf("%s: exit %d, %q", tt.args, r.code, r.err)
		}
		if tt.code == exitNotFound && !strings.Contains(api.requests[len(api.requests)-1].line, "wh_3") {
			t.Errorf("%s ended at the first failure: %v", tt.args, api.requests)
		}
	}
}

// completed is what a shell is offered for the last of words.
func completed(t *testing.T, words ...string) []string {
	t.Helper()
	r := execute(t, "", append([]string{"__complete"}, words...)...)
	lines := strings.Split(strings.TrimSpace(r.out), "\n")
	var offered []string
	for _, line := range lines[:len(lines)-1] { // the last is cobra's directive
		word, _, _ := strings.Cut(line, "\t")
		offered = append(offered, word)
	}
	return offered
}

func TestCompletionKnowsWhatIsThere(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir(defaultSamples, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(defaultSamples, "mine.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	newFakeAPI(t, map[string]canned{
		"GET /api/v1/webhooks": {200, oneList}, "GET /api/v1/queues": {200, `{"data":[{"name":"orders"},{"name":"refunds"}]}`},
		"GET /api/v1/dead-letters": {200, `{"data":[` + deadLetterJSON + `]}`}, "GET /api/v1/messages": {200, `{"data":[{"message_id":"m1"}]}`},
		"GET " + replayJobsPath: {200, `{"data":[{"id":"job_1"}]}`},
	})
	for _, tt := range []struct {
		words string
		want  []string
	}{
		{"webhooks get ", []string{"wh_1", "billing", "wh_2", "twice", "wh_3", "twice", "own", "other", "wh_5", "own", "wh_6"}},
		{"webhooks rotate-signing-key bil", []string{"billing"}},
		{"webhooks delete wh_1 wh_2 wh_", []string{"wh_3", "wh_5", "wh_6"}},
		{"attempts bil", []string{"billing"}},
		{"send or", []string{"orders"}},
		{"listen --queue ", []string{"orders", "refunds"}},
		{"dead-letters list --webhook bil", []string{"billing"}},
		{"dead-letters replay ", []string{"orders.1-a"}},
		{"dead-letters jobs ", []string{"job_1"}},
		{"messages show ", []string{"m1"}},
		{"webhooks create --preset rea", []string{"realtime"}},
		{"webhooks create --format cloudevents-b", []string{"cloudevents-binary"}},
		{"webhooks create --hmac ", []string{"github", "shopify", "stripe"}},
		{"webhooks list -o n", []string{"ndjson"}},
		{"attempts --error-class time", []string{"timeout"}},
		{"trigger m", []string{"mine"}},
	} {
		if got := completed(t, strings.Split(tt.words, " ")...); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.words, got, tt.want)
		}
	}
	t.Setenv(serverEnv, "http://127.0.0.1:1") // nobody there: a shell is offered nothing, and told nothing
	if r := execute(t, "", "__complete", "webhooks", "get", ""); r.code != exitOK || strings.Contains(r.err, "reach") {
		t.Errorf("%+v", r)
	}
}

func TestContextsNameServers(t *testing.T) {
	folder := t.TempDir()
	before := userConfigDir
	userConfigDir = func() (string, error) { return folder, nil }
	t.Cleanup(func() { userConfigDir = before })
	api := newFakeAPI(t, map[string]canned{"GET /api/v1/webhooks": {200, `{"data":[]}`}})
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("key-of-prod\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(serverEnv, "")
	t.Setenv("TEST_KEY", "key-of-test")
	do := func(code int, args string) result {
		t.Helper()
		r := execute(t, "", strings.Fields(args)...)
		if r.code != code {
			t.Fatalf("%s: %+v", args, r)
		}
		return r
	}
	do(exitOK, "context set prod --server "+api.URL+" --api-key-file "+key)
	do(exitOK, "context set test --server "+api.URL+"/ --api-key-env TEST_KEY")
	do(exitOK, "context set away --server http://127.0.0.1:1")
	asked := func(args string) string {
		t.Helper()
		do(exitOK, args)
		return api.requests[len(api.requests)-1].header.Get("Authorization")
	}
	if got := asked("webhooks list"); got != "Bearer key-of-prod" { // the first one is used
		t.Errorf("%q", got)
	}
	if got := asked("webhooks list --context test"); got != "Bearer key-of-test" {
		t.Errorf("%q", got)
	}
	if got := asked("webhooks list --server " + api.URL); got != "" {
		t.Errorf("a context's key went to another server: %q", got)
	}
	do(exitOK, "context use test")
	if got := asked("webhooks list"); got != "Bearer key-of-test" {
		t.Errorf("%q", got)
	}
	t.Setenv(contextEnv, "prod")
	if got := asked("webhooks list"); got != "Bearer key-of-prod" {
		t.Errorf("%q", got)
	}
	t.Setenv(contextEnv, "")
	t.Setenv(serverEnv, api.URL)
	if got := asked("webhooks list"); got != "" {
		t.Errorf("a context's key went to the server of %s: %q", serverEnv, got)
	}
	t.Setenv(serverEnv, "")
	if r := do(exitOK, "context list"); !strings.Contains(r.out, "*  test") || strings.Contains(r.out, "key-of") {
		t.Errorf("%s", r.out)
	}
	file, err := os.ReadFile(filepath.Join(folder, "pushlease", "contexts.json"))
	if err != nil || strings.Contains(string(file), "key-of") || !json.Valid(file) {
		t.Errorf("%v: %s", err, file)
	}
	if got := completed(t, "context", "use", "p"); !slices.Equal(got, []string{"prod"}) {
		t.Errorf("%q", got)
	}
	for _, args := range []string{"context use nope", "webhooks list --context nope", "webhooks list --context test --server " + api.URL, "context set x", "context set x --server localhost:80",
		"context set x --server http://a --api-key-env A --api-key-file b"} {
		do(exitUsage, args)
	}
	do(exitOK, "context delete test")
	if r := do(exitOK, "context list -o json"); strings.Contains(r.out, "test") || strings.Contains(r.out, "current") {
		t.Errorf("%s", r.out)
	}
}
