package dispatcher

import (
	"context"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

// The dead letter of a webhook that is deleted before it could be written is written
// all the same, although another webhook has taken the message.
func TestDeadLetterIsOwedAlsoWhenItsWebhookIsDeleted(t *testing.T) {
	inBubble(t, func(b *bench) { // I1
		b.register("wh_b", nil)
		s := &perWebhook{scripted: b.sender, statuses: map[string][]int{"wh_a": {400}, "wh_b": {200}}}
		var down outage
		b.store.on("put-dead-letter", down.rule(failBefore))
		_, stop := b.start(func(o *Options) { o.Sender = s })
		sent := b.send("x")
		time.Sleep(20 * time.Second)
		if err := b.db.DeleteWebhook(b.t.Context(), "wh_a", ""); err != nil {
			b.t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		down.end()
		time.Sleep(10 * time.Minute)
		stop()
		list := b.deadLetters()
		if len(list) != 1 || list[0].WebhookID != "wh_a" {
			t.Errorf("dead letters: %+v, want one of wh_a", list)
		}
		want(t, "state", b.delivery(sent, "wh_a").State, tables.DeadLettered)
		want(t, "messages left", b.total(testQueue), 0)
		want(t, "POSTs", b.sender.count(), 2)
	})
}

// A message that was held for long has a high dequeue count, which its records
// explain. When a stop cuts the look at them short, that is no sign of poison.
func TestStopDuringTheLookAtRecordsIsNoPoison(t *testing.T) {
	inBubble(t, func(b *bench) { // I3
		sent := b.send("x")
		q := b.queue(testQueue)
		for range 40 {
			got, err := q.Receive(b.t.Context(), 1, time.Second)
			if err != nil || len(got) != 1 {
				b.t.Fatal(len(got), err)
			}
			if err := q.Abandon(b.t.Context(), got[0], 0); err != nil {
				b.t.Fatal(err)
			}
		}
		key := tables.MessageKey{Queue: testQueue, MessageID: sent.ID, Day: sent.InsertedAt}
		if err := b.db.Record(b.t.Context(), tables.Record{Deliveries: []tables.Delivery{{
			MessageKey: key, WebhookID: "wh_a", State: tables.Held, Reason: policy.WebhookDisabled, Excused: 40, UpdatedAt: time.Now().UTC(),
		}}}); err != nil {
			b.t.Fatal(err)
		}
		hanging := &hangingLoad{Store: b.store}
		_, stop := b.start(func(o *Options) { o.Store, o.Drain = hanging, time.Second })
		time.Sleep(2 * time.Second)
		stop()
		want(t, "state of the whole", b.delivery(sent, "").State, "")
		_, stop = b.start(nil)
		time.Sleep(time.Minute)
		stop()
		want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
		want(t, "dead letters", len(b.deadLetters()), 0)
	})
}

// hangingLoad answers no Load before its deadline.
type hangingLoad struct{ Store }

func (hangingLoad) Load(ctx context.Context, _ tables.MessageKey) ([]tables.Delivery, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// Noting that a disabled webhook has to wait does not delay the POST to another one.
func TestHoldingForOneWebhookDelaysNoOther(t *testing.T) {
	inBubble(t, func(b *bench) { // I8
		b.webhook.Enabled = false
		b.update(b.webhook)
		b.register("wh_b", nil)
		b.store.on("record", firstCalls(3, failBefore)) // each after a wait
		b.send("x")                                     // before the start: a poller that meets no queue yet waits
		before := time.Now()
		_, stop := b.start(nil)
		time.Sleep(5 * time.Second)
		stop()
		want(t, "POSTs", b.sender.count(), 1)
		if late := b.sender.posts[0].at.Sub(before); late > 150*time.Millisecond {
			t.Errorf("the POST began %s after the message was there", late)
		}
	})
}

// A process that ends between the records of two webhooks leaves one that nothing is known
// of. It is due to the message all the same when it was registered before the first
// attempt began, or in the second in which the message was inserted.
func TestWebhookWithoutARecordIsDueIfItWasThereAtTheFirstAttempt(t *testing.T) {
	for _, tt := range []struct {
		name string
		// registered and attempted are counted from the message's insertion; attempted 0
		// means that nothing was tried yet.
		registered, attempted time.Duration
		posts                 int
	}{
		{"registered before the first attempt", time.Hour, time.Hour + time.Minute, 1},
		{"registered after the first attempt", time.Hour + time.Minute, time.Hour, 0},
		{"registered in the second of the insertion", 700 * time.Millisecond, 0, 1},
		{"registered later, and nothing tried", time.Minute, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(b *bench) { // I1
				sent := b.send("x")
				b.receiveAndGiveBack()
				b.register("wh_b", func(r *tables.Registration) { r.CreatedAt = sent.InsertedAt.Add(tt.registered) })
				del := tables.Delivery{
					MessageKey: tables.MessageKey{Queue: testQueue, MessageID: sent.ID, Day: sent.InsertedAt}, WebhookID: "wh_a",
					State: tables.Delivered, Reason: policy.Delivered, UpdatedAt: time.Now().UTC(),
				}
				if tt.attempted > 0 {
					del.Attempts, del.Charged, del.FirstAt = 1, 1, sent.InsertedAt.Add(tt.attempted)
				}
				if err := b.db.Record(b.t.Context(), tables.Record{Deliveries: []tables.Delivery{del}}); err != nil {
					b.t.Fatal(err)
				}
				time.Sleep(2 * time.Hour)
				_, stop := b.start(nil)
				time.Sleep(time.Minute)
				stop()
				want(t, "POSTs", b.sender.count(), tt.posts)
				want(t, "messages left", b.total(testQueue), 0)
				if tt.posts > 0 {
					want(t, "state of wh_b", b.delivery(sent, "wh_b").State, tables.Delivered)
				}
			})
		})
	}
}

// receiveAndGiveBack is what a process does that ends without a trace, so far as the queue
// can tell.
func (b *bench) receiveAndGiveBack() {
	b.t.Helper()
	q := b.queue(testQueue)
	got, err := q.Receive(b.t.Context(), 1, time.Second)
	if err != nil || len(got) != 1 {
		b.t.Fatal(len(got), err)
	}
	if err := q.Abandon(b.t.Context(), got[0], 0); err != nil {
		b.t.Fatal(err)
	}
}
