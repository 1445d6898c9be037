package main

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
)

// A webhook that is no good takes nothing from another. All of A's messages are delivered
// while each B still hangs, or goes on asking for time, and nothing of B is given up. How
// fast A is beside B and alone is printed and not judged: docs/performance.md has figures
// of a quiet machine.
func TestHangingWebhookDoesNotHoldUpItsNeighbour(t *testing.T) {
	const messages = 200
	hangs := after(time.Hour, http.StatusOK) // longer than its deadline, and that longer than the test
	asksForTime := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "20")
		w.WriteHeader(http.StatusTooManyRequests)
	}
	for _, tt := range []struct {
		name string
		b    http.HandlerFunc
		// queues is how many have a B, and quick how many good webhooks are beside it.
		queues, quick int
		// same is whether A is on the queue of B.
		same bool
	}{
		{"hanging on the same queue", hangs, 1, 0, true},
		{"hanging on its own queue", hangs, 1, 0, false},
		{"hanging among others on many queues", hangs, 5, 3, false},
		{"429 with Retry-After on the same queue", asksForTime, 1, 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := sqliteStore(t).start(t)
			alone := p.measure(t, queueName("alone"), messages)
			var bad, quick []*scripted
			var queues []string
			for range tt.queues {
				queue := queueName("beside")
				b := newScripted(t, tt.b)
				p.register(queue, b.url, map[string]any{"timeout": "10m"})
				for range tt.quick {
					in := newScripted(t, after(20*time.Millisecond, http.StatusOK))
					p.register(queue, in.url, nil)
					quick = append(quick, in)
				}
				p.waitPolling(queue)
				p.publish(queue, fmt.Sprintf(`{"text":%q}`, bodyMark))
				bad, queues = append(bad, b), append(queues, queue)
			}
			for _, b := range bad {
				b.waitPosts(t, 1)
			}
			queue := queueName("own")
			if tt.same {
				queue = queues[0]
			}
			beside := p.measure(t, queue, messages)

			t.Logf("A alone: %.0f/s, p99 %s; beside B: %.0f/s, p99 %s: %.0f %% of the rate, %.2f times the p99",
				alone.perSecond, alone.p99.Round(time.Millisecond), beside.perSecond, beside.p99.Round(time.Millisecond),
				100*beside.perSecond/alone.perSecond, beside.p99.Seconds()/alone.p99.Seconds())
			for _, in := range quick {
				in.waitDelivered(t, 1, time.Minute)
			}
			for i, b := range bad {
				b.mu.Lock()
				if len(b.done) > 0 || b.most > policy.WindowStart {
					t.Errorf("B got %d POSTs, %d at once, of which %d were answered 2xx; want at most %d at once and none", len(b.at), b.most, len(b.done), policy.WindowStart)
				}
				b.mu.Unlock()
				p.expectNoDeadLetters(queues[i])
			}
		})
	}
}

// measured is how fast a webhook got its messages.
type measured struct {
	perSecond float64
	p99       time.Duration
}

// measure registers A, which takes 20 ms, and delivers messages to it, once each.
func (p *process) measure(t *testing.T, queue string, messages int) measured {
	t.Helper()
	a := newScripted(t, after(20*time.Millisecond, http.StatusOK))
	h := p.register(queue, a.url, nil)
	p.waitStatus(10*time.Second, h.ID, "healthy")
	p.waitPolling(queue)
	ids := p.publishEach(queue, messages, func(int) string {
		return fmt.Sprintf(`{"At":%q,"text":%q}`, time.Now().Format(time.RFC3339Nano), bodyMark)
	})
	a.waitDelivered(t, messages, 2*time.Minute)
	a.mu.Lock()
	for _, id := range ids {
		if _, ok := a.ok[id]; !ok {
			t.Errorf("A did not get message %s", id)
		}
	}
	if len(a.done) != len(a.ok) {
		t.Errorf("A answered 2xx %d times for %d messages", len(a.done), len(a.ok))
	}
	a.mu.Unlock()
	perSecond, p99 := a.figures()
	return measured{perSecond, p99}
}

// waitPosts waits for n POSTs, whatever became of them.
func (rc *scripted) waitPosts(t *testing.T, n int) {
	t.Helper()
	waitUntil(t, time.Minute, func() string {
		if posts, _ := rc.counts(); posts < n {
			return fmt.Sprintf("%d POSTs, want %d", posts, n)
		}
		return ""
	})
}
