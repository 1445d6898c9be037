package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/webhook"
)

// signedPost sends a request as pushlease does.
func signedPost(t *testing.T, rc http.Handler, secret, id, body string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	now := time.Now()
	signature, err := webhook.Sign(secret, id, now, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return post(rc, id, body, append(header, webhook.HeaderTimestamp, strconv.FormatInt(now.Unix(), 10), webhook.HeaderSignature, signature)...)
}

// A receiver that is being written gets the request as it came, its answer goes back, and nothing with a bad signature reaches it.
func TestListenForwardsWhatIsSigned(t *testing.T) {
	secret := webhook.NewSecret(time.Now()).Key
	var got *http.Request
	var body string
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got, body = r, string(raw)
		w.Header().Set("Retry-After", "7")
		w.Header().Set("pushlease-decision", "abandon")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"why":"busy"}`)
	}))
	defer target.Close()
	f, err := newForwarder(target.URL + "/hook?a=1")
	if err != nil {
		t.Fatal(err)
	}
	var shown received
	rc := newReceiver(receiverOptions{Secrets: []string{secret}, Forward: f.forward, OnReceived: func(r received) { shown = r }})
	w := signedPost(t, rc, secret, "m1", "raw\r\n", "Content-Type", "text/x-any", "Ce-Type", "a.b", "Connection", "close")
	if got == nil || got.URL.RequestURI() != "/hook?a=1" || body != "raw\r\n" || got.Header.Get("Content-Type") != "text/x-any" || got.Header.Get("Ce-Type") != "a.b" {
		t.Fatalf("forwarded %+v, %q", got, body)
	}
	if err := webhook.Verify([]string{secret}, got.Header, []byte(body), time.Now(), time.Minute); err != nil {
		t.Errorf("what was forwarded does not verify: %v", err)
	}
	if w.Code != 503 || w.Header().Get("Retry-After") != "7" || w.Header().Get("pushlease-decision") != "abandon" || w.Body.String() != `{"why":"busy"}` || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("answered %d, %v, %s", w.Code, w.Header(), w.Body)
	}
	if shown.Status != 503 || shown.ForwardedIn == "" || rc.Totals().Answers[503] != 1 {
		t.Errorf("shown %+v, %+v", shown, rc.Totals())
	}
	var text bytes.Buffer
	(&printer{out: &text}).received(shown)
	if !strings.Contains(text.String(), "→ 503 retry-after 7, forwarded in ") {
		t.Errorf("printed %q", text.String())
	}
	got = nil
	if w := post(rc, "m2", "forged", webhook.HeaderSignature, "v1,AAAA"); w.Code != http.StatusUnauthorized || got != nil {
		t.Errorf("a forged request: %d, forwarded %v", w.Code, got != nil)
	}
	target.Close()
	if w := signedPost(t, rc, secret, "m3", "x"); w.Code != http.StatusBadGateway || !strings.Contains(w.Body.String(), "can't forward") {
		t.Errorf("nobody there: %d %s", w.Code, w.Body)
	}
}

// r sends the last request again, with its id and a signature of now; what was refused is not it.
func TestListenSendsTheLastOneAgain(t *testing.T) {
	secret := webhook.NewSecret(time.Now()).Key
	var ids []string
	d := &develop{}
	rc := newReceiver(receiverOptions{Secrets: []string{secret}, Answer: reply{Status: 200}, OnReceived: func(r received) {
		ids = append(ids, r.ID+" "+r.Signature+" "+string(r.Body))
		if err := d.received(r); err != nil {
			t.Error(err)
		}
	}})
	var stderr bytes.Buffer
	d.keys(t.Context(), strings.NewReader("r\n"), &stderr, []string{secret}, rc)
	if !strings.Contains(stderr.String(), "nothing came yet") {
		t.Errorf("%q", stderr.String())
	}
	signedPost(t, rc, secret, "m1", "one")
	post(rc, "m2", "forged", webhook.HeaderSignature, "v1,AAAA")
	d.last.header.Set(webhook.HeaderTimestamp, "1") // it came long ago
	d.keys(t.Context(), strings.NewReader("x\nr\n"), &stderr, []string{secret}, rc)
	if want := []string{"m1 valid one", "m2 stale forged", "m1 valid one"}; len(ids) != 3 || ids[0] != want[0] || ids[2] != want[2] {
		t.Errorf("%q, want %q", ids, want)
	}
	if got := rc.Totals(); got.Duplicates != 1 {
		t.Errorf("%+v", got)
	}
}

// What --save keeps is sent by trigger with the same bytes and headers, and holds neither signatures nor tokens.
func TestWhatWasSavedIsTriggered(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "made", "samples")
	secret := webhook.NewSecret(time.Now()).Key
	secretFile := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secretFile, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var got *http.Request
	var body []byte
	status := http.StatusNoContent
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			t.Error(err)
		}
		got = r
		w.WriteHeader(status)
	}))
	defer target.Close()
	d := &develop{save: folder}
	for i, want := range []string{`{"a":1}`, "{ \"a\": 1 }\n", `{"a":"<&>"}`, "", "text €", "\xff\xfe\x00", `"` + "\xff" + `"`} {
		id := "m/../" + strconv.Itoa(i)
		header := http.Header{"Content-Type": {"text/x-any"}, "Ce-Type": {"a.b"}, "Authorization": {"Bearer sesame"}, "Webhook-Signature": {"v1,sesame"}, "X-Api-Key": {"sesame"}}
		if err := d.received(received{ID: id, Body: []byte(want), Signature: "valid", header: header}); err != nil {
			t.Fatal(err)
		}
		name := "m____" + strconv.Itoa(i)
		file, err := os.ReadFile(filepath.Join(folder, name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(file), "sesame") {
			t.Errorf("the sample has a secret: %s", file)
		}
		r := execute(t, "", "trigger", name, "--samples", folder, "--to", target.URL, "--secret-file", secretFile)
		if r.code != exitOK || !strings.Contains(r.out, "→ 204") {
			t.Fatalf("%+v", r)
		}
		if string(body) != want || got.Header.Get("Ce-Type") != "a.b" || got.Header.Get("Content-Type") != "text/x-any" {
			t.Errorf("%q came as %q with %v", want, body, got.Header)
		}
		if err := webhook.Verify([]string{secret}, got.Header, body, time.Now(), time.Minute); err != nil {
			t.Errorf("%q: %v", want, err)
		}
	}
	if err := d.received(received{ID: "forged", Signature: "invalid"}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(folder, "forged.json")); err == nil {
		t.Error("a forged request was saved")
	}
	for name := range builtInSamples {
		if r := execute(t, "", "trigger", name, "--to", target.URL); r.code != exitOK || len(body) == 0 || got.Header.Get(webhook.HeaderSignature) != "" {
			t.Errorf("%s: %+v", name, r)
		}
	}
	own := filepath.Join(t.TempDir(), "own.json")
	if err := os.WriteFile(own, []byte(`{ "mine": true }`), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := execute(t, "", "trigger", own, "--to", target.URL); r.code != exitOK || string(body) != `{ "mine": true }` || got.Header.Get("Content-Type") != "application/json" {
		t.Errorf("a body of one's own: %+v, %q", r, body)
	}
	status = http.StatusTeapot
	if r := execute(t, "", "trigger", "json", "--to", target.URL); r.code != exitFailed || !strings.Contains(r.out, "→ 418") {
		t.Errorf("refused: %+v", r)
	}
	for _, args := range [][]string{{"json"}, {"json", "--to", target.URL, "--queue", "orders"}, {"nope", "--to", target.URL}, {"json", "--to", "localhost:3000"}} {
		if r := execute(t, "", append([]string{"trigger"}, args...)...); r.code != exitUsage {
			t.Errorf("%v: %+v", args, r)
		}
	}
}

func TestTriggerPutsASampleOnAQueue(t *testing.T) {
	api := newFakeAPI(t, map[string]canned{"POST /api/v1/queues/orders/messages": {201, `{"message_id":"m1","queue":"orders"}`}})
	if r := execute(t, "", "trigger", "text", "--queue", "orders"); r.code != exitOK || !strings.Contains(r.out, "sent m1 to orders") {
		t.Errorf("%+v", r)
	}
	if got := api.only(t); got.body != "hello €🙂" || got.header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("%+v", got)
	}
}

// The webhook of --queue lasts as long as the run, has a secret that the receiver knows, and one that a killed run left goes first.
func TestListenRegistersAWebhookForItsOwnLife(t *testing.T) {
	target := `"http://gateway:9000/"`
	api := newFakeAPI(t, map[string]canned{
		"GET /api/v1/webhooks?limit=500&queue=orders": {200, `{"data":[{"id":"wh_left","name":"pushlease listen","url":` + target + `},{"id":"wh_other","name":"pushlease listen","url":"http://b/"},{"id":"wh_mine","name":"mine","url":` + target + `}]}`},
		"DELETE /api/v1/webhooks/wh_left":             {204, ""}, "DELETE /api/v1/webhooks/wh_new": {204, ""},
		"POST /api/v1/webhooks": {201, `{"id":"wh_new"}`},
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	root := newRootCommand()
	said := lineWriter{make(chan string, 20)}
	root.SetOut(io.Discard)
	root.SetErr(said)
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, root, []string{"listen", "--port", "0", "--queue", "orders", "--url", "http://gateway:9000/"}, said)
	}()
	var secret string
	for line := range said.lines {
		if _, after, ok := strings.Cut(line, "forwarded to: "); ok {
			secret = strings.TrimSpace(after)
			break
		}
	}
	cancel()
	if code := <-ended; code != exitOK {
		t.Fatalf("exit %d", code)
	}
	var lines []string
	var registered struct{ Name, Queue, URL, Secret string }
	for _, r := range api.requests {
		lines = append(lines, r.line)
		if r.line == "POST /api/v1/webhooks" {
			if err := json.Unmarshal([]byte(r.body), &registered); err != nil {
				t.Error(err)
			}
		}
	}
	want := "GET /api/v1/webhooks?limit=500&queue=orders, DELETE /api/v1/webhooks/wh_left, POST /api/v1/webhooks, DELETE /api/v1/webhooks/wh_new"
	if got := strings.Join(lines, ", "); got != want {
		t.Errorf("%s; want %s", got, want)
	}
	if registered.Name != listenerName || registered.Queue != "orders" || registered.URL != "http://gateway:9000/" || registered.Secret == "" || registered.Secret != secret {
		t.Errorf("%+v, %q", registered, secret)
	}
	for _, args := range [][]string{{"--url", "http://a/"}, {"--server", "http://a/"}, {"--forward-to", "localhost:3000"}, {"--forward-to", "http://a/", "--answer", "503"}} {
		if r := execute(t, "", append([]string{"listen"}, args...)...); r.code != exitUsage {
			t.Errorf("%v: %+v", args, r)
		}
	}
}
