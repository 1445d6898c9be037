package dispatcher

import (
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

// receiveOne leases the only message of the bench's queue, as a host does.
func (b *bench) receiveOne() *queue.Message {
	b.t.Helper()
	messages, err := b.queue(testQueue).Receive(b.t.Context(), 1, 10*time.Minute)
	if err != nil || len(messages) != 1 {
		b.t.Fatalf("receive = %d messages, %v", len(messages), err)
	}
	return messages[0]
}

func TestInFlightIsWhateverIsAtWorkWhoeverReceivedIt(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.takes = 10 * time.Second
		d, stop := b.startHosted()
		defer stop()
		b.send("from the host")
		m := b.receiveOne()
		go d.HandleHosted(b.t.Context(), b.queue(testQueue), m)
		time.Sleep(time.Second)
		want(t, "in flight for the host", statusOf(d, testQueue).InFlight, 1)
		time.Sleep(10 * time.Second)
		want(t, "in flight afterwards", statusOf(d, testQueue).InFlight, 0)
	})
	inBubble(t, func(b *bench) {
		b.sender.takes = 10 * time.Second
		d, stop := b.start(nil)
		defer stop()
		b.send("when the poller is stopped")
		time.Sleep(3 * time.Second)
		b.setEnabled(d, false)
		want(t, "polling", statusOf(d, testQueue).Polling, false)
		want(t, "in flight of a stopped poller", statusOf(d, testQueue).InFlight, 1)
		time.Sleep(20 * time.Second)
		want(t, "in flight afterwards", statusOf(d, testQueue).InFlight, 0)
	})
}

// asHost receives for d as a host does, every second, until stopped; it returns the number
// of invocations.
func (b *bench) asHost(d *Dispatcher) (stop func() (invocations int)) {
	end, ended := make(chan struct{}), make(chan int)
	go func() {
		n, q := 0, b.queue(testQueue)
		var running sync.WaitGroup
		for t := time.NewTicker(time.Second); ; {
			select {
			case <-end:
				t.Stop()
				running.Wait()
				ended <- n
				return
			case <-t.C:
			}
			messages, err := q.Receive(b.t.Context(), 16, 10*time.Minute)
			if err != nil {
				b.t.Error(err)
			}
			for _, m := range messages {
				n++
				running.Go(func() { d.HandleHosted(b.t.Context(), q, m) })
			}
		}
	}()
	return func() int { close(end); return <-ended }
}

// Under a host each look at a message that waits is an invocation: while nothing gets
// through to the webhook there are the fewer the longer that lasts.
func TestWhileAWebhookIsDownWaitingMessagesAreSeldomLookedAt(t *testing.T) {
	const down = 12 * time.Hour
	for name, answer := range map[string]webhook.Result{
		"paused":  webhook.Result{Status: 429, RetryAfter: "43200"},
		"failing": webhook.Result{Status: 503},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.webhook.Flow = policy.DefaultFlow()
				b.webhook.Policy.MaxAge = policy.Duration(7 * day)
				b.webhook.Policy.MaxAttempts = 100
				b.webhook.Policy.PauseCap = policy.Duration(policy.MaxPause) // of half a day as well
				b.webhook = b.update(b.webhook)
				up := time.Now().Add(down)
				b.sender.answer = func(webhook.Request, int) webhook.Result {
					if time.Now().Before(up) {
						return answer
					}
					return webhook.Result{Status: 200}
				}
				d, stop := b.run(b.options(func(o *Options) {
					readRarely(o)
					o.Hosted = func(string) bool { return true }
				}), (*Dispatcher).RunHosted)
				defer stop()
				time.Sleep(time.Second)
				sent := b.sendMany(20, queue.SendOptions{})
				end := b.asHost(d)
				time.Sleep(down + 3*hostLookMax) // the one that is the probe, then the others, and their turn
				invocations := end()
				for _, s := range sent {
					want(t, "state", b.delivery(s, "wh_a").State, tables.Delivered)
				}
				if most := 45 * len(sent); invocations > most {
					t.Errorf("%d invocations for %d messages, want %d at most", invocations, len(sent), most)
				}
			})
		})
	}
}

// A receiver that now and then asks for a moment delays nothing for long.
func TestShortPausesUnderAHostDelayNothingForLong(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.webhook.Flow = policy.DefaultFlow()
		b.webhook = b.update(b.webhook)
		posts := 0
		var mu sync.Mutex
		b.sender.answer = func(webhook.Request, int) webhook.Result {
			mu.Lock()
			defer mu.Unlock()
			if posts++; posts%20 == 0 {
				return webhook.Result{Status: 503, RetryAfter: "2"}
			}
			return webhook.Result{Status: 200}
		}
		d, stop := b.run(b.options(func(o *Options) { o.Hosted = func(string) bool { return true } }), (*Dispatcher).RunHosted)
		defer stop()
		time.Sleep(time.Second)
		sent := b.sendMany(200, queue.SendOptions{})
		end := b.asHost(d)
		time.Sleep(time.Minute)
		if n := end(); n > 4*len(sent) {
			t.Errorf("%d invocations for %d messages", n, len(sent))
		}
		want(t, "messages left", b.total(testQueue), 0)
	})
}
