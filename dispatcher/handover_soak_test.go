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

// Two dispatchers are published through while their webhooks come and go, publishers give
// up, records wait for their deletes and storage fails now and then. Each message reaches
// each webhook once, and what was counted for it is given back.
func TestWhatIsHandedOverIsDeliveredOnceAndLeavesNothingBehind(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			inBubble(t, func(b *bench) { soakHandover(b, seed) })
		})
	}
}

func soakHandover(b *bench, seed uint64) {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 2))
	chance := func(p float64) bool {
		mu.Lock()
		defer mu.Unlock()
		return random.Float64() < p
	}
	upTo := func(d time.Duration) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(random.Int64N(int64(d)))
	}
	other := b.register("wh_b", nil)
	accepted := map[string]int{}
	change := func(o *Options) {
		o.Sender = sendWith(func(ctx context.Context, w *webhook.Webhook, r webhook.Request) webhook.Result {
			if chance(0.15) && !retry.Sleep(ctx, upTo(15*time.Second)) {
				return webhook.Result{ErrorClass: string(policy.ClassCanceled)}
			}
			if chance(0.05) {
				return webhook.Result{Status: 500}
			}
			mu.Lock()
			defer mu.Unlock()
			accepted[w.ID+" "+r.MessageID]++
			return webhook.Result{Status: 200}
		})
		o.Lease, o.PollMax, o.Drain, o.Concurrency, o.MaxInFlight = 10*time.Second, 20*time.Second, time.Minute, 3, 3
	}
	rule := func(int) fault {
		switch {
		case chance(0.1):
			return failBefore
		case chance(0.1):
			return answerLost
		}
		return 0
	}
	b.together.on("complete-recorded", rule)
	b.together.before = func(*queue.Message) {
		if chance(0.2) {
			time.Sleep(upTo(4 * time.Second))
		}
	}
	for _, op := range []string{"receive", "abandon"} {
		b.queues.on(op, rule)
	}
	a, stopA := b.start(change)
	c, stopC := b.start(change)
	time.Sleep(time.Second)

	var flapping sync.WaitGroup
	end := time.Now().Add(5 * time.Minute)
	flapping.Go(func() {
		for time.Now().Before(end) {
			time.Sleep(upTo(20 * time.Second))
			other.Enabled = !other.Enabled
			b.webhook.Enabled = chance(0.7)
			other, b.webhook = b.update(other), b.update(b.webhook)
			a.RegistryChanged()
		}
	})
	handed := 0
	var sent []queue.Sent
	for time.Now().Before(end) {
		time.Sleep(upTo(2 * time.Second))
		d := a
		if chance(0.5) {
			d = c
		}
		place := d.Reserve(testQueue)
		if place == nil {
			sent = append(sent, b.send("x"))
			d.Wake(testQueue)
			continue
		}
		if chance(0.1) { // the publisher has gone
			time.Sleep(upTo(2 * time.Second))
			place.Leave()
			continue
		}
		sent = append(sent, b.sendTo(place, "x"))
		if place.Taken() {
			handed++
		} else {
			d.Wake(testQueue)
		}
		place.Leave()
	}
	flapping.Wait()
	if handed < 30 { // most are, where not both webhooks are disabled for long
		b.t.Errorf("%d of %d messages were handed over: the others say nothing", handed, len(sent))
	}
	other.Enabled, b.webhook.Enabled = true, true
	b.update(other)
	b.update(b.webhook)
	time.Sleep(time.Hour)
	want(b.t, "messages left", b.total(testQueue), 0)
	for _, d := range []*Dispatcher{a, c} {
		b.wantIdle(d)
	}
	stopA()
	stopC()
	for _, s := range sent {
		for _, id := range []string{"wh_a", "wh_b"} {
			if n := accepted[id+" "+s.ID]; n != 1 || b.delivery(s, id).State != tables.Delivered {
				b.t.Errorf("message %s reached %s %d times, recorded as %s", s.ID, id, n, b.delivery(s, id).State)
			}
		}
	}
}

// wantIdle fails the test for what is counted although nothing is in work.
func (b *bench) wantIdle(d *Dispatcher) {
	b.t.Helper()
	want(b.t, "in work", d.leases.InWork(), 0)
	wantAtRest(b.t, d)
}

// sendWith makes a Sender of a function that asks for the webhook too.
type sendWith func(ctx context.Context, w *webhook.Webhook, r webhook.Request) webhook.Result

func (f sendWith) Send(ctx context.Context, w *webhook.Webhook, r webhook.Request) webhook.Result {
	start := time.Now()
	res := f(ctx, w, r)
	res.StartedAt, res.Duration = start, time.Since(start)
	return res
}
