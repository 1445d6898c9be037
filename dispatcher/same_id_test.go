package dispatcher

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

// often makes a webhook try a message each minute, without end.
func often(r *tables.Registration) {
	r.Policy.MaxAttempts, r.Policy.Backoff.Max = 100, policy.Duration(time.Minute)
}

// change deletes (-id) and registers (+id) webhooks, one after the other. What is on the queue
// is received after each of them.
func (b *bench) change(d *Dispatcher, steps ...string) {
	b.t.Helper()
	for _, step := range steps {
		if id := step[1:]; step[0] == '+' {
			b.register(id, often)
		} else if err := b.db.DeleteWebhook(b.t.Context(), id, ""); err != nil {
			b.t.Fatal(err)
		}
		d.RegistryChanged()
		time.Sleep(3 * time.Minute)
	}
}

// A message that was withdrawn from a webhook is not done with it. Who registers the webhook anew
// under its own id gets the message, and it is never taken for a delivered one.
func TestAWebhookThatComesBackUnderItsOwnIdGetsWhatWasWithdrawnFromIt(t *testing.T) { // C56, C74
	for name, c := range map[string]struct{ steps, gets []string }{
		"and the other one is deleted": {[]string{"-wh_b", "+wh_b", "-wh_z"}, []string{"wh_b"}},
		"and the other one stays":      {[]string{"-wh_b", "+wh_b"}, []string{"wh_b", "wh_z"}},
		"twice":                        {[]string{"-wh_b", "+wh_b", "-wh_b", "+wh_b", "-wh_z"}, []string{"wh_b"}},
		"from another id, and back":    {[]string{"-wh_z", "+wh_c", "-wh_b", "+wh_b", "-wh_c"}, []string{"wh_b"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				if err := b.db.DeleteWebhook(b.t.Context(), "wh_a", ""); err != nil {
					t.Fatal(err)
				}
				b.register("wh_b", often)
				b.register("wh_z", often)
				rs := receivers{}
				var status atomic.Int64
				status.Store(500)
				for _, id := range []string{"wh_b", "wh_c", "wh_z"} {
					rs[id] = &receiver{takes: after(time.Millisecond), answer: func(time.Time) webhook.Result { return webhook.Result{Status: int(status.Load())} }}
				}
				d, stop := b.start(func(o *Options) { o.Sender = rs })
				defer stop()
				sent := b.sendMany(3, queue.SendOptions{TTL: day})
				time.Sleep(time.Minute)
				b.change(d, c.steps...)
				want(t, "messages before anybody took one", b.total(testQueue), int64(len(sent)))
				before := map[string]int{}
				for id, r := range rs {
					before[id] = r.count()
				}
				status.Store(200)
				time.Sleep(3 * time.Minute)
				for _, id := range slices.Sorted(maps.Keys(rs)) {
					posts := 0
					if slices.Contains(c.gets, id) {
						posts = len(sent)
					}
					want(t, "POSTs taken by "+id, rs[id].count()-before[id], posts)
				}
				want(t, "messages left", b.total(testQueue), 0)
				want(t, "dead letters", len(b.deadLetters()), 0)
				for _, s := range sent {
					for _, id := range c.gets {
						want(t, "state of "+id, b.delivery(s, id).State, tables.Delivered)
					}
				}
			})
		})
	}
}

// A process may die after it has withdrawn a message from a deleted webhook, before anything of
// another one is on record, and that one may be deleted too.
func TestAMessageThatWasOnlyWithdrawnEndsAsADeadLetter(t *testing.T) { // C56
	inBubble(t, func(b *bench) {
		sent := b.sendMany(1, queue.SendOptions{TTL: time.Hour})[0]
		b.receiveAndGiveBack()
		now := time.Now().UTC()
		if err := b.db.Record(b.t.Context(), tables.Record{Deliveries: []tables.Delivery{{
			MessageKey: tables.MessageKey{Queue: testQueue, MessageID: sent.ID, Day: sent.InsertedAt}, ExpiresAt: now.Add(time.Hour),
			WebhookID: "wh_a", State: tables.Withdrawn, Reason: policy.WebhookDeleted, FirstAt: now, LastAt: now, Attempts: 1, UpdatedAt: now,
		}}}); err != nil {
			t.Fatal(err)
		}
		b.deleteWebhook(nil)
		b.register("wh_b", func(r *tables.Registration) { r.Queue = "other" })
		_, stop := b.start(nil)
		time.Sleep(2 * time.Hour)
		stop()
		want(t, "messages left", b.total(testQueue), 0)
		b.wantDeadLetters(1, policy.WebhookDeleted)
		want(t, "it is about all webhooks", b.deadLetters()[0].WebhookID, "")
	})
}

// The webhook is deleted while a POST to it is under way whose lease is lost, and somebody else
// withdraws the message from it: it took the message all the same, and that is what is on record.
func TestAWebhookThatTookAMessageAfterItWasWithdrawnHasIt(t *testing.T) {
	for name, tt := range map[string]struct {
		answer webhook.Result
		state  tables.State
	}{
		"it took it":                {webhook.Result{Status: 200}, tables.Delivered},
		"a 200 that is no delivery": {webhook.Result{Status: 200, Steering: "dead-letter"}, tables.Withdrawn},
		"another try is asked for":  {webhook.Result{Status: 200, Steering: "abandon"}, tables.Withdrawn},
	} {
		t.Run(name, func(t *testing.T) { withdrawnMeanwhile(t, tt.answer, tt.state) })
	}
}

func withdrawnMeanwhile(t *testing.T, answer webhook.Result, state tables.State) {
	inBubble(t, func(b *bench) {
		var sent queue.Sent
		b.webhook.Policy.AllowSteering = true
		b.webhook = b.update(b.webhook)
		b.queues.on("renew", always(failBefore))
		b.store.on("note", always(failBefore))
		b.sender.answer = func(webhook.Request, int) webhook.Result {
			time.Sleep(10 * time.Second)
			if other, err := b.db.Queues().Queue(testQueue); err != nil {
				panic(err)
			} else if got, err := other.Receive(context.Background(), 1, time.Hour); err != nil || len(got) != 1 {
				panic(fmt.Sprint(got, err)) // somebody else has it
			}
			if err := b.db.Record(context.Background(), tables.Record{Deliveries: []tables.Delivery{{
				MessageKey: tables.MessageKey{Queue: testQueue, MessageID: sent.ID, Day: sent.InsertedAt}, WebhookID: "wh_a",
				State: tables.Withdrawn, Reason: policy.WebhookDeleted, UpdatedAt: time.Now().UTC(),
			}}}); err != nil {
				panic(err)
			}
			return answer
		}
		sent = b.send(`{"n":1}`)
		_, stop := b.start(func(o *Options) { o.Lease, o.PollMin, o.PollMax = 2*time.Second, time.Hour, time.Hour })
		time.Sleep(time.Minute)
		stop()
		want(t, "state", b.delivery(sent, "wh_a").State, state)
		want(t, "POSTs", b.sender.count(), 1)
	})
}
