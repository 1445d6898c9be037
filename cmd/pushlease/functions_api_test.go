package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/functions/hosttest"
	"github.com/pushlease/pushlease/internal/azuritetest"
)

// TestRequestsForTheAPIEndBeforeTheFunctionTimeout: the host kills the process, with all its POSTs,
// for a request that takes longer, as it does for an invocation.
func TestRequestsForTheAPIEndBeforeTheFunctionTimeout(t *testing.T) {
	const timeout = 20 * time.Second // 1.7 s before it the answer is written at the latest
	onBothHosts(t, func(t *testing.T, o hosttest.Options) {
		proxy := emulator(t).Proxy(t)
		o.Storage = proxy.ConnectionString()
		root := packaged(t)
		quickly(t, root, func(host map[string]any) { host["functionTimeout"] = "00:00:20" })
		h := startHosted(t, root, o)
		release := make(chan struct{})
		receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
		defer receiver.Close()
		defer close(release)
		hook := h.register(queueName("bound"), receiver.URL, map[string]any{"timeout": "10m"})
		pid := h.host.Pid()
		inTime := func(what string, answer func() (status int, text string), good func(status int, text string) bool) {
			start := time.Now()
			status, text := answer()
			if took := time.Since(start); took > timeout || !good(status, text) {
				t.Errorf("%s: %d after %s: %s", what, status, took, text)
			}
		}
		try := func(method, path string) func() (int, string) {
			return func() (int, string) {
				a, err := h.try(method, path, "", "")
				if err != nil {
					t.Error(err)
				}
				return a.status, string(a.body)
			}
		}
		inTime("a test of a receiver that does not answer", try(http.MethodPost, "/api/v1/webhooks/"+hook.ID+"/test"), func(status int, text string) bool {
			var test struct {
				ErrorClass string `json:"error_class"`
			}
			return status == http.StatusOK && json.Unmarshal([]byte(text), &test) == nil && test.ErrorClass == "timeout"
		})
		inTime("a body that does not end", func() (int, string) { return h.endless(t, "/api/v1/webhooks") }, func(status int, _ string) bool { return status/100 == 4 })
		proxy.Fault(azuritetest.Match{Service: "table"}, azuritetest.Delay(2*timeout))
		inTime("storage that does not answer", try(http.MethodGet, "/api/v1/webhooks/"+hook.ID), func(status int, text string) bool {
			return status/100 == 5 && strings.Contains(text, ":problem:storage-unavailable")
		})
		proxy.Heal()
		h.call(http.MethodGet, "/api/v1/healthz", "", http.StatusOK, nil)
		if h.host.Pid() != pid {
			t.Error("the handler was killed for a request")
		}
	})
}

// endless POSTs a body of which the end does not come, past the fake host: that has to read it whole.
func (h *hosting) endless(t *testing.T, path string) (status int, text string) {
	t.Helper()
	body, sending := io.Pipe()
	go func() { _, _ = io.WriteString(sending, `{"queue":`) }()
	defer sending.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+h.host.Address()+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength, req.Header = 100, h.header.Clone()
	req.Header.Set("Content-Type", "application/json")
	resp, err := e2eClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(answer)
}

// TestTheQueueOfADisabledTriggerIsPumped: the host calls nothing for it and says nothing.
func TestTheQueueOfADisabledTriggerIsPumped(t *testing.T) {
	t.Parallel()
	byFile, bySetting, onLinux, named, unlisted := queueName("file"), queueName("setting"), queueName("linux"), queueName("named"), queueName("unlisted")
	root := packaged(t, byFile, bySetting, onLinux, named, unlisted)
	quickly(t, root, nil)
	replaceIn(t, root+"/dispatch-"+byFile+"/function.json", `"bindings"`, `"disabled": true, "bindings"`)
	replaceIn(t, root+"/dispatch-"+named+"/function.json", `"bindings"`, `"disabled": "ORDERS_OFF", "bindings"`)
	env := []string{"AzureWebJobs.dispatch-" + bySetting + ".Disabled=true", "AzureWebJobs_dispatch-" + onLinux + "_Disabled=1", "ORDERS_OFF=1"}
	for i, listed := range []string{"api", "pump", "housekeeping", "dispatch-" + byFile, "dispatch-" + bySetting, "dispatch-" + onLinux, "dispatch-" + named} {
		env = append(env, fmt.Sprintf("AzureFunctionsJobHost__functions__%d=%s", i, listed))
	}
	h := startHosted(t, root, hosttest.Options{}, env...)
	receiver := newAnswering(t)
	for _, name := range []string{byFile, bySetting, onLinux, named, unlisted} {
		hook := h.register(name, receiver.URL, nil)
		id := h.publish(name, "waits for the pump")
		if err := h.host.Timer("pump", false); err != nil {
			t.Errorf("pump: %v", err)
		}
		h.waitState(10*time.Second, name, id, hook.ID, "delivered")
		if calls, _ := h.host.Calls("dispatch-" + name); calls != 0 {
			t.Errorf("the host called %d times for a function that is disabled", calls)
		}
	}
	var ready struct {
		Status string
		Checks []struct{ Name, Detail string }
	}
	h.call(http.MethodGet, "/api/v1/readyz", "", http.StatusOK, &ready)
	for _, c := range ready.Checks {
		if c.Name == "functions" && ready.Status == "degraded" && strings.Contains(c.Detail, byFile+" come with the pump") && strings.Contains(c.Detail, "AzureWebJobs.dispatch-"+bySetting+".Disabled") {
			return
		}
	}
	t.Errorf("nobody says what is disabled: %+v", ready)
}

// TestALogThatNobodyReadsHoldsNoMessageUp: the host's end of the pipe is open, and it reads nothing.
func TestALogThatNobodyReadsHoldsNoMessageUp(t *testing.T) {
	t.Parallel()
	name := queueName("unread")
	root := packaged(t, name)
	quickly(t, root, nil)
	h := startHosted(t, root, hosttest.Options{Unread: true}, "PUSHLEASE_LOG_LEVEL=debug")
	receiver := newAnswering(t)
	h.register(name, receiver.URL, nil)
	const messages = 300 // with some 300 KiB of lines, and the pipe takes 64
	sendAll(t, accountQueue(t, name), messages, func(int) string { return "fine" })
	waitUntil(t, 3*time.Minute, func() string { // without the cure it is never
		if n := len(receiver.delivered()); n < messages {
			return "not all are delivered"
		}
		return ""
	})
	h.waitEmpty(20*time.Second, name)
}
