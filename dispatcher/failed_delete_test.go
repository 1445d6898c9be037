package dispatcher

import (
	"testing"
	"time"

	"github.com/pushlease/pushlease/tables"
)

// C04: the delete and the renewals are refused until the lease has ended, so that the message comes
// back, to this process or to another one. It is known as delivered there, and deleted unsent.
func TestWhatComesBackBecauseItsDeleteFailedIsDeletedUnsent(t *testing.T) {
	for name, instances := range map[string]int{"to this process": 1, "to one of two": 2, "to another one, after a kill": 0} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				var refused outage
				for _, operation := range []string{"complete", "renew", "abandon"} {
					b.queues.on(operation, refused.rule(failBefore))
				}
				change := func(o *Options) { o.Lease = 6 * time.Second }
				var stops []func()
				for range max(instances, 1) {
					_, stop := b.start(change)
					stops = append(stops, stop)
				}
				sent := b.send("x")
				time.Sleep(30 * time.Second)
				want(t, "POSTs while nothing can be deleted", b.sender.count(), 1)
				want(t, "receives at least", b.queues.received(sent.ID).DequeueCount > 1, true)
				if instances == 0 {
					for _, stop := range stops {
						stop()
					}
					_, stop := b.start(change)
					stops = []func(){stop}
				}
				refused.end()
				time.Sleep(2 * time.Minute)
				for _, stop := range stops {
					stop()
				}
				want(t, "POSTs", b.sender.count(), 1)
				want(t, "messages left", b.total(testQueue), 0)
				want(t, "state", b.delivery(sent, b.webhook.ID).State, tables.Delivered)
				want(t, "attempts on record", len(b.attempts(sent)), 1)
			})
		})
	}
}
