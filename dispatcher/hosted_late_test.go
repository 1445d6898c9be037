package dispatcher

import (
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/webhook"
)

// lateHost looks at the queue as late as a host may that has to be started for each message.
func (b *bench) lateHost(d *Dispatcher, late time.Duration, until time.Time) {
	b.t.Helper()
	for time.Now().Before(until) {
		if len(b.visible()) == 0 {
			time.Sleep(5 * time.Second)
			continue
		}
		time.Sleep(late)
		messages, err := b.queue(testQueue).Receive(b.t.Context(), 1, 10*time.Minute)
		if err != nil {
			b.t.Fatal(err)
		}
		for _, m := range messages {
			b.hand(d, m)
		}
	}
}

// Nobody else watches the queue of a trigger. Whatever a message waits for, the host's last look at
// it comes in time for a dead letter, or for the POST that is made in doubt.
func TestNothingExpiresUnseenUnderAHostThatLooksLate(t *testing.T) {
	const gap = 6 * time.Minute
	waits := map[string]struct {
		begin func(b *bench)
		posts int // of one that is delivered in doubt
		ends  string
	}{
		"disabled": {func(b *bench) { b.webhook.Enabled = false }, -1, "dead letter"},
		"paused": {func(b *bench) {
			b.webhook.Flow = policy.DefaultFlow()
			b.webhook.Policy.MaxAge, b.webhook.Policy.MaxAttempts = policy.Duration(7*day), 100
			b.webhook.Policy.PauseCap = policy.Duration(policy.MaxPause)
			b.sender.answer = func(webhook.Request, int) webhook.Result { return webhook.Result{Status: 429, RetryAfter: "43200"} }
			b.send("pauses it")
		}, -1, "dead letter"},
		"of unknown past": {func(b *bench) { b.store.on("load", always(failBefore)) }, 1, "delivered"},
	}
	for name, w := range waits {
		for _, life := range []time.Duration{8 * time.Minute, 13 * time.Minute, time.Hour} {
			t.Run(name+" for "+life.String(), func(t *testing.T) {
				inBubble(t, func(b *bench) {
					w.begin(b)
					b.webhook = b.update(b.webhook)
					d, stop := b.run(b.options(func(o *Options) {
						readRarely(o)
						o.Hosted = func(string) bool { return true }
						o.LookGap = func(string) time.Duration { return gap }
					}), hostedAlone)
					defer stop()
					time.Sleep(time.Second)
					if name == "paused" {
						b.hand(d, b.receiveOne())
					}
					sent := b.sendText([]byte("waits"), queue.SendOptions{TTL: life})
					m := b.receiveOne()
					m.DequeueCount = 3 // so that records count
					b.hand(d, m)
					b.lateHost(d, min(gap, life/4)-10*time.Second, time.Now().Add(life))
					ends := "vanished"
					for _, dl := range b.deadLetters() {
						if dl.Reason != policy.Expired { // which only a file tells
							ends = "dead letter"
						}
						want(t, "the dead letter's message", dl.MessageID, sent.ID)
					}
					if ends == "vanished" && b.sender.count() == w.posts {
						ends = "delivered"
					}
					want(t, "it", ends, w.ends)
				})
			})
		}
	}
}
