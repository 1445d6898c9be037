package hosttest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// recording is one line of testdata/wire.jsonl, see README.md.
type recording struct {
	Mode   string
	Ask    string
	Client struct {
		Method, URL, Host string
		Headers           map[string]string
		N                 int
		Chunked           bool
		Body              []byte // N of any bytes, where it was not kept
	}
	// AnyMethod: the function lists no methods.
	AnyMethod bool `json:"any_method"`
	Seen      []struct {
		URL     string
		Headers json.RawMessage
	}
	Times  int
	Answer struct {
		Status  int
		Headers map[string]any
		N       int
	}
	// Echo: the handler's answer was of known length.
	Echo bool
	// Binding, Headers and Body are an invocation's, Text and Changed those of an overwritten one.
	Binding string
	Headers []string
	Body    struct{ Data, Metadata map[string]json.RawMessage }
	Text    string
	Changed map[string]json.RawMessage `json:"metadata_changed"`
	// Env is what a handler has in its environment.
	Env map[string]string `json:"handler_env"`
	// Case is what an invocation was answered, with what came of its message.
	Case                      string
	Invocations, Left, Poison int
}

func recordings(t *testing.T, modes ...string) (all []recording) {
	t.Helper()
	text, err := os.ReadFile("testdata/wire.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var r recording
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if slices.Contains(modes, r.Mode) {
			all = append(all, r)
		}
	}
	if len(all) == 0 {
		t.Fatal("nothing was recorded")
	}
	return all
}

// seen is one request as the handler has it.
type seen struct {
	URI    string
	Header http.Header
	N      int64
	Body   []byte
}

// recorder is a handler in this process, which answers as the recorded one did.
type recorder struct {
	mu  sync.Mutex
	all []seen
	ids []string
}

func (rec *recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	header := r.Header.Clone()
	header.Set("Host", r.Host)
	if len(r.TransferEncoding) > 0 {
		header.Set("Transfer-Encoding", strings.Join(r.TransferEncoding, ", "))
	} else if r.ContentLength > 0 || r.Header["Content-Length"] != nil {
		header.Set("Content-Length", fmt.Sprint(r.ContentLength))
	}
	rec.mu.Lock()
	rec.all = append(rec.all, seen{r.RequestURI, header, int64(len(body)), body})
	rec.ids = append(rec.ids, r.Header.Get(invocationID))
	rec.mu.Unlock()
	reply := func(status int, text string, headers ...string) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Add(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		if text != "" {
			_ = http.NewResponseController(w).Flush() // in chunks, as it was recorded
			_, _ = io.WriteString(w, text)
		}
	}
	switch r.URL.Path {
	case "/api/v1/answer-problem":
		reply(404, "{}", "Content-Type", "application/problem+json", "Retry-After", "5", "X-Own", "1")
	case "/api/v1/answer-none":
		reply(204, "", "Etag", `"x"`)
	case "/api/v1/answer-notmod":
		reply(304, "", "Etag", `"x"`)
	case "/api/v1/answer-redirect":
		reply(302, "", "Location", "/api/v1/elsewhere")
	case "/api/v1/answer-die":
		panic(http.ErrAbortHandler)
	case "/api/v1/answer-cookies":
		reply(200, "{}", "Content-Type", "application/json", "Allow", "GET, HEAD", "Content-Encoding", "identity", "Content-Language", "de",
			"Last-Modified", "Sat, 28 Nov 2026 15:59:30 GMT", "Set-Cookie", "a=1", "Set-Cookie", "b=2", "Vary", "a, b",
			"Www-Authenticate", `Bearer realm="x"`, "Link", `</a>; rel="next"`)
	case "/api/v1/answer-slow":
		reply(200, "late", "Content-Type", "text/plain")
	case "/api/v1/answer-big":
		reply(200, strings.Repeat("x", 5_000_000), "Content-Type", "text/plain")
	default:
		reply(200, `{"ok":true}`, "Content-Type", "application/json")
	}
}

func (rec *recorder) take() (all []seen, ids []string) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	all, ids = rec.all, rec.ids
	rec.all, rec.ids = nil, nil
	return all, ids
}

// someMethods are those that most recordings were made with.
var someMethods = []string{"get", "head", "post", "patch", "delete"}

// inProcess is a fake whose handler is rec. There is no storage.
func inProcess(t *testing.T, mode string, rec *recorder, methods ...string) *Host {
	t.Helper()
	api := function{"api", binding{Type: "httpTrigger", Name: "req", AuthLevel: "function", Route: "v1/{*path}", Methods: methods}}
	server := httptest.NewServer(rec)
	t.Cleanup(server.Close)
	up := make(chan struct{})
	close(up)
	h := &Host{life: life{ctx: t.Context()}, handler: &handler{addr: server.Listener.Addr().String(), up: up, gone: make(chan struct{})}}
	h.open(t, app{proxying: mode == "proxy", forwarding: true, prefix: "api", timeout: time.Minute, initTime: time.Minute, functions: []function{api}})
	return h
}

// TestHTTPRequestsArePassedOnAsRecorded sends what was sent to the real host, and compares what the
// handler saw and what the caller got, header by header.
func TestHTTPRequestsArePassedOnAsRecorded(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"forward", "proxy"} {
		rec := &recorder{}
		hosts := map[bool]*Host{false: inProcess(t, mode, rec, someMethods...), true: inProcess(t, mode, rec)}
		for _, r := range recordings(t, mode) {
			t.Run(mode+" "+r.Ask, func(t *testing.T) {
				resp := ask(t, hosts[r.AnyMethod], &r)
				got, ids := rec.take()
				if len(got) != r.Times || len(slices.Compact(slices.Sorted(slices.Values(ids)))) > 1 {
					t.Errorf("the handler was asked %d times, under %d ids; %d times it was under one", len(got), len(ids), r.Times)
				}
				if len(r.Seen) > 0 && len(got) > 0 {
					want := seen{URI: strings.ReplaceAll(r.Seen[0].URL, recordedKey, FunctionKey), Header: flat(t, r.Seen[0].Headers), N: int64(r.Client.N), Body: r.body()}
					first := got[0]
					for _, s := range []*seen{&want, &first} {
						anonymous(s.Header)
					}
					if diff := cmp.Diff(want, first); diff != "" {
						t.Errorf("the handler saw (- recorded, + fake):\n%s", diff)
					}
				}
				r.compareAnswer(t, resp)
			})
		}
	}
}

// body is what the client sends: handlers were seen to get the same bytes.
func (r *recording) body() []byte {
	body := append([]byte{}, r.Client.Body...)
	for i := len(body); i < r.Client.N; i++ {
		body = append(body, byte(i))
	}
	return body
}

// ask sends a recorded request, as one connection for each.
func ask(t *testing.T, h *Host, r *recording) *http.Response {
	t.Helper()
	var body io.Reader = http.NoBody
	if r.Client.N > 0 {
		body = bytes.NewReader(r.body())
	}
	req, err := http.NewRequest(r.Client.Method, h.URL()+strings.ReplaceAll(r.Client.URL, recordedKey, FunctionKey), body)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	for name, value := range r.Client.Headers {
		if name == "x-twice" {
			req.Header[http.CanonicalHeaderKey(name)] = strings.Split(value, ", ")
			continue
		}
		req.Header.Set(name, value)
	}
	req.Header.Set("User-Agent", r.Client.Headers["User-Agent"])
	if req.Header.Get("X-Functions-Key") != "" {
		req.Header.Set("X-Functions-Key", FunctionKey)
	}
	if r.Client.Host != "" {
		req.Host = r.Client.Host
	}
	if r.Client.Chunked {
		req.ContentLength = -1
	}
	if r.Mode == "forward" && r.Answer.Status == http.StatusExpectationFailed {
		req.Header.Set("Expect", "odd") // Go's server answers this by itself, whatever the mode
	}
	resp, err := (&http.Transport{DisableCompression: true}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(text))
	return resp
}

const recordedKey = "proof-function-key-0123456789abcdefghijklmnop"

// flat is a list of names and values, or of pairs of them.
func flat(t *testing.T, raw json.RawMessage) http.Header {
	t.Helper()
	var pairs [][2]string
	if err := json.Unmarshal(raw, &pairs); err != nil {
		t.Fatal(err)
	}
	header := http.Header{}
	for _, p := range pairs {
		header.Add(p[0], p[1])
	}
	return header
}

// anonymous takes out what differs from run to run: ids, ports and keys.
func anonymous(header http.Header) {
	for name, values := range header {
		for i, v := range values {
			v = guids.ReplaceAllString(v, "<guid>")
			values[i] = ports.ReplaceAllString(v, "127.0.0.1:<port>")
		}
		if name == "X-Functions-Key" {
			values[0] = "<key>"
		}
	}
}

// compareAnswer compares status, headers and length. The length of what Go answers to HEAD, and the
// text of the host's own page, are their own.
func (r *recording) compareAnswer(t *testing.T, resp *http.Response) {
	t.Helper()
	text, _ := io.ReadAll(resp.Body)
	got := resp.Header.Clone()
	got.Del("Date")
	want := http.Header{}
	for name, v := range r.Answer.Headers {
		switch v := v.(type) {
		case string:
			want.Set(name, v)
		case []any:
			for _, e := range v {
				want.Add(name, fmt.Sprint(e))
			}
		}
	}
	if len(resp.TransferEncoding) > 0 {
		got.Set("Transfer-Encoding", resp.TransferEncoding[0])
	}
	if r.Client.Method == http.MethodHead || r.Echo || r.Ask == "GET /" || r.Answer.Status == http.StatusNotModified {
		for _, name := range []string{"Content-Length", "Location", "Transfer-Encoding"} {
			got.Del(name)
			want.Del(name)
		}
	} else if len(text) != r.Answer.N {
		t.Errorf("the answer has %d bytes, recorded %d", len(text), r.Answer.N)
	}
	for _, header := range []http.Header{got, want} {
		header.Del("Connection") // Go's client takes it away
	}
	if resp.StatusCode == http.StatusExpectationFailed {
		want.Del("Server")
	}
	if diff := cmp.Diff(want, got); diff != "" || resp.StatusCode != r.Answer.Status {
		t.Errorf("the caller got %d, recorded %d (- recorded, + fake):\n%s", resp.StatusCode, r.Answer.Status, diff)
	}
}

// TestInvocationsAreAsRecorded: the same messages, in the same forms.
func TestInvocationsAreAsRecorded(t *testing.T) {
	rec := &recorder{}
	h := inProcess(t, "proxy", rec)
	inserted := time.Date(2026, 11, 28, 15, 59, 26, 0, time.UTC)
	for _, r := range recordings(t, "invocation") {
		f := function{"wire-text", binding{Type: "queueTrigger", Name: "message"}}
		var text string
		switch r.Binding {
		case "timer":
			f = function{"tick", binding{Type: "timerTrigger", Name: "timer", Schedule: "*/30 * * * * *"}}
		case "queue binary":
			f.name, f.binding.DataType = "wire-binary", "binary"
			var b []byte
			if err := json.Unmarshal(r.Body.Data["message"], &b); err != nil {
				t.Fatal(err)
			}
			text = string(b)
		default:
			var once string
			if json.Unmarshal(r.Body.Data["message"], &once) != nil || json.Unmarshal([]byte(once), &text) != nil {
				t.Fatalf("the message %s", r.Body.Data["message"])
			}
		}
		m := &message{
			id: "53202d7d-5c9b-40a4-8484-208a94ccb9b3", text: text, dequeueCount: 1, inserted: inserted, expires: inserted.AddDate(0, 0, 7),
			nextVisible: inserted.Add(10 * time.Minute), firstReceipt: "MjhOb3YyMDI2MTU6NTk6MjY0YzZm",
		}
		data, metadata := queueData(f, m)
		if r.Binding == "timer" {
			data, metadata = h.timer(f, false, "")
		}
		if err := h.invoke(h.life, f, data, metadata); err != nil {
			t.Error(err)
		}
		got, _ := rec.take()
		var body struct{ Data, Metadata map[string]json.RawMessage }
		if len(got) != 1 || json.Unmarshal(got[0].Body, &body) != nil {
			t.Fatalf("%d invocations", len(got))
		}
		want := http.Header{}
		for i := 0; i < len(r.Headers); i += 2 {
			want.Add(r.Headers[i], r.Headers[i+1])
		}
		anonymous(want)
		anonymous(got[0].Header)
		if diff := cmp.Diff(want, got[0].Header); diff != "" {
			t.Errorf("headers of %s (- recorded, + fake):\n%s", text, diff)
		}
		if diff := cmp.Diff(members(t, r.Body.Metadata), members(t, body.Metadata)); diff != "" {
			t.Errorf("metadata of %s (- recorded, + fake):\n%s", text, diff)
		}
		if diff := cmp.Diff(members(t, r.Body.Data), members(t, body.Data)); diff != "" {
			t.Errorf("data of %s (- recorded, + fake):\n%s", text, diff)
		}
	}
}

// members are values without what differs from run to run.
func members(t *testing.T, all map[string]json.RawMessage) map[string]any {
	t.Helper()
	plain := map[string]any{}
	for name, raw := range all {
		var v any
		if err := json.Unmarshal(raw, &v); err != nil {
			t.Fatal(err)
		}
		switch v := v.(type) {
		case map[string]any:
			for _, k := range []string{"UtcNow", "RandGuid"} {
				if text, ok := v[k].(string); ok {
					v[k] = stamps.ReplaceAllString(guids.ReplaceAllString(text, "<guid>"), "<time>")
				}
			}
		case string:
			if name == "PopReceipt" && len(v) > 20 {
				plain[name] = "<receipt>"
				continue
			}
			plain[name] = guids.ReplaceAllString(v, "<guid>")
			continue
		}
		plain[name] = v
	}
	return plain
}

// TestATextOverwritesItsMetadataAsRecorded compares what each text makes of the metadata.
func TestATextOverwritesItsMetadataAsRecorded(t *testing.T) {
	f := function{"wire-text", binding{Name: "message"}}
	for _, r := range recordings(t, "overwrite") {
		m := &message{id: "i", text: "plain", firstReceipt: "r"}
		_, before := queueData(f, m)
		m.text = r.Text
		_, after := queueData(f, m)
		maps.DeleteFunc(after, func(name string, v json.RawMessage) bool {
			return name == "sys" && r.Changed["sys"] == nil || name != "sys" && bytes.Equal(before[name], v)
		})
		if diff := cmp.Diff(members(t, r.Changed), members(t, after)); diff != "" {
			t.Errorf("%s (- recorded, + fake):\n%s", r.Text, diff)
		}
	}
}

// TestAHandlersEnvironmentIsAsRecorded, but for two variables that the recorded host had been started with.
func TestAHandlersEnvironmentIsAsRecorded(t *testing.T) {
	h := &Host{o: Options{Root: "APP"}}
	for _, r := range recordings(t, "environment") {
		addr, free := ownAddress()
		defer free()
		_, port, _ := net.SplitHostPort(addr)
		got := map[string]string{}
		for _, line := range h.handlerEnvironment(port, newGUID()) {
			if name, value, _ := strings.Cut(line, "="); strings.HasPrefix(name, "FUNCTIONS_") {
				got[name] = value
			}
		}
		for _, env := range []map[string]string{r.Env, got} { // of its own, and the same under both names
			id, port := env["FUNCTIONS_CUSTOMHANDLER_WORKER_ID"], env["FUNCTIONS_CUSTOMHANDLER_PORT"]
			for name, value := range env {
				switch {
				case value == id && guids.MatchString(id):
					env[name] = "<id>"
				case value == port && ports.MatchString("127.0.0.1:"+port):
					env[name] = "<port>"
				}
			}
		}
		for _, given := range []string{"AzureWebJobsScriptRoot", "FUNCTIONS_EXTENSION_VERSION"} {
			delete(r.Env, given)
		}
		if diff := cmp.Diff(r.Env, got); diff != "" {
			t.Errorf("- recorded, + fake:\n%s", diff)
		}
	}
}

// TestTimersAreToldAsRecorded: the first run has no last one, and each has the next. One on demand
// has its input as well.
func TestTimersAreToldAsRecorded(t *testing.T) {
	h := inProcess(t, "proxy", &recorder{})
	for i, r := range recordings(t, "timer") {
		past := i == 3 // it was missed
		input := map[int]string{2: "x"}[i]
		data, metadata := h.timer(function{"pump", binding{Name: "timer", Schedule: "0 * * * * *"}}, past, input)
		if diff := cmp.Diff(members(t, r.Body.Metadata), members(t, metadata)); diff != "" {
			t.Errorf("metadata of run %d (- recorded, + fake):\n%s", i+1, diff)
		}
		var want, got map[string]any
		if json.Unmarshal(r.Body.Data["timer"], &want) != nil || json.Unmarshal(data["timer"], &got) != nil {
			t.Fatal("no JSON")
		}
		for _, v := range []map[string]any{want, got} {
			for k, at := range v["ScheduleStatus"].(map[string]any) {
				if text := at.(string); !strings.HasPrefix(text, "0001") {
					v["ScheduleStatus"].(map[string]any)[k] = stamps.ReplaceAllString(text, "<time>")
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("run %d (- recorded, + fake):\n%s", i+1, diff)
		}
	}
}

var (
	guids  = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	ports  = regexp.MustCompile(`127\.0\.0\.1:\d+`)
	stamps = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)`)
)
