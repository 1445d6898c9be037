package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue"
)

// inbox is a receiver that keeps what came.
type inbox struct {
	*receiver
	url string

	mu   sync.Mutex
	came []received
}

func newInbox(t *testing.T, opts receiverOptions) *inbox {
	b := &inbox{}
	opts.OnReceived = func(r received) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.came = append(b.came, r)
	}
	if opts.Answer.Status == 0 {
		opts.Answer.Status = http.StatusOK
	}
	b.receiver = newReceiver(opts)
	server := httptest.NewServer(b.receiver)
	t.Cleanup(func() { hangUp(server) })
	b.url = server.URL + "/hook"
	return b
}

func (b *inbox) all() []received {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]received(nil), b.came...)
}

func (b *inbox) wait(t *testing.T, n int) []received {
	t.Helper()
	waitUntil(t, 30*time.Second, func() string {
		if got := len(b.all()); got < n {
			return fmt.Sprintf("%d POSTs, want %d", got, n)
		}
		return ""
	})
	return b.all()
}

func TestMainJobEndToEnd(t *testing.T) {
	onStores(t, func(t *testing.T, s *store) {
		p := s.start(t)
		secret := newHookSecret()
		in := newInbox(t, receiverOptions{Secrets: []string{secret}})
		queue := queueName("walk")
		h := p.register(queue, in.url, map[string]any{"secret": secret, "name": "walk"})

		body := `{"order":1,"text":"` + bodyMark + ` äöü \u0000"}`
		id := p.publish(queue, body)
		got := in.wait(t, 1)[0]
		if string(got.Body) != body || got.Signature != "valid" || got.Queue != queue || got.Attempt != "1" || got.ContentType != "application/json" {
			t.Errorf("received %+v with body %q, want %q", got, got.Body, body)
		}
		p.waitState(10*time.Second, queue, id, h.ID, "delivered")
		p.waitEmpty(10*time.Second, queue)
		tl, err := p.timeline(queue, id)
		if err != nil {
			t.Fatal(err)
		}
		var events []string
		for _, e := range tl.Events {
			events = append(events, e.Event)
		}
		if fmt.Sprint(events) != "[published attempt delivered]" {
			t.Errorf("the timeline is %v", events)
		}
		if s.account != nil {
			enqueueFromOutside(t, s, p, in, queue, h)
		}
		if n := p.metric("pushlease_storage_transactions_total"); n < 4 {
			t.Errorf("%v storage transactions are counted", n)
		}
		if n := len(in.all()); n != in.Totals().IDs {
			t.Errorf("%d POSTs for %d messages", n, in.Totals().IDs)
		}
	})
}

// enqueueFromOutside sends as another program would, with the storage SDK.
func enqueueFromOutside(t *testing.T, s *store, p *process, in *inbox, queue string, h hook) {
	t.Helper()
	client, err := azqueue.NewServiceClientFromConnectionString(s.account.ConnectionString(), nil)
	if err != nil {
		t.Fatal(err)
	}
	document := `{"from":"elsewhere","text":"` + bodyMark + `"}`
	for _, tt := range []struct{ name, text, body, contentType string }{
		{"base64", base64.StdEncoding.EncodeToString([]byte(document)), document, "application/json"},
		{"plain JSON", document, document, "application/json"},
		{"plain text", bodyMark + " <&> SEND", bodyMark + " <&> SEND", "text/plain; charset=utf-8"},
		{"a word that is base64 too", "SEND", "SEND", "text/plain; charset=utf-8"},
	} {
		before := len(in.all())
		sent, err := client.NewQueueClient(queue).EnqueueMessage(context.Background(), tt.text, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := in.wait(t, before+1)[before]
		if string(got.Body) != tt.body || got.Signature != "valid" || got.ContentType != tt.contentType {
			t.Errorf("%s: received %q as %q, %s", tt.name, got.Body, got.ContentType, got.Signature)
		}
		p.waitState(10*time.Second, queue, *sent.Messages[0].MessageID, h.ID, "delivered")
	}
	p.waitEmpty(10*time.Second, queue)
}

// A receiver that takes two leases and a half gets one POST, whoever else is looking.
func TestSlowReceiverGetsOnePost(t *testing.T) {
	onStores(t, func(t *testing.T, s *store) {
		for _, processes := range []int{1, 2} {
			t.Run(fmt.Sprintf("%d processes", processes), func(t *testing.T) {
				t.Parallel()
				// A store of its own: the other subtest's process would take part too.
				own := sqliteStore
				if s.account != nil {
					own = azuriteStore
				}
				s := own(t)
				var all []*process
				for range processes {
					all = append(all, s.start(t, "PUSHLEASE_LEASE=4s"))
				}
				in := newInbox(t, receiverOptions{Answer: reply{Status: 200, Delay: 10 * time.Second}})
				queue := queueName("slow")
				h := all[0].register(queue, in.url, nil)
				id := all[0].publish(queue, `{"text":"`+bodyMark+`"}`)
				next := all[0].waitState(30*time.Second, queue, id, h.ID, "delivered")
				all[0].waitEmpty(10*time.Second, queue)
				if n := len(in.all()); n != 1 {
					t.Errorf("%d POSTs, want 1", n)
				}
				if next.Attempts != 1 || next.Charged != 1 {
					t.Errorf("the record is %+v", next)
				}
				renewals, lost := 0.0, 0.0
				for _, p := range all {
					renewals += p.metric("pushlease_lease_renewals_total", `queue="`+queue+`"`, `result="renewed"`)
					lost += p.metric("pushlease_lease_lost_total", `queue="`+queue+`"`)
				}
				if renewals < 4 || lost != 0 {
					t.Errorf("%v renewals and %v lost leases, want at least 4 and none", renewals, lost)
				}
			})
		}
	})
}

// What two processes share is not sent twice, and both take their part.
func TestTwoProcessesShareAQueue(t *testing.T) {
	onStores(t, func(t *testing.T, s *store) {
		a, b := s.start(t, "PUSHLEASE_CONCURRENCY=4"), s.start(t, "PUSHLEASE_CONCURRENCY=4")
		in := newInbox(t, receiverOptions{Answer: reply{Status: 200, Delay: 200 * time.Millisecond}})
		queue := queueName("shared")
		a.register(queue, in.url, nil)
		a.waitPolling(queue)
		b.waitPolling(queue)
		const messages = 60
		a.publishMany(queue, messages)
		in.wait(t, messages)
		a.waitEmpty(20*time.Second, queue)
		if got := in.Totals(); got.Requests != messages || got.IDs != messages {
			t.Errorf("%d POSTs of %d messages, want one of each of %d", got.Requests, got.IDs, messages)
		}
		for i, p := range []*process{a, b} {
			if p.metric("pushlease_messages_received_total", `queue="`+queue+`"`) == 0 {
				t.Errorf("process %d received nothing", i+1)
			}
		}
	})
}

// waitPolling waits until the process receives from the queue.
func (p *process) waitPolling(queue string) {
	p.t.Helper()
	waitUntil(p.t, 20*time.Second, func() string {
		var q struct{ Poller *struct{ Polling bool } }
		p.call(http.MethodGet, "/api/v1/queues/"+queue, "", http.StatusOK, &q)
		if q.Poller != nil && q.Poller.Polling {
			return ""
		}
		return "the queue is not polled"
	})
}
