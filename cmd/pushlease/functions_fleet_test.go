package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushlease/pushlease/functions/hosttest"
	"github.com/pushlease/pushlease/internal/azuritetest"
	"github.com/pushlease/pushlease/queue"
)

// TestAnOrphanFinishesWhatItHasAndEnds: a host that is killed, or interrupted with a long POST
// under way, leaves the handler behind and tells it nothing (C101); and nobody reads any more what
// that logs.
func TestAnOrphanFinishesWhatItHasAndEnds(t *testing.T) {
	t.Parallel()
	for how, end := range map[string]func(*hosttest.Host) <-chan struct{}{
		"killed": (*hosttest.Host).Vanish, "interrupted": (*hosttest.Host).Interrupt,
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			name := queueName("orphan")
			root := packaged(t, name)
			quickly(t, root, nil)
			h := startHosted(t, root, hosttest.Options{})
			began, release := make(chan struct{}), make(chan struct{})
			goOn := sync.OnceFunc(func() { close(release) })
			receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				close(began)
				<-release
			}))
			defer receiver.Close()
			defer goOn() // before that: Close waits for what is under way
			h.register(name, receiver.URL, nil)
			q := accountQueue(t, name)
			if _, err := q.Send(t.Context(), []byte("long"), queue.SendOptions{}); err != nil {
				t.Fatal(err)
			}
			<-began
			orphan := end(h.host)
			waitUntil(t, 10*time.Second, func() string {
				if resp, err := e2eClient.Get("http://" + h.host.Address() + "/"); err == nil {
					_ = resp.Body.Close()
					return "the orphan still listens"
				}
				return ""
			})
			select {
			case <-orphan:
				t.Error("the orphan ended with its POST under way")
			default:
			}
			goOn() // a second POST would close began again, and panic
			select {
			case <-orphan:
			case <-time.After(20 * time.Second):
				t.Fatal("the orphan goes on")
			}
			waitUntil(t, 10*time.Second, func() string {
				if depth, err := q.Depth(t.Context()); err != nil || depth.Total != 0 {
					return fmt.Sprintf("%d messages are left, %v", depth.Total, err)
				}
				return ""
			})
		})
	}
}

// TestAFleetThatLosesAnInstanceDeliversEverythingSoon: two instances share 600 messages, and one
// of them goes while each of its invocations is at its POST. What it had in hand is POSTed by the other
// one within 90 s, and only a kill can make a second POST. What a host has received and its handler
// not yet taken over is not in hand: that lease is the host's, of 10 minutes.
func TestAFleetThatLosesAnInstanceDeliversEverythingSoon(t *testing.T) {
	t.Parallel()
	// A host that runs more than 16 invocations receives nothing, and one that runs fewer takes up to 8 more.
	const before, after, fewest, inHand, soon = 200, 400, 17, 24, 90 * time.Second
	ways := map[string]struct {
		end   func(*hosttest.Host)
		twice int // messages that may be
	}{
		"SIGKILL for both":     {(*hosttest.Host).Stop, inHand},
		"SIGKILL for the host": {func(h *hosttest.Host) { <-h.Vanish() }, 0},
		"SIGINT":               {func(h *hosttest.Host) { <-h.Interrupt() }, 0},
		"drain":                {(*hosttest.Host).Drain, 0},
	}
	for how, way := range ways { // one after the other: the emulator is one for all
		t.Run(how, func(t *testing.T) {
			name := queueName("fleet")
			root := packaged(t, name)
			quickly(t, root, nil)
			prefix := "PUSHLEASE_TABLE_PREFIX=" + azuritetest.Name("fleet")
			first := startHosted(t, root, hosttest.Options{}, prefix)
			second := startHosted(t, root, hosttest.Options{}, prefix)
			receiver := newAnswering(t)
			var slow, begun atomic.Int64
			lost := make(chan struct{}) // what has begun by then stays under way until then
			goOn := sync.OnceFunc(func() { close(lost) })
			slower := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if slow.Load() > 0 {
					begun.Add(1)
					<-lost
				}
				receiver.serve(w, r)
			}))
			t.Cleanup(slower.Close)
			t.Cleanup(goOn) // before that: Close waits for what is under way
			second.register(name, slower.URL, map[string]any{"timeout": "3m", "flow": map[string]any{"adaptive": false}})
			ids := map[string]string{}
			send := func(count int) {
				from := len(ids)
				maps.Copy(ids, sendAll(t, accountQueue(t, name), count, func(i int) string { return fmt.Sprintf(`{"n":%d}`, from+i) }))
			}
			send(before)
			second.waitEmpty(time.Minute, name)
			slow.Add(1)
			send(after)
			waitUntil(t, time.Minute, func() string {
				here, there := first.host.Running("dispatch-"+name), second.host.Running("dispatch-"+name)
				if n := int(begun.Load()); min(here, there) < fewest || n != here+there {
					return fmt.Sprintf("%d POSTs under way, %d and %d invocations", n, here, there)
				}
				return ""
			})
			gone := time.Now()
			if way.twice > 0 {
				way.end(first.host)
				goOn()
			} else { // the host waits for its invocations, or leaves a handler that does
				ended := make(chan struct{})
				go func() { way.end(first.host); close(ended) }()
				waitUntil(t, 10*time.Second, func() string {
					if !first.host.Stopping() {
						return "the host takes new messages"
					}
					return ""
				})
				goOn()
				<-ended
			}
			if how == "drain" { // requests are still passed on
				first.call(http.MethodGet, "/api/v1/queues/"+name, "", http.StatusOK, nil)
			}
			second.waitEmpty(2*time.Minute, name)
			twice, latest := 0, time.Duration(0)
			for id, text := range ids {
				posts, delivered := receiver.of(id)
				if delivered == 0 {
					t.Errorf("%s was not delivered", text)
					continue
				}
				latest = max(latest, posts[len(posts)-1].Sub(gone))
				if delivered > 1 {
					twice++
				}
			}
			if latest > soon || twice > way.twice {
				t.Errorf("the last POST came %s after the loss, want %s at most; %d messages were delivered twice, want %d at most", latest, soon, twice, way.twice)
			}
			t.Logf("the last POST came %s after the loss; %d delivered twice", latest.Round(time.Millisecond), twice)
		})
	}
}

// TestARestartInsideTheHostCutsNothing: two handlers run side by side for a while.
func TestARestartInsideTheHostCutsNothing(t *testing.T) {
	t.Parallel()
	name := queueName("inside")
	root := packaged(t, name)
	quickly(t, root, nil)
	h := startHosted(t, root, hosttest.Options{})
	receiver := newAnswering(t)
	began, release := make(chan struct{}), make(chan struct{})
	var posts atomic.Int64
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if posts.Add(1) == 1 {
			close(began)
			<-release
		}
		receiver.serve(w, r)
	}))
	t.Cleanup(slow.Close)
	hook := h.register(name, slow.URL, nil)
	long, pid := h.publish(name, "long"), h.host.Pid()
	<-began
	restarted := make(chan struct{})
	go func() { h.host.RestartInside(); close(restarted) }()
	waitUntil(t, 20*time.Second, func() string {
		if h.host.Pid() == pid || len(h.host.StartTimes()) < 2 {
			return "there is no second handler"
		}
		return ""
	})
	h.waitState(20*time.Second, name, h.publish(name, "beside it"), hook.ID, "delivered")
	close(release)
	<-restarted
	h.waitState(20*time.Second, name, long, hook.ID, "delivered")
	h.waitEmpty(20*time.Second, name)
	if _, delivered := receiver.of(long); delivered != 1 || posts.Load() != 2 {
		t.Errorf("%d POSTs of two messages", posts.Load())
	}
}

// TestWhatIsNoInvocationOfTheHostIsRefused: each has a clear answer, nothing is POSTed, and real
// messages go on.
func TestWhatIsNoInvocationOfTheHostIsRefused(t *testing.T) {
	t.Parallel()
	name := queueName("refused")
	root := packaged(t, name)
	quickly(t, root, nil)
	h := startHosted(t, root, hosttest.Options{})
	receiver := newAnswering(t)
	hook := h.register(name, receiver.URL, nil)
	const id, other = "11111111-2222-3333-4444-555555555555", "99999999-2222-3333-4444-555555555555"
	waiting := h.publish(name, `{"say":"busy"}`) // it has an id that storage knows, and waits
	waitUntil(t, 10*time.Second, func() string {
		if receiver.total() == 0 {
			return "the first POST has not come"
		}
		return ""
	})
	before := receiver.total()
	invocation := func(data, messageID string) string {
		return `{"Data":{"message":` + data + `},"Metadata":{"Id":"\"` + messageID + `\"","PopReceipt":"\"AgAAAAMAAAAAAAAA\"","DequeueCount":"1","InsertionTime":"2026-01-01T00:00:00+00:00","ExpirationTime":"9999-12-31T23:59:59+00:00"}}`
	}
	fine := invocation(`"eA=="`, id)
	for what, tt := range map[string]struct {
		method, path, body string
		header             map[string][]string
		whole              bool // its length is said, and it is not sent in chunks
		status             int
	}{
		"an id that is nobody's":            {body: fine, status: 500},
		"a receipt that is not ours":        {body: invocation(`"eA=="`, waiting), status: 500},
		"an id that is none":                {body: invocation(`"eA=="`, "../x"), status: 500},
		"no id in Metadata":                 {body: `{"Data":{"message":"eA=="},"Metadata":{}}`, status: 500},
		"no message":                        {body: `{"Data":{},"Metadata":{}}`, status: 500},
		"invalid base64":                    {body: invocation(`"no base64!"`, id), status: 500},
		"no JSON":                           {body: `<xml/>`, status: 400},
		"nothing":                           {body: ``, status: 400},
		"10 MB of JSON":                     {body: invocation(`"`+strings.Repeat("eA==", 10<<18)+`"`, id), status: 400},
		"a function that is not packaged":   {path: "/dispatch-other", body: fine, status: 404},
		"the HTTP function":                 {path: "/api", body: fine, status: 404},
		"GET":                               {method: "GET", status: 403},
		"not in chunks":                     {body: fine, whole: true, status: 403},
		"no invocation id":                  {body: fine, header: map[string][]string{"X-Azure-Functions-Invocationid": nil}, status: 403},
		"an invocation id twice":            {body: fine, header: map[string][]string{"X-Azure-Functions-Invocationid": {id, id}}, status: 403},
		"a client's id before the host's":   {body: fine, header: map[string][]string{"X-Azure-Functions-Invocationid": {"mine, " + other}}, status: 403},
		"passed on by the host's proxy":     {body: fine, header: map[string][]string{"X-Ms-Invocation-Id": {id}}, status: 403},
		"passed on by a proxy":              {body: fine, header: map[string][]string{"X-Forwarded-For": {"1.2.3.4"}}, status: 403},
		"addressed to the app from outside": {body: fine, header: map[string][]string{"Host": {"my-app.azurewebsites.net"}}, status: 403},
	} {
		method, path := cmp.Or(tt.method, http.MethodPost), cmp.Or(tt.path, "/dispatch-"+name)
		var body io.Reader = strings.NewReader(tt.body)
		if !tt.whole {
			body = io.MultiReader(body)
		}
		req, err := http.NewRequest(method, "http://"+h.host.Address()+path, body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json; charset=utf-8")
		req.Header["X-Azure-Functions-Invocationid"] = []string{id}
		for k, v := range tt.header {
			req.Header[k] = v
		}
		if host := req.Header.Get("Host"); host != "" {
			req.Host = host
		}
		resp, err := e2eClient.Do(req)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		answer, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != tt.status || string(answer) != `{"Outputs":{},"Logs":[],"ReturnValue":null}` {
			t.Errorf("%s: %d %s, want %d", what, resp.StatusCode, answer, tt.status)
		}
	}
	if n := receiver.total(); n != before && n != before+1 { // the busy one's own second POST
		t.Errorf("%d POSTs, of which %d are the busy one's", n, before)
	}
	h.waitState(20*time.Second, name, waiting, hook.ID, "delivered")
	for _, body := range []string{"", strings.Repeat("0123456789abcdef", 4<<10)} {
		sent, err := accountQueue(t, name).Send(t.Context(), []byte(body), queue.SendOptions{})
		if err != nil {
			t.Fatal(err)
		}
		h.waitState(20*time.Second, name, sent.ID, hook.ID, "delivered")
		if got := receiver.body(sent.ID); got != body {
			t.Errorf("a message of %d bytes came as one of %d", len(body), len(got))
		}
	}
	h.waitEmpty(10*time.Second, name)
}

// TestWhatAHostedMessageCosts: the take-over, our delete and the host's, beside what serve needs.
func TestWhatAHostedMessageCosts(t *testing.T) {
	t.Parallel()
	const messages = 48
	proxy := emulator(t).Proxy(t)
	name := queueName("costs")
	root := packaged(t, name)
	quickly(t, root, nil)
	h := startHosted(t, root, hosttest.Options{Storage: proxy.ConnectionString()}, "PUSHLEASE_LEASE=10m") // no renewals
	receiver := newAnswering(t)
	hook := h.register(name, receiver.URL, nil)
	h.waitState(10*time.Second, name, h.publish(name, "first"), hook.ID, "delivered") // all is known from here on
	updates, deletes, batches := proxy.Count("queue", "update"), proxy.Count("queue", "delete"), proxy.Count("table", "batch")
	passed := h.host.PassedOver()
	sendAll(t, accountQueue(t, name), messages, func(i int) string { return fmt.Sprintf(`{"n":%d}`, i) })
	h.waitEmpty(time.Minute, name)
	waitUntil(t, 10*time.Second, func() string {
		if n := h.host.PassedOver() - passed; n < messages {
			return fmt.Sprintf("%d deletes of the host have failed", n)
		}
		return ""
	})
	updates, deletes = proxy.Count("queue", "update")-updates, proxy.Count("queue", "delete")-deletes
	if updates != messages || deletes < 2*messages || deletes > 2*messages+1 { // the first one's by the host may come late
		t.Errorf("%d updates and %d deletes for %d messages, want one and two for each", updates, deletes, messages)
	}
	t.Logf("%d messages: %d updates, %d deletes, %d table transactions", messages, updates, deletes, proxy.Count("table", "batch")-batches)
}
