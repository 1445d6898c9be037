package dispatcher

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

// TestNothingIsLostOrDoubledUnderStorageFaults lets two dispatchers work on one store
// while every storage call fails now and then, in both ways: before it took effect,
// and with only its answer lost. Receivers answer at random and take their time.
// Whatever happens, no process dies here, so every message is delivered exactly once
// or is exactly one dead letter, and attempts never exceed the maximum.
func TestNothingIsLostOrDoubledUnderStorageFaults(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			inBubble(t, func(b *bench) { soak(b, seed) })
		})
	}
}

const (
	soakMessages = 25
	soakAttempts = 4
)

func soak(b *bench, seed uint64) {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 1))
	chance := func(p float64) bool {
		mu.Lock()
		defer mu.Unlock()
		return random.Float64() < p
	}
	b.webhook.Policy.MaxAttempts = soakAttempts
	b.update(b.webhook)
	ends := watch(b)
	accepted := map[string]int{}
	sender := senderFunc(func(ctx context.Context, r webhook.Request) webhook.Result {
		takes := time.Duration(0)
		switch {
		case chance(0.15):
			takes = 25 * time.Second // longer than two leases
		case chance(0.5):
			takes = 2 * time.Second
		}
		if !retry.Sleep(ctx, takes) {
			return webhook.Result{ErrorClass: string(policy.ClassCanceled)}
		}
		switch {
		case chance(0.4):
			mu.Lock()
			accepted[r.MessageID]++
			mu.Unlock()
			return webhook.Result{Status: 200}
		case chance(0.1):
			return webhook.Result{Status: 400}
		case chance(0.2):
			return webhook.Result{Status: 503, RetryAfter: "7"}
		}
		return webhook.Result{Status: 500}
	})
	rule := func(int) fault {
		switch {
		case chance(0.08):
			return failBefore
		case chance(0.08):
			return answerLost
		}
		return 0
	}
	for _, op := range []string{"receive", "renew", "complete", "abandon", "send"} {
		b.queues.on(op, rule)
	}
	for _, op := range []string{"load", "record", "list-webhooks", "put-dead-letter", "update-dead-letter"} {
		b.store.on(op, rule)
	}
	var sent []queue.Sent
	for i := range soakMessages {
		sent = append(sent, b.send(fmt.Sprintf(`{"n":%d}`, i)))
	}
	change := func(o *Options) {
		o.Sender, o.Lease, o.PollMax, o.Drain = sender, 10*time.Second, 5*time.Second, time.Minute
	}
	_, stopA := b.start(change)
	_, stopB := b.start(change)
	time.Sleep(30 * time.Minute)
	stopA()
	stopB()

	want(b.t, "messages left", b.total(testQueue), 0)
	if ends.n < soakMessages {
		b.t.Errorf("%d ends of deliveries seen, want one of each message at least", ends.n)
	}
	dead := map[string]int{}
	for _, dl := range b.deadLetters() {
		dead[dl.MessageID]++
	}
	for _, s := range sent {
		del := b.delivery(s, "wh_a")
		if accepted[s.ID]+dead[s.ID] != 1 {
			b.t.Errorf("message %s: accepted %d times, %d dead letters, recorded as %s (%s)", s.ID, accepted[s.ID], dead[s.ID], del.State, del.Reason)
		}
		if state := del.State; state != tables.Delivered && state != tables.DeadLettered {
			b.t.Errorf("message %s ended as %q", s.ID, state)
		}
		if del.Charged > soakAttempts {
			b.t.Errorf("message %s: %d charged attempts, at most %d", s.ID, del.Charged, soakAttempts)
		}
		for _, a := range b.attempts(s) {
			if a.Action == policy.Abandon && a.NextAt.Before(a.StartedAt) {
				b.t.Errorf("message %s: attempt %d is followed by one in the past", s.ID, a.Number)
			}
		}
	}
}

// senderFunc makes a Sender of a function; it stops when ctx ends, as the real one.
type senderFunc func(ctx context.Context, r webhook.Request) webhook.Result

func (f senderFunc) Send(ctx context.Context, _ *webhook.Webhook, r webhook.Request) webhook.Result {
	start := time.Now()
	res := f(ctx, r)
	res.StartedAt, res.Duration = start, time.Since(start)
	return res
}
