package hosttest

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue"

	"github.com/pushlease/pushlease/internal/azuritetest"
)

// end has the handler end with a code.
func end(h *Host, code int) {
	if resp, err := http.Get(fmt.Sprintf("http://%s/end?with=%d", h.Address(), code)); err == nil {
		_ = resp.Body.Close()
	}
}

// endAndWait ends the handler and waits for the next one.
func endAndWait(t *testing.T, h *Host, code int) {
	t.Helper()
	before := len(h.StartTimes())
	end(h, code)
	waitUntil(t, 20*time.Second, "there is another handler", func() bool { return len(h.StartTimes()) > before || h.Stopped() != nil })
}

// filled is the app's queue with one message.
func filled(t *testing.T, name string) *azqueue.QueueClient {
	t.Helper()
	service, err := queueService(azuritetest.Start(t).ConnectionString())
	if err != nil {
		t.Fatal(err)
	}
	client := service.NewQueueClient(name)
	if _, err := client.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	put(t, client)
	return client
}

func put(t *testing.T, client *azqueue.QueueClient) {
	t.Helper()
	if _, err := client.EnqueueMessage(t.Context(), "x", nil); err != nil {
		t.Fatal(err)
	}
}

// Each new handler listens where the one before did. 200 is no error; of the others the third within 30 minutes
// of the one before is the host's end.
func TestTheThirdErrorEndsTheHost(t *testing.T) {
	t.Parallel()
	h := Start(t, Options{Root: handled(t, "00:01:00", azuritetest.Name("third")), Storage: azuritetest.Start(t).ConnectionString()})
	waitUntil(t, 20*time.Second, "the handler is up", func() bool { return len(h.StartTimes()) > 0 })
	at, pid := h.Address(), h.Pid()
	for _, code := range []int{200, 200, 200, 200, 1, 1} {
		endAndWait(t, h, code)
		if h.Address() != at || h.Pid() == pid || h.Stopped() != nil {
			t.Errorf("after %d: %s and %d were %s and %d; %v", code, h.Address(), h.Pid(), at, pid, h.Stopped())
		}
		pid = h.Pid()
	}
	h.mu.Lock()
	h.lastFail = h.lastFail.Add(-31 * time.Minute)
	h.mu.Unlock()
	for n := 1; n < maxFailures; n++ {
		if endAndWait(t, h, 1); h.Stopped() != nil {
			t.Errorf("the error %d after half an hour: %v", n, h.Stopped())
		}
	}
	endAndWait(t, h, 3)
	if err := h.Stopped(); err == nil || !strings.Contains(err.Error(), "ended 3 times, the last time with 3") {
		t.Errorf("the host has stopped: %v", err)
	}
	if n := len(h.StartTimes()); n != 9 {
		t.Errorf("%d handlers were started", n)
	}
}

// One that the host kills for the function timeout is replaced at the same address, and is no error.
func TestTheFunctionTimeoutIsNoError(t *testing.T) {
	t.Parallel()
	h := Start(t, Options{
		Root: handled(t, "00:00:01", azuritetest.Name("timeout")), Storage: azuritetest.Start(t).ConnectionString(), Env: []string{"TEST_TAKES=1m"},
	})
	waitUntil(t, 20*time.Second, "the handler is up", func() bool { return len(h.StartTimes()) > 0 })
	at := h.Address()
	for n := range maxFailures {
		if err := h.Timer("tick", false); err != errTimedOut {
			t.Errorf("the run ended with %v", err)
		}
		waitUntil(t, 20*time.Second, "there is another handler", func() bool { return len(h.StartTimes()) > n+1 || h.Stopped() != nil })
		if h.Address() != at || h.Stopped() != nil {
			t.Errorf("%s was %s; the host has stopped: %v", h.Address(), at, h.Stopped())
		}
	}
}

// One that never answers has initializationTimeout, and that counts as an error.
func TestAHandlerThatNeverListensIsAnError(t *testing.T) {
	t.Parallel()
	root := handled(t, "00:01:00", azuritetest.Name("never"))
	set(t, root, "description", `"initializationTimeout":"00:00:01"`)
	start := time.Now()
	h := Start(t, Options{Root: root, Storage: azuritetest.Start(t).ConnectionString(), Env: []string{"TEST_STARTS_AFTER=5m"}})
	waitUntil(t, time.Minute, "the host stops", func() bool { return h.Stopped() != nil })
	if took := time.Since(start); took < maxFailures*time.Second || !strings.Contains(h.Stopped().Error(), "ended 3 times") || len(h.StartTimes()) > 0 {
		t.Errorf("after %s: %v; %d have answered", took, h.Stopped(), len(h.StartTimes()))
	}
}

// A drain waits for the invocations under way and receives nothing more; requests are passed on.
func TestADrainedHostGoesOnWithRequests(t *testing.T) {
	t.Parallel()
	name := azuritetest.Name("drained")
	client := filled(t, name)
	h := Start(t, Options{Root: handled(t, "00:01:00", name), Storage: azuritetest.Start(t).ConnectionString(), Env: []string{"TEST_TAKES=3s"}})
	waitUntil(t, 20*time.Second, "the invocation is under way", func() bool { return h.Running("work") == 1 })
	h.Drain()
	if h.Running("work") != 0 || !h.Stopping() {
		t.Errorf("%d invocations are under way after the drain", h.Running("work"))
	}
	put(t, client)
	resp, err := http.Get(h.URL() + "/api/x")
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK || len(text) == 0 {
		t.Errorf("the request was answered %d %s", resp.StatusCode, text)
	}
	left, err := client.GetProperties(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := h.Calls("work"); n != 1 || *left.ApproximateMessagesCount != 1 {
		t.Errorf("%d invocations, %d messages are left", n, *left.ApproximateMessagesCount)
	}
}

// Two handlers run side by side after a restart inside, at addresses of their own; what the old one has not finished by the end of the
// overlap is cut short.
func TestARestartInsideEndsTheOldHandler(t *testing.T) {
	t.Parallel()
	const overlap = time.Second
	name := azuritetest.Name("overlap")
	filled(t, name)
	h := Start(t, Options{
		Root: handled(t, "-1", name), Storage: azuritetest.Start(t).ConnectionString(), Env: []string{"TEST_TAKES=5m"}, Overlap: overlap,
	})
	waitUntil(t, 20*time.Second, "the invocation is under way", func() bool { return h.Running("work") == 1 })
	at, start := h.Address(), time.Now()
	h.RestartInside()
	if took := time.Since(start); took < overlap || h.Running("work") != 0 || h.Address() == at {
		t.Errorf("it took %s, %d invocations are under way, and %s follows %s", took, h.Running("work"), h.Address(), at)
	}
	if c, err := net.Dial("tcp", at); err == nil {
		_ = c.Close()
		t.Error("the old handler goes on")
	}
	waitUntil(t, 20*time.Second, "the new handler is up", func() bool { return len(h.StartTimes()) == 2 })
	if n, _ := h.Calls("work"); n != 1 || h.Stopped() != nil {
		t.Errorf("%d invocations; the host has stopped: %v", n, h.Stopped())
	}
}
