package main

import (
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/functions/hosttest"
	"github.com/pushlease/pushlease/internal/azuritetest"
	"github.com/pushlease/pushlease/queue"
)

// asText takes dataType binary from a queue's trigger, as somebody may have done who
// did not know what it is for.
func asText(t *testing.T, root, queueName string) {
	t.Helper()
	replaceIn(t, filepath.Join(root, "dispatch-"+queueName, "function.json"), `"dataType": "binary"`, `"dataType": "string"`)
}

// A host.json of one's own may have the host move messages away that pushlease never sees: /readyz says so, and the log.
func TestWhatTheHostTakesAwayUnseenIsTold(t *testing.T) {
	t.Parallel()
	name := queueName("taken")
	root := packaged(t, name)
	quickly(t, root, func(host map[string]any) {
		delete(host["extensions"].(map[string]any)["queues"].(map[string]any), "maxDequeueCount")
	})
	h := startHosted(t, root, hosttest.Options{}, "PUSHLEASE_TABLE_PREFIX="+azuritetest.Name("fn"))
	waitUntil(t, time.Minute, func() string {
		a, err := h.try(http.MethodGet, "/api/v1/readyz", "", "")
		stdout, _ := h.host.Log()
		if err != nil || a.status != http.StatusOK || !strings.Contains(string(a.body), "host.json: extensions.queues.maxDequeueCount is not set") ||
			!strings.Contains(stdout, "extensions.queues.maxDequeueCount") {
			return fmt.Sprintf("%v, %s", err, a.body)
		}
		return ""
	})
}

// TestATextThatReplacesItsMetadataWaitsForTheCure: without dataType binary the host lets a message say
// what its id and receipt are. Such a message is not POSTed, however often the host brings it, and is
// delivered under its own id when the trigger is as it should be.
func TestATextThatReplacesItsMetadataWaitsForTheCure(t *testing.T) {
	t.Parallel()
	name := queueName("text")
	root := packaged(t, name)
	quickly(t, root, func(host map[string]any) { // so that they have come often enough to be suspects
		host["extensions"].(map[string]any)["queues"].(map[string]any)["visibilityTimeout"] = "00:00:00"
	})
	asText(t, root, name)
	tables := "PUSHLEASE_TABLE_PREFIX=" + azuritetest.Name("fn")
	h := startHosted(t, root, hosttest.Options{}, tables)
	receiver := newAnswering(t)
	h.register(name, receiver.URL, nil)
	bodies := map[string]string{}
	plain := []string{"", `"quoted"`, "plain"}
	for _, b := range append([]string{
		`{"id":"11111111-2222-3333-4444-555555555555","popReceipt":"x","dequeueCount":99999,"expirationTime":"2001-01-01T00:00:00Z"}`,
		`{"id":7,"dequeueCount":"none"}`, `  { "PopReceipt" : "x" }`, `{"order":1}`, `{"text":"` + strings.Repeat("x", 60_000) + `"}`,
	}, plain...) {
		sent, err := accountQueue(t, name).Send(t.Context(), []byte(b), queue.SendOptions{})
		if err != nil {
			t.Fatal(err)
		}
		bodies[sent.ID] = b
	}
	bodies[h.publish(name, `{"published":true,"id":"y"}`)] = `{"published":true,"id":"y"}`
	const often = 20
	refusals := often * (len(bodies) - len(plain))
	refused := func() int {
		stdout, _ := h.host.Log()
		n := 0
		for line := range strings.Lines(stdout) { // readiness is told in the log, too
			if strings.Contains(line, `"level":"ERROR"`) && strings.Contains(line, `set \"dataType\": \"binary\"`) {
				n++
			}
		}
		return n
	}
	waitUntil(t, time.Minute, func() string {
		if n := refused(); n < refusals || !slices.Equal(receiver.delivered(), plain) {
			return fmt.Sprintf("%d refusals of %d, delivered %q", n, refusals, receiver.delivered())
		}
		return ""
	})
	if a, err := h.try(http.MethodGet, "/api/v1/readyz", "", ""); err != nil || a.status != http.StatusOK || !strings.Contains(string(a.body), "passes them on as text: "+name+";") {
		t.Errorf("readiness does not tell: %v %d %s", err, a.status, a.body)
	}
	h.host.Drain()
	h.host.Stop()
	stdout, _ := h.host.Log()
	if calls, _ := h.host.Calls("dispatch-" + name); strings.Count(stdout, `"level":"ERROR"`) != refused() || refused() != calls-len(plain) || receiver.total() != len(plain) {
		t.Errorf("%d invocations, %d refusals, %d errors, %d POSTs", calls, refused(), strings.Count(stdout, `"level":"ERROR"`), receiver.total())
	}

	replaceIn(t, filepath.Join(root, "dispatch-"+name, "function.json"), `"dataType": "string"`, `"dataType": "binary"`)
	h = startHosted(t, root, hosttest.Options{}, tables)
	h.waitEmpty(30*time.Second, name)
	for id, body := range bodies {
		if posts, delivered := receiver.of(id); len(posts) != 1 || delivered != 1 || receiver.body(id) != body {
			t.Errorf("%.60q was POSTed %d times, as %.60q", body, len(posts), receiver.body(id))
		}
	}
	if rows := h.deadLetters(name, ""); len(rows) > 0 {
		t.Errorf("dead letters: %+v", rows)
	}
}

// delivered are the bodies that were answered 2xx, each as often as that.
func (a *answering) delivered() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []string
	for id, n := range a.ok {
		for range n {
			all = append(all, a.bodies[id])
		}
	}
	slices.Sort(all)
	return all
}

// TestAClockThatIsAheadStopsNothing: all that storage dates is minutes behind the clock here.
// Messages are delivered, and readiness tells of it.
func TestAClockThatIsAheadStopsNothing(t *testing.T) {
	t.Parallel()
	const behind = -7 * time.Minute
	proxy := emulator(t).Proxy(t)
	proxy.Fault(azuritetest.Match{}, azuritetest.Skew(behind))
	name := queueName("clock")
	root := packaged(t, name)
	quickly(t, root, nil)
	h := startHosted(t, root, hosttest.Options{Storage: proxy.ConnectionString(), StoragesClock: behind})
	receiver := newAnswering(t)
	hook := h.register(name, receiver.URL, nil)
	h.waitState(20*time.Second, name, h.publish(name, `{"say":"busy"}`), hook.ID, "delivered")
	// The clocks are compared by an answer's date, which may be seconds from when it came; on a busy
	// machine the first answers take too long to tell anything.
	named := regexp.MustCompile(`(6m5\ds|7m\ds) ahead of storage`)
	waitUntil(t, 30*time.Second, func() string {
		a, err := h.try(http.MethodGet, "/api/v1/readyz", "", "")
		if err != nil || a.status != http.StatusServiceUnavailable || !named.Match(a.body) {
			return fmt.Sprintf("readiness names no clock: %v %d %s", err, a.status, a.body)
		}
		return ""
	})
}
