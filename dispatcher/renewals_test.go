package dispatcher

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/webhook"
)

// Many leases are kept at a time, each by its own half, and none of them has a goroutine
// while it waits: the handler of a message is all there is of it.
func TestLeasesAreKeptByOneClock(t *testing.T) {
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
		d.renewals.mu.Lock()
		kept := len(d.renewals.next)
		d.renewals.mu.Unlock()
		if kept < messages/2 {
			t.Errorf("%d leases are kept of %d messages", kept, messages)
		}
		if n := handling(); n != kept {
			t.Errorf("%d goroutines handle %d messages", n, kept)
		}
		time.Sleep(4 * time.Minute)
		want(t, "messages left", b.total(testQueue), 0)
		want(t, "leases still kept", len(d.renewals.next), 0)
		stop()
		mu.Lock()
		defer mu.Unlock()
		if n := b.queues.count("renew"); n < renewals-messages/10 || n > renewals+messages/10 {
			t.Errorf("%d renewals, want about %d", n, renewals)
		}
	})
}

// Keepers act in the order of their times, whichever come and go meanwhile.
func TestRenewalsKeepTheirOrder(t *testing.T) {
	inBubble(t, func(b *bench) {
		d, err := New(b.options(nil))
		if err != nil {
			t.Fatal(err)
		}
		random := rand.New(rand.NewPCG(3, 4))
		var kept []*keeper
		for range 500 {
			k := &keeper{d: d, q: b.queue(testQueue), m: &queue.Message{Lease: queue.NewLease("gone", time.Now(), time.Minute)}, index: -1, quit: make(chan struct{}), losing: "gone"}
			k.cancel = func(error) {}
			d.renewals.add(k, time.Now().Add(time.Duration(random.Int64N(int64(time.Minute)))))
			kept = append(kept, k)
			if random.IntN(3) == 0 {
				i := random.IntN(len(kept))
				kept[i].stop()
				kept = append(kept[:i], kept[i+1:]...)
			}
			time.Sleep(time.Duration(random.Int64N(int64(100 * time.Millisecond))))
			now := time.Now()
			for _, k := range kept { // what is due has acted, which here means that it was lost
				if due := !k.at.After(now); due != k.isLost() && !k.at.Equal(now) {
					t.Fatalf("a keeper that is due in %s: acted %t", k.at.Sub(now), k.isLost())
				}
			}
		}
		for _, k := range kept {
			k.stop()
		}
		want(t, "keepers left", len(d.renewals.next), 0)
		d.stopWrite()
	})
}
