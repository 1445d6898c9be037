package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/pushlease/pushlease/internal/azuritetest"
	"github.com/pushlease/pushlease/policy"
)

// TestMain keeps the settings of the machine that runs the tests out of them, and
// removes the binary that they built.
func TestMain(m *testing.M) {
	for _, line := range os.Environ() {
		if name, _, _ := strings.Cut(line, "="); strings.HasPrefix(name, "PUSHLEASE_") {
			_ = os.Unsetenv(name)
		}
	}
	folder, err := os.MkdirTemp("", "pushlease-contexts-")
	if err != nil {
		panic(err)
	}
	userConfigDir = func() (string, error) { return folder, nil } // none of the user's own
	azuritetest.AtOnce(10)                                        // the end-to-end tests mostly wait for processes of their own
	code := m.Run()
	_ = os.RemoveAll(folder)
	endChromium()
	if builtIn != "" {
		_ = os.RemoveAll(builtIn)
	}
	os.Exit(code)
}

// result is what a command line gave.
type result struct {
	out, err string
	code     int
}

// execute runs a command line as main does.
func execute(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var out, stderr bytes.Buffer
	root := newRootCommand()
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&out)
	root.SetErr(&stderr)
	code := run(ctx, root, args, &stderr)
	return result{out.String(), stderr.String(), code}
}

// fakeAPI answers requests from a table and remembers them.
type fakeAPI struct {
	*httptest.Server
	mu       sync.Mutex
	requests []recorded
	answers  map[string]canned // by "METHOD /path", with a query where that matters
	etag     string
}

type recorded struct {
	line, body string // line is METHOD /path?query
	header     http.Header
}

type canned struct {
	status int
	body   string
}

// newFakeAPI serves answers and makes it the commands' server.
func newFakeAPI(t *testing.T, answers map[string]canned) *fakeAPI {
	t.Helper()
	f := &fakeAPI{answers: answers, etag: `"v1"`}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.requests = append(f.requests, recorded{r.Method + " " + r.URL.RequestURI(), string(body), r.Header})
		a, ok := f.answers[r.Method+" "+r.URL.RequestURI()]
		if !ok {
			a, ok = f.answers[r.Method+" "+r.URL.EscapedPath()]
		}
		if !ok {
			a = canned{404, `{"title":"There is no such address","status":404,"detail":"Nothing is served here."}`}
		}
		w.Header().Set("ETag", f.etag)
		w.WriteHeader(a.status)
		_, _ = io.WriteString(w, a.body)
	}))
	t.Cleanup(f.Close)
	t.Setenv(serverEnv, f.URL)
	t.Setenv(apiKeyEnv, "")
	return f
}

func (f *fakeAPI) only(t *testing.T) recorded {
	t.Helper()
	if len(f.requests) != 1 {
		t.Fatalf("%d requests: %v", len(f.requests), f.requests)
	}
	return f.requests[0]
}

const webhookJSON = `{"id":"wh_1","name":"billing","queue":"orders","url":"https://example.com/hook","headers":{"X-Team":"[redacted]"},"timeout":"30s","enabled":true,"filter":{"types":["a.*"]},"format":"cloudevents-structured",` +
	`"policy":{"preset":"standard","max_attempts":8,"max_age":"24h0m0s"},"secrets":[{"created_at":"2026-01-01T00:00:00Z"}],"created_at":"2026-01-01T00:00:00Z"}`

const deadLetterJSON = `{"id":"orders.1-a","queue":"orders","message_id":"m1","webhook_id":"wh_1","status":"waiting","reason":"NonRetryableError","description":"It answered 400.",` +
	`"attempts":1,"last_status":400,"dead_lettered_at":"2026-01-01T00:00:00Z","size":7,"replays":0}`

const problemJSON = `{"type":"x","title":"The request is not valid","status":400,"detail":"queue is not a name.","errors":[{"field":"queue","problem":"is not a name","cure":"use lower case"}]}`

func TestExitCodes(t *testing.T) {
	t.Setenv(serverEnv, "")
	tests := []struct {
		name string
		args []string
		code int
		text string // in the error
	}{
		{"unknown command", []string{"sned"}, exitUsage, "did you mean send?"},
		{"unknown command unlike any", []string{"frobnicate"}, exitUsage, "--help"},
		{"unknown sub-command", []string{"webhooks", "lst"}, exitUsage, "did you mean list"},
		{"unknown flag", []string{"send", "--nope"}, exitUsage, "--nope"},
		{"no number", []string{"webhooks", "create", "--rate", "abc"}, exitUsage, `--rate: "abc" is not a number; write one such as 50`},
		{"no duration", []string{"webhooks", "top", "--interval", "5"}, exitUsage, `--interval: "5" is not a duration; write a number and a unit`},
		{"missing argument", []string{"send"}, exitUsage, "queue"},
		{"too many arguments", []string{"version", "x"}, exitUsage, "no arguments"},
		{"unknown output", []string{"version", "-o", "xml"}, exitUsage, "use text, wide"},
		{"bad server", []string{"webhooks", "list", "--server", "ftp://x"}, exitUsage, "http"},
		{"server with a password", []string{"webhooks", "list", "--server", "http://u:sesame@x"}, exitUsage, "http"},
		{"server that is not there", []string{"webhooks", "list", "--server", "http://127.0.0.1:1"}, exitFailed, "pushlease serve"},
		{"create without flags", []string{"webhooks", "create"}, exitUsage, "--queue and --url"},
		{"update without flags", []string{"webhooks", "update", "wh_1"}, exitUsage, "nothing to change"},
		{"header without colon", []string{"webhooks", "update", "wh_1", "--header", "sesame"}, exitUsage, "Name: value"},
		{"count", []string{"send", "orders", "x", "--count", "0"}, exitUsage, "1 to 100000"},
		{"limit", []string{"dead-letters", "list", "--limit", "0"}, exitUsage, "1 to 100000"},
		{"body file that is not there", []string{"send", "orders", "@/does/not/exist"}, exitUsage, "can't read"},
		{"empty body", []string{"send", "orders", ""}, exitUsage, "send {}"},
		{"body too large", []string{"send", "orders", strings.Repeat("x", 65537)}, exitUsage, "65536"},
		{"key without name", []string{"api-key", "new", "--scopes", "read"}, exitUsage, "--name"},
		{"key with a bad scope", []string{"api-key", "new", "--name", "a", "--scopes", "write"}, exitUsage, "publish"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := execute(t, "", tt.args...)
			if r.code != tt.code || !strings.Contains(r.err, tt.text) || r.out != "" {
				t.Errorf("code %d, want %d; error must say %q: %s; output: %s", r.code, tt.code, tt.text, r.err, r.out)
			}
			if strings.Contains(r.err, "sesame") || strings.Contains(r.err, "goroutine") {
				t.Errorf("the error says too much: %s", r.err)
			}
		})
	}
}

func TestErrorsAreJSONWhereTheOutputIs(t *testing.T) {
	newFakeAPI(t, map[string]canned{"GET /api/v1/webhooks/wh_1": {400, problemJSON}})
	for args, want := range map[string]string{
		"webhooks get wh_1 -o json":      `"exit_code":4,"answer":{"title":`,
		"webhooks get --nope -o json":    `"exit_code":2}`,
		"webhooks get --output=json":     `"exit_code":2}`,
		"webhooks get wh_1 -o yaml":      "pushlease: ",
		"webhooks get wh_1 -- -o json x": "pushlease: ",
	} {
		r := execute(t, "", strings.Fields(args)...)
		if !strings.Contains(r.err, want) || strings.HasPrefix(want, `"`) != json.Valid([]byte(r.err)) {
			t.Errorf("%s: %s, want %s", args, r.err, want)
		}
	}
}

func TestAnUnknownCommandSaysWhatThereIs(t *testing.T) {
	for args, want := range map[string]string{
		"cues": "dead-letters, demo", "cues --help": "dead-letters, demo", "queue halt": "delete, list, peek, show", "webhooks halt": "delete, disable", "send --help": "", "webhooks --help": "",
	} {
		if r := execute(t, "", strings.Fields(args)...); (r.code == exitUsage) != (want != "") || !strings.Contains(r.err, want) {
			t.Errorf("%s: %+v, want %q", args, r, want)
		}
	}
}

func TestTextsOfTheServerNameCommands(t *testing.T) {
	for text, want := range map[string]string{
		"POST /api/v1/webhooks/wh_1/enable (pushlease webhooks enable wh_1) ends it.":                "pushlease webhooks enable wh_1 ends it.",
		"POST /api/v1/dead-letters/orders.1-a/replay sends it":                                       "pushlease dead-letters replay orders.1-a sends it",
		"GET /api/v1/replays lists them":                                                             "pushlease dead-letters jobs lists them",
		"GET /api/v1/webhooks?queue=orders-eu says so":                                               "pushlease webhooks list --queue orders-eu says so",
		"400. GET /api/v1/attempts?webhook=wh_1 shows":                                               "400. pushlease attempts wh_1 shows",
		"from GET /api/v1/webhooks":                                                                  "from pushlease webhooks list",
		"(GET /api/v1/queues/orders counts them)":                                                    "(pushlease queues show orders counts them)",
		"POST /api/v1/queues/orders/match says":                                                      "pushlease match orders says",
		"from GET /api/v1/queues, or publish":                                                        "from pushlease queues list, or publish",
		"from GET /api/v1/attempts":                                                                  "from pushlease attempts",
		"follow it at /api/v1/messages/m-1, ask again after 10m0s, or add ?force=true to start over": "follow it with pushlease messages show m-1, ask again after 10m0s, or add --force to start over",
		"send the header Authorization: Bearer <token>, once, with the token of an API key":          "set PUSHLEASE_API_KEY to the token of an API key that this server has",
	} {
		if got := asCommands(text); got != want {
			t.Errorf("%s\n  became %s\n  want   %s", text, got, want)
		}
	}
}

func TestWhatRefusesMessagesDoesNotLookHealthy(t *testing.T) {
	row := func(posts, refused int) string {
		return fmt.Sprintf(`{"id":"wh_%d","enabled":true,"status":{"instance":"one","state":"healthy","text":"It refused them. GET /api/v1/attempts?webhook=wh_%d","refused":%d,"recent_posts":%d,"recent_refused":%d}}`,
			posts, posts, refused+1, posts, refused)
	}
	for posts, want := range map[int]string{1: "but refuses 1 of 1", 2: "but refuses 1 of 2", 3: ""} {
		newFakeAPI(t, map[string]canned{
			"GET /api/v1/webhooks":                           {200, `{"data":[` + row(posts, 1) + `]}`},
			"GET /api/v1/webhooks/wh_" + strconv.Itoa(posts): {200, row(posts, 1)},
			"GET /api/v1/queues":                             {200, `{"data":[]}`},
		})
		list, one := execute(t, "", "webhooks", "list"), execute(t, "", "webhooks", "show", "wh_"+strconv.Itoa(posts))
		top := execute(t, "", "webhooks", "top", "--once")
		for _, r := range []result{list, one} {
			if strings.Contains(r.out, "refuses ") != (want != "") || want != "" && !strings.Contains(r.out, "enabled, "+want) {
				t.Errorf("%d: %+v, want %q", posts, r, want)
			}
		}
		if want != "" && !strings.Contains(one.out, "healthy, "+want+" (as one sees it)") {
			t.Errorf("%+v", one)
		}
		if !strings.Contains(one.out, "2 were refused (such as 400)") || !strings.Contains(top.out, " REFUSED ") {
			t.Errorf("%+v %+v", one, top)
		}
		if hint := fmt.Sprintf("pushlease attempts wh_%d", posts); strings.Contains(top.out, hint) != (want != "") || strings.Contains(top.out, "  refusing  ") != (want != "") ||
			strings.Contains(top.out, "· 1 refusing") != (want != "") || strings.Contains(top.out, "· 1 healthy") != (want == "") {
			t.Errorf("%+v", top)
		}
	}
}

func TestTheListSaysWhichWebhooksFail(t *testing.T) {
	newFakeAPI(t, map[string]canned{"GET /api/v1/webhooks": {200, `{"data":[{"id":"wh_1","enabled":true,"status":{"state":"failing"}},{"id":"wh_2","enabled":true,"status":{"state":"healthy"}}]}`}})
	if r := execute(t, "", "webhooks", "list"); strings.Count(r.out, "enabled, failing") != 1 {
		t.Errorf("%+v", r)
	}
}

func TestAServerWithoutASchemeSaysWhatToWrite(t *testing.T) {
	for server, want := range map[string]string{
		"localhost:8099": "write http://localhost:8099", "127.0.0.1:8099": "write http://127.0.0.1:8099", "me:sesame@host:1": "write " + defaultServer, "ftp://a": "write " + defaultServer,
	} {
		if r := execute(t, "", "webhooks", "list", "--server", server); r.code != exitUsage || !strings.Contains(r.err, want) || strings.Contains(r.err, "sesame") {
			t.Errorf("%s: %+v, want %q", server, r, want)
		}
	}
}

func TestTheServersAnswerDecidesTheExitCode(t *testing.T) {
	for status, want := range map[int]int{400: 4, 401: 4, 403: 4, 404: 3, 409: 4, 412: 4, 413: 4, 422: 4, 429: 4, 500: 1, 503: 1, 302: 1} {
		newFakeAPI(t, map[string]canned{"GET /api/v1/webhooks/wh_1": {status, problemJSON}})
		r := execute(t, "", "webhooks", "get", "wh_1")
		if r.code != want || !strings.Contains(r.err, "queue is not a name") || !strings.Contains(r.err, "→ use lower case") || !strings.Contains(r.err, fmt.Sprint(status)) {
			t.Errorf("status %d: code %d, want %d: %s", status, r.code, want, r.err)
		}
	}
	newFakeAPI(t, map[string]canned{"GET /api/v1/webhooks/wh_1": {502, "<html>"}})
	if r := execute(t, "", "webhooks", "get", "wh_1"); r.code != exitFailed || !strings.Contains(r.err, "--server") {
		t.Errorf("an answer of another program: %d %s", r.code, r.err)
	}
	newFakeAPI(t, map[string]canned{"GET /api/v1/webhooks/wh_1": {200, "<html>"}})
	if r := execute(t, "", "webhooks", "get", "wh_1"); r.code != exitFailed || !strings.Contains(r.err, "--server") {
		t.Errorf("a success of another program: %d %s", r.code, r.err)
	}
}

// Each row is one command and the one request that it makes.
func TestRequests(t *testing.T) {
	const sent = `{"message_id":"m1","queue":"orders","visible_at":"2026-01-01T00:00:00Z"}`
	file := filepath.Join(t.TempDir(), "in.json")
	if err := os.WriteFile(file, []byte(`{"queue":"orders","url":"https://a.example/","policy":{"max_attempts":3}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		args        string
		stdin       string
		line, body  string
		status      int
		answer, out string
	}{
		{"send orders hello", "", "POST /api/v1/queues/orders/messages", "hello", 202, sent, "sent m1 to orders\n"},
		{"send orders - --delay 10s --ttl never", "from stdin\n", "POST /api/v1/queues/orders/messages?delay=10s&ttl=never", "from stdin\n", 202, sent, "sent m1 to orders\n"},
		{"send orders", "piped", "POST /api/v1/queues/orders/messages", "piped", 202, sent, "sent m1 to orders\n"},
		{"send orders @" + file, "", "POST /api/v1/queues/orders/messages", `{"queue":"orders","url":"https://a.example/","policy":{"max_attempts":3}}`, 202, sent, "sent m1 to orders\n"},
		{"send a/b x -o json", "", "POST /api/v1/queues/a%2Fb/messages", "x", 202, sent + "\n", sent + "\n"},
		{"webhooks get wh_1", "", "GET /api/v1/webhooks/wh_1", "", 200, webhookJSON, "enabled"},
		{"webhooks create --queue orders --url https://a.example/", "", "POST /api/v1/webhooks", `{"queue":"orders","url":"https://a.example/"}`, 201, webhookJSON, "wh_1"},
		{"webhooks put billing --queue orders --url https://a.example/ --rate 2", "", "PUT /api/v1/webhooks/billing", `{"flow":{"rate":2},"queue":"orders","url":"https://a.example/"}`, 200, webhookJSON, "wh_1"},
		{"webhooks create --from " + file + " --preset short --name n --timeout 5s --disabled", "", "POST /api/v1/webhooks",
			`{"enabled":false,"name":"n","policy":{"max_attempts":3,"preset":"short"},"queue":"orders","timeout":"5s","url":"https://a.example/"}`, 201, webhookJSON, "wh_1"},
		{"webhooks create --from - --secret-file " + file, `{}`, "POST /api/v1/webhooks", `{"secret":"{\"queue\":\"orders\",\"url\":\"https://a.example/\",\"policy\":{\"max_attempts\":3}}"}`, 201, webhookJSON, "wh_1"},
		{"webhooks create --queue orders --url https://a.example/ --filter-type a.* --filter-type b --format cloudevents-binary", "", "POST /api/v1/webhooks",
			`{"filter":{"types":["a.*","b"]},"format":"cloudevents-binary","queue":"orders","url":"https://a.example/"}`, 201, webhookJSON, `{"types":["a.*"]}`},
		{"webhooks create --queue orders --url https://a.example/ --hmac github --hmac-secret-file -", "hush of mine\n", "POST /api/v1/webhooks",
			`{"queue":"orders","signatures":{"hmac":{"preset":"github","secret":"hush of mine"}},"url":"https://a.example/"}`, 201,
			strings.Replace(webhookJSON, "{", `{"signatures":{"hmac":{"preset":"github","secret":"[redacted]"}},`, 1), "HMAC (github), with a secret of its own"},
		{"webhooks create --queue orders --url https://a.example/ --v1a --signing-key-file -", "whsk_mine\n", "POST /api/v1/webhooks",
			`{"queue":"orders","signatures":{"v1a":true},"signing_key":"whsk_mine","url":"https://a.example/"}`, 201,
			strings.Replace(webhookJSON, "{", `{"signatures":{"v1a":true},"signing_keys":[{"public_key":"whpk_mine"}],`, 1), "whpk_mine"},
		{"webhooks rotate-signing-key wh_1 --overlap 1h", "", "POST /api/v1/webhooks/wh_1/rotate-signing-key", `{"overlap":"1h"}`, 200,
			`{"signing_keys":[{"public_key":"whpk_new"},{"public_key":"whpk_old","expires_at":"2026-01-01T00:00:00Z"}]}`, "whpk_new, whpk_old (signs until "},
		{"webhooks update wh_1 --signatures-file - --hmac stripe", `{"hmac":{"secret":"hush of mine"}}`, "PATCH /api/v1/webhooks/wh_1", `{"signatures":{"hmac":{"preset":"stripe","secret":"hush of mine"}}}`, 200, webhookJSON, "wh_1"},
		{"webhooks update wh_1 --filter-file - --filter-type b", `{"types":["a"],"fields":[{"field":"n","op":"eq","value":12345678901234567890}]}`, "PATCH /api/v1/webhooks/wh_1",
			`{"filter":{"fields":[{"field":"n","op":"eq","value":12345678901234567890}],"types":["b"]}}`, 200, webhookJSON, "cloudevents-structured"},
		{"webhooks update wh_1 --flow-file - --concurrency 3 --rate 0", `{"breaker":{"enabled":false},"rate":7}`, "PATCH /api/v1/webhooks/wh_1",
			`{"flow":{"breaker":{"enabled":false},"concurrency":3,"rate":0}}`, 200, webhookJSON, `"v1"`},
		{"webhooks update wh_1 --header X-A:b --remove-header X-C --max-attempts 2", "", "PATCH /api/v1/webhooks/wh_1", `{"headers":{"X-A":"b","X-C":null},"policy":{"max_attempts":2}}`, 200, webhookJSON, `"v1"`},
		{"webhooks delete wh_1", "", "DELETE /api/v1/webhooks/wh_1", "", 204, "", "deleted wh_1\n"},
		{"webhooks delete wh_1 -o json", "", "DELETE /api/v1/webhooks/wh_1", "", 204, "", `{"deleted":"wh_1"}` + "\n"},
		{"webhooks enable wh_1", "", "POST /api/v1/webhooks/wh_1/enable", "", 200, webhookJSON, "enabled"},
		{"webhooks disable wh_1", "", "POST /api/v1/webhooks/wh_1/disable", "", 200, webhookJSON, "wh_1"},
		{"webhooks rotate-secret wh_1 --overlap 1h", "", "POST /api/v1/webhooks/wh_1/rotate-secret", `{"overlap":"1h"}`, 200,
			`{"secret":"whsec_new","secrets":[{"expires_at":"2026-01-01T00:00:00Z"}]}`, "whsec_new  (shown only now"},
		{"webhooks test wh_1", "", "POST /api/v1/webhooks/wh_1/test", "", 200, `{"status":204,"duration":"5ms","request":{"method":"POST","url":"https://a.example","headers":{"B":"1","A":"2"},"body":"{}"},"decision":{"explanation":"Taken."}}`, "A, B"},
		{"dead-letters get orders.1-a", "", "GET /api/v1/dead-letters/orders.1-a", "", 200, deadLetterJSON, "NonRetryableError: It answered 400."},
		{"dead-letters get orders.1-a --body", "", "GET /api/v1/dead-letters/orders.1-a/body", "", 200, "\x00\xffraw", "\x00\xffraw"},
		{"dead-letters get orders.1-a --body -o json", "", "GET /api/v1/dead-letters/orders.1-a?body=true", "", 200, deadLetterJSON, `"message_id":"m1"`},
		{"dead-letters replay orders.1-a --force", "", "POST /api/v1/dead-letters/orders.1-a/replay?force=true", "", 202, deadLetterJSON, "orders.1-a"},
		{"queues peek orders", "", "GET /api/v1/queues/orders/messages", "", 200, `{"data":[{"message_id":"m1","queue":"orders","inserted_at":"2026-01-01T00:00:00Z","size":7}]}`, "m1       2026-01-01T00:00:00Z           7"},
		{"queues peek orders --body", "", "GET /api/v1/queues/orders/messages?body=true", "", 200,
			`{"data":[{"message_id":"m1","inserted_at":"2026-01-01T00:00:00Z","size":7,"body":{"base64":"eyJhIjogMX0=","content_type":"application/json"}}]}`, "7\n    {\n      \"a\": 1\n    }\n"},
		{"dead-letters delete orders.1-a", "", "DELETE /api/v1/dead-letters/orders.1-a", "", 204, "", "deleted orders.1-a\n"},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			path, _, _ := strings.Cut(tt.line, "?")
			f := newFakeAPI(t, map[string]canned{path: {tt.status, tt.answer}})
			r := execute(t, tt.stdin, strings.Fields(tt.args)...)
			if r.code != exitOK || !strings.Contains(r.out, tt.out) {
				t.Fatalf("code %d, error %q, output %q; want %q in it", r.code, r.err, r.out, tt.out)
			}
			if got := f.only(t); got.line != tt.line || got.body != tt.body {
				t.Errorf("request %q with %q, want %q with %q", got.line, got.body, tt.line, tt.body)
			}
		})
	}
}

func TestFailedTestOfAWebhookFails(t *testing.T) {
	newFakeAPI(t, map[string]canned{"POST /api/v1/webhooks/wh_1/test": {200, `{"error_class":"connect","error":"refused"}`}})
	for _, args := range [][]string{{"webhooks", "test", "wh_1"}, {"webhooks", "test", "wh_1", "-o", "json"}} {
		if r := execute(t, "", args...); r.code != exitFailed || !strings.Contains(r.out, "refused") || r.err != "" {
			t.Errorf("%v: %+v", args, r)
		}
	}
}

func TestListsGoOverAllPages(t *testing.T) {
	var mu sync.Mutex
	var queries []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		queries = append(queries, r.URL.RawQuery)
		if r.URL.Query().Get("cursor") == "" {
			_, _ = fmt.Fprintf(w, `{"data":[%s,%s],"next_cursor":"abc"}`, deadLetterJSON, deadLetterJSON)
			return
		}
		_, _ = fmt.Fprintf(w, `{"data":[%s],"next_cursor":null}`, deadLetterJSON)
	}))
	defer server.Close()
	r := execute(t, "", "dead-letters", "list", "--server", server.URL, "--queue", "orders", "-o", "json")
	var p page
	if err := json.Unmarshal([]byte(r.out), &p); err != nil || len(p.Data) != 3 || p.NextCursor != nil {
		t.Errorf("%v: %+v", err, r)
	}
	if want := []string{"limit=50&queue=orders", "cursor=abc&limit=48&queue=orders"}; fmt.Sprint(queries) != fmt.Sprint(want) {
		t.Errorf("queries %v, want %v", queries, want)
	}
	r = execute(t, "", "dead-letters", "list", "--server", server.URL, "--limit", "2")
	if r.code != exitOK || strings.Count(r.out, "orders.1-a") != 2 || !strings.Contains(r.err, "There are more") {
		t.Errorf("%+v", r)
	}
}

func TestWebhooksList(t *testing.T) {
	f := newFakeAPI(t, map[string]canned{"GET /api/v1/webhooks": {200, `{"data":[` + webhookJSON + `],"next_cursor":null}`}})
	r := execute(t, "", "webhooks", "list", "--queue", "orders")
	lines := strings.Split(r.out, "\n")
	if r.code != exitOK || len(lines) != 3 || !strings.HasPrefix(lines[0], "ID") || !strings.Contains(lines[1], "https://example.com/hook") {
		t.Errorf("%+v", r)
	}
	if got := f.only(t).line; got != "GET /api/v1/webhooks?limit=500&queue=orders" {
		t.Error(got)
	}
}

func TestRowsThatTheServerCantReadAreNamed(t *testing.T) {
	newFakeAPI(t, map[string]canned{"GET /api/v1/webhooks": {200, `{"data":[],"next_cursor":null,"unreadable":[{"id":"wh_bad","problem":"register it again"}]}`}})
	if r := execute(t, "", "webhooks", "list"); r.code != exitOK || !strings.Contains(r.err, "wh_bad, register it again") {
		t.Errorf("%+v", r)
	}
	if r := execute(t, "", "webhooks", "list", "-o", "json"); !strings.Contains(r.out, `"unreadable":[{"id":"wh_bad"`) {
		t.Errorf("%+v", r)
	}
}

func TestTheAPIKeyIsSentAndNeverShown(t *testing.T) {
	const key = "pl_very-secret"
	for _, status := range []int{200, 401, 500} {
		f := newFakeAPI(t, map[string]canned{"GET /api/v1/webhooks/wh_1": {status, webhookJSON}})
		t.Setenv(apiKeyEnv, key)
		r := execute(t, "", "webhooks", "get", "wh_1")
		if got := f.only(t).header.Get("Authorization"); got != "Bearer "+key {
			t.Errorf("Authorization = %q", got)
		}
		if strings.Contains(r.out+r.err, key) {
			t.Errorf("the key is in %+v", r)
		}
	}
	if r := execute(t, "", "webhooks", "get", "wh_1", "--server", "http://127.0.0.1:1"); strings.Contains(r.out+r.err, key) {
		t.Errorf("the key is in %+v", r)
	}
}

func TestARedirectIsNotFollowed(t *testing.T) {
	other := newFakeAPI(t, nil)
	server := httptest.NewServer(http.RedirectHandler(other.URL+"/x", http.StatusTemporaryRedirect))
	defer server.Close()
	t.Setenv(apiKeyEnv, "pl_x")
	if r := execute(t, "", "webhooks", "get", "wh_1", "--server", server.URL); r.code != exitFailed {
		t.Errorf("%+v", r)
	}
	if len(other.requests) != 0 {
		t.Error("the key went elsewhere")
	}
}

func TestSendPrintsEachWarningOnce(t *testing.T) {
	newFakeAPI(t, map[string]canned{"POST /api/v1/queues/ordrs/messages": {202, `{"message_id":"m1","queue":"ordrs","warnings":["The queue ordrs has no webhook.\u001b[31m"]}`}})
	r := execute(t, "", "send", "ordrs", "{}", "--count", "3")
	if r.code != exitOK || strings.Count(r.err, "warning: The queue ordrs has no webhook.") != 1 || strings.Contains(r.err, "\x1b") || strings.Count(r.out, "sent m1") != 3 {
		t.Errorf("code %d, %q, %q", r.code, r.out, r.err)
	}
}

func TestSendManyStopsAtTheFirstFailure(t *testing.T) {
	n := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if n++; n == 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"title":"Storage did not answer","status":503,"detail":"Again."}`)
			return
		}
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, `{"message_id":"m","queue":"orders"}`)
	}))
	defer server.Close()
	r := execute(t, "", "send", "orders", "x", "--count", "5", "--server", server.URL, "-o", "json")
	if r.code != exitFailed || strings.Count(r.out, "\n") != 2 || !strings.Contains(r.err, "after 2 of 5") || n != 3 {
		t.Errorf("%d requests: %+v", n, r)
	}
}

func TestWhatTheServerSaysCantSteerTheTerminal(t *testing.T) {
	const evil = "a\u001b[2Jb\u0007\u009bc"
	quoted, err := json.Marshal(evil)
	if err != nil {
		t.Fatal(err)
	}
	newFakeAPI(t, map[string]canned{
		"GET /api/v1/webhooks":          {200, `{"data":[{"id":` + string(quoted) + `}]}`},
		"GET /api/v1/webhooks/wh_1":     {400, `{"title":` + string(quoted) + `}`},
		"GET /api/v1/messages/m1":       {200, `{"events":[{"text":` + string(quoted) + `}]}`},
		"GET /api/v1/dead-letters/dl_1": {200, `{"description":` + string(quoted) + `}`},
	})
	for _, args := range []string{"webhooks list", "webhooks get wh_1", "messages show m1", "dead-letters get dl_1"} {
		r := execute(t, "", strings.Fields(args)...)
		if got := r.out + r.err; strings.ContainsAny(got, "\u001b\u0007\u009b") || !strings.Contains(got, "[2Jb") {
			t.Errorf("%s: %q", args, got)
		}
	}
}

func TestMessagesWatchEndsWhenTheMessageIsSettled(t *testing.T) {
	const published = `{"at":"2026-01-01T00:00:00Z","event":"published","text":"Published."}`
	const attempt = `{"at":"2026-01-01T00:00:01.25Z","event":"attempt","webhook_id":"wh_1","text":"Attempt 1."}`
	tests := []struct {
		name    string
		answers []string
		code    int
	}{
		{"delivered", []string{
			`{"events":[` + published + `],"next":[{"state":"published"}]}`,
			`{"events":[` + published + `,` + attempt + `],"next":[{"state":"pending"}]}`,
			``, // the server is away for a moment
			`{"events":[` + published + `,` + attempt + `],"next":[{"state":"delivered"},{"state":"delivered"}]}`,
		}, exitOK},
		{"dead-lettered", []string{
			`{"events":[` + published + `],"next":[{"state":"dead_lettering"}]}`,
			`{"events":[` + published + `,{"event":"replayed"}],"next":[{"state":"dead_lettered"}]}`,
			`{"events":[` + published + `,` + attempt + `],"next":[{"state":"delivered"},{"state":"dead_lettered"}]}`,
		}, exitFailed},
		{"lost", []string{
			`{"events":[` + published + `,` + attempt + `],"next":[{"state":"pending"}]}`,
			`{"events":[` + published + `,` + attempt + `],"next":[{"state":"lost"}]}`,
		}, exitFailed},
		{"lost with its replay", []string{
			`{"events":[` + published + `,` + attempt + `,{"event":"replayed"}],"next":[{"state":"dead_lettered"},{"state":"lost"}]}`,
		}, exitFailed},
		{"lost for one, and replayed for another", []string{
			`{"events":[` + published + `,{"event":"replayed","webhook_id":"b"}],"next":[{"webhook_id":"a","state":"lost"},{"webhook_id":"b","state":"dead_lettered"}]}`,
			`{"events":[` + published + `,{"event":"replayed","webhook_id":"b"},` + attempt + `],"next":[{"webhook_id":"a","state":"lost"},{"webhook_id":"b","state":"delivered"}]}`,
		}, exitFailed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				a := tt.answers[min(n, len(tt.answers)-1)]
				if n++; a == "" {
					w.WriteHeader(http.StatusServiceUnavailable)
				}
				_, _ = io.WriteString(w, a)
			}))
			defer server.Close()
			c := &messagesShow{every: time.Millisecond}
			c.server = server.URL
			var out bytes.Buffer
			cmd := &cobra.Command{}
			cmd.SetContext(t.Context())
			cmd.SetOut(&out)
			if code := exitCode(c.follow(cmd, "m1")); code != tt.code {
				t.Errorf("code %d, want %d", code, tt.code)
			}
			if n != len(tt.answers) || strings.Count(out.String(), "Published.") != 1 || strings.Count(out.String(), "2026-01-01T00:00:01.250Z  attempt ") != 1 {
				t.Errorf("%d requests, output: %s", n, out.String())
			}
		})
	}
}

func TestWatchingAMessageThatIsNotThereFailsAtOnce(t *testing.T) {
	f := newFakeAPI(t, nil)
	if r := execute(t, "", "messages", "show", "m1", "--watch"); r.code != exitNotFound || len(f.requests) != 1 {
		t.Errorf("%d requests, %+v", len(f.requests), r)
	}
}

func TestAPIKeyNewGivesATokenAndTheHashOfIt(t *testing.T) {
	r := execute(t, "", "api-key", "new", "--name", "shop", "--scopes", "publish,read", "-o", "json")
	var made struct{ Token, Setting string }
	if err := json.Unmarshal([]byte(r.out), &made); err != nil || len(made.Token) < 40 {
		t.Fatalf("%v: %+v", err, r)
	}
	if !strings.HasPrefix(made.Setting, "shop:publish+read:") || strings.Contains(made.Setting, made.Token) {
		t.Errorf("setting %q", made.Setting)
	}
	t.Setenv("PUSHLEASE_API_KEYS", made.Setting)
	t.Setenv("PUSHLEASE_LISTEN", "0.0.0.0:0")
	if r := execute(t, "", "doctor", "-o", "json"); strings.Contains(r.out, "configuration\",\"verdict\":\"failed") {
		t.Errorf("the setting is refused: %+v", r)
	}
	if r := execute(t, "", "api-key", "new", "--name", "shop", "--scopes", "publish"); strings.Count(r.out, "shop:publish:") != 1 || strings.Contains(r.out, made.Token) {
		t.Errorf("%+v", r)
	}
}

func TestVersion(t *testing.T) {
	if r := execute(t, "", "version"); r.code != exitOK || !strings.HasPrefix(r.out, "pushlease ") {
		t.Errorf("%+v", r)
	}
	commit, date = "0123456789abcdef0123456789abcdef01234567", "2026-01-31T15:04:05Z"
	t.Cleanup(func() { commit, date = "", "" })
	if r := execute(t, "", "version"); !strings.Contains(r.out, ", commit 0123456789ab of 2026-01-31T15:04:05Z)") {
		t.Errorf("%q", r.out)
	}
	if r := execute(t, "", "version", "-o", "json"); !strings.Contains(r.out, `"commit":"`+commit+`","date":"`+date+`"`) || r.code != exitOK || !json.Valid([]byte(r.out)) {
		t.Errorf("%+v", r)
	}
}

func TestEveryCommandHasHelpWithAnExample(t *testing.T) {
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Short == "" || (cmd.Example == "" && !cmd.HasSubCommands()) {
			t.Errorf("%s has no description or no example", cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	root := newRootCommand()
	walk(root)
	if r := execute(t, "", "--help"); r.code != exitOK || !strings.Contains(r.out, "pushlease demo") || !strings.Contains(r.out, "Exit codes") {
		t.Errorf("%+v", r)
	}
	if r := execute(t, ""); r.code != exitOK || !strings.Contains(r.out, "Usage") {
		t.Errorf("%+v", r)
	}
}

func TestTheHelpNamesEveryPreset(t *testing.T) {
	help := strings.Join(strings.Fields(execute(t, "", "webhooks", "create", "--help").out), " ")
	if want := strings.Join(policy.PresetNames(), ", "); !strings.Contains(help, want) {
		t.Errorf("the help does not name the presets %s:\n%s", want, help)
	}
}
