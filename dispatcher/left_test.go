package dispatcher

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

// deleteWebhook does what the API does.
func (b *bench) deleteWebhook(d *Dispatcher) {
	b.t.Helper()
	b.deleteRegistered(d, b.webhook)
}

func (b *bench) deleteRegistered(d *Dispatcher, r tables.Registration) {
	b.t.Helper()
	if err := b.db.PutLeftQueue(b.t.Context(), tables.LeftQueue{Queue: r.Queue, At: time.Now()}); err != nil {
		b.t.Fatal(err)
	}
	if err := b.db.DeleteWebhook(b.t.Context(), r.ID, ""); err != nil {
		b.t.Fatal(err)
	}
	if d != nil {
		d.RegistryChanged()
	}
	time.Sleep(time.Second)
}

// leftWith sends messages for a webhook that is disabled and then deleted.
func (b *bench) leftWith(d *Dispatcher, n int, o queue.SendOptions) []queue.Sent {
	b.t.Helper()
	b.setEnabled(d, false)
	sent := b.sendMany(n, o)
	b.deleteWebhook(d)
	return sent
}

func (b *bench) notes() int {
	b.t.Helper()
	list, err := b.db.ListLeftQueues(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return len(list)
}

func (b *bench) wantHeld(sent []queue.Sent) {
	b.t.Helper()
	for _, s := range sent {
		del := b.delivery(s, "")
		want(b.t, "state", del.State, tables.Held)
		want(b.t, "reason", del.Reason, policy.WebhookDeleted)
		want(b.t, "expiry", del.ExpiresAt.Equal(s.ExpiresAt.Truncate(time.Millisecond)), true)
	}
}

func TestMessagesOfADeletedWebhookAreHeldAndBecomeDeadLettersAtTheirEnd(t *testing.T) {
	inBubble(t, func(b *bench) { // C13
		d, stop := b.start(readRarely)
		defer stop()
		sent := b.leftWith(d, 10, queue.SendOptions{TTL: life})
		receives, records := b.queues.count("receive"), b.store.count("record")
		time.Sleep(guardInterval)
		b.wantHeld(sent)
		time.Sleep(30 * time.Minute)
		b.wantHeld(sent)
		want(t, "POSTs", b.sender.count(), 0)
		want(t, "messages", b.total(testQueue), 10)
		want(t, "visible messages", len(b.visible()), 10)
		want(t, "when the webhook was deleted is shown", statusOf(d, testQueue).LeftAt.IsZero(), false)
		b.wantDeadLetters(0, "")

		time.Sleep(life - guardMargin - 2*guardInterval - 30*time.Minute) // with what has passed since they were sent
		want(t, "receives before the last hour", b.queues.count("receive")-receives, 0)
		want(t, "records, one for each message", b.store.count("record")-records <= 10, true)
		b.wantDeadLetters(0, "")
		time.Sleep(guardMargin + 3*guardInterval)
		b.wantDeadLetters(10, policy.WebhookDeleted)
		want(t, "messages", b.total(testQueue), 0)
		want(t, "copies", b.total(testQueue+tables.PoisonSuffix), 10)
		want(t, "POSTs", b.sender.count(), 0)

		time.Sleep(guardInterval)
		want(t, "notes, when nothing is left", b.notes(), 0)
		peeks := b.queues.count("peek")
		time.Sleep(day)
		want(t, "looks, when nothing is left", b.queues.count("peek")-peeks, 0)
		want(t, "when the webhook was deleted is shown", statusOf(d, testQueue).LeftAt.IsZero(), true)
	})
}

func TestMessagesThatWereRetriedWhenTheirWebhookWasDeletedAreHeldToo(t *testing.T) {
	inBubble(t, func(b *bench) { // C13
		b.sender.answer = statuses(500)
		d, stop := b.start(readRarely)
		defer stop()
		sent := b.sendMany(10, queue.SendOptions{TTL: life})
		time.Sleep(2 * time.Minute)
		b.deleteWebhook(d)
		posts := b.sender.count()
		time.Sleep(2 * time.Hour)
		want(t, "POSTs since", b.sender.count()-posts, 0)
		want(t, "messages", b.total(testQueue), 10)
		b.wantHeld(sent)
		time.Sleep(life)
		b.wantDeadLetters(10, policy.WebhookDeleted)
	})
}

func TestWebhookThatIsRegisteredOnALeftQueueGetsWhatWaitsThere(t *testing.T) {
	inBubble(t, func(b *bench) {
		d, stop := b.start(readRarely)
		defer stop()
		sent := b.leftWith(d, 10, queue.SendOptions{})
		time.Sleep(life)
		b.register("wh_b", nil)
		d.RegistryChanged()
		time.Sleep(10 * time.Second)
		want(t, "POSTs", b.sender.count(), 10)
		for _, s := range sent {
			want(t, "state", b.delivery(s, "wh_b").State, tables.Delivered)
		}
		time.Sleep(8 * day)
		b.wantDeadLetters(0, "")
	})
}

// The process that has deleted the webhook may end, and another one starts later.
func TestLeftQueueIsWatchedAfterARestart(t *testing.T) {
	inBubble(t, func(b *bench) {
		d, stop := b.start(readRarely)
		sent := b.leftWith(d, 10, queue.SendOptions{TTL: life})
		stop()
		_, stop = b.start(readRarely)
		time.Sleep(time.Minute)
		b.wantHeld(sent)
		time.Sleep(life)
		stop()
		b.wantDeadLetters(10, policy.WebhookDeleted)
	})
}

// Somebody else may read the queue now: what is sent later is theirs.
func TestWhatIsSentToALeftQueueLaterIsLeftAlone(t *testing.T) {
	inBubble(t, func(b *bench) {
		d, stop := b.start(readRarely)
		defer stop()
		b.leftWith(d, 10, queue.SendOptions{TTL: life})
		time.Sleep(2 * tables.LeftSkew)
		later := b.sendMany(10, queue.SendOptions{TTL: life / 2})
		time.Sleep(life)
		wantReasons := map[policy.Reason]int{policy.WebhookDeleted: 10, policy.Expired: 10}
		want(t, "dead letters, with those that a file makes of what expires", maps.Equal(b.reasons(), wantReasons), true)
		for _, s := range later {
			want(t, "attempts at later ones", len(b.attempts(s)), 0)
		}
		b.sendMany(10, queue.SendOptions{TTL: queue.NoExpiry})
		time.Sleep(9 * day)
		want(t, "notes, when a queue of others shows none of its own for long", b.notes(), 0)
		want(t, "messages", b.total(testQueue), 10)
		want(t, "dead letters afterwards", maps.Equal(b.reasons(), wantReasons), true)
	})
}

// reasons counts the dead letters by their reason.
func (b *bench) reasons() map[policy.Reason]int {
	n := map[policy.Reason]int{}
	for _, d := range b.deadLetters() {
		n[d.Reason]++
	}
	return n
}

func TestNoteAboutAnEmptyOrVanishedQueueEndsSoon(t *testing.T) {
	for _, messages := range []int{0, 1} { // without any, there is no queue
		inBubble(t, func(b *bench) {
			d, stop := b.start(readRarely)
			defer stop()
			b.sendMany(messages, queue.SendOptions{})
			time.Sleep(time.Minute)
			want(t, "POSTs", b.sender.count(), messages)
			b.deleteWebhook(d)
			time.Sleep(2 * tables.LeftSkew)
			want(t, "notes", b.notes(), 0)
		})
	}
}

func TestWatchingALeftQueueIsCheapAndOutlivesFaults(t *testing.T) {
	for _, operation := range []string{"", "peek", "depth", "load", "record", "receive", "put-dead-letter", "list-left"} {
		t.Run(operation, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				d, stop := b.start(func(o *Options) { readRarely(o); o.RegistryRefresh = time.Hour; o.PoisonCopy = false })
				defer stop()
				b.setEnabled(d, false)
				sent := b.sendMany(10, queue.SendOptions{TTL: life})
				var down outage
				b.queues.on(operation, down.rule(failBefore))
				b.store.on(operation, down.rule(failBefore))
				b.deleteWebhook(d)
				calls := func() (n int) {
					for _, o := range []string{"peek", "receive", "depth", "abandon"} {
						n += b.queues.count(o)
					}
					return n + b.store.count("load") + b.store.count("list-left")
				}
				before := calls()
				time.Sleep(life / 2)
				most := int(life/2/guardInterval) * 12 / 10
				if operation == "load" { // with each look, until what is held is noted
					most *= 2
				}
				// Records that wait in memory have their own pace.
				if n := calls() - before; n > most && operation != "record" {
					t.Errorf("%d transactions in %s", n, life/2)
				}
				down.end()
				time.Sleep(20 * time.Minute)
				if operation == "list-left" {
					time.Sleep(time.Hour)
				}
				b.wantHeld(sent)
				time.Sleep(life / 2)
				b.wantDeadLetters(10, policy.WebhookDeleted)
				want(t, "messages", b.total(testQueue), 0)
			})
		})
	}
}

// A message that its webhook has taken, and that comes back because its delete did not
// get through, is not given up because the webhook was deleted meanwhile.
func TestDeliveredMessageThatComesBackAfterItsWebhookWasDeletedIsNoDeadLetter(t *testing.T) {
	inBubble(t, func(b *bench) { // I2
		b.queues.on("complete", always(failBefore))
		d, stop := b.start(func(o *Options) { o.Drain = time.Second })
		sent := b.sendText([]byte("x"), queue.SendOptions{TTL: day})
		time.Sleep(10 * time.Second)
		b.deleteWebhook(d)
		stop()
		b.queues.on("complete", nil)
		_, stop = b.start(readRarely)
		defer stop()
		time.Sleep(2 * day)
		want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
		want(t, "state as a whole", b.delivery(sent, "").State, "")
		want(t, "POSTs", b.sender.count(), 1)
		b.wantDeadLetters(0, "")
		want(t, "messages", b.total(testQueue), 0)
	})
}

func TestLeftQueuesAreWatchedUnderATimer(t *testing.T) {
	inBubble(t, func(b *bench) { // C13
		b.sendMany(1, queue.SendOptions{TTL: 12 * time.Minute})
		b.deleteWebhook(nil)
		_, stop := b.startTimer(time.Minute, nil)
		defer stop()
		time.Sleep(12 * time.Minute)
		b.wantDeadLetters(1, policy.WebhookDeleted)
		want(t, "messages", b.total(testQueue), 0)
	})
}

// C85: a webhook's row that another program deletes is a deletion like one through the API: what
// waits for a retry is held, guarded, and a dead letter before it would expire.
func TestMessagesOfAWebhookWhoseRowAnotherProgramDeletesAreDeadLettersAtTheirEnd(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.answer = func(webhook.Request, int) webhook.Result { return webhook.Result{Status: 500} }
		b.register("wh_other", func(r *tables.Registration) { r.Queue = "others" }) // or all had vanished
		_, stop := b.start(nil)
		time.Sleep(time.Second)
		sent := b.sendMany(3, queue.SendOptions{TTL: 6 * time.Hour})
		time.Sleep(time.Minute)
		if err := b.store.DeleteWebhook(b.t.Context(), b.webhook.ID, ""); err != nil { // no note, as a tool does
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		want(t, "notes", b.notes(), 1)
		want(t, "it is told", strings.Contains(b.log.String(), "nobody deleted them through pushlease"), true)
		time.Sleep(6 * time.Hour)
		want(t, "left", b.total(testQueue), 0)
		for _, s := range sent {
			want(t, "reason", b.delivery(s, "").Reason, policy.WebhookDeleted)
		}
		want(t, "dead letters", len(b.deadLetters()), 3)
		stop()
	})
}
