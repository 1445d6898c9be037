package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pushlease/pushlease/functions/hosttest"
	"github.com/pushlease/pushlease/queue"
)

// TestAStopBesideAHostDrainsWhatIsPolledToo: asked to stop, a handler with functions_poller ends the
// POSTs that it has, of messages of the host and of those that it polled, takes nothing new, and
// ends as one that is to be started again. The next process delivers the rest; nothing twice.
func TestAStopBesideAHostDrainsWhatIsPolledToo(t *testing.T) {
	t.Parallel()
	triggered, polled := queueName("triggered"), queueName("polled")
	root := packaged(t, triggered)
	quickly(t, root, nil)
	h := startHosted(t, root, hosttest.Options{}, "PUSHLEASE_FUNCTIONS_POLLER=true", "WEBSITE_SKU=ElasticPremium", "PUSHLEASE_POLL_MAX=200ms")
	release := make(chan struct{})
	var mu sync.Mutex
	posts := map[string]int{}
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // what is cut short is another text
		mu.Lock()
		posts[string(body)]++
		mu.Unlock()
		if strings.HasPrefix(string(body), "slow") {
			<-release
		}
	}))
	defer receiver.Close()
	got := func(texts ...string) func() string {
		return func() string {
			mu.Lock()
			defer mu.Unlock()
			for _, text := range texts {
				if posts[text] != 1 {
					return fmt.Sprintf("%q was POSTed %d times", text, posts[text])
				}
			}
			return ""
		}
	}
	names := []string{triggered, polled}
	send := func(text string) {
		for _, name := range names {
			if _, err := accountQueue(t, name).Send(t.Context(), []byte(text+" "+name), queue.SendOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, name := range names {
		h.register(name, receiver.URL, nil)
	}
	send("slow")
	waitUntil(t, 30*time.Second, got("slow "+triggered, "slow "+polled))
	pid, starts := h.host.Pid(), len(h.host.StartTimes())
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, 10*time.Second, func() string {
		if out, _ := h.host.Log(); !strings.Contains(out, "stopping: nothing new is begun") {
			return "it has not begun to stop"
		}
		return ""
	})
	send("later")
	calls, _ := h.host.Calls("dispatch-" + triggered)
	waitUntil(t, 10*time.Second, func() string {
		if n, _ := h.host.Calls("dispatch-" + triggered); n == calls {
			return "the host has not brought the later message"
		}
		return ""
	})
	mu.Lock()
	if n := posts["later "+triggered] + posts["later "+polled]; n != 0 || h.host.Pid() != pid {
		t.Errorf("%d POSTs were begun by a process that stops", n)
	}
	mu.Unlock()
	close(release)
	waitUntil(t, 30*time.Second, func() string {
		if h.host.Pid() == pid || len(h.host.StartTimes()) == starts {
			return "the host has not started it again"
		}
		return ""
	})
	for _, name := range names {
		h.waitEmpty(30*time.Second, name)
	}
	if wrong := got("slow "+triggered, "slow "+polled, "later "+triggered, "later "+polled)(); wrong != "" {
		t.Error(wrong)
	}
}

// TestWhatTheHostBringsOverTheLimitComesBackLater: the process has max_in_flight messages in hand and
// no more. The host deletes and moves away nothing of what is given back; each is POSTed once.
func TestWhatTheHostBringsOverTheLimitComesBackLater(t *testing.T) {
	t.Parallel()
	const limit, messages = 3, 12
	name := queueName("over")
	root := packaged(t, name)
	quickly(t, root, nil)
	h := startHosted(t, root, hosttest.Options{}, fmt.Sprint("PUSHLEASE_MAX_IN_FLIGHT=", limit), fmt.Sprint("PUSHLEASE_CONCURRENCY=", limit))
	release := make(chan struct{})
	var mu sync.Mutex
	running, most := 0, 0
	posts := map[string]int{}
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // what is cut short is another text
		mu.Lock()
		posts[string(body)]++
		running++
		most = max(most, running)
		mu.Unlock()
		<-release
		mu.Lock()
		running--
		mu.Unlock()
	}))
	defer receiver.Close()
	h.register(name, receiver.URL, nil)
	sendAll(t, accountQueue(t, name), messages, func(i int) string { return fmt.Sprint("message ", i) })
	waitUntil(t, 30*time.Second, func() string {
		if out, _ := h.host.Log(); strings.Count(out, `"settled":"put_off"`) < messages-limit {
			return "not all that is over the limit was given back"
		}
		return ""
	})
	close(release)
	h.waitEmpty(time.Minute, name)
	mu.Lock()
	defer mu.Unlock()
	if most > limit || len(posts) != messages {
		t.Errorf("%d messages were POSTed, up to %d at a time", len(posts), most)
	}
	for text, n := range posts {
		if n != 1 {
			t.Errorf("%q was POSTed %d times", text, n)
		}
	}
	if moved := h.host.Poisoned(); len(moved) > 0 {
		t.Errorf("the host moved messages away: %v", moved)
	}
	out, _ := h.host.Log()
	for _, told := range []string{`"max_in_flight":3,"host_brings":24`, "more messages than max_in_flight allows"} {
		if strings.Count(out, told) != 1 {
			t.Errorf("%q was told %d times", told, strings.Count(out, told))
		}
	}
}
