package dispatcher

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/webhook"
)

// Many leases are kept at a time, each by its own half, and none of them has a goroutine
// while it waits: the handler of a message is all there is of it.
func TestLeasesThatWaitHaveNoGoroutine(t *testing.T) {
	inBubble(t, func(b *bench) {
		const messages, lease = 100, 10 * time.Second
		seed := rand.New(rand.NewPCG(1, 2))
		var mu sync.Mutex
		renewals := 0
		sender := senderFunc(func(ctx context.Context, _ webhook.Request) webhook.Result {
			mu.Lock()
			takes := time.Duration(seed.Int64N(int64(2 * time.Minute)))
			renewals += int(takes / (lease / 2))
			mu.Unlock()
			retry.Sleep(ctx, takes)
			return webhook.Result{Status: 200}
		})
		d, stop := b.start(func(o *Options) { o.Sender, o.Lease, o.Concurrency, o.Drain = sender, lease, messages, 5*time.Minute })
		for range messages {
			b.send("x")
		}
		time.Sleep(4500 * time.Millisecond)
		kept := d.leases.InWork()
		if kept < messages/2 {
			t.Errorf("%d leases are kept of %d messages", kept, messages)
		}
		if n := handling(); n != kept {
			t.Errorf("%d goroutines handle %d messages", n, kept)
		}
		time.Sleep(4 * time.Minute)
		want(t, "messages left", b.total(testQueue), 0)
		want(t, "messages still in work", d.leases.InWork(), 0)
		stop()
		mu.Lock()
		defer mu.Unlock()
		if n := b.queues.count("renew"); n < renewals-messages/10 || n > renewals+messages/10 {
			t.Errorf("%d renewals, want about %d", n, renewals)
		}
	})
}
