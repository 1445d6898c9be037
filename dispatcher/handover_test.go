package dispatcher

import (
	"testing"
	"time"

	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

// publish sends a message as a publish through this process does; handed is whether the
// dispatcher took it at once.
func (b *bench) publish(d *Dispatcher, body string) (sent queue.Sent, handed bool) {
	b.t.Helper()
	place := d.Reserve(testQueue)
	if place == nil {
		return b.send(body), false
	}
	defer place.Leave()
	return b.sendTo(place, body), place.Taken()
}

func (b *bench) sendTo(place *Place, body string) queue.Sent {
	b.t.Helper()
	sent, err := b.db.Queues().SendLeased(b.t.Context(), testQueue, []byte(body), queue.SendOptions{}, func(sent queue.Sent) tables.Record {
		return tables.Record{Deliveries: []tables.Delivery{{
			MessageKey: tables.MessageKey{Queue: testQueue, MessageID: sent.ID, Day: sent.InsertedAt}, State: tables.Published,
		}}}
	}, place.Lease(), place.Start)
	if err != nil {
		b.t.Fatal(err)
	}
	return sent
}

func TestAPublishedMessageIsPostedWithoutAReceive(t *testing.T) {
	inBubble(t, func(b *bench) {
		d, stop := b.start(func(o *Options) { o.PollMax = time.Hour })
		defer stop()
		time.Sleep(time.Hour)
		before := b.queues.count("receive")
		start := time.Now()
		sent, handed := b.publish(d, "a")
		time.Sleep(time.Millisecond)
		if !handed || b.sender.count() != 1 || b.sender.posts[0].at.Sub(start) != 0 {
			t.Fatalf("handed over: %t, POSTs %+v", handed, b.sender.posts)
		}
		want(t, "receives", b.queues.count("receive"), before)
		want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
		want(t, "messages left", b.total(testQueue), 0)
		want(t, "attempts", len(b.attempts(sent)), 1)
		want(t, "in flight", d.Queue(testQueue).InFlight, 0)
	})
}

// A retry of such a message comes as any other, and counts its receives from the first.
func TestAMessageThatWasHandedOverIsTriedAgain(t *testing.T) {
	inBubble(t, func(b *bench) {
		d, stop := b.start(nil)
		defer stop()
		time.Sleep(time.Minute)
		b.sender.answer = statuses(503, 200)
		sent, handed := b.publish(d, "a")
		time.Sleep(time.Minute)
		want(t, "handed over", handed, true)
		want(t, "attempts", len(b.attempts(sent)), 2)
		want(t, "receives of it", b.queues.received(sent.ID).DequeueCount, int64(2))
		want(t, "messages left", b.total(testQueue), 0)
	})
}

func TestPlacesAreThoseOfAReceive(t *testing.T) {
	inBubble(t, func(b *bench) {
		d, stop := b.start(func(o *Options) { o.Concurrency, o.PollMin, o.PollMax = 2, time.Hour, time.Hour })
		defer stop()
		time.Sleep(time.Second)
		if d.Reserve("others") != nil {
			t.Error("a place on a queue that nobody receives from")
		}
		b.sender.takes = time.Minute
		first, second := d.Reserve(testQueue), d.Reserve(testQueue)
		if first == nil || second == nil || d.Reserve(testQueue) != nil {
			t.Fatal("not as many places as there are slots")
		}
		b.sendTo(first, "a")
		first.Leave()
		second.Leave()
		if _, handed := b.publish(d, "b"); !handed {
			t.Error("a place that was left is gone")
		}
		want(t, "handed over with all slots in use", d.Reserve(testQueue) == nil, true)
		time.Sleep(2 * time.Minute)
		want(t, "POSTs", b.sender.count(), 2)
		want(t, "in flight", d.Queue(testQueue).InFlight, 0)
		d.shares.mu.Lock()
		want(t, "parts in use", d.shares.inUse, 0)
		d.shares.mu.Unlock()
		if _, handed := b.publish(d, "c"); !handed {
			t.Error("the slots did not come free")
		}
	})
}

func TestNoPlaceWhereNoPostCanBegin(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.webhook.Flow.Concurrency = 1
		b.webhook = b.update(b.webhook)
		d, stop := b.start(func(o *Options) { o.PollMax = time.Second })
		defer stop()
		time.Sleep(time.Second)
		b.sender.answer = func(webhook.Request, int) webhook.Result { return webhook.Result{Status: 503, RetryAfter: "60"} }
		b.publish(d, "a")
		time.Sleep(100 * time.Millisecond)
		if d.Reserve(testQueue) != nil {
			t.Error("a place although the only webhook is paused")
		}
		b.webhook.Enabled = false
		b.update(b.webhook)
		d.RegistryChanged()
		time.Sleep(2 * time.Minute)
		if d.Reserve(testQueue) != nil {
			t.Error("a place although the only webhook is disabled")
		}
	})
}

func TestAPlaceThatIsRefusedTakesNothing(t *testing.T) {
	inBubble(t, func(b *bench) {
		d, stop := b.start(func(o *Options) { o.MaxInFlight, o.PollMin, o.PollMax = 1, time.Hour, time.Hour })
		defer stop()
		time.Sleep(time.Second)
		b.wantIdle(d)
		got, _ := d.shares.tryTake(testQueue, 1)
		want(t, "a place although all that may be in flight is", d.Reserve(testQueue) == nil, true)
		d.shares.give(testQueue, got)
		b.wantIdle(d)
	})
}

// What others put into the queue is looked for as often after a message that was handed over
// as after one that was received.
func TestPausesBeginAnewWithAMessageThatWasHandedOver(t *testing.T) {
	inBubble(t, func(b *bench) {
		d, stop := b.start(func(o *Options) { o.PollMax = time.Hour })
		defer stop()
		time.Sleep(10 * time.Hour)
		b.publish(d, "a")
		time.Sleep(time.Second)
		b.send("b")
		time.Sleep(3 * time.Second)
		want(t, "POSTs", b.sender.count(), 2)
	})
}

// A stop waits for a publish that has a place, and gives its message back.
func TestAMessageThatIsHandedOverAtTheStopIsGivenBack(t *testing.T) {
	inBubble(t, func(b *bench) {
		d, stop := b.start(nil)
		time.Sleep(time.Second)
		place := d.Reserve(testQueue)
		stopped := make(chan struct{})
		go func() { stop(); close(stopped) }()
		time.Sleep(time.Second)
		select {
		case <-stopped:
			t.Error("stopped while a message was being sent")
		default:
		}
		if d.Reserve(testQueue) != nil {
			t.Error("a place although nothing is received any more")
		}
		b.sendTo(place, "a")
		place.Leave()
		<-stopped
		want(t, "POSTs", b.sender.count(), 0)
		depth, err := b.queue(testQueue).Depth(b.t.Context())
		if err != nil || depth.Visible != 1 {
			t.Errorf("depth %+v, %v: the message should be there for others at once", depth, err)
		}
	})
}
