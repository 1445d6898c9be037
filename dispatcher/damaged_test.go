package dispatcher

import (
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// C86: what was known of a registration that another program has damaged stays in force, and where
// nothing was known its messages wait for it: they were deleted when the others had them.
func TestAMessageIsNotDoneWhileARegistrationThatMayWantItCanNotBeRead(t *testing.T) {
	for name, restart := range map[string]bool{"known before": false, "never read": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				other := b.register("wh_b", nil)
				b.sender.answer = statuses(200)
				d, stop := b.start(nil)
				time.Sleep(time.Minute)
				if restart {
					stop()
				}
				good := other.Policy
				other.Policy = policy.Policy{}
				other = b.update(other)
				if restart {
					d, stop = b.start(nil)
				}
				d.RegistryChanged()
				time.Sleep(time.Minute)
				if err := d.Health()["registrations"]; err == nil {
					t.Error("nobody is told")
				}
				sent := b.send("x")
				time.Sleep(time.Minute)
				waits := tables.Held
				if !restart {
					waits = tables.Delivered
				}
				want(t, "of the one", b.delivery(sent, "wh_a").State, tables.Delivered)
				want(t, "of the damaged one", b.delivery(sent, "wh_b").State, waits)
				other.Policy = good
				b.update(other)
				d.RegistryChanged()
				time.Sleep(20 * time.Minute)
				stop()
				want(t, "POSTs", b.sender.count(), 2)
				want(t, "of the one that is mended", b.delivery(sent, "wh_b").State, tables.Delivered)
				want(t, "dead letters", len(b.deadLetters()), 0)
			})
		})
	}
}

// C86: a damaged registration that is its queue's only one is not taken for one that was deleted: what comes
// later is guarded, too.
func TestAQueueWhoseOnlyRegistrationCanNotBeReadIsGuarded(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.webhook.Policy.MaxAttempts = 0
		b.webhook = b.update(b.webhook)
		_, stop := b.start(nil)
		time.Sleep(time.Minute)
		b.sendText([]byte("x"), queue.SendOptions{TTL: time.Hour})
		time.Sleep(2 * time.Hour)
		stop()
		want(t, "POSTs", b.sender.count(), 0)
		want(t, "dead letters", len(b.deadLetters()), 1)
		want(t, "notes that it was left", b.notes(), 0)
	})
}
