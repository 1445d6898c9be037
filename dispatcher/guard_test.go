package dispatcher

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/delivery"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

const day = 24 * time.Hour

// life is that of messages that are guarded: a look each 12 s for a week is spent time.
const life = 6 * time.Hour

// readRarely keeps hours of simulated time from being spent on reading the registry and on receives.
func readRarely(o *Options) { o.RegistryRefresh, o.PollMax = 10*time.Minute, 10*time.Minute }

// setEnabled switches the bench's webhook on or off and tells d.
func (b *bench) setEnabled(d *Dispatcher, enabled bool) {
	b.t.Helper()
	b.webhook.Enabled = enabled
	b.webhook = b.update(b.webhook)
	d.RegistryChanged()
	time.Sleep(time.Second)
}

func (b *bench) sendMany(n int, o queue.SendOptions) (sent []queue.Sent) {
	b.t.Helper()
	for i := range n {
		sent = append(sent, b.sendText(fmt.Appendf(nil, "message %d", i), o))
	}
	return sent
}

func (b *bench) wantDeadLetters(n int, reason policy.Reason) {
	b.t.Helper()
	list := b.deadLetters()
	want(b.t, "dead letters", len(list), n)
	for _, dl := range list {
		want(b.t, "reason", dl.Reason, reason)
		if len(dl.Text) == 0 && dl.Size == 0 {
			b.t.Errorf("dead letter %s has no text", dl.ID)
		}
	}
}

func TestMessagesOfADisabledWebhookWaitAndAreDeliveredWhenItIsEnabled(t *testing.T) {
	inBubble(t, func(b *bench) {
		d, stop := b.start(readRarely)
		defer stop()
		b.setEnabled(d, false)
		sent := b.sendMany(10, queue.SendOptions{})
		time.Sleep(30 * time.Minute)
		want(t, "POSTs", b.sender.count(), 0)
		want(t, "messages", b.total(testQueue), 10)
		b.wantDeadLetters(0, "")
		want(t, "receives after the webhook was disabled leave no message hidden", len(b.visible()), 10)

		b.setEnabled(d, true)
		time.Sleep(5 * time.Second)
		want(t, "POSTs", b.sender.count(), 10)
		want(t, "messages", b.total(testQueue), 0)
		for _, s := range sent {
			want(t, "state", b.delivery(s, "wh_a").State, tables.Delivered)
			want(t, "receives", b.queues.received(s.ID).DequeueCount, 1)
		}
	})
}

func (b *bench) visible() []queue.Peeked {
	b.t.Helper()
	ps, err := b.queue(testQueue).Peek(b.t.Context(), queue.MaxReceive)
	if err != nil {
		b.t.Fatal(err)
	}
	return ps
}

func TestWhatWaitsForADisabledWebhookIsDeadLetteredBeforeItExpires(t *testing.T) {
	inBubble(t, func(b *bench) {
		d, stop := b.start(readRarely)
		defer stop()
		b.setEnabled(d, false)
		b.sendMany(10, queue.SendOptions{TTL: life})
		time.Sleep(life - guardMargin - guardInterval)
		b.wantDeadLetters(0, "")
		want(t, "messages", b.total(testQueue), 10)
		time.Sleep(life + guardMargin + guardInterval)
		b.wantDeadLetters(10, policy.WebhookDisabled)
		want(t, "messages", b.total(testQueue), 0)
		want(t, "copies", b.total(testQueue+tables.PoisonSuffix), 10)
		want(t, "POSTs", b.sender.count(), 0)
	})
}

func TestGuardingAnIdleQueueCostsOneTransactionEachInterval(t *testing.T) {
	for _, waiting := range []int{0, 10} {
		inBubble(t, func(b *bench) {
			d, stop := b.start(func(o *Options) { readRarely(o); o.RegistryRefresh = time.Hour })
			defer stop()
			b.setEnabled(d, false)
			b.sendMany(waiting, queue.SendOptions{})
			peeks, receives := b.queues.count("peek"), b.queues.count("receive")
			writes := b.store.count("record") + b.queues.count("abandon")
			time.Sleep(life)
			n := b.queues.count("peek") - peeks
			if n < int(life/guardInterval) || n > int(life/guardInterval)*11/10 {
				t.Errorf("%d waiting: %d looks in %s, want about one every %s", waiting, n, life, guardInterval)
			}
			want(t, "receives", b.queues.count("receive")-receives, 0)
			want(t, "writes", b.store.count("record")+b.queues.count("abandon")-writes, 0)
		})
	}
}

func TestOnlyWhatIsNearItsEndIsDeadLettered(t *testing.T) {
	inBubble(t, func(b *bench) {
		d, stop := b.start(readRarely)
		defer stop()
		b.setEnabled(d, false)
		ending := b.sendMany(3, queue.SendOptions{TTL: life})
		staying := append(b.sendMany(20, queue.SendOptions{TTL: 3 * life}), b.sendMany(2, queue.SendOptions{TTL: queue.NoExpiry})...)
		time.Sleep(2 * life)
		b.wantDeadLetters(len(ending), policy.WebhookDisabled)
		want(t, "messages left", b.total(testQueue), int64(len(staying)))

		b.setEnabled(d, true)
		time.Sleep(10 * time.Second)
		want(t, "POSTs", b.sender.count(), len(staying))
		for _, s := range staying {
			want(t, "state", b.delivery(s, "wh_a").State, tables.Delivered)
		}
		b.wantDeadLetters(len(ending), policy.WebhookDisabled)
	})
}

// Receives go by visibility and looks by age: the oldest, given back last, are behind
// many younger ones that the guard has to receive first.
func TestGuardReachesAnOldMessageBehindYoungerOnes(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sendMany(5, queue.SendOptions{TTL: life, Delay: 10 * time.Minute})
		b.webhook.Enabled = false
		b.webhook = b.update(b.webhook)
		younger := b.sendMany(100, queue.SendOptions{TTL: 5 * day})
		d, stop := b.start(readRarely)
		defer stop()
		time.Sleep(life + time.Hour)
		b.wantDeadLetters(5, policy.WebhookDisabled)
		want(t, "messages left", b.total(testQueue), int64(len(younger)))

		b.setEnabled(d, true)
		time.Sleep(time.Minute)
		want(t, "POSTs", b.sender.count(), len(younger))
		want(t, "dead letters", len(b.deadLetters()), 5)
	})
}

// Each receive by the guard is excused, so that many of them make no message poison.
func TestGuardsReceivesAreNeverHeldAgainstAMessage(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.webhook.Enabled = false
		b.webhook = b.update(b.webhook)
		d, stop := b.start(readRarely)
		defer stop()
		q := b.queue(testQueue)
		sent := b.send(`{"n":1}`)
		terms := delivery.Terms{Postponed: policy.ExpiryMargin, Shown: true} // a guard's, of what is not near its end
		for range 40 {
			messages, err := q.Receive(b.t.Context(), 1, time.Minute)
			if err != nil || len(messages) != 1 {
				t.Fatalf("receive = %d messages, %v", len(messages), err)
			}
			want(t, "the message is", d.handle(b.t.Context(), q, messages[0], terms, nil, func() {}), "abandoned")
		}
		want(t, "visible again at once", len(b.visible()), 1)
		del := b.delivery(sent, "wh_a")
		want(t, "excused", del.Excused, 40)
		want(t, "attempts", del.Attempts, 0)
		want(t, "state", del.State, tables.Held)

		b.sender.answer = statuses(500, 200)
		b.setEnabled(d, true)
		time.Sleep(time.Minute)
		want(t, "POSTs", b.sender.count(), 2)
		want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
		want(t, "dead letters", len(b.deadLetters()), 0)
		if _, err := q.Depth(b.t.Context()); err != nil || strings.Contains(b.log.String(), "noted before it begins") {
			t.Errorf("the message was suspected of being poison (%v)", err)
		}
	})
}

func TestGuardSurvivesFaultsOfStorageWithoutSpinning(t *testing.T) {
	for _, operation := range []string{"peek", "receive", "list-webhooks", "put-dead-letter", "record", "load", "abandon", "complete"} {
		t.Run(operation, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				d, stop := b.start(func(o *Options) { readRarely(o); o.PoisonCopy = false })
				defer stop()
				b.setEnabled(d, false)
				b.sendMany(10, queue.SendOptions{TTL: life / 2})
				time.Sleep(life/2 - guardMargin - 5*time.Minute)
				var down outage
				b.queues.on(operation, down.rule(failBefore))
				b.store.on(operation, down.rule(failBefore))
				peeks, receives := b.queues.count("peek"), b.queues.count("receive")
				time.Sleep(35 * time.Minute)
				if n := b.queues.count("peek") - peeks + b.queues.count("receive") - receives; n > int(35*time.Minute/guardInterval)*24/10 {
					t.Errorf("%d calls in 35 minutes of faults", n)
				}
				down.end()
				time.Sleep(35 * time.Minute)
				b.wantDeadLetters(10, policy.WebhookDisabled)
				want(t, "messages", b.total(testQueue), 0)
			})
		})
	}
}

func TestMessagesHiddenUntilTheirLastSecondsAreDeadLetteredWhenTheWebhookIsDisabled(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.answer = statuses(500)
		d, stop := b.start(readRarely)
		defer stop()
		b.sendMany(3, queue.SendOptions{TTL: time.Hour})
		time.Sleep(50 * time.Minute)
		posts := b.sender.count()
		b.setEnabled(d, false)
		want(t, "visible messages", len(b.visible()), 0)
		time.Sleep(20 * time.Minute)
		want(t, "POSTs after the webhook was disabled", b.sender.count()-posts, 0)
		b.wantDeadLetters(3, policy.WebhookDisabled)
	})
}

// A message is shown again half a minute before its end at the latest, and one of a life of a minute is near its end
// then: a look falls into that whenever it is, also where poll_max is long.
func TestWhatShowsInItsLastHalfMinuteIsMetWheneverThatIs(t *testing.T) {
	for name, o := range map[string]queue.SendOptions{
		"it was hidden":               {TTL: 10 * time.Minute, Delay: 9*time.Minute + 30*time.Second},
		"it lives for a minute":       {TTL: time.Minute},
		"it lives for a few of those": {TTL: 5 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.webhook.Enabled = false
				b.webhook = b.update(b.webhook)
				_, stop := b.start(readRarely)
				defer stop()
				const all = 60
				for range all { // at each moment between two looks
					b.sendText([]byte("x"), o)
					time.Sleep(time.Second)
				}
				time.Sleep(o.TTL)
				b.wantDeadLetters(all, policy.WebhookDisabled)
			})
		})
	}
}

func TestGuardGivesWayToThePollerAndEndsWithTheLastWebhook(t *testing.T) {
	inBubble(t, func(b *bench) {
		d, stop := b.start(readRarely)
		defer stop()
		b.setEnabled(d, false)
		want(t, "polling", statusOf(d, testQueue).Polling, false)
		b.setEnabled(d, true)
		want(t, "polling", statusOf(d, testQueue).Polling, true)
		peeks := b.queues.count("peek")
		time.Sleep(2 * time.Hour)
		want(t, "looks while the queue is polled", b.queues.count("peek")-peeks, 0)

		if err := b.db.DeleteWebhook(b.t.Context(), b.webhook.ID, b.webhook.ETag); err != nil {
			t.Fatal(err)
		}
		d.RegistryChanged()
		time.Sleep(2 * time.Hour) // whether messages are left is looked for, as after a deletion
		if looks := b.queues.count("peek") - peeks; looks > int(tables.LeftSkew/guardInterval)*12/10+2 {
			t.Errorf("%d looks for what the webhook left on an empty queue", looks)
		}
		peeks = b.queues.count("peek")
		time.Sleep(2 * time.Hour)
		want(t, "looks without a webhook", b.queues.count("peek")-peeks, 0)
	})
}

// A webhook that was enabled through another instance gets its messages, also those
// that are near their end, although the registry here is behind.
func TestGuardNeverDeadLettersByAStaleRegistry(t *testing.T) {
	inBubble(t, func(b *bench) {
		d, stop := b.start(func(o *Options) { readRarely(o); o.RegistryRefresh = 100 * day })
		defer stop()
		b.setEnabled(d, false)
		b.sendMany(10, queue.SendOptions{TTL: life})
		b.webhook.Enabled = true
		b.webhook = b.update(b.webhook)
		time.Sleep(2 * life)
		want(t, "POSTs", b.sender.count(), 10)
		b.wantDeadLetters(0, "")
	})
}

func TestMessagesOfAWebhookThatAnsweredGoneAreGuarded(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.answer = func(webhook.Request, int) webhook.Result { return webhook.Result{Status: 410} }
		_, stop := b.start(readRarely)
		defer stop()
		b.send(`{"n":0}`)
		time.Sleep(10 * time.Second)
		b.wantDeadLetters(1, policy.WebhookGone)
		b.sendMany(40, queue.SendOptions{TTL: life})
		time.Sleep(2 * life)
		want(t, "dead letters", len(b.deadLetters()), 41)
		want(t, "POSTs", b.sender.count(), 1)
	})
}

// Nobody polls for webhooks that can't be sent to, so nobody would see a message expire.
func TestWhatWaitsForAWebhookThatCanNotBeSentToIsDeadLetteredBeforeItExpires(t *testing.T) {
	asked := func(status int, wait string) func(webhook.Request, int) webhook.Result {
		return func(webhook.Request, int) webhook.Result { return webhook.Result{Status: status, RetryAfter: wait} }
	}
	tests := []struct {
		name   string
		rate   float64
		answer func(webhook.Request, int) webhook.Result
		ttl    time.Duration
	}{
		{"it fails", 0, asked(503, ""), 2 * time.Hour},
		{"it fails, short lives", 0, asked(503, ""), 4 * time.Minute},
		{"it has asked for a pause", 0, asked(429, "40000"), 2 * time.Hour},
		{"the rate is used up", 0.01, asked(200, ""), 20 * time.Minute},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.webhook.Flow = policy.DefaultFlow()
				b.webhook.Flow.Rate = tt.rate
				b.webhook = b.update(b.webhook)
				b.sender.answer = tt.answer
				_, stop := b.start(nil)
				var sent []queue.Sent
				for range 90 {
					sent = append(sent, b.sendText([]byte("x"), queue.SendOptions{TTL: tt.ttl}))
				}
				time.Sleep(tt.ttl + time.Minute)
				stop()
				delivered := 0
				for _, s := range sent {
					if b.delivery(s, b.webhook.ID).State == tables.Delivered {
						delivered++
					}
				}
				want(t, "messages left", b.total(testQueue), 0)
				want(t, "delivered or dead letters", delivered+len(b.deadLetters()), len(sent))
			})
		})
	}
}

func TestAQueueWhoseWebhookCanBeSentToIsNotPeekedAt(t *testing.T) {
	inBubble(t, func(b *bench) {
		_, stop := b.start(rarely)
		time.Sleep(6 * time.Hour)
		stop()
		want(t, "peeks", b.queues.count("peek"), 0)
	})
}
