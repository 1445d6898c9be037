package hosttest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/azuritetest"
)

// TestMain is the handler too: the fake host starts this program.
func TestMain(m *testing.M) {
	port := os.Getenv("FUNCTIONS_CUSTOMHANDLER_PORT")
	if port == "" {
		azuritetest.AtOnce(4)
		os.Exit(m.Run())
	}
	late, _ := time.ParseDuration(os.Getenv("TEST_STARTS_AFTER"))
	time.Sleep(late)
	by := byHand{os.Getenv("TEST_POSTS_TO"), &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}}}
	answers := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if by.target != "" && r.URL.Path != "/" {
			by.ServeHTTP(w, r)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		switch path.Base(r.URL.Path) {
		case "end":
			code, _ := strconv.Atoi(r.URL.Query().Get("with"))
			os.Exit(code)
		case "begins": // and says no more
			_, _ = io.WriteString(w, "begun")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		if takes, err := time.ParseDuration(os.Getenv("TEST_TAKES")); err == nil && r.URL.Path != "/" {
			select {
			case <-time.After(takes):
			case <-r.Context().Done():
			}
		}
		kind, status, text := "application/json", http.StatusOK, `{"Outputs":{},"Logs":["one","two"],"ReturnValue":null}`
		switch os.Getenv("TEST_ANSWERS") {
		case "nullbody":
			text = "null"
		case "emptybody":
			text = ""
		case "plain":
			kind = "text/plain"
		case "moved":
			status = http.StatusFound
			w.Header().Set("Location", "/elsewhere")
		case "notfound":
			status = http.StatusNotFound
		}
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	})
	_ = http.ListenAndServe("127.0.0.1:"+port, answers)
	os.Exit(1)
}

// handled makes an app of one queue and one HTTP function, with this program as its
// handler.
func handled(t testing.TB, timeout, queue string) (root string) {
	t.Helper()
	root = t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(root, "handler")); err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string]any{
		"host.json": map[string]any{
			"functionTimeout": timeout,
			"customHandler":   map[string]any{"description": map[string]any{"defaultExecutablePath": "handler"}, "enableProxyingHttpRequest": true},
			"extensions":      map[string]any{"queues": map[string]any{"messageEncoding": "none", "maxPollingInterval": "00:00:00.2"}},
		},
		"work/function.json": map[string]any{"bindings": []any{map[string]any{"type": "queueTrigger", "name": "message", "queueName": queue, "dataType": "binary"}}},
		"tick/function.json": map[string]any{"bindings": []any{map[string]any{"type": "timerTrigger", "name": "timer"}}},
		"api/function.json":  map[string]any{"bindings": []any{map[string]any{"type": "httpTrigger", "name": "req", "authLevel": "anonymous", "route": "{*path}"}}},
	} {
		text, err := json.Marshal(file)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(root, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// set adds a setting to host.json, before the one of that name.
func set(t *testing.T, root, before, setting string) {
	t.Helper()
	file := filepath.Join(root, "host.json")
	text, err := os.ReadFile(file)
	if err == nil {
		before = strconv.Quote(before)
		err = os.WriteFile(file, []byte(strings.Replace(string(text), before, setting+","+before, 1)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func waitUntil(t testing.TB, bound time.Duration, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(bound); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", bound, what)
		}
	}
}

func TestARenewalThatStorageFailsStopsTheHost(t *testing.T) {
	t.Parallel()
	a := azuritetest.Start(t)
	proxy := a.Proxy(t)
	name := azuritetest.Name("renewal")
	h := Start(t, Options{Root: handled(t, "00:01:00", name), Storage: proxy.ConnectionString(), Env: []string{"TEST_TAKES=30s"}, Lease: 2 * time.Second})
	service, err := queueService(a.ConnectionString())
	if err != nil {
		t.Fatal(err)
	}
	proxy.Fault(azuritetest.Match{Service: "queue", Operation: "update"}, azuritetest.Throttle())
	client := service.NewQueueClient(name)
	if _, err := client.Create(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := client.EnqueueMessage(context.Background(), "x", nil); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, 20*time.Second, "the host stops", func() bool { return h.Stopped() != nil })
	if why := h.Stopped().Error(); !strings.Contains(why, "renew") {
		t.Error(why)
	}
}

func TestTheWaitForAWorkerIsPartOfTheFunctionTimeout(t *testing.T) {
	t.Parallel()
	h := Start(t, Options{
		Root: handled(t, "00:00:03", azuritetest.Name("wait")), Storage: azuritetest.Start(t).ConnectionString(), Env: []string{"TEST_STARTS_AFTER=5s"},
	})
	if err := h.Timer("tick", false); err != errTimedOut {
		t.Errorf("the first run ended with %v", err)
	}
	pid := h.Pid()
	waitUntil(t, 20*time.Second, "the handler is up", func() bool { return len(h.StartTimes()) > 0 })
	if err := h.Timer("tick", false); err != nil || h.Pid() != pid {
		t.Errorf("once it is up: %v", err)
	}
}

// Without an answer the caller gets 500; where one has begun, what he reads of it ends in an error.
func TestAProxiedRequestEndsWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	h := Start(t, Options{
		Root: handled(t, "00:01:00", azuritetest.Name("proxy")), Storage: azuritetest.Start(t).ConnectionString(),
		Env: []string{"TEST_TAKES=30s"}, ProxyLimit: 3 * time.Second,
	})
	waitUntil(t, 20*time.Second, "the handler is up", func() bool { return len(h.StartTimes()) > 0 })
	for _, tt := range []struct {
		path, text string
		status     int
		cut        bool
	}{{"slow", "", http.StatusInternalServerError, false}, {"begins", "begun", http.StatusOK, true}} {
		resp, err := http.Get(h.URL() + "/api/" + tt.path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != tt.status || string(text) != tt.text || (err != nil) != tt.cut {
			t.Errorf("%s: %d %q, %v", tt.path, resp.StatusCode, text, err)
		}
	}
}

// What ends an invocation, and what its message does then, is as recorded; the times are shorter.
func TestAnswersEndAnInvocationAsRecorded(t *testing.T) {
	t.Parallel()
	const timeout, delay = 2 * time.Second, time.Second // of the function, and visibilityTimeout
	a := azuritetest.Start(t)
	service, err := queueService(a.ConnectionString())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range recordings(t, "answer") {
		t.Run(r.Case, func(t *testing.T) {
			t.Parallel()
			name := azuritetest.Name("answers")
			root := handled(t, "00:00:02", name)
			set(t, root, "messageEncoding", `"visibilityTimeout":"00:00:01"`)
			client, poison := service.NewQueueClient(name), service.NewQueueClient(name+"-poison")
			if _, err := client.Create(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			sent := time.Now()
			if _, err := client.EnqueueMessage(t.Context(), "x", nil); err != nil {
				t.Fatal(err)
			}
			h := Start(t, Options{Root: root, Storage: a.ConnectionString(), Env: []string{"TEST_ANSWERS=" + r.Case}})
			calls := func() int { n, _ := h.Calls("work"); return n }
			least := time.Duration(r.Invocations-1) * delay
			if strings.HasSuffix(r.Case, "body") {
				least += time.Duration(r.Invocations-1) * timeout
			}
			waitUntil(t, 30*time.Second, "as many invocations", func() bool { return calls() >= r.Invocations })
			if after := time.Since(sent); after < least {
				t.Errorf("%d invocations within %s, want them after %s", r.Invocations, after, least)
			}
			left := func() int {
				p, err := client.GetProperties(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				return int(*p.ApproximateMessagesCount)
			}
			waitUntil(t, 10*time.Second, "as many are left", func() bool { return left() == r.Left })
			if _, err := poison.GetProperties(t.Context(), nil); err == nil || r.Poison != 0 {
				t.Errorf("the poison queue is there: %v", err)
			}
			h.Stop()
			if err := h.Stopped(); err != nil || r.Left == 0 && calls() != r.Invocations {
				t.Errorf("%d invocations, %v", calls(), err)
			}
		})
	}
}

// SIGTERM does nothing to the host, whatever the handler is doing. Killed afterwards, as containers are, it leaves
// the handler behind.
func TestSIGTERMDoesNothingToTheHost(t *testing.T) {
	t.Parallel()
	h := Start(t, Options{Root: handled(t, "00:01:00", azuritetest.Name("sigterm")), Storage: azuritetest.Start(t).ConnectionString(), Env: []string{"TEST_TAKES=300ms"}})
	waitUntil(t, 20*time.Second, "the handler is up", func() bool { return len(h.StartTimes()) > 0 })
	pid := h.Pid()
	for range 3 {
		ended := make(chan error, 1)
		go func() { ended <- h.Timer("tick", false) }()
		waitUntil(t, 10*time.Second, "the invocation is under way", func() bool { return h.Running("tick") == 1 })
		h.Terminate()
		if err := <-ended; err != nil {
			t.Errorf("an invocation under way: %v", err)
		}
	}
	if h.Pid() != pid || h.Stopped() != nil || len(h.StartTimes()) != 1 {
		t.Errorf("the handler %d is %d, of %d: %v", pid, h.Pid(), len(h.StartTimes()), h.Stopped())
	}
	if err := syscall.Kill(h.handler.cmd.Process.Pid, 0); err != nil {
		t.Errorf("the process that stands for the host has ended: %v", err)
	}
	orphan := h.Vanish()
	if err := syscall.Kill(pid, 0); err != nil {
		t.Errorf("the handler has gone with the host: %v", err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	<-orphan
}

// A handler that ends with 0 is not started again; the host goes on, answers 500, and gives messages back.
func TestAHandlerThatEndsWithZeroIsNotStartedAgain(t *testing.T) {
	t.Parallel()
	h := Start(t, Options{Root: handled(t, "-1", azuritetest.Name("zero")), Storage: azuritetest.Start(t).ConnectionString()})
	waitUntil(t, 20*time.Second, "the handler is up", func() bool { return len(h.StartTimes()) > 0 })
	if h.app.timeout != 0 {
		t.Errorf("without an end an invocation may take %s", h.app.timeout)
	}
	if err := h.Timer("tick", false); err != nil {
		t.Errorf("without a function timeout: %v", err)
	}
	end(h, 0)
	waitUntil(t, 20*time.Second, "there is no handler", func() bool { return errors.Is(h.Timer("tick", false), errNoHandler) })
	resp, err := http.Get(h.URL() + "/api/x")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusInternalServerError || h.Stopped() != nil || len(h.StartTimes()) != 1 {
		t.Errorf("it was answered %d, the host %v, %d handlers", resp.StatusCode, h.Stopped(), len(h.StartTimes()))
	}
}
