package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/webhook"
)

func TestParseReply(t *testing.T) {
	base := reply{RetryAfter: "9", Delay: time.Second, Body: "base"}
	tests := []struct {
		text string
		base reply
		want reply
	}{
		{"200", reply{}, reply{Status: 200}},
		{"503,retry-after=2", reply{}, reply{Status: 503, RetryAfter: "2"}},
		{"503, retry-after=2, delay=1m, body=a, b=c", reply{}, reply{Status: 503, RetryAfter: "2", Delay: time.Minute, Body: "a, b=c"}},
		{"200", base, reply{Status: 200, Delay: time.Second, Body: "base"}},
		{"429", base, reply{Status: 429, RetryAfter: "9", Delay: time.Second, Body: "base"}},
		{"429,delay=0s,body=", base, reply{Status: 429, RetryAfter: "9"}},
	}
	for _, tt := range tests {
		if got, err := parseReply(tt.text, tt.base); err != nil || got != tt.want {
			t.Errorf("%q: %+v, %v; want %+v", tt.text, got, err, tt.want)
		}
	}
}

func TestListenFlagsThatMakeNoSense(t *testing.T) {
	tests := []struct {
		args []string
		text string
	}{
		{[]string{"--answer", "ok"}, "200 to 599"},
		{[]string{"--answer", "100"}, "200 to 599"},
		{[]string{"--answer", "600"}, "200 to 599"},
		{[]string{"--answer", "503,retry-after=soon"}, "use seconds"},
		{[]string{"--answer", "503,retry=1"}, "retry-after="},
		{[]string{"--answer", "503,"}, "retry-after="},
		{[]string{"--delay", "2"}, "is not a delay"},
		{[]string{"--delay", "-2s"}, "is not a delay"},
		{[]string{"--delay", "2h"}, "1h0m0s"},
		{[]string{"--retry-after", "a\r\nb"}, "use seconds"},
		{[]string{"--match", "503"}, "SUBSTRING=>ANSWER"},
		{[]string{"--match", "=>503"}, "SUBSTRING=>ANSWER"},
		{[]string{"--match", "a=>b"}, "200 to 599"},
		{[]string{"--script", "503,,200"}, "200 to 599"},
		{[]string{"--script", strings.Repeat("503,", 1000) + "200"}, "at most 1000"},
		{[]string{"--fail-first", "-1"}, "0 or more"},
		{[]string{"--port", "65536"}, "65535"},
		{[]string{"--secret", "sesame"}, "--secret number 1"},
	}
	for _, tt := range tests {
		r := execute(t, "", append([]string{"listen"}, tt.args...)...)
		if r.code != exitUsage || !strings.Contains(r.err, tt.text) || strings.Contains(r.err, "sesame") {
			t.Errorf("%v: %+v, want %q", tt.args, r, tt.text)
		}
	}
}

// A secret that is an argument can be read by others, which is said; in a file or in the
// environment it can't.
func TestListenTakesItsSecretFromElsewhere(t *testing.T) {
	const secret, other = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz", "whsec_QUJDREVGR0hJSktMTU5PUFFSU1RVVldY"
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, env, stdin string
		c                listenCommand
		want             []string
	}{
		{name: "none"},
		{name: "file", c: listenCommand{secretFiles: []string{file}}, want: []string{secret}},
		{name: "file and environment, as in a rotation", c: listenCommand{secretFiles: []string{file}}, env: other, want: []string{secret, other}},
		{name: "standard input", c: listenCommand{secretFiles: []string{"-", file}}, stdin: other, want: []string{other, secret}},
		{name: "environment", env: secret + " " + other, want: []string{secret, other}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(secretEnv, tt.env)
			cmd := newListenCommand()
			cmd.SetIn(strings.NewReader(tt.stdin))
			if got, err := tt.c.allSecrets(cmd); err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("%v, %v; want %v", got, err, tt.want)
			}
		})
	}
	t.Setenv(secretEnv, "sesame")
	for _, args := range [][]string{{"listen"}, {"listen", "--secret-file", file}, {"listen", "--secret-file", os.DevNull}, {"listen", "--secret-file", file + "x"}} {
		if r := execute(t, "", args...); r.code != exitUsage || strings.Contains(r.err, "sesame") {
			t.Errorf("%v: %+v", args, r)
		}
	}
	t.Setenv(secretEnv, "")
	if r := execute(t, "", "listen", "--host", "192.0.2.1", "--secret", secret); !strings.Contains(r.err, "list of processes") || strings.Contains(r.err, secret) {
		t.Errorf("%+v", r)
	}
}

func FuzzAnswers(f *testing.F) {
	for _, s := range []string{"200", "503,retry-after=2,delay=1s,body=x,y", "a=>b=>429", "503,503,200", "=>", ","} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var all []reply
		if r, err := parseReply(text, reply{}); err == nil {
			all = append(all, r)
		}
		if m, err := parseMatch(text, reply{}); err == nil {
			if m.Substring == "" || !strings.HasPrefix(text, m.Substring+"=>") {
				t.Errorf("%q looks for %q", text, m.Substring)
			}
			all = append(all, m.Reply)
		}
		if script, err := parseScript(text, reply{}); err == nil {
			if len(script) == 0 {
				t.Errorf("%q is an empty script", text)
			}
			all = append(all, script...)
		}
		for _, r := range all {
			if r.Status < 200 || r.Status > 599 || r.Delay < 0 || r.Delay > maxDelay || strings.ContainsAny(r.RetryAfter, "\r\n") {
				t.Errorf("%q gives %+v", text, r)
			}
		}
	})
}

// post sends one request to a receiver.
func post(rc http.Handler, id, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	r.Header.Set(webhook.HeaderID, id)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	rc.ServeHTTP(w, r)
	return w
}

func TestReceiverAnswersInTheOrderOfItsRules(t *testing.T) {
	rc := newReceiver(receiverOptions{
		FailFirst: 1, Failure: reply{Status: 503, RetryAfter: "1"},
		Rules:  []matchRule{{"bad", reply{Status: 400}}, {"ba", reply{Status: 401}}},
		Script: []reply{{Status: 500}, {Status: 204}},
		Answer: reply{Status: 299},
	})
	for _, step := range []struct {
		id, body   string
		status     int
		retryAfter string
	}{
		{"a", "x", 503, "1"}, {"b", "bad", 503, "1"}, // each message fails first
		{"b", "bad", 400, ""}, {"b", "ba", 401, ""}, // the first rule that matches
		{"a", "x", 500, ""}, {"a", "x", 204, ""}, {"a", "x", 204, ""}, // the script, whose last step repeats
	} {
		w := post(rc, step.id, step.body)
		if w.Code != step.status || w.Header().Get("Retry-After") != step.retryAfter {
			t.Errorf("%+v: answered %d with Retry-After %q", step, w.Code, w.Header().Get("Retry-After"))
		}
	}
	want := receiverTotals{Requests: 7, IDs: 2, Retries: 4, Duplicates: 1, Answers: map[int]int{503: 2, 400: 1, 401: 1, 500: 1, 204: 2}}
	if got := rc.Totals(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("totals %+v, want %+v", got, want)
	}
}

func TestReceiverVerifiesSignatures(t *testing.T) {
	now := time.Now()
	right, other := webhook.NewSecret(now).Key, webhook.NewSecret(now).Key
	sign := func(secret string, at time.Time) []string {
		s, err := webhook.Sign(secret, "m1", at, []byte("body"))
		if err != nil {
			t.Fatal(err)
		}
		return []string{webhook.HeaderTimestamp, strconv.FormatInt(at.Unix(), 10), webhook.HeaderSignature, s}
	}
	tests := []struct {
		name    string
		secrets []string
		header  []string
		want    string
		bad     int
	}{
		{"right", []string{right}, sign(right, now), "valid", 0},
		{"one of two", []string{other, right}, sign(right, now), "valid", 0},
		{"wrong", []string{other}, sign(right, now), "invalid", 1},
		{"old", []string{right}, sign(right, now.Add(-time.Hour)), "stale", 1},
		{"none", []string{right}, nil, "missing", 1},
		{"no secret to check with", nil, sign(right, now), "unchecked", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got received
			rc := newReceiver(receiverOptions{Secrets: tt.secrets, Answer: reply{Status: 200}, OnReceived: func(r received) { got = r }})
			status := http.StatusOK
			if tt.bad > 0 {
				status = http.StatusUnauthorized
			}
			if w := post(rc, "m1", "body", tt.header...); w.Code != status || got.Status != status || rc.Totals().Answers[status] != 1 {
				t.Errorf("answered %d, shown as %d, want %d", w.Code, got.Status, status)
			}
			if got.Signature != tt.want || rc.Totals().BadSignatures != tt.bad {
				t.Errorf("signature %s, %d bad; want %s, %d", got.Signature, rc.Totals().BadSignatures, tt.want, tt.bad)
			}
		})
	}
}

func TestReceiverTakesPOSTsOfABoundedSizeOnly(t *testing.T) {
	rc := newReceiver(receiverOptions{Answer: reply{Status: 200}})
	w := httptest.NewRecorder()
	rc.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", w.Code)
	}
	if w := post(rc, "a", strings.Repeat("x", maxReceiverBody+1)); w.Code != http.StatusBadRequest {
		t.Errorf("too large: %d", w.Code)
	}
	if n := rc.Totals().Requests; n != 0 {
		t.Errorf("%d requests were counted", n)
	}
}

func TestADelayedSuccessThatTheSenderDidNotWaitForIsNoDelivery(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		rc := newReceiver(receiverOptions{Answer: reply{Status: 200, Delay: time.Minute}})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader("x"))
		r.Header.Set(webhook.HeaderID, "m1")
		began := time.Now()
		rc.ServeHTTP(httptest.NewRecorder(), r)
		if waited := time.Since(began); waited != 10*time.Second {
			t.Errorf("waited %s", waited)
		}
		if w := post(rc, "m1", "x"); w.Code != 200 || time.Since(began) != 70*time.Second {
			t.Errorf("answered %d after %s", w.Code, time.Since(began))
		}
		post(rc, "m1", "x")
		if got := rc.Totals(); got.Retries != 1 || got.Duplicates != 1 {
			t.Errorf("%+v", got)
		}
	})
}

func TestReportsComeOneAtATimeAndNothingIsLost(t *testing.T) {
	reports := 0 // guarded by the receiver: the race detector watches
	rc := newReceiver(receiverOptions{Answer: reply{Status: 200}, OnReceived: func(received) { reports++ }})
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() { post(rc, strconv.Itoa(i%10), "x") })
	}
	wg.Wait()
	if got := rc.Totals(); reports != 50 || got.Requests != 50 || got.IDs != 10 {
		t.Errorf("%d reports, %+v", reports, got)
	}
}

func TestPrinter(t *testing.T) {
	r := received{ID: "m1", Queue: "orders", Attempt: "2", Signature: "valid", Status: 503, RetryAfter: "5", Delay: "1s", Duplicate: true, Count: 2}
	tests := []struct {
		name, body string
		text, json []string
	}{
		{"JSON", `{"a": 1}`, []string{"message m1", "attempt 2", "DUPLICATE", "→ 503 retry-after 5 in 1s", "    {\n      \"a\": 1\n    }\n"}, []string{`"body":{"a":1}`, `"id":"m1"`}},
		{"text", "hello\nthere", []string{"    hello\n    there\n"}, []string{`"body":"hello\nthere"`}},
		{"text with escapes", "a\x1b[2J", []string{"    a\ufffd[2J\n"}, []string{`"body":"a\u001b[2J"`}},
		{"binary", "\xff\xfe", []string{"ff fe"}, []string{`"body_base64":"//4="`}},
		{"JSON that is not UTF-8", "\"\x9b2J\"", []string{"9b 32"}, []string{`"body_base64":`}},
		{"JSON with escapes of a terminal", "\"\u009b2J\u202e\U000e0001\x7f\"", []string{"\"\ufffd2J"}, []string{`"body":"\u009b2J\u202e\udb40\udc01\u007f"`}},
		{"deep JSON", strings.Repeat("[", 9000) + strings.Repeat("]", 9000), []string{"    [[[", "… 18000 bytes in all"}, nil},
		{"empty", "", []string{"(no body)"}, []string{`"body":""`}},
		{"long", strings.Repeat("é", 5000), []string{"… 10000 bytes in all"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r.Body = []byte(tt.body)
			var text, lines bytes.Buffer
			(&printer{out: &text}).received(r)
			(&printer{out: &lines, output: output{format: "json"}}).received(r)
			for _, want := range tt.text {
				if !strings.Contains(text.String(), want) {
					t.Errorf("%q is not in %q", want, text.String())
				}
			}
			for _, want := range tt.json {
				if !strings.Contains(lines.String(), want) {
					t.Errorf("%q is not in %q", want, lines.String())
				}
			}
			if !json.Valid(lines.Bytes()) || strings.Count(lines.String(), "\n") != 1 {
				t.Errorf("not one line of JSON: %q", lines.String())
			}
		})
	}
}

// lineWriter hands over what is written, line by line.
type lineWriter struct{ lines chan string }

func (w lineWriter) Write(b []byte) (int, error) {
	w.lines <- string(b)
	return len(b), nil
}

func TestListenPrintsWhatComesAndSumsUpAtTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	root := newRootCommand()
	var out bytes.Buffer
	started := lineWriter{make(chan string, 10)}
	root.SetOut(&out)
	root.SetErr(started)
	done := make(chan int)
	go func() {
		done <- run(ctx, root, []string{"listen", "--port", "0", "--script", "503,200", "--retry-after", "7", "-o", "json"}, io.Discard)
	}()
	_, rest, ok := strings.Cut(<-started.lines, "http://")
	address, _, _ := strings.Cut(rest, "/")
	if host, _, err := net.SplitHostPort(address); !ok || err != nil || host != "127.0.0.1" {
		t.Fatalf("listens on %q, not on loopback only", address)
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	for i, want := range []int{503, 200, 200} {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/any/path", strings.NewReader(`{"n":1}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(webhook.HeaderID, "m1")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want || (resp.Header.Get("Retry-After") == "7") != (want == 503) {
			t.Errorf("request %d: %d with Retry-After %q, want %d", i+1, resp.StatusCode, resp.Header.Get("Retry-After"), want)
		}
	}
	cancel()
	if code := <-done; code != exitOK {
		t.Errorf("code %d", code)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 4 || !strings.Contains(lines[3], `{"summary":{"requests":3,"ids":1,"retries":1,"duplicates":1,"bad_signatures":0,"answers":{"200":2,"503":1}}}`) {
		t.Errorf("output: %s", out.String())
	}
}

func TestListenOnAPortThatIsTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if r := execute(t, "", "listen", "--port", port); r.code != exitFailed || !strings.Contains(r.err, "another --port") {
		t.Errorf("%+v", r)
	}
}

func TestSummaryForPeople(t *testing.T) {
	var out bytes.Buffer
	p := &printer{out: &out}
	if err := errors.Join(p.summary(receiverTotals{}), p.summary(receiverTotals{Requests: 3, Answers: map[int]int{503: 1, 200: 2}})); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.Contains(got, "answered nothing\n") || !strings.Contains(got, "answered 2 × 200, 1 × 503\n") {
		t.Error(got)
	}
}
