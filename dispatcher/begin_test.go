package dispatcher

import (
	"context"
	"testing"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

// slowToBegin is a receiver whose name takes so long to be looked up: then the sender asks whether the POST may begin.
type slowToBegin struct {
	scripted
	lookup time.Duration
}

func (s *slowToBegin) Send(ctx context.Context, w *webhook.Webhook, r webhook.Request) webhook.Result {
	start := time.Now()
	retry.Sleep(ctx, s.lookup)
	if !r.Begin() {
		return webhook.Result{StartedAt: start, Duration: time.Since(start), ErrorClass: string(policy.ClassCanceled), NotBegun: true}
	}
	return s.scripted.Send(ctx, w, r)
}

// A lease is over before the connection is there: nothing is sent on it, and nothing is charged. Whoever has the
// message by then makes the one POST.
func TestAPostThatHadNotBegunInItsLeaseIsNotMade(t *testing.T) {
	for name, c := range map[string]struct {
		renews, told bool
		lookup       time.Duration
		first        int // POSTs of the first holder
	}{
		"kept":                  {true, true, 100 * time.Second, 1},
		"others were told":      {false, true, 100 * time.Second, 0},
		"others are being told": {false, true, 55 * time.Second, 0},
		"nobody knows":          {false, false, 100 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.webhook.Timeout = 110 * time.Second
				b.update(b.webhook)
				store, queues := &faultyStore{Store: b.db}, &faultyQueues{Service: b.db.Queues()}
				var receiving outage
				if !c.renews {
					queues.on("renew", always(failBefore))
				}
				first, second := &slowToBegin{scripted{answer: statuses(200)}, c.lookup}, &scripted{answer: statuses(200)}
				_, stop := b.start(func(o *Options) { o.Queues, o.Store, o.Instance, o.Sender = queues, store, "first", first })
				sent, start := b.send("x"), time.Now()
				time.Sleep(5 * time.Second)
				queues.on("receive", receiving.rule(failBefore))
				if !c.told {
					store.on("note", always(failBefore))
				}
				_, stopOther := b.start(func(o *Options) { o.Instance, o.Sender = "second", second })
				time.Sleep(105 * time.Second)
				want(t, "POSTs of the first", first.count(), c.first)
				store.on("note", nil)
				time.Sleep(5 * time.Minute)
				stop()
				stopOther()
				want(t, "POSTs of the first", first.count(), c.first)
				want(t, "POSTs of the second", second.count(), 1-c.first)
				if c.first == 0 { // it waits for no POST that was not made
					want(t, "the second one's comes soon", second.posts[0].at.Sub(start) < c.lookup+40*time.Second, true)
				}
				want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
				want(t, "attempts", b.delivery(sent, "wh_a").Attempts, 1)
				want(t, "attempts on record", len(b.attempts(sent)), 1)
			})
		})
	}
}

// A process that stands still past its lease has told nobody: the time alone says that the POST must not begin.
func TestAProcessThatStoodStillPastItsLeaseBeginsNoPost(t *testing.T) {
	inBubble(t, func(b *bench) {
		asked := 0
		stoodStill := senderFunc(func(_ context.Context, r webhook.Request) webhook.Result {
			lease := b.queues.received(r.MessageID).Lease
			if asked++; asked == 1 {
				lease.Renewed(lease.Receipt(), time.Now().Add(-2*time.Minute), time.Minute)
			}
			if !r.Begin() {
				return webhook.Result{ErrorClass: string(policy.ClassCanceled), NotBegun: true}
			}
			return b.sender.Send(b.t.Context(), &b.webhook.Webhook, r)
		})
		sent := b.send("x")
		_, stop := b.start(func(o *Options) { o.Sender = stoodStill })
		time.Sleep(5 * time.Minute)
		stop()
		want(t, "asked", asked, 2)
		want(t, "POSTs", b.sender.count(), 1)
		want(t, "attempts", b.delivery(sent, "wh_a").Attempts, 1)
		want(t, "messages left", b.total(testQueue), 0)
	})
}

// Near the end of a message's life a lease that is over counts as ours, since nobody may be there to receive it again. What
// another instance has delivered by then gets no dead letter, and its event stays a delivered one.
func TestWhatAnotherInstanceHasDeliveredGetsNoDeadLetterAtTheEndOfItsLife(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.webhook.Timeout = 10 * time.Second
		b.update(b.webhook)
		silent, receiving := &faultyQueues{Service: b.db.Queues()}, &outage{}
		silent.on("renew", always(failBefore))
		untold := &faultyStore{Store: b.db}
		untold.on("note", always(failBefore))
		first, second := &slowToBegin{scripted{answer: statuses(200)}, 301 * time.Second}, &scripted{answer: statuses(200)}
		_, stop := b.start(func(o *Options) {
			byEvent(o)
			o.Queues, o.Store, o.Instance, o.Sender, o.Lease = silent, untold, "first", first, 30*time.Second
		})
		body := event("1", "a")
		sent := b.sendText([]byte(body), queue.SendOptions{TTL: 5 * time.Minute})
		time.Sleep(5 * time.Second)
		silent.on("receive", receiving.rule(failBefore))
		_, stopOther := b.start(func(o *Options) { byEvent(o); o.Instance, o.Sender = "second", second })
		time.Sleep(8 * time.Minute)
		stop()
		stopOther()
		_, stop = b.start(byEvent)
		b.send(body) // another copy
		time.Sleep(5 * time.Minute)
		stop()
		want(t, "POSTs of the other copy", b.sender.count(), 0)
		want(t, "POSTs", first.count()+second.count(), 1)
		want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
		want(t, "dead letters", len(b.deadLetters()), 0)
		want(t, "copies", b.total(tables.PoisonQueue(testQueue)), 0)
	})
}
