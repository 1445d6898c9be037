package dispatcher

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

// hangingQueues never answers a receive.
type hangingQueues struct{ queue.Service }

func (s hangingQueues) Queue(name string) (queue.Queue, error) {
	q, err := s.Service.Queue(name)
	return hangingQueue{q}, err
}

type hangingQueue struct{ queue.Queue }

func (hangingQueue) Receive(ctx context.Context, _ int, _ time.Duration) ([]*queue.Message, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestShutdownWaitsForAHangingReceiveNoLongerThanTheDrainBound(t *testing.T) {
	inBubble(t, func(b *bench) {
		_, stop := b.start(func(o *Options) { o.Queues = hangingQueues{b.db.Queues()}; o.Drain = 3 * time.Second })
		time.Sleep(time.Second)
		start := time.Now()
		stop()
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("stop took %s, want the drain bound of 3s", took)
		}
	})
}

// A message that can't be settled uses up the time for that. What is known all the same is stored within it: records that the store
// takes again by then, and how webhooks fare.
func TestWhatIsKnownIsStoredAtAStopThoughAMessageCanNotBeSettled(t *testing.T) {
	inBubble(t, func(b *bench) {
		store, queues, away := &faultyStore{Store: b.db}, &faultyQueues{Service: b.db.Queues()}, &outage{}
		store.on("record", away.rule(failBefore))
		queues.on("complete", always(failBefore))
		b.sender.answer = func(r webhook.Request, _ int) webhook.Result {
			return webhook.Result{Status: map[bool]int{true: 429, false: 200}[strings.Contains(string(r.Body), "too much")]}
		}
		_, stop := b.start(func(o *Options) { o.Store, o.Queues, o.Drain = store, queues, time.Second })
		sent := b.send("x")
		time.Sleep(60*time.Second + 500*time.Millisecond)
		b.send("too much")
		time.Sleep(3 * time.Second)
		go func() {
			time.Sleep(9*time.Second + 500*time.Millisecond) // after the journal's own last try
			away.end()
		}()
		start := time.Now()
		stop()
		if took := time.Since(start); took > 11*time.Second+500*time.Millisecond {
			t.Errorf("stop took %s, want the drain bound of 1s and 10s", took)
		}
		want(t, "POSTs", b.sender.count(), 2)
		want(t, "on record", b.delivery(sent, "wh_a").State, tables.Delivered)
		want(t, "records are told as lost", strings.Contains(b.log.String(), "records are lost"), false)
		health, err := b.db.ListHealth(b.t.Context())
		if err != nil || len(health) != 1 {
			b.t.Fatal(health, err)
		}
		want(t, "failures that are stored", health[0].Failed, 1)
	})
}
