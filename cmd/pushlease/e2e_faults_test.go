package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/azuritetest"
)

// every makes each n-th of the next calls of an operation fail.
func every(proxy *azuritetest.Proxy, n int, m azuritetest.Match, f azuritetest.Fault) {
	for call := n; call <= 60*n; call += n {
		m.From, m.To = call, call
		proxy.Fault(m, f)
	}
}

// Lost answers, cut connections, throttling and late answers of storage, all at
// once: every message is POSTed once, and every record is there.
func TestFlakyStoreCostsNothing(t *testing.T) {
	t.Parallel()
	s := faultyStore(t)
	p := s.start(t, "PUSHLEASE_LEASE=3s")
	in := newInbox(t, receiverOptions{Answer: reply{Status: 200, Delay: 20 * time.Millisecond}})
	queue := queueName("flaky")
	h := p.register(queue, in.url, map[string]any{"enabled": false})
	ids := p.publishMany(queue, 150)
	queues, tables := func(operation string) azuritetest.Match {
		return azuritetest.Match{Service: "queue", Operation: operation}
	}, azuritetest.Match{Service: "table"}
	every(s.proxy, 3, queues("receive"), azuritetest.FailAfter())
	every(s.proxy, 4, queues("receive"), azuritetest.Throttle())
	every(s.proxy, 5, queues("delete"), azuritetest.FailAfter())
	every(s.proxy, 7, queues("delete"), azuritetest.CutBefore())
	every(s.proxy, 6, queues("update"), azuritetest.Throttle())
	every(s.proxy, 6, tables, azuritetest.FailAfter())
	every(s.proxy, 7, tables, azuritetest.CutBefore())
	every(s.proxy, 11, tables, azuritetest.Throttle())
	every(s.proxy, 13, tables, azuritetest.Late(300*time.Millisecond))
	waitUntil(t, 20*time.Second, func() string {
		a, err := p.try(http.MethodPost, "/api/v1/webhooks/"+h.ID+"/enable", "", "")
		if err != nil || a.status != http.StatusOK {
			return fmt.Sprintf("enable: %v %d", err, a.status)
		}
		return ""
	})
	waitUntil(t, time.Minute, func() string {
		if got := in.Totals(); got.IDs < len(ids) {
			return fmt.Sprintf("%d of %d messages were POSTed", got.IDs, len(ids))
		}
		return ""
	})
	s.proxy.Heal()
	p.waitEmpty(30*time.Second, queue)
	if got := in.Totals(); got.Requests != len(ids) {
		t.Errorf("%d POSTs of %d messages", got.Requests, len(ids))
	}
	for _, id := range ids {
		if next := p.waitState(20*time.Second, queue, id, h.ID, "delivered"); next.Attempts != 1 || next.Charged != 1 {
			t.Errorf("the record of %s is %+v", id, next)
		}
	}
}

// Killed while it retries and dead-letters, the program keeps count: every message
// ends as one dead letter, after the attempts that its policy allows.
func TestKilledProcessDeadLettersOnce(t *testing.T) {
	onStores(t, func(t *testing.T, s *store) {
		messages, kills := 200, 8
		if s.account != nil {
			messages, kills = 60, 3
		}
		settings := []string{"PUSHLEASE_LEASE=2s", "PUSHLEASE_CONCURRENCY=8"}
		p := s.start(t, settings...)
		in := newRefuser(t)
		queue := queueName("refused")
		h := p.register(queue, in.url, map[string]any{
			"enabled": false, "policy": map[string]any{"max_attempts": 2, "backoff": map[string]any{"initial": "1s", "jitter": 0}}})
		ids := p.publishMany(queue, messages)
		p.call(http.MethodPost, "/api/v1/webhooks/"+h.ID+"/enable", "", http.StatusOK, nil)
		for k := 1; k <= kills; k++ {
			in.waitPosts(t, k*messages*2*8/10/kills)
			p.kill()
			p = s.start(t, settings...)
		}
		p.waitEmpty(time.Minute, queue)
		again := 0
		for _, id := range ids {
			next := p.waitState(time.Second, queue, id, h.ID, "dead_lettered")
			if next.Charged != 2 || next.Reason != "MaxDeliveryCountExceeded" {
				t.Errorf("message %s ended as %+v", id, next)
			}
			again += in.posts(id) - 2
		}
		if again < 0 || again > kills*8 {
			t.Errorf("%d POSTs beyond two for each message: the kills explain at most %d", again, kills*8)
		}
		var list struct {
			Data []struct {
				MessageID string `json:"message_id"`
			}
		}
		p.call(http.MethodGet, "/api/v1/dead-letters?limit=500&queue="+queue, "", http.StatusOK, &list)
		if len(list.Data) != messages {
			t.Errorf("%d dead letters of %d messages", len(list.Data), messages)
		}
		copies := p.depth(queue + "-poison")
		t.Logf("%d messages, %d kills: %d POSTs more, %d copies", messages, kills, again, copies)
		if copies < messages || copies > messages+kills*8 {
			t.Errorf("%d copies in the poison queue", copies)
		}
	})
}

func (p *process) depth(queue string) int {
	p.t.Helper()
	var q struct {
		Depth struct{ Total int } `json:"depth"`
	}
	p.call(http.MethodGet, "/api/v1/queues/"+queue, "", http.StatusOK, &q)
	return q.Depth.Total
}

// refuser answers everything with 500 and counts.
type refuser struct {
	url string

	mu    sync.Mutex
	byID  map[string]int
	total int
}

func newRefuser(t *testing.T) *refuser {
	r := &refuser{byID: map[string]int{}}
	server := httptest.NewServer(r)
	t.Cleanup(func() { hangUp(server) })
	r.url = server.URL + "/hook"
	return r
}

func (r *refuser) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byID[req.Header.Get("webhook-id")]++
	r.total++
	w.WriteHeader(http.StatusInternalServerError)
}

func (r *refuser) posts(id string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byID[id]
}

func (r *refuser) waitPosts(t *testing.T, n int) {
	t.Helper()
	waitUntil(t, time.Minute, func() string {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.total < n {
			return fmt.Sprintf("%d POSTs, want %d", r.total, n)
		}
		return ""
	})
}
