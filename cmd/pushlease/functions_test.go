package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/functions/hosttest"
)

// answering is a receiver that answers by what the body says, and counts the POSTs.
type answering struct {
	*httptest.Server
	mu     sync.Mutex
	posts  map[string][]time.Time // by webhook-id
	bodies map[string]string
	ok     map[string]int // 2xx given
}

// newAnswering answers with 200 unless the body says otherwise: busy is answered 503
// with Retry-After 2 and flaky 500 the first time, wrong 400, and slow keeps the caller
// waiting.
func newAnswering(t *testing.T) *answering {
	a := &answering{posts: map[string][]time.Time{}, bodies: map[string]string{}, ok: map[string]int{}}
	a.Server = httptest.NewServer(http.HandlerFunc(a.serve))
	t.Cleanup(func() { hangUp(a.Server) })
	return a
}

func (a *answering) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // a caller that has gone is answered nothing
	id, text := r.Header.Get("Webhook-Id"), string(body)
	a.mu.Lock()
	a.posts[id] = append(a.posts[id], time.Now())
	a.bodies[id] = text
	first := len(a.posts[id]) == 1
	a.mu.Unlock()
	switch {
	case strings.Contains(text, "busy") && first:
		w.Header().Set("Retry-After", "2")
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case strings.Contains(text, "flaky") && first:
		w.WriteHeader(http.StatusInternalServerError)
		return
	case strings.Contains(text, "wrong"):
		w.WriteHeader(http.StatusBadRequest)
		return
	case strings.Contains(text, "slow"):
		select {
		case <-time.After(30 * time.Second):
		case <-r.Context().Done():
		}
		return
	}
	a.mu.Lock()
	a.ok[id]++
	a.mu.Unlock()
}

func (a *answering) of(id string) (posts []time.Time, delivered int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]time.Time(nil), a.posts[id]...), a.ok[id]
}

func TestHostedMessagesAreSettledAsOurDecisionSays(t *testing.T) {
	t.Parallel()
	name := queueName("hosted")
	root := unzipped(t, name)
	quickly(t, root, nil)
	h := startHosted(t, root, hosttest.Options{})
	receiver := newAnswering(t)
	hook := h.register(name, receiver.URL, nil)
	ok := h.publish(name, `{"text":"fine"}`)
	busy := h.publish(name, `{"text":"busy"}`)
	wrong := h.publish(name, `{"text":"wrong"}`)
	h.waitState(20*time.Second, name, ok, hook.ID, "delivered")
	h.waitState(20*time.Second, name, wrong, hook.ID, "dead_lettered")
	h.waitState(20*time.Second, name, busy, hook.ID, "delivered")
	h.waitEmpty(10*time.Second, name)
	posts, _ := receiver.of(busy)
	if len(posts) != 2 || posts[1].Sub(posts[0]) < 2*time.Second {
		t.Errorf("the busy receiver was asked at %v: twice, 2s apart, it should be", posts)
	}
	if n := h.host.PassedOver(); n < 1 {
		t.Errorf("%d deletes of the host were passed over: the message was not given back by us", n)
	}
	if poisoned := h.host.Poisoned(); len(poisoned) > 0 {
		t.Errorf("the host moved messages away: %v", poisoned)
	}
	copies, err := accountQueue(t, name+"-poison").Depth(t.Context()) // it is hidden at first
	if err != nil || copies.Total != 1 {
		t.Errorf("%d copies of the dead letter, %v", copies.Total, err)
	}
}
