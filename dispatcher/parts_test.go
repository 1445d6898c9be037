package dispatcher

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/webhook"
)

// throng are the receivers of many webhooks, each of which takes a while.
type throng struct {
	takes time.Duration
	mu    sync.Mutex
	now   int
	most  int
	posts map[string]int
}

func (c *throng) Send(ctx context.Context, w *webhook.Webhook, _ webhook.Request) webhook.Result {
	c.mu.Lock()
	c.now++
	c.most = max(c.most, c.now)
	c.posts[w.ID]++
	c.mu.Unlock()
	start := time.Now()
	select {
	case <-time.After(c.takes):
	case <-ctx.Done():
	}
	c.mu.Lock()
	c.now--
	c.mu.Unlock()
	return webhook.Result{Status: 200, StartedAt: start, Duration: time.Since(start)}
}

// C79: a message with very many webhooks takes no more sockets at once than its places, and holds none
// of the webhooks that have not had their turn.
func TestAMessageWithManyWebhooksIsPostedToSoManyAtATime(t *testing.T) {
	for _, c := range []struct{ messages, maxInFlight, most int }{
		{1, 1024, 64},
		{3, 10, 3*8 + 10}, // eight of its own for each, and ten for all
	} {
		t.Run(fmt.Sprintf("%d messages, max_in_flight %d", c.messages, c.maxInFlight), func(t *testing.T) {
			inBubble(t, func(b *bench) {
				const webhooks = 150
				for i := range webhooks - 1 { // and wh_a
					b.register(fmt.Sprintf("wh_%03d", i), nil)
				}
				b.sendNumbered(c.messages)
				rs := &throng{takes: 10 * time.Second, posts: map[string]int{}}
				d, stop := b.start(func(o *Options) { o.Sender, o.Concurrency, o.MaxInFlight = rs, 5, c.maxInFlight })
				time.Sleep(9 * time.Second)
				held := 0
				for _, f := range d.flows.All() {
					s := f.Status(time.Now())
					held += s.InFlight + s.Waiting
				}
				want(t, "places of webhooks taken", held, c.most)
				time.Sleep(4 * time.Minute)
				want(t, "most POSTs at once", rs.most, c.most)
				want(t, "webhooks that got them", len(rs.posts), webhooks)
				for id, n := range rs.posts {
					want(t, "POSTs to "+id, n, c.messages)
				}
				want(t, "left", b.total(testQueue), 0)
				stop()
				wantAtRest(t, d)
			})
		})
	}
}
