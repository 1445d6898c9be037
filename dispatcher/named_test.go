package dispatcher

import (
	"context"
	"testing"
	"time"

	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

// The first record of a message says which other webhooks it is due to: their registrations may have been dated by a clock that
// is ahead, or after the message was inserted.

func TestAWebhookThatWasRegisteredByAClockThatIsAheadGetsItsMessages(t *testing.T) { // I1
	for _, ahead := range []time.Duration{50 * time.Second, time.Hour} {
		inBubble(t, func(b *bench) {
			b.webhook.CreatedAt = time.Now().Add(ahead)
			b.webhook = b.update(b.webhook)
			b.register("wh_b", nil)
			b.sender.answer = statuses(503, 200)
			time.Sleep(10 * time.Second)
			sent := b.send("x")
			b.killedBeside(func(*Options) {}) // in the POST to wh_a, after the other one's answer
			b.sender.answer = statuses(200)
			_, stop := b.start(nil)
			time.Sleep(5 * time.Minute)
			stop()
			want(t, "state of the one that was tried", b.delivery(sent, "wh_b").State, tables.Delivered)
			want(t, "state of the one whose POST was killed", b.delivery(sent, "wh_a").State, tables.Delivered)
			want(t, "messages left", b.total(testQueue), 0)
		})
	}
}

func TestAWebhookThatWasRegisteredAfterAMessageGetsItThoughTheFirstReceiveHadNoTimeForIt(t *testing.T) { // I1
	inBubble(t, func(b *bench) {
		b.webhook.Enabled = false // its delivery is held, and recorded
		b.webhook = b.update(b.webhook)
		sent := b.send("x")
		time.Sleep(5 * time.Second)
		b.register("wh_b", nil)
		d, stop := b.startHosted()
		q := b.queue(testQueue)
		got, err := q.Receive(b.t.Context(), 1, time.Minute)
		if err != nil || len(got) != 1 {
			b.t.Fatal(len(got), err)
		}
		short := WithPostDeadline(b.t.Context(), time.Now().Add(time.Second), 10*time.Second)
		if _, err := d.HandleHosted(short, q, got[0], func() {}); err != nil {
			b.t.Fatal(err)
		}
		stop()
		want(t, "POSTs", b.sender.count(), 0)
		want(t, "state of the one that is held", b.delivery(sent, "wh_a").State, tables.Held)
		want(t, "state of the other", b.delivery(sent, "wh_b").State, tables.Pending)
		_, stop = b.start(nil)
		time.Sleep(2 * time.Minute)
		stop()
		want(t, "state of the other", b.delivery(sent, "wh_b").State, tables.Delivered)
		want(t, "messages that wait for the first", b.total(testQueue), 1)
	})
}

// A webhook that was registered after the message is named, and one that was there before is not: who answers at once leaves one row.
func TestTheFirstRecordNamesWhoWasRegisteredAfterTheMessage(t *testing.T) {
	for name, c := range map[string]struct {
		registered time.Duration // after the message
		rows       int
	}{"before": {-time.Minute, 1}, "after": {time.Minute, 2}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				sent := b.send("x")
				b.register("wh_b", func(r *tables.Registration) { r.CreatedAt = sent.InsertedAt.Add(c.registered) })
				time.Sleep(2 * time.Minute)
				_, stop := b.start(func(o *Options) {
					o.Sender = anySender(func(ctx context.Context, w *webhook.Webhook, _ webhook.Request) webhook.Result {
						start := time.Now()
						if w.ID == "wh_b" {
							time.Sleep(10 * time.Second)
						}
						return webhook.Result{Status: 200, StartedAt: start, Duration: time.Since(start)}
					})
				})
				time.Sleep(5 * time.Second) // wh_a has answered
				ds, _, err := b.db.Message(b.t.Context(), testQueue, sent.ID)
				if err != nil || len(ds) != c.rows || ds[0].State != tables.Delivered {
					t.Errorf("%d deliveries, %v, want %d", len(ds), err, c.rows)
				}
				time.Sleep(10 * time.Second)
				stop()
				want(t, "state", b.delivery(sent, "wh_b").State, tables.Delivered)
				want(t, "attempts", b.delivery(sent, "wh_b").Attempts, 1)
				want(t, "messages left", b.total(testQueue), 0)
			})
		})
	}
}
