package dispatcher

import (
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

// Who deletes a webhook and registers it anew means the same receiver.
func TestWhatADeletedWebhookHadTriedOrHeldGoesToThoseRegisteredNow(t *testing.T) {
	const messages = 20
	for name, c := range map[string]struct {
		answer webhook.Result
		first  int           // how many go on within seconds of the registration
		all    time.Duration // how soon all have
	}{
		"tried":  {webhook.Result{Status: 500}, 0, 3 * time.Minute},
		"paused": {webhook.Result{Status: 429, RetryAfter: "7200"}, messages - 1, 2 * time.Hour},
	} {
		for again, gap := range map[string]time.Duration{"at once": 0, "later": 11 * time.Minute} {
			t.Run(name+", anew "+again, func(t *testing.T) {
				inBubble(t, func(b *bench) { // C56
					bad := c.answer
					b.sender.answer = func(webhook.Request, int) webhook.Result { return bad }
					d, stop := b.start(func(o *Options) { o.RegistryRefresh = 10 * time.Minute })
					defer stop()
					sent := b.sendMany(1, queue.SendOptions{TTL: day})
					time.Sleep(10 * time.Second) // what comes after its answer is held where that asked for a pause
					sent = append(sent, b.sendMany(messages-1, queue.SendOptions{TTL: day})...)
					time.Sleep(time.Minute)
					b.deleteWebhook(d)
					time.Sleep(gap)
					posts := b.sender.count()
					bad = webhook.Result{Status: 200}
					b.register("wh_b", nil)
					b.register("wh_c", func(r *tables.Registration) {
						r.CreatedAt = r.CreatedAt.Add(time.Millisecond)
					})
					d.RegistryChanged()
					time.Sleep(15 * time.Second)
					want(t, "those that were held have gone on", b.sender.count()-posts >= 2*c.first, true)
					time.Sleep(c.all)
					want(t, "POSTs since", b.sender.count()-posts, 2*messages)
					want(t, "messages", b.total(testQueue), 0)
					for _, s := range sent {
						want(t, "state", b.delivery(s, "wh_b").State, tables.Delivered)
						want(t, "state of the second", b.delivery(s, "wh_c").State, tables.Delivered)
						if del := b.delivery(s, "wh_a"); del.State != "" { // some were never received
							want(t, "state of the deleted one", del.State, tables.Withdrawn)
							want(t, "reason", del.Reason, policy.WebhookDeleted)
						}
					}
				})
			})
		}
	}
}

// A process may die while it hands a message on, when one of the new webhooks has it and another
// one does not yet.
func TestHandingOnThatIsCutShortLeavesNobodyOut(t *testing.T) {
	inBubble(t, func(b *bench) {
		sent := b.send("x")
		first := time.Now().UTC()
		q := b.queue(testQueue)
		got, err := q.Receive(b.t.Context(), 1, time.Second)
		if err != nil || len(got) != 1 {
			b.t.Fatal(len(got), err)
		}
		if err := q.Abandon(b.t.Context(), got[0], 0); err != nil {
			b.t.Fatal(err)
		}
		b.deleteWebhook(nil)
		time.Sleep(time.Hour)
		b.register("wh_b", nil)
		b.register("wh_c", nil)
		time.Sleep(time.Second)
		now := time.Now().UTC()
		key := tables.MessageKey{Queue: testQueue, MessageID: sent.ID, Day: sent.InsertedAt}
		if err := b.db.Record(b.t.Context(), tables.Record{Deliveries: []tables.Delivery{
			{MessageKey: key, WebhookID: "wh_a", State: tables.Withdrawn, Reason: policy.WebhookDeleted, FirstAt: first, UpdatedAt: now},
			{MessageKey: key, WebhookID: "wh_b", State: tables.Delivered, FirstAt: now, UpdatedAt: now},
		}}); err != nil {
			b.t.Fatal(err)
		}
		_, stop := b.start(nil)
		time.Sleep(10 * time.Second)
		stop()
		want(t, "state of the second", b.delivery(sent, "wh_c").State, tables.Delivered)
		want(t, "messages", b.total(testQueue), 0)
		want(t, "POSTs", b.sender.count(), 1)
	})
}

// What another webhook took is nobody else's, also when that one was deleted too.
func TestWhatAnotherWebhookTookIsNotHandedOn(t *testing.T) {
	for _, both := range []bool{false, true} {
		inBubble(t, func(b *bench) {
			b.register("wh_z", nil)
			rs := receivers{
				"wh_a": {takes: after(time.Millisecond), answer: answers(500)},
				"wh_z": {takes: after(time.Millisecond), answer: answers(200)},
				"wh_b": {takes: after(time.Millisecond), answer: answers(200)},
			}
			d, stop := b.start(func(o *Options) { readRarely(o); o.Sender = rs })
			defer stop()
			b.sendMany(5, queue.SendOptions{TTL: day})
			time.Sleep(2 * time.Second)
			if both {
				if err := b.db.DeleteWebhook(b.t.Context(), "wh_z", ""); err != nil {
					b.t.Fatal(err)
				}
			}
			b.deleteWebhook(d)
			b.register("wh_b", nil)
			d.RegistryChanged()
			time.Sleep(30 * time.Minute)
			want(t, "POSTs to the new one", rs["wh_b"].count(), 0)
		})
	}
}
