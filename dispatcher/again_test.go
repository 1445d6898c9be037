package dispatcher

import (
	"testing"
	"time"

	"github.com/pushlease/pushlease/tables"
)

// A lease that could not be renewed lets the message come back to the process that
// is still working on it.
func TestMessageThatComesBackDuringItsPostIsNotPostedAgain(t *testing.T) {
	inBubble(t, func(b *bench) { // I2
		b.queues.on("renew", firstCalls(30, failBefore))
		b.sender.takes = 25 * time.Second
		_, stop := b.start(func(o *Options) { o.Lease = 10 * time.Second })
		sent := b.send("x")
		time.Sleep(2 * time.Minute)
		stop()
		want(t, "POSTs", b.sender.count(), 1)
		want(t, "messages left", b.total(testQueue), 0)
		want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
		want(t, "attempts", len(b.attempts(sent)), 1)
	})
}

// The same while the record of the success can't be written: what the process knows
// counts before it is written.
func TestMessageThatComesBackBeforeItsRecordIsNotPostedAgain(t *testing.T) {
	inBubble(t, func(b *bench) { // I2
		var down outage
		b.queues.on("renew", down.rule(failBefore))
		b.store.on("record", down.rule(failBefore))
		b.store.on("load", down.rule(failBefore))
		b.sender.takes = 2 * time.Second
		_, stop := b.start(func(o *Options) { o.Lease = 5 * time.Second })
		sent := b.send("x")
		time.Sleep(15 * time.Second)
		down.end()
		time.Sleep(2 * time.Minute)
		stop()
		want(t, "POSTs", b.sender.count(), 1)
		want(t, "messages left", b.total(testQueue), 0)
		want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
	})
}
