package main

import (
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pushlease/pushlease/functions/hosttest"
	"github.com/pushlease/pushlease/queue"
)

// scenario is one message, and what is to become of it in every mode.
type scenario struct {
	name, text    string
	state, reason string
	// attempts are status or error class, decision, reason and delay, of each POST.
	attempts []string
	// body is what the receiver gets; empty means the text.
	body string
}

func scenarios(otherID string) []scenario {
	delivered := []string{"200 complete Delivered"}
	busy := []string{"503 abandon ReceiverBusy 2s", "200 complete Delivered"}
	const foreign = `"id":"11111111-2222-3333-4444-555555555555","popReceipt":"AgAAAAMAAAAAAAAA","dequeueCount":99999,` +
		`"NextVisibleTime":"2001-01-01T00:00:00+00:00","insertionTime":"2001-01-01T00:00:00+00:00","ExpirationTime":"2001-01-01T00:00:00+00:00","sys":{"MethodName":"x"}`
	json := `{"order":1}`
	return []scenario{
		{name: "JSON", text: json, state: "delivered", reason: "Delivered", attempts: delivered},
		{name: "text", text: "SEND ☃ \r\n\t<&>\"'", state: "delivered", reason: "Delivered", attempts: delivered},
		{name: "base64 of JSON", text: base64.StdEncoding.EncodeToString([]byte(json)), body: json, state: "delivered", reason: "Delivered", attempts: delivered},
		{name: "base64 of text", text: base64.StdEncoding.EncodeToString([]byte("just text")), state: "delivered", reason: "Delivered", attempts: delivered},
		{name: "large", text: strings.Repeat("0123456789abcdef", 4<<10), state: "delivered", reason: "Delivered", attempts: delivered},
		{name: "busy", text: `{"say":"busy"}`, state: "delivered", reason: "Delivered", attempts: busy},
		{name: "flaky", text: `"flaky"`, state: "delivered", reason: "Delivered", attempts: []string{"500 abandon RetryableError 1s", delivered[0]}},
		{name: "wrong", text: `{"say":"wrong"}`, state: "dead_lettered", reason: "NonRetryableError", attempts: []string{"400 dead-letter NonRetryableError"}},
		{name: "slow", text: `{"say":"slow"}`, state: "dead_lettered", reason: "MaxDeliveryCountExceeded",
			attempts: []string{"timeout abandon RetryableError 1s", "timeout dead-letter MaxDeliveryCountExceeded"}},
		{name: "hostile", text: "{" + foreign + "}", state: "delivered", reason: "Delivered", attempts: delivered},
		{name: "hostile and busy", text: `{"say":"busy",` + foreign + "}", state: "delivered", reason: "Delivered", attempts: busy},
		{name: "hostile and wrong", text: `{"say":"wrong",` + foreign + "}", state: "dead_lettered", reason: "NonRetryableError",
			attempts: []string{"400 dead-letter NonRetryableError"}},
		{name: "another's id", text: `{"Id":"` + otherID + `","say":"flaky"}`, state: "delivered", reason: "Delivered",
			attempts: []string{"500 abandon RetryableError 1s", delivered[0]}},
	}
}

// ended is what became of one scenario.
type ended struct {
	State, Reason, Body string
	Attempts            []string
	Posts, Delivered    int
	// Early are retries that came sooner than they were to.
	Early bool
}

// TestBothModesDoTheSame sends the same messages to serve and to the custom handler under
// the fake host, and compares records, decisions, delays, POSTs and bodies.
func TestBothModesDoTheSame(t *testing.T) {
	t.Parallel()
	results := map[string]map[string]ended{}
	var mu sync.Mutex
	t.Run("modes", func(t *testing.T) {
		for _, mode := range []string{"serve", "functions"} {
			t.Run(mode, func(t *testing.T) {
				t.Parallel()
				got := play(t, mode)
				mu.Lock()
				defer mu.Unlock()
				results[mode] = got
			})
		}
	})
	if diff := cmp.Diff(results["serve"], results["functions"]); diff != "" {
		t.Errorf("the modes differ (- serve, + functions):\n%s", diff)
	}
}

func play(t *testing.T, mode string) map[string]ended {
	name := queueName("modes")
	var p *process
	if mode == "serve" {
		p = azuriteStore(t).start(t, "PUSHLEASE_LEASE=auto")
	} else {
		root := packaged(t, name)
		quickly(t, root, nil)
		h := startHosted(t, root, hosttest.Options{})
		p = h.process
		defer func() {
			if poisoned := h.host.Poisoned(); len(poisoned) > 0 {
				t.Errorf("the host moved messages away: %v", poisoned)
			}
		}()
	}
	receiver := newAnswering(t)
	hook := p.register(name, receiver.URL, map[string]any{
		"timeout": "1s", "policy": map[string]any{"max_attempts": 2, "backoff": map[string]any{"initial": "1s", "jitter": 0}},
	})
	q := accountQueue(t, name)
	other, err := q.Send(t.Context(), []byte("another"), queue.SendOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]string{}
	all := scenarios(other.ID)
	for _, s := range all {
		sent, err := q.Send(t.Context(), []byte(s.text), queue.SendOptions{})
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		ids[s.name] = sent.ID
	}
	got := map[string]ended{}
	for _, s := range all {
		id := ids[s.name]
		next := p.waitState(30*time.Second, name, id, hook.ID, s.state)
		posts, ok := receiver.of(id)
		got[s.name] = ended{State: next.State, Reason: next.Reason, Posts: len(posts), Delivered: ok, Body: receiver.body(id)}
	}
	p.waitEmpty(15*time.Second, name)
	waitUntil(t, 10*time.Second, func() string { return describeAttempts(p, name, ids, got, all) })
	for _, s := range all {
		g, want := got[s.name], ended{State: s.state, Reason: s.reason, Attempts: s.attempts, Posts: len(s.attempts), Body: s.body}
		if want.Body == "" {
			want.Body = s.text
		}
		if s.state == "delivered" {
			want.Delivered = 1
		}
		if diff := cmp.Diff(want, g); diff != "" {
			t.Errorf("%s (- want, + got):\n%s", s.name, diff)
		}
		g.Body = strings.ReplaceAll(g.Body, other.ID, "another's id")
		got[s.name] = g
	}
	return got
}

// describeAttempts fills in the attempts; the list of them is written in the background.
func describeAttempts(p *process, queueName string, ids map[string]string, got map[string]ended, all []scenario) (missing string) {
	byMessage := map[string][]e2eAttempt{}
	for _, a := range p.attempts(queueName) {
		byMessage[a.MessageID] = append(byMessage[a.MessageID], a)
	}
	for _, s := range all {
		g := got[s.name]
		g.Attempts, g.Early = nil, false
		var due time.Time
		for i, a := range byMessage[ids[s.name]] {
			answer := fmt.Sprint(a.Status)
			if a.Status == 0 {
				answer = a.ErrorClass
			}
			g.Attempts = append(g.Attempts, strings.TrimSpace(strings.Join([]string{answer, a.Action, a.Reason, a.Delay}, " ")))
			g.Early = g.Early || i > 0 && a.StartedAt.Before(due)
			due = a.NextAt
		}
		got[s.name] = g
		if len(g.Attempts) < len(s.attempts) {
			return fmt.Sprintf("%s has %d attempts in the list", s.name, len(g.Attempts))
		}
	}
	return ""
}

func (a *answering) body(id string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.bodies[id]
}
