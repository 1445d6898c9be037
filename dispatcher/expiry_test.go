package dispatcher

import (
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
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
