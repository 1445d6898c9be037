package dispatcher

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
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
				want(t, "left", b.total(testQueue), 0)
				stop()
				rs.mu.Lock()
				defer rs.mu.Unlock()
				want(t, "most POSTs at once", rs.most, c.most)
				want(t, "webhooks that got them", len(rs.posts), webhooks)
				for id, n := range rs.posts {
					want(t, "POSTs to "+id, n, c.messages)
				}
				wantAtRest(t, d)
			})
		})
	}
}

// C54: what has not had its turn when the message's life ends is a dead letter, since nobody receives the
// message again. Azure answers its renewal then as that of a message that is not there.
func TestWhatHasNotHadItsTurnWhenTheMessageEndsIsADeadLetter(t *testing.T) {
	inBubble(t, func(b *bench) {
		const webhooks = postsOfAMessage + 6
		for i := range webhooks - 1 { // and wh_a
			b.register(fmt.Sprintf("wh_%03d", i), nil)
		}
		b.queues.on("renew", always(failBefore))
		sent := b.sendMany(1, queue.SendOptions{TTL: time.Minute})[0]
		rs := &throng{takes: 58 * time.Second, posts: map[string]int{}}
		d, stop := b.start(func(o *Options) { o.Sender = rs })
		time.Sleep(2 * time.Minute)
		stop()
		rs.mu.Lock()
		defer rs.mu.Unlock()
		want(t, "POSTs", len(rs.posts), postsOfAMessage)
		expired := 0
		all, err := b.db.Load(b.t.Context(), tables.MessageKey{Queue: testQueue, MessageID: sent.ID, Day: sent.InsertedAt})
		if err != nil {
			t.Fatal(err)
		}
		for _, del := range all {
			if del.State == tables.DeadLettered && del.Reason == policy.MessageExpiring && del.Attempts == 0 {
				expired++
			}
		}
		want(t, "dead letters of those that had no turn", expired, webhooks-postsOfAMessage)
		wantAtRest(t, d)
	})
}

// A webhook that was disabled or deleted before its turn is not sent to.
func TestWhoseTurnComesLateIsSentToAsItIsRegisteredThen(t *testing.T) {
	for name, change := range map[string]func(b *bench, d *Dispatcher){
		"disabled": func(b *bench, d *Dispatcher) { b.setEnabled(d, false) },
		"deleted":  func(b *bench, d *Dispatcher) { b.deleteWebhook(d) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				for i := range postsOfAMessage {
					b.register(fmt.Sprintf("wh_%03d", i), nil)
				}
				b.sendMany(1, queue.SendOptions{})
				rs := &throng{takes: 20 * time.Second, posts: map[string]int{}}
				d, stop := b.start(func(o *Options) { o.Sender = rs })
				time.Sleep(10 * time.Second)
				change(b, d)
				time.Sleep(time.Minute)
				stop()
				rs.mu.Lock()
				defer rs.mu.Unlock()
				want(t, "POSTs to others", len(rs.posts), postsOfAMessage)
				want(t, "POSTs to it", rs.posts["wh_a"], 0)
				wantAtRest(t, d)
			})
		})
	}
}

// postsOfAMessage is how many POSTs of one message are under way at most.
const postsOfAMessage = 64
