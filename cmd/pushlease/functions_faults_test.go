package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pushlease/pushlease/functions/hosttest"
	"github.com/pushlease/pushlease/internal/azuritetest"
	"github.com/pushlease/pushlease/queue"
)

// sendAll puts n messages on a queue and returns their ids, with the text of each.
func sendAll(t *testing.T, q queue.Queue, n int, text func(i int) string) map[string]string {
	t.Helper()
	ids := map[string]string{}
	var mu sync.Mutex
	var senders sync.WaitGroup
	for s := range 16 {
		senders.Go(func() {
			for i := s; i < n; i += 16 {
				sent, err := q.Send(t.Context(), []byte(text(i)), queue.SendOptions{})
				if err != nil {
					t.Errorf("send: %v", err)
					return
				}
				mu.Lock()
				ids[sent.ID] = text(i)
				mu.Unlock()
			}
		})
	}
	senders.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return ids
}

// TestAThousandHostedMessagesOverTenKills: the handler, or the host with it, is killed ten
// times while it works. What was in flight then may be POSTed once more; nothing is lost,
// and nothing else is POSTed twice.
func TestAThousandHostedMessagesOverTenKills(t *testing.T) {
	t.Parallel()
	const messages, kills, inFlight = 1000, 10, 24
	name := queueName("kills")
	root := unzipped(t, name)
	quickly(t, root, nil)
	q := accountQueue(t, name)
	texts := []string{
		`{"say":"fine","n":%d}`, `{"say":"fine","n":%d}`, `{"say":"fine","n":%d}`, `plain %d`, `{"say":"fine","n":%d}`,
		`{"say":"flaky","n":%d}`, `{"say":"wrong","n":%d}`, `{"id":"x","popReceipt":"y","dequeueCount":%d}`,
	}
	h := startHosted(t, root, hosttest.Options{Lease: 4 * time.Second}, "PUSHLEASE_LEASE=4s")
	receiver := newAnswering(t)
	hook := h.register(name, receiver.URL, map[string]any{
		"timeout": "1s", "policy": map[string]any{"max_attempts": 2, "backoff": map[string]any{"initial": "1s", "jitter": 0}},
	})
	ids := sendAll(t, q, messages, func(i int) string {
		switch i % 100 { // few: a receiver that asks for time gets it for all its messages
		case 25:
			return fmt.Sprintf(`{"say":"busy","n":%d}`, i)
		case 50:
			return fmt.Sprintf(`{"say":"slow","n":%d}`, i)
		}
		return fmt.Sprintf(texts[i%len(texts)], i)
	})
	var killed []time.Time
	for kill := range kills {
		waitUntil(t, time.Minute, func() string {
			if n := receiver.total(); n < (kill+1)*messages/(kills+2) {
				return fmt.Sprintf("%d POSTs so far", n)
			}
			return ""
		})
		if kill%5 < 2 { // the third in a row would stop the host
			h.host.Crash()
		} else {
			h.host.Restart()
		}
		killed = append(killed, time.Now())
	}
	h.waitEmpty(90*time.Second, name)

	twice := 0
	var states sync.Map
	var asking sync.WaitGroup
	work := make(chan string, len(ids))
	for id := range ids {
		work <- id
	}
	close(work)
	for range 8 {
		asking.Go(func() {
			for id := range work {
				tl, err := h.timeline(name, id)
				if err != nil || len(tl.Next) != 1 {
					t.Errorf("%s: %v %+v", id, err, tl.Next)
					continue
				}
				states.Store(id, tl.Next[0])
			}
		})
	}
	asking.Wait()
	dead := 0
	for id, text := range ids {
		v, ok := states.Load(id)
		if !ok {
			continue
		}
		next := v.(e2eNext)
		posts, delivered := receiver.of(id)
		want := "delivered"
		if strings.Contains(text, "wrong") || strings.Contains(text, "slow") {
			want = "dead_lettered"
			dead++
		}
		if next.State != want || next.WebhookID != hook.ID {
			t.Errorf("%s is %+v, want %s", text, next, want)
		}
		if want == "delivered" && delivered == 0 {
			t.Errorf("%s was not delivered", text)
		}
		if delivered > 1 {
			twice++
			if !cutOff(posts, killed) {
				t.Errorf("%s was delivered %d times, at %v: no kill explains that", text, delivered, posts)
			}
		}
	}
	if twice > kills*inFlight {
		t.Errorf("%d messages were delivered twice over %d kills", twice, kills)
	}
	if poisoned := h.host.Poisoned(); len(poisoned) > 0 {
		t.Errorf("the host moved messages away: %v", poisoned)
	}
	calls, most := h.host.Calls("dispatch-" + name)
	if most > inFlight {
		t.Errorf("%d invocations at a time, want %d at most", most, inFlight)
	}
	times := h.host.StartTimes()
	t.Logf("%d invocations, %d at a time; %d dead letters; %d delivered twice over %d kills; from start to first answer %s to %s",
		calls, most, dead, twice, kills, slices.Min(times).Round(time.Millisecond), slices.Max(times).Round(time.Millisecond))
}

// cutOff reports whether a kill came shortly after a POST and before the next one: it
// hit the time between the answer and its record.
func cutOff(posts, killed []time.Time) bool {
	for i := 1; i < len(posts); i++ {
		for _, k := range killed {
			if since := k.Sub(posts[i-1]); since > -200*time.Millisecond && since < 3*time.Second && posts[i].After(k) {
				return true
			}
		}
	}
	return false
}

func (a *answering) total() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, posts := range a.posts {
		n += len(posts)
	}
	return n
}

// TestASlowReceiverNeverMeetsTheFunctionTimeout: the receiver takes longer than the host
// allows. The process must not be killed for it, and the others go on.
func TestASlowReceiverNeverMeetsTheFunctionTimeout(t *testing.T) {
	t.Parallel()
	name := queueName("limit")
	root := packaged(t, name)
	quickly(t, root, func(host map[string]any) { host["functionTimeout"] = "00:00:20" }) // two POSTs of 15 s
	h := startHosted(t, root, hosttest.Options{})
	receiver := newAnswering(t)
	hook := h.register(name, receiver.URL, map[string]any{
		"timeout": "40s", "policy": map[string]any{"max_attempts": 2, "backoff": map[string]any{"initial": "1s", "jitter": 0}},
	})
	pid := h.host.Pid()
	slow, beside := h.publish(name, `{"say":"slow"}`), 0
	for range 20 {
		h.waitState(20*time.Second, name, h.publish(name, `{"say":"fine"}`), hook.ID, "delivered")
		if tl, err := h.timeline(name, slow); err == nil && slices.ContainsFunc(tl.Next, func(n e2eNext) bool { return n.State == "dead_lettered" }) {
			break // on a machine that is busy
		}
		beside++
	}
	if beside == 0 {
		t.Error("the others waited for the slow one")
	}
	next := h.waitState(90*time.Second, name, slow, hook.ID, "dead_lettered")
	posts, _ := receiver.of(slow)
	if len(posts) != 2 || next.Attempts != 2 || next.Reason != "MaxDeliveryCountExceeded" {
		t.Errorf("%d POSTs, %+v", len(posts), next)
	}
	if h.host.Pid() != pid {
		t.Error("the handler was killed on the way")
	}
	h.waitEmpty(5*time.Second, name)
}

// TestAPostOutlivesTheHostsLease: the message is ours from the take-over on. The host can neither
// renew nor delete it, which it passes over, and nobody else receives it.
func TestAPostOutlivesTheHostsLease(t *testing.T) {
	t.Parallel()
	for answer, timeout := range map[string]string{"404": "00:05:00", "400": "-1"} { // of a stale receipt, and of the function
		t.Run(answer, func(t *testing.T) {
			t.Parallel()
			proxy := emulator(t).Proxy(t)
			if answer == "400" {
				proxy.StaleReceipt400()
			}
			name := queueName("outlives")
			root := packaged(t, name)
			quickly(t, root, func(host map[string]any) { host["functionTimeout"] = timeout })
			h := startHosted(t, root, hosttest.Options{Storage: proxy.ConnectionString(), Lease: 10 * time.Second}, "PUSHLEASE_LEASE=12s")
			release := make(chan struct{})
			receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
			defer receiver.Close()
			hook := h.register(name, receiver.URL, nil)
			sent, err := accountQueue(t, name).Send(t.Context(), []byte("slow"), queue.SendOptions{})
			if err != nil {
				t.Fatal(err)
			}
			renewed := func() int { return proxy.Count("queue", "update") }
			waitUntil(t, time.Minute, func() string {
				// The take-over, the host's after 5 s, which fails, and ours after 6 s and 12 s: both first leases are over then.
				if n := renewed(); n < 4 {
					return fmt.Sprintf("%d updates", n)
				}
				return ""
			})
			close(release)
			next := h.waitState(10*time.Second, name, sent.ID, hook.ID, "delivered")
			if calls, _ := h.host.Calls("dispatch-" + name); calls != 1 || next.Attempts != 1 {
				t.Errorf("%d invocations, %+v", calls, next)
			}
			h.waitEmpty(10*time.Second, name)
			waitUntil(t, 5*time.Second, func() string {
				if n := h.host.PassedOver(); n != 1 {
					return fmt.Sprintf("%d deletes of the host were passed over", n)
				}
				return ""
			})
			var q struct {
				Deletions struct{ Successful int }
			}
			h.call(http.MethodGet, "/api/v1/queues/"+name, "", http.StatusOK, &q)
			if q.Deletions.Successful != 1 {
				t.Errorf("%d deletions are counted, want the one that was made", q.Deletions.Successful)
			}
		})
	}
}

// TestTheHostMovesMessagesAwayOnlyAtItsOwnCount: attempts of ours don't bring the host's
// poison path nearer than the receives do, and it is reached only by what we can't
// settle at all, here for want of a right that the host has.
func TestTheHostMovesMessagesAwayOnlyAtItsOwnCount(t *testing.T) {
	t.Parallel()
	fine, broken := queueName("count"), queueName("broken")
	root := packaged(t, fine, broken)
	quickly(t, root, func(host map[string]any) {
		host["extensions"].(map[string]any)["queues"].(map[string]any)["maxDequeueCount"] = 3
	})
	proxy := emulator(t).Proxy(t)
	h := startHosted(t, root, hosttest.Options{}, "PUSHLEASE_STORAGE="+proxy.ConnectionString())
	receiver := newAnswering(t)
	hook := h.register(fine, receiver.URL, map[string]any{
		"policy": map[string]any{"max_attempts": 2, "backoff": map[string]any{"initial": "1s", "jitter": 0}},
	})
	id := h.publish(fine, `{"say":"busy"}`)
	h.waitState(20*time.Second, fine, id, hook.ID, "delivered")
	proxy.Fault(azuritetest.Match{Service: "queue", Operation: "update"}, azuritetest.FailBefore(http.StatusForbidden, "AuthorizationPermissionMismatch"))
	stuck, err := accountQueue(t, broken).Send(t.Context(), []byte("for no webhook"), queue.SendOptions{})
	if err != nil {
		t.Fatal(err)
	}
	waitUntil(t, 20*time.Second, func() string {
		if poisoned := h.host.Poisoned(); !slices.Equal(poisoned, []string{stuck.ID}) {
			return fmt.Sprintf("the host moved away %v, want %s alone", poisoned, stuck.ID)
		}
		return ""
	})
}

// TestStorageThatHangsDoesNotHoldTheHostUp: the answer is due although the record of a
// delivery can't be written. What the host does with the message fails, as the lease is ours, and the
// receiver is not asked twice.
func TestStorageThatHangsDoesNotHoldTheHostUp(t *testing.T) {
	t.Parallel()
	proxy := emulator(t).Proxy(t)
	name := queueName("hang")
	root := packaged(t, name)
	quickly(t, root, func(host map[string]any) { host["functionTimeout"] = "00:00:08" })
	h := startHosted(t, root, hosttest.Options{Storage: proxy.ConnectionString()})
	receiver := newAnswering(t)
	hook := h.register(name, receiver.URL, nil)
	h.waitState(10*time.Second, name, h.publish(name, "first"), hook.ID, "delivered")
	pid := h.host.Pid()
	proxy.Fault(azuritetest.Match{Service: "table", Operation: "batch", To: 2}, azuritetest.Delay(20*time.Second))
	sent, err := accountQueue(t, name).Send(t.Context(), []byte("second"), queue.SendOptions{})
	if err != nil {
		t.Fatal(err)
	}
	h.waitState(80*time.Second, name, sent.ID, hook.ID, "delivered")
	h.waitEmpty(20*time.Second, name)
	if posts, _ := receiver.of(sent.ID); len(posts) != 1 {
		t.Errorf("%d POSTs", len(posts))
	}
	if h.host.Pid() != pid {
		t.Error("the handler was killed for storage's fault")
	}
}

// TestAFrozenHandlerIsReplaced shows what the function timeout does: the process is killed,
// and the host gives the message back, long before its lease ends.
func TestAFrozenHandlerIsReplaced(t *testing.T) {
	t.Parallel()
	name := queueName("frozen")
	root := packaged(t, name)
	quickly(t, root, func(host map[string]any) { host["functionTimeout"] = "00:00:06" })
	h := startHosted(t, root, hosttest.Options{})
	receiver := newAnswering(t)
	hook := h.register(name, receiver.URL, nil)
	pid := h.host.Pid()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	sent, err := accountQueue(t, name).Send(t.Context(), []byte("frozen"), queue.SendOptions{})
	if err != nil {
		t.Fatal(err)
	}
	waitUntil(t, 30*time.Second, func() string {
		if h.host.Pid() == pid {
			return "the host still has the frozen process"
		}
		return ""
	})
	h.waitState(20*time.Second, name, sent.ID, hook.ID, "delivered")
}

// TestAHandlerThatWasFrozenGoesOn: a process that stood still for longer than its lease, as one does whose
// machine is moved, finds its message brought again. Either the POST under way goes on with the new lease,
// or storage says first that the old one is lost, and it is cut and made again: one is answered.
func TestAHandlerThatWasFrozenGoesOn(t *testing.T) {
	t.Parallel()
	name := queueName("thawed")
	root := packaged(t, name)
	quickly(t, root, nil)
	h := startHosted(t, root, hosttest.Options{}, "PUSHLEASE_LEASE=3s")
	release, asked := make(chan struct{}), make(chan struct{}, 10)
	goOn := sync.OnceFunc(func() { close(release) })
	var open, answered atomic.Int32
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // so that its end is seen
		open.Add(1)
		defer open.Add(-1)
		asked <- struct{}{}
		select {
		case <-release:
			answered.Add(1)
		case <-r.Context().Done():
		}
	}))
	defer receiver.Close()
	defer goOn() // before that: Close waits for what is under way
	hook := h.register(name, receiver.URL, nil)
	sent, err := accountQueue(t, name).Send(t.Context(), []byte("frozen"), queue.SendOptions{})
	if err != nil {
		t.Fatal(err)
	}
	<-asked
	pid := h.host.Pid()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }() // also where this fails
	waitUntil(t, 30*time.Second, func() string {
		if n := h.host.Running("dispatch-" + name); n < 2 {
			return fmt.Sprintf("%d invocations are under way: the message has not come back", n)
		}
		return ""
	})
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, 20*time.Second, func() string {
		out, _ := h.host.Log()
		goesOn, again := strings.Contains(out, `"settled":"work_goes_on"`), len(asked) == 1
		if n, posts := h.host.Running("dispatch-"+name), open.Load(); n != 1 || posts != 1 || !goesOn && !again {
			return fmt.Sprintf("%d invocations and %d POSTs are under way, want one of each; the first goes on: %t, again: %t", n, posts, goesOn, again)
		}
		return ""
	})
	goOn()
	next := h.waitState(20*time.Second, name, sent.ID, hook.ID, "delivered")
	h.waitEmpty(10*time.Second, name)
	if next.Charged != 1 || answered.Load() != 1 || h.host.Pid() != pid { // an attempt that was cut is on record, uncharged
		t.Errorf("%d charged attempts, %d answers, process %d is %d", next.Charged, answered.Load(), pid, h.host.Pid())
	}
}

// TestAPumpThatStorageHoldsUpIsAnsweredInTime: a delete that storage refuses goes on after
// the answer, and the host has no reason to kill the process. Later runs see to other queues meanwhile.
func TestAPumpThatStorageHoldsUpIsAnsweredInTime(t *testing.T) {
	t.Parallel()
	proxy := emulator(t).Proxy(t)
	name, other := queueName("held-up"), queueName("beside")
	root := packaged(t)
	quickly(t, root, func(host map[string]any) { host["functionTimeout"] = "00:00:10" })
	h := startHosted(t, root, hosttest.Options{Storage: proxy.ConnectionString()})
	receiver := newAnswering(t)
	hook := h.register(name, receiver.URL, nil)
	beside := h.register(other, receiver.URL, nil)
	id := h.publish(name, "refused")
	pid := h.host.Pid()
	proxy.Fault(azuritetest.Match{Service: "queue", Operation: "delete", Path: "/" + name + "/"}, azuritetest.Throttle())
	if err := h.host.Timer("pump", false); err == nil {
		t.Error("the first pump did not tell that storage holds it up")
	}
	fine := h.publish(other, "fine")
	waitUntil(t, 20*time.Second, func() string {
		if err := h.host.Timer("pump", false); err != nil {
			t.Errorf("a pump beside what is held up: %v", err)
		}
		if posts, _ := receiver.of(fine); len(posts) == 0 {
			return "the other queue's message is not delivered"
		}
		return ""
	})
	h.waitState(10*time.Second, other, fine, beside.ID, "delivered")
	h.waitEmpty(10*time.Second, other)
	proxy.Heal()
	h.waitState(10*time.Second, name, id, hook.ID, "delivered")
	h.waitEmpty(40*time.Second, name)
	if posts, _ := receiver.of(id); len(posts) != 1 {
		t.Errorf("%d POSTs", len(posts))
	}
	if h.host.Pid() != pid {
		t.Error("the handler was killed for storage's fault")
	}
}
