package dispatcher

import (
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

func TestMessageThatExpiresDuringItsPostIsStillSettledByTheAnswer(t *testing.T) {
	for _, status := range []int{200, 500} {
		inBubble(t, func(b *bench) {
			b.sender.takes = 25 * time.Second
			b.sender.answer = statuses(status)
			_, stop := b.start(func(o *Options) { o.Lease = 10 * time.Second })
			sent := b.sendText([]byte("x"), queue.SendOptions{TTL: 15 * time.Second})
			time.Sleep(time.Minute)
			stop()
			want(t, "POSTs", b.sender.count(), 1)
			if status == 200 {
				want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
				return
			}
			list := b.deadLetters()
			want(t, "dead letters", len(list), 1)
			want(t, "reason", list[0].Reason, policy.MessageExpiring)
			want(t, "last status", list[0].LastStatus, 500)
		})
	}
}

func TestOwnFaultsNeverHideAMessageBeyondItsExpiry(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.answer = statuses(400)
		var down outage
		b.store.on("put-dead-letter", down.rule(failBefore))
		_, stop := b.start(nil)
		b.sendText([]byte("x"), queue.SendOptions{TTL: time.Hour})
		time.Sleep(time.Hour - 20*time.Second)
		down.end()
		time.Sleep(time.Minute)
		stop()
		list := b.deadLetters()
		want(t, "dead letters", len(list), 1)
		want(t, "reason", list[0].Reason, policy.NonRetryableError)
	})
}

func TestShutdownDeadLettersWhatWouldExpireBeforeTheNextStart(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.takes = time.Minute
		_, stop := b.start(func(o *Options) { o.Drain = time.Second })
		sent := b.sendText([]byte("short"), queue.SendOptions{TTL: 30 * time.Second})
		b.sendText([]byte("long"), queue.SendOptions{TTL: time.Hour})
		time.Sleep(10 * time.Second)
		stop()
		list := b.deadLetters()
		want(t, "dead letters", len(list), 1)
		want(t, "message", list[0].MessageID, sent.ID)
		want(t, "reason", list[0].Reason, policy.MessageExpiring)
		want(t, "messages left", b.total(testQueue), 1)
	})
}

// Azure deletes what expires and tells nobody, so each message has its dead letter before. What
// a look came too late for shows here by the reason Expired, which the file gives it.
func TestNothingThatLivesForAMinuteExpiresUnseen(t *testing.T) {
	const messages = 50
	cases := map[string]struct { // C54
		answer webhook.Result
		flow   policy.Flow
		// before and after are what an operator does around the sending.
		before, after func(b *bench, d *Dispatcher)
	}{
		"disabled":     {flow: policy.DefaultFlow(), before: func(b *bench, d *Dispatcher) { b.setEnabled(d, false) }},
		"failing":      {flow: unlimited, answer: webhook.Result{Status: 500}},
		"paused":       {flow: policy.DefaultFlow(), answer: webhook.Result{Status: 429, RetryAfter: "40000"}},
		"breaker open": {flow: policy.DefaultFlow(), answer: webhook.Result{ErrorClass: "connect"}},
		"deleted":      {flow: policy.DefaultFlow(), answer: webhook.Result{Status: 500}, after: func(b *bench, d *Dispatcher) { b.deleteWebhook(d) }},
	}
	for name, c := range cases {
		for _, ttl := range []time.Duration{60 * time.Second, 75 * time.Second, 2 * time.Minute, 4 * time.Minute} {
			t.Run(name+", "+ttl.String(), func(t *testing.T) {
				inBubble(t, func(b *bench) {
					b.webhook.Flow = c.flow
					b.webhook = b.update(b.webhook)
					b.sender.answer = func(webhook.Request, int) webhook.Result { return c.answer }
					d, stop := b.start(nil)
					defer stop()
					if c.before != nil {
						c.before(b, d)
					}
					time.Sleep(5*time.Minute + 7*time.Second)
					b.sendMany(messages, queue.SendOptions{TTL: ttl})
					if c.after != nil {
						c.after(b, d)
					}
					time.Sleep(ttl + time.Minute)
					want(t, "dead letters", len(b.deadLetters()), messages)
					want(t, "messages that expired unseen", b.reasons()[policy.Expired], 0)
				})
			})
		}
	}
}

// A webhook that is enabled in time gets also what lives for less than a held message usually
// waits: it is looked at while something can still come of it.
func TestWhatIsHeldWithAShortLifeIsDeliveredWhenItsWebhookIsEnabled(t *testing.T) {
	for _, ttl := range []time.Duration{time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute} {
		t.Run(ttl.String(), func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.register("wh_b", nil)
				d, stop := b.start(nil)
				defer stop()
				b.setEnabled(d, false)
				sent := b.sendMany(1, queue.SendOptions{TTL: ttl})[0]
				time.Sleep(ttl / 4)
				want(t, "state", b.delivery(sent, "wh_a").State, tables.Held)
				b.setEnabled(d, true)
				time.Sleep(ttl)
				want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
				want(t, "dead letters", len(b.deadLetters()), 0)
			})
		})
	}
}
