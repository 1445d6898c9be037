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

// noPlace wants none to be given.
func (b *bench) noPlace(d *Dispatcher, queueName, although string) {
	b.t.Helper()
	if place := d.Reserve(queueName); place != nil {
		place.Leave() // or the stop would wait for it
		b.t.Errorf("a place although %s", although)
	}
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
		want(t, "in flight", statusOf(d, testQueue).InFlight, 0)
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
		b.noPlace(d, "others", "nobody receives from the queue")
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
		b.noPlace(d, testQueue, "all slots are in use")
		time.Sleep(2 * time.Minute)
		want(t, "POSTs", b.sender.count(), 2)
		want(t, "in flight", statusOf(d, testQueue).InFlight, 0)
		inHand, _ := d.admission.Counts()
		want(t, "in hand", inHand, 0)
		if _, handed := b.publish(d, "c"); !handed {
			t.Error("the slots did not come free")
		}
	})
}

// A receive that found nothing gives its room back to a receiver that waits for it, since that
// keeps every other one from slots.
func TestNobodyWaitsForRoomThatIsThere(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.webhook.Flow.Concurrency = 1
		b.webhook = b.update(b.webhook)
		b.send("a")
		d, stop := b.start(func(o *Options) { o.PollMin, o.PollMax = time.Hour, time.Hour })
		defer stop()
		time.Sleep(time.Second)
		b.send("b")
		d.Wake(testQueue)
		time.Sleep(time.Second)
		want(t, "POSTs", b.sender.count(), 2)
	})
}

// The poller does not wait for room here: it sleeps.
func TestNoPlaceBeyondTheRoomOfAWebhook(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.webhook.Flow.Concurrency = 1
		b.webhook = b.update(b.webhook)
		b.send("the queue is there")
		d, stop := b.start(func(o *Options) { o.PollMin, o.PollMax = time.Hour, time.Hour })
		defer stop()
		time.Sleep(time.Second)
		b.sender.mu.Lock()
		b.sender.takes = time.Minute
		b.sender.mu.Unlock()
		if _, handed := b.publish(d, "a"); !handed {
			t.Error("not handed over")
		}
		time.Sleep(time.Second)
		b.noPlace(d, testQueue, "the only webhook has all that it takes at a time")
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
		b.noPlace(d, testQueue, "the only webhook is paused")
		b.webhook.Enabled = false
		b.update(b.webhook)
		d.RegistryChanged()
		time.Sleep(2 * time.Minute)
		b.noPlace(d, testQueue, "the only webhook is disabled")
	})
}

func TestAPlaceThatIsRefusedTakesNothing(t *testing.T) {
	inBubble(t, func(b *bench) {
		d, stop := b.start(func(o *Options) { o.MaxInFlight, o.PollMin, o.PollMax = 1, time.Hour, time.Hour })
		defer stop()
		time.Sleep(time.Second)
		b.wantIdle(d)
		first := d.Reserve(testQueue)
		want(t, "a place although all that may be in flight is", d.Reserve(testQueue) == nil, true)
		first.Leave()
		b.wantIdle(d)
	})
}

// What others put into the queue is looked for as often after a message that was handed over
// as after one that was received.
func TestPausesBeginAnewWithAMessageThatWasHandedOver(t *testing.T) {
	inBubble(t, func(b *bench) {
		d, stop := b.start(func(o *Options) { o.PollMax = time.Hour })
		defer stop()
		b.send("the queue is there")
		time.Sleep(10 * time.Hour)
		_, handed := b.publish(d, "a")
		want(t, "handed over", handed, true)
		time.Sleep(30 * time.Second)
		b.send("b")
		time.Sleep(time.Minute)
		want(t, "POSTs", b.sender.count(), 3)
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
		b.noPlace(d, testQueue, "nothing is received any more")
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
