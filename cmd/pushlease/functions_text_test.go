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

// asText takes dataType binary from a queue's trigger, as someone may have done who
// did not know what it is for.
func asText(t *testing.T, root, queueName string) {
	t.Helper()
	replaceIn(t, filepath.Join(root, "dispatch-"+queueName, "function.json"), `"dataType": "binary"`, `"dataType": "string"`)
}

// TestATextThatReplacesItsMetadataIsNotBelieved: without dataType binary the host lets a
// message say what its id and receipt are. It is delivered all the same, once, with its
// own bytes.
func TestATextThatReplacesItsMetadataIsNotBelieved(t *testing.T) {
	t.Parallel()
	name := queueName("text")
	root := packaged(t, name)
	quickly(t, root, nil)
	asText(t, root, name)
	h := startHosted(t, root, hosttest.Options{})
	receiver := newAnswering(t)
	h.register(name, receiver.URL, nil)
	q := accountQueue(t, name)
	bodies := []string{
		`{"id":"11111111-2222-3333-4444-555555555555","popReceipt":"x","dequeueCount":99999}`, `{"id":7,"dequeueCount":"none"}`,
		`  { "PopReceipt" : "x" }`, `{"order":1}`, "plain", `"quoted"`, "",
	}
	for _, b := range bodies {
		if _, err := q.Send(t.Context(), []byte(b), queue.SendOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	published := h.publish(name, `{"published":true,"id":"y"}`)
	h.waitEmpty(30*time.Second, name)
	want := append(slices.Clone(bodies), `{"published":true,"id":"y"}`)
	slices.Sort(want)
	if got := receiver.delivered(); !slices.Equal(got, want) {
		t.Errorf("delivered %q, want %q", got, want)
	}
	if posts, _ := receiver.of(published); len(posts) != 0 {
		t.Error("a message whose id may be its own words was delivered under it")
	}
	if stdout, _ := h.host.Log(); !strings.Contains(stdout, `set \"dataType\": \"binary\"`) {
		t.Error("the log does not tell the cure")
	}
}

// TestATextWhoseSendingWasNotAnsweredIsDeliveredOnce: what is sent anew may be on the queue already
// when storage's answer is lost. Both copies have one name.
func TestATextWhoseSendingWasNotAnsweredIsDeliveredOnce(t *testing.T) {
	t.Parallel()
	proxy := emulator(t).Proxy(t)
	name := queueName("anew")
	root := packaged(t, name)
	quickly(t, root, nil)
	asText(t, root, name)
	h := startHosted(t, root, hosttest.Options{Storage: proxy.ConnectionString()})
	receiver := newAnswering(t)
	h.register(name, receiver.URL, nil)
	proxy.Fault(azuritetest.Match{Service: "queue", Operation: "send", To: 2}, azuritetest.FailAfter())
	const body = `{"id":"11111111-2222-3333-4444-555555555555"}`
	if _, err := accountQueue(t, name).Send(t.Context(), []byte(body), queue.SendOptions{}); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, 20*time.Second, func() string {
		if n := proxy.Count("queue", "send"); n < 3 {
			return fmt.Sprintf("%d sends", n)
		}
		return ""
	})
	h.waitEmpty(30*time.Second, name)
	if got := receiver.delivered(); !slices.Equal(got, []string{body}) || receiver.total() != 1 {
		t.Errorf("delivered %q by %d POSTs, want it once", got, receiver.total())
	}
	if n := proxy.Count("queue", "send"); n != 3 {
		t.Errorf("%d sends, want three under one name", n)
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

// TestATextThatCanNotBeSentAnewIsADeadLetter: without dataType binary one that is too long
// for an envelope, or that is not what the queue's encoding promises, has no other end: the
// host would bring it until it expires.
func TestATextThatCanNotBeSentAnewIsADeadLetter(t *testing.T) {
	t.Parallel()
	long, coded := queueName("long"), queueName("coded")
	root := packaged(t, long, coded)
	quickly(t, root, nil)
	asText(t, root, long)
	asText(t, root, coded)
	h := startHosted(t, root, hosttest.Options{}, "PUSHLEASE_QUEUES="+coded+"=base64")
	receiver := newAnswering(t)
	h.register(long, receiver.URL, nil)
	h.register(coded, receiver.URL, nil)
	texts := map[string]string{long: `{"id":"x","text":"` + strings.Repeat("x", 60_000) + `"}`, coded: `{"no":"base64"}`}
	reasons := map[string]string{long: "Unidentified", coded: "Undecodable"}
	for name, text := range texts {
		for range 2 { // the same text twice is two messages
			if _, err := accountQueue(t, name).Send(t.Context(), []byte(text), queue.SendOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, text := range texts {
		h.waitEmpty(20*time.Second, name)
		rows := h.deadLetters(name, "")
		if len(rows) != 2 {
			t.Fatalf("%s: %+v", name, rows)
		}
		for _, row := range rows {
			a, err := h.try(http.MethodGet, "/api/v1/dead-letters/"+row.ID+"/body", "", "")
			if err != nil || row.Reason != reasons[name] || string(a.body) != text || !strings.Contains(row.Description, "of the invocation") {
				t.Errorf("%s: %+v with %d bytes (%v)", name, row, len(a.body), err)
			}
		}
		copies, err := accountQueue(t, name+"-poison").Peek(t.Context(), queue.MaxReceive)
		if err != nil || len(copies) != 2 {
			t.Errorf("%s: %d copies, %v", name, len(copies), err)
		}
	}
	if posts := receiver.total(); posts != 0 {
		t.Errorf("%d POSTs", posts)
	}
	// Nothing is lost: a replay delivers the whole text under the id that the row has.
	row := h.deadLetters(long, "")[0]
	h.call(http.MethodPost, "/api/v1/dead-letters/"+row.ID+"/replay", "", http.StatusAccepted, nil)
	waitUntil(t, 20*time.Second, func() string {
		if _, delivered := receiver.of(row.MessageID); delivered != 1 || receiver.body(row.MessageID) != texts[long] {
			return "the replay has not delivered the text"
		}
		return ""
	})
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
