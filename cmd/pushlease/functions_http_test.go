package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pushlease/pushlease/functions/hosttest"
)

// onAllHosts runs a test under a host that proxies HTTP requests, under one that calls /<function> and
// then the path (C100), and under an older one that forwards them.
func onAllHosts(t *testing.T, test func(t *testing.T, o hosttest.Options)) {
	onBothHosts(t, test)
	t.Run("proxying to the function", func(t *testing.T) {
		t.Parallel()
		test(t, hosttest.Options{BelowFunction: true})
	})
}

// onBothHosts runs a test under a host that proxies HTTP requests and under an older one
// that forwards them.
func onBothHosts(t *testing.T, test func(t *testing.T, o hosttest.Options)) {
	t.Parallel()
	for mode, forward := range map[string]bool{"proxying": false, "forwarding": true} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			test(t, hosttest.Options{Forward: forward})
		})
	}
}

func TestTheAPIIsThereBehindTheHost(t *testing.T) {
	onAllHosts(t, func(t *testing.T, o hosttest.Options) {
		root := packaged(t)
		quickly(t, root, nil)
		h := startHosted(t, root, o)
		name := queueName("rest")
		hook := h.register(name, "http://127.0.0.1:9/", nil)
		h.call(http.MethodGet, "/api/v1/webhooks/"+hook.ID, "", http.StatusOK, nil)
		a, err := h.try(http.MethodPatch, "/api/v1/webhooks/"+hook.ID, "application/merge-patch+json", `{"name":"renamed"}`)
		if err != nil || a.status != http.StatusOK {
			t.Errorf("PATCH: %v %d %s", err, a.status, a.body)
		}
		for _, path := range []string{"/api/v1/readyz", "/api/v1/healthz", "/api/v1/openapi.yaml", "/api/v1/metrics"} {
			h.call(http.MethodGet, path, "", http.StatusOK, nil)
		}
		a, err = h.try(http.MethodGet, "/api/v1/webhooks/none", "", "")
		if err != nil || a.status != http.StatusNotFound || a.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("a webhook that is not there: %v %d %v %s", err, a.status, a.header, a.body)
		}

		// C100: the host's routes know no case.
		h.call(http.MethodGet, "/API/V1/webhooks/"+hook.ID, "", http.StatusOK, nil)
		h.call(http.MethodGet, "/Api/V1/readyz", "", http.StatusOK, nil)

		// Each of the two keys is needed.
		anonymous := *h.process
		anonymous.header = http.Header{"Authorization": h.header["Authorization"]}
		anonymous.call(http.MethodGet, "/api/v1/webhooks", "", http.StatusUnauthorized, nil)
		anonymous.header = http.Header{"X-Functions-Key": h.header["X-Functions-Key"]}
		anonymous.call(http.MethodGet, "/api/v1/webhooks", "", http.StatusUnauthorized, nil)
	})
}

// TestCompressedAndChunkedBodiesBehindTheHost: C99, C102. A host that forwards drops Content-Encoding, and
// answers a chunked request by itself.
func TestCompressedAndChunkedBodiesBehindTheHost(t *testing.T) {
	onBothHosts(t, func(t *testing.T, o hosttest.Options) {
		root := packaged(t)
		quickly(t, root, nil)
		h := startHosted(t, root, o)
		name := queueName("coded")
		h.register(name, "http://127.0.0.1:9/", nil)
		var zipped bytes.Buffer
		z := gzip.NewWriter(&zipped)
		_, _ = io.WriteString(z, `{"order":1}`)
		_ = z.Close()
		brotli, err := hex.DecodeString("1b3900301c076e2ccd6b46eed90895de3c3e3174f3c58d2e7dcaf060030ed8d3f011763fda6022370fb0e802975e32e27e3744c410b26c")
		if err != nil {
			t.Fatal(err)
		}
		plain := *h.process
		for _, tt := range []struct {
			coding, media, body string
			chunked             bool
			status              int
		}{
			{"gzip", "application/json", zipped.String(), false, http.StatusUnsupportedMediaType},
			{"gzip", "text/plain", zipped.String(), false, http.StatusUnsupportedMediaType},
			{"br", "application/json", string(brotli), false, http.StatusUnsupportedMediaType},
			{"br", "text/xml", string(brotli), false, http.StatusUnsupportedMediaType},
			{"", "application/json", `{"order":1}`, false, http.StatusAccepted},
			{"", "application/json", `{"order":1}`, true, map[bool]int{true: http.StatusInternalServerError, false: http.StatusAccepted}[o.Forward]},
		} {
			h.header = plain.header.Clone()
			if tt.coding != "" {
				h.header.Set("Content-Encoding", tt.coding)
			}
			answer := h.tryBody(t, "/api/v1/queues/"+name+"/messages", tt.media, tt.body, tt.chunked)
			if answer.status != tt.status || answer.status == http.StatusUnsupportedMediaType != strings.Contains(string(answer.body), "compressed") {
				t.Errorf("%q of %s, chunked %t: %d %s, want %d", tt.coding, tt.media, tt.chunked, answer.status, answer.body, tt.status)
			}
		}
		h.header = plain.header
		depth, err := accountQueue(t, name).Depth(t.Context())
		if want := map[bool]int64{true: 1, false: 2}[o.Forward]; err != nil || depth.Total != want {
			t.Errorf("%d messages were sent, want %d: %v", depth.Total, want, err)
		}
	})
}

// tryBody POSTs a body, in chunks or with its length.
func (h *hosting) tryBody(t *testing.T, path, media, body string, chunked bool) e2eAnswer {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, h.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = h.header.Clone()
	req.Header.Set("Content-Type", media)
	if chunked {
		req.ContentLength = -1
	}
	resp, err := e2eClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return e2eAnswer{resp.StatusCode, resp.Header, text}
}

// TestWithoutAPIKeysNobodyOutsideIsServed: the host's requests come from this machine, but
// were not made here.
func TestWithoutAPIKeysNobodyOutsideIsServed(t *testing.T) {
	onBothHosts(t, func(t *testing.T, o hosttest.Options) {
		root := packaged(t)
		quickly(t, root, nil)
		h := startHosted(t, root, o, "PUSHLEASE_API_KEYS=")
		h.call(http.MethodGet, "/api/v1/webhooks", "", http.StatusForbidden, nil)
	})
}

// forgery is an invocation that would make the handler deliver, and delete, a message that
// is not there.
const forgery = `{"Data":{"message":"Zm9yZ2Vk"},"Metadata":{"Id":"\"11111111-2222-3333-4444-555555555555\"","PopReceipt":"\"x\"",
	"DequeueCount":"1","InsertionTime":"2026-01-01T00:00:00+00:00","NextVisibleTime":"2099-01-01T00:00:00+00:00","ExpirationTime":"9999-12-31T23:59:59+00:00"}}`

// TestNobodyOutsideReachesAnInvocation: with the packaged host.json there is no way to the
// path, and with one that passes everything on, the request is told from the host's.
func TestNobodyOutsideReachesAnInvocation(t *testing.T) {
	onBothHosts(t, func(t *testing.T, o hosttest.Options) {
		name := queueName("forged")
		root := packaged(t, name)
		open := packaged(t, name)
		quickly(t, root, nil)
		quickly(t, open, func(host map[string]any) {
			host["extensions"].(map[string]any)["http"].(map[string]any)["routePrefix"] = ""
		})
		replaceIn(t, filepath.Join(open, "api", "function.json"), "v1/{*path}", "{*path}")
		for _, folder := range []string{root, open} {
			h := startHosted(t, folder, o)
			receiver := newAnswering(t)
			h.registerAt(t, name, receiver.URL, folder == open)
			for _, path := range []string{
				`/api/v1/..%5C..%5Cpump`, "/api/v1/%252e%252e/%252E%252E/pump", `/api/v1/..%5C..%5Cdispatch-` + name,
				"/dispatch-" + name, "/api/dispatch-" + name, "/api/v1/dispatch-" + name, "/api/v1/../../dispatch-" + name,
				"/api/v1/%2e%2e/%2e%2e/dispatch-" + name, "//dispatch-" + name, "/api//dispatch-" + name, "/pump", "/api/v1/pump",
			} {
				for _, header := range []http.Header{
					{}, {"X-Azure-Functions-Invocationid": {"11111111-2222-3333-4444-555555555555"}}, {"X-Forwarded-For": {""}}, {"Connection": {"X-Forwarded-For, X-Forwarded-Host, X-Forwarded-Proto"}},
					{"Host": {h.host.Address()}, "User-Agent": {""}},
				} {
					status := h.raw(t, path, header)
					if status/100 == 2 {
						t.Errorf("%s %v was answered %d", path, header, status)
					}
				}
			}
			if posts := receiver.total(); posts != 0 {
				t.Errorf("%d forged messages were delivered", posts)
			}
		}
	})
}

// raw POSTs the forgery to exactly this path.
func (h *hosting) raw(t *testing.T, path string, header http.Header) int {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, h.url, strings.NewReader(forgery))
	if err != nil {
		t.Fatal(err)
	}
	if req.URL.Opaque = path; strings.HasPrefix(path, "//") { // which would be a host
		req.URL.Opaque = "//" + req.URL.Host + path
	}
	req.Header = h.header.Clone()
	for k, v := range header {
		req.Header[k] = v
	}
	req.Host = header.Get("Host")
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	resp, err := e2eClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// registerAt registers past the host where the app's routes are broken.
func (h *hosting) registerAt(t *testing.T, queueName, target string, past bool) {
	t.Helper()
	p := *h.process
	if past {
		waitUntil(t, 10*time.Second, func() string {
			if len(h.host.StartTimes()) == 0 {
				return "not up"
			}
			return ""
		})
		p.url = "http://" + h.host.Address()
	}
	p.register(queueName, target, nil)
}

func replaceIn(t *testing.T, path, old, replacement string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), old) {
		t.Fatalf("%s has no %s: %v", path, old, err)
	}
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(text), old, replacement)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestThePumpDeliversWhatHasNoTrigger: a webhook on a queue that the package does not know
// just works, and double, late and idle runs do no harm.
func TestThePumpDeliversWhatHasNoTrigger(t *testing.T) {
	t.Parallel()
	triggered, pumped := queueName("triggered"), queueName("pumped")
	root := packaged(t, triggered)
	quickly(t, root, nil)
	h := startHosted(t, root, hosttest.Options{})
	receiver := newAnswering(t)
	hook := h.register(pumped, receiver.URL, map[string]any{"policy": map[string]any{"backoff": map[string]any{"initial": "1s", "jitter": 0}}})
	h.register(triggered, receiver.URL, nil)
	if err := h.host.Timer("pump", true); err != nil {
		t.Errorf("idle and past due: %v", err)
	}
	q := accountQueue(t, pumped)
	const messages = 40
	ids := sendAll(t, q, messages, func(i int) string {
		if i == messages-4 { // few are behind its pause, which they would leave by the second
			return `{"say":"busy"}`
		}
		return []string{`{"say":"fine"}`, `{"say":"wrong"}`, `{"id":"x"}`, "text"}[i%4]
	})
	for range 3 { // the second and third begin while the first runs
		go func() {
			if err := h.host.Timer("pump", false); err != nil {
				t.Errorf("pump: %v", err)
			}
		}()
	}
	waitUntil(t, 90*time.Second, func() string {
		if err := h.host.Timer("pump", false); err != nil {
			t.Fatalf("pump: %v", err)
		}
		if n := len(receiver.delivered()); n != messages*3/4 {
			return fmt.Sprintf("%d are delivered", n)
		}
		return ""
	})
	h.waitEmpty(20*time.Second, pumped)
	for id, text := range ids {
		state := "delivered"
		if strings.Contains(text, "wrong") {
			state = "dead_lettered"
		}
		h.waitState(5*time.Second, pumped, id, hook.ID, state)
		if _, n := receiver.of(id); n > 1 {
			t.Errorf("%s was delivered %d times", text, n)
		}
	}
	for range 2 {
		if err := h.host.Timer("housekeeping", true); err != nil {
			t.Errorf("housekeeping: %v", err)
		}
	}
	if calls, _ := h.host.Calls("dispatch-" + triggered); calls != 0 {
		t.Errorf("the other queue's trigger was called %d times", calls)
	}
}

// TestThePortIsOpenBeforeStorageIs: storage that is away at the start keeps the host
// waiting for nothing.
func TestThePortIsOpenBeforeStorageIs(t *testing.T) {
	t.Parallel()
	proxy := emulator(t).Proxy(t)
	proxy.Down()
	name := queueName("away")
	root := packaged(t, name)
	quickly(t, root, nil)
	h := startHosted(t, root, hosttest.Options{Storage: proxy.ConnectionString()})
	waitUntil(t, 5*time.Second, func() string {
		if len(h.host.StartTimes()) == 0 {
			return "the handler has not answered"
		}
		return ""
	})
	proxy.Up()
	receiver := newAnswering(t)
	for _, path := range []string{"/api/v1/webhooks", "/api/v1/queues"} { // both services: a publish is sent once
		waitUntil(t, 20*time.Second, func() string {
			a, err := h.try(http.MethodGet, path, "", "")
			if err != nil || a.status != http.StatusOK {
				return string(a.body)
			}
			return ""
		})
	}
	hook := h.register(name, receiver.URL, nil)
	h.waitState(20*time.Second, name, h.publish(name, "late"), hook.ID, "delivered")
}

// TestExitCodesAreWhatTheHostReads: asked to stop is 200, so that the host starts it again;
// a wrong configuration is an error, so that the host says so; never 0.
func TestExitCodesAreWhatTheHostReads(t *testing.T) {
	t.Parallel()
	root := packaged(t)
	quickly(t, root, nil)
	h := startHosted(t, root, hosttest.Options{})
	h.waitUp()
	pid := h.host.Pid()
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, 20*time.Second, func() string {
		if h.host.Pid() == pid || len(h.host.StartTimes()) < 2 {
			return "the host has not started it again"
		}
		return ""
	})

	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	for name, settings := range map[string][]string{
		"a wrong setting":      {"PUSHLEASE_LEASE=never", "AzureWebJobsStorage=UseDevelopmentStorage=true"},
		"no storage account":   {},
		"a port that is taken": {"AzureWebJobsStorage=UseDevelopmentStorage=true", "FUNCTIONS_CUSTOMHANDLER_PORT=" + portOf(h.url)},
		"a port that is none":  {"AzureWebJobsStorage=UseDevelopmentStorage=true", "FUNCTIONS_CUSTOMHANDLER_PORT=http"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, path) // without a command: the variable chooses it
		cmd.Dir = root
		cmd.Env = environment(append([]string{"FUNCTIONS_CUSTOMHANDLER_PORT=0"}, settings...)...)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		_ = cmd.Run() // its code is looked at
		if code := cmd.ProcessState.ExitCode(); code <= 0 || code == exitRestart || out.Len() == 0 {
			t.Errorf("%s: exit code %d, %s", name, code, out.String())
		}
	}
}

func portOf(rawURL string) string { return rawURL[strings.LastIndex(rawURL, ":")+1:] }

func TestTheProbeIsAnsweredToAnybodyHere(t *testing.T) {
	t.Parallel()
	root := packaged(t)
	quickly(t, root, nil)
	h := startHosted(t, root, hosttest.Options{})
	waitUntil(t, 10*time.Second, func() string {
		if len(h.host.StartTimes()) == 0 {
			return "not up"
		}
		return ""
	})
	resp, err := e2eClient.Get("http://" + h.host.Address() + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var status struct{ Status string }
	if err := json.NewDecoder(resp.Body).Decode(&status); err != nil || status.Status != "ok" || resp.StatusCode != http.StatusOK {
		t.Errorf("%v %d %+v", err, resp.StatusCode, status)
	}
}

// TestThePollerLeavesTriggersToTheHost: on a plan that keeps instances alive the queues
// without a trigger are polled all the time, and need no pump.
func TestThePollerLeavesTriggersToTheHost(t *testing.T) {
	t.Parallel()
	triggered, polled := queueName("triggered"), queueName("polled")
	root := packaged(t, triggered)
	quickly(t, root, nil)
	h := startHosted(t, root, hosttest.Options{}, "PUSHLEASE_FUNCTIONS_POLLER=true", "WEBSITE_SKU=ElasticPremium", "PUSHLEASE_POLL_MAX=200ms")
	receiver := newAnswering(t)
	here := h.register(polled, receiver.URL, nil)
	there := h.register(triggered, receiver.URL, nil)
	h.waitState(15*time.Second, polled, h.publish(polled, "one"), here.ID, "delivered")
	for range 10 {
		h.waitState(15*time.Second, triggered, h.publish(triggered, "two"), there.ID, "delivered")
	}
	if calls, _ := h.host.Calls("dispatch-" + triggered); calls != 10 {
		t.Errorf("the host called for %d of 10 messages: the rest were polled", calls)
	}
	for name, hosted := range map[string]bool{triggered: true, polled: false} {
		var q struct {
			Poller struct{ Polling, Hosted bool }
		}
		h.call(http.MethodGet, "/api/v1/queues/"+name, "", http.StatusOK, &q)
		if q.Poller.Hosted != hosted || q.Poller.Polling == hosted {
			t.Errorf("%s: %+v", name, q)
		}
	}
}
