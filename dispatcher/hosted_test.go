package dispatcher

import (
	"testing"
	"time"

	"github.com/pushlease/pushlease/queue"
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
		want(t, "in flight for the host", d.Queue(testQueue).InFlight, 1)
		time.Sleep(10 * time.Second)
		want(t, "in flight afterwards", d.Queue(testQueue).InFlight, 0)
	})
	inBubble(t, func(b *bench) {
		b.sender.takes = 10 * time.Second
		d, stop := b.start(nil)
		defer stop()
		b.send("when the poller is stopped")
		time.Sleep(3 * time.Second)
		b.setEnabled(d, false)
		want(t, "polling", d.Queue(testQueue).Polling, false)
		want(t, "in flight of a stopped poller", d.Queue(testQueue).InFlight, 1)
		time.Sleep(20 * time.Second)
		want(t, "in flight afterwards", d.Queue(testQueue).InFlight, 0)
	})
}
