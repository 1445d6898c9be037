package dispatcher

import (
	"strings"
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

// C114: a stop while storage is away promises only what it keeps: where a delivery is not on
// record either, the log does not say that the message is not POSTed again.
func TestAStopWhileStorageIsAwayPromisesOnlyWhatItKeeps(t *testing.T) {
	const promise, doubt = "when it comes back it is deleted without a POST\"", "is not on record so far"
	for name, recorded := range map[string]bool{"the record is taken": true, "nothing is taken": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				var away outage
				b.queues.on("complete", away.rule(failBefore))
				if !recorded {
					b.store.on("record", away.rule(failBefore))
				}
				_, stop := b.start(nil)
				b.send("x")
				time.Sleep(time.Second)
				stop()
				log := b.log.String()
				want(t, "promises", strings.Contains(log, promise), recorded)
				want(t, "says that it is in doubt", strings.Contains(log, doubt), !recorded)
				want(t, "says what becomes of lost records", strings.Contains(log, "is POSTed again where its message"), !recorded)
				away.end()
				_, stop = b.start(nil)
				time.Sleep(3 * time.Minute)
				stop()
				posts := 1
				if !recorded {
					posts = 2
				}
				want(t, "POSTs", b.sender.count(), posts)
				want(t, "left", b.total(testQueue), 0)
			})
		})
	}
}
