package dispatcher

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

// A message was delivered, its process died before the delete, and the next one can't read
// what is on record for a while: the message waits, and is deleted without a POST (C55).
func TestAMessageThatMayHaveBeenDeliveredWaitsUntilTheStoreCanBeAsked(t *testing.T) {
	for _, down := range []time.Duration{2 * time.Second, 10 * time.Minute, 2 * time.Hour} {
		t.Run(down.String(), func(t *testing.T) {
			inBubble(t, func(b *bench) {
				sent := b.send("x")
				b.receivedInVain()
				b.recorded(sent, tables.Delivered)
				var dead outage
				b.store.on("load", dead.rule(failBefore))
				_, stop := b.start(nil)
				defer stop()
				time.Sleep(down)
				want(t, "POSTs while nothing can be read", b.sender.count(), 0)
				want(t, "messages meanwhile", b.total(testQueue), 1)
				dead.end()
				time.Sleep(doubtDelayMax + 15*time.Second)
				want(t, "POSTs", b.sender.count(), 0)
				want(t, "messages left", b.total(testQueue), 0)
				want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
			})
		})
	}
}

// The same where only the claim on its event tells: the record was lost with the process, and claims can't be read for
// a while.
func TestAnEventThatMayHaveBeenDeliveredWaitsUntilItsClaimCanBeAsked(t *testing.T) {
	for _, delivered := range []bool{true, false} {
		t.Run(fmt.Sprint("delivered ", delivered), func(t *testing.T) {
			inBubble(t, func(b *bench) {
				if delivered {
					b.store.on("record", always(failBefore))
					b.queues.on("complete", always(failBefore))
					_, stop := b.start(byEvent)
					b.send(event("1", "a"))
					time.Sleep(time.Minute)
					b.severed()
					stop()
					b.restored()
				} else {
					b.send(event("1", "a"))
					b.receivedInVain()
				}
				before := b.sender.count()
				var dead outage
				b.store.on("claim", dead.rule(failBefore))
				_, stop := b.start(byEvent)
				defer stop()
				time.Sleep(10 * time.Minute)
				want(t, "POSTs while its claim can't be read", b.sender.count(), before)
				want(t, "messages meanwhile", b.total(testQueue), 1)
				dead.end()
				time.Sleep(doubtDelayMax + 15*time.Second)
				want(t, "POSTs", b.sender.count(), 1)
				want(t, "messages left", b.total(testQueue), 0)
				want(t, "noted as suspected", strings.Contains(b.log.String(), "many times without an outcome"), false)
			})
		})
	}
}

// A life that is no longer than the time for the last POST is no reason to make a second one.
func TestAMessageInDoubtThatLivesShortlyWaitsToo(t *testing.T) {
	for _, life := range []time.Duration{20 * time.Second, time.Minute, doubtMargin} {
		t.Run(life.String(), func(t *testing.T) {
			inBubble(t, func(b *bench) {
				sent := b.sendText([]byte("x"), queue.SendOptions{TTL: life})
				b.receivedInVain()
				b.recorded(sent, tables.Delivered)
				var dead outage
				b.store.on("load", dead.rule(failBefore))
				_, stop := b.start(nil)
				defer stop()
				time.Sleep(life / 4)
				dead.end()
				time.Sleep(life / 2)
				want(t, "POSTs", b.sender.count(), 0)
				want(t, "messages left", b.total(testQueue), 0)
			})
			inBubble(t, func(b *bench) {
				b.sendText([]byte("x"), queue.SendOptions{TTL: life})
				b.receivedInVain()
				b.store.on("load", always(failBefore))
				_, stop := b.start(nil)
				defer stop()
				time.Sleep(life)
				want(t, "POSTs of what can't be looked up until its end", b.sender.count(), 1)
			})
		})
	}
}

// What waited in doubt was received many times, which says nothing against it when storage is back.
func TestWhatWaitedInDoubtIsNotSuspectedOfKillingItsProcess(t *testing.T) {
	inBubble(t, func(b *bench) {
		const messages = 20
		b.sendNumbered(messages)
		b.receivedInVain()
		var dead outage
		b.store.on("load", dead.rule(failBefore))
		_, stop := b.start(nil)
		defer stop()
		time.Sleep(time.Hour)
		want(t, "POSTs while nothing can be read", b.sender.count(), 0)
		dead.end()
		time.Sleep(doubtDelayMax + 15*time.Second)
		want(t, "POSTs", b.sender.count(), messages)
		want(t, "messages left", b.total(testQueue), 0)
		want(t, "noted as suspected", strings.Contains(b.log.String(), "many times without an outcome"), false)
	})
}

// Rather twice than never: when its life is nearly over, a message is POSTed although
// nobody can tell whether it was delivered.
func TestAMessageInDoubtIsPostedBeforeItsLifeIsOver(t *testing.T) {
	inBubble(t, func(b *bench) {
		const life = 30 * time.Minute
		b.sendText([]byte("x"), queue.SendOptions{TTL: life})
		b.receivedInVain()
		b.store.on("load", always(failBefore))
		sentAt := time.Now()
		_, stop := b.start(nil)
		defer stop()
		time.Sleep(life - doubtMargin - time.Second)
		want(t, "POSTs before the last minutes", b.sender.count(), 0)
		time.Sleep(doubtMargin)
		want(t, "POSTs", b.sender.count(), 1)
		if late := b.sender.posts[0].at.Sub(sentAt); late > life-30*time.Second {
			t.Errorf("POSTed %s after it was sent, with a life of %s", late, life)
		}
		want(t, "messages left", b.total(testQueue), 0)
	})
}

// recorded notes the message's first delivery as an earlier process did.
func (b *bench) recorded(sent queue.Sent, state tables.State) {
	b.t.Helper()
	key := tables.MessageKey{Queue: testQueue, MessageID: sent.ID, Day: sent.InsertedAt}
	if err := b.db.Record(b.t.Context(), tables.Record{Deliveries: []tables.Delivery{{
		MessageKey: key, WebhookID: "wh_a", State: state, Attempts: 1, Charged: 1, UpdatedAt: time.Now().UTC(),
	}}}); err != nil {
		b.t.Fatal(err)
	}
}

// receivedInVain receives what is visible and gives it back, as a process that died did.
func (b *bench) receivedInVain() {
	b.t.Helper()
	q := b.queue(testQueue)
	got, err := q.Receive(b.t.Context(), 32, time.Second)
	if err != nil || len(got) == 0 {
		b.t.Fatal(len(got), err)
	}
	for _, m := range got {
		if err := q.Abandon(b.t.Context(), m, 0); err != nil {
			b.t.Fatal(err)
		}
	}
}

// A queue that joins while the receivers of all others hang gets its first POST within a
// second, whatever the limits are (C58).
func TestAQueueThatJoinsWhileAllOthersHangGetsItsFirstPostWithinASecond(t *testing.T) {
	for _, tt := range []struct{ limit, hanging int }{{2, 1}, {2, 5}, {40, 10}, {1024, 30}} {
		t.Run(fmt.Sprintf("limit %d, %d queues hang", tt.limit, tt.hanging), func(t *testing.T) {
			inBubble(t, func(b *bench) {
				hang := make(chan struct{})
				first := make(chan time.Time, 1)
				sender := senderByWebhook(func(ctx context.Context, w *webhook.Webhook, _ webhook.Request) webhook.Result {
					if w.Queue != "newcomer" {
						select {
						case <-hang:
						case <-ctx.Done():
							return webhook.Result{ErrorClass: "canceled"}
						}
						return webhook.Result{Status: 200}
					}
					select {
					case first <- time.Now():
					default:
					}
					return webhook.Result{Status: 200}
				})
				for i := range tt.hanging {
					name := fmt.Sprintf("hanging-%d", i)
					b.register("wh_"+name, func(r *tables.Registration) { r.Queue = name })
					for range 70 {
						if _, err := b.queue(name).Send(b.t.Context(), []byte("x"), queue.SendOptions{}); err != nil {
							t.Fatal(err)
						}
					}
				}
				d, stop := b.start(func(o *Options) { o.Sender, o.MaxInFlight, o.Drain = sender, tt.limit, time.Second })
				defer stop()
				defer close(hang)
				time.Sleep(20 * time.Second) // all places are taken
				for range 5 {
					if _, err := b.queue("newcomer").Send(b.t.Context(), []byte("x"), queue.SendOptions{}); err != nil {
						t.Fatal(err)
					}
				}
				joined := time.Now()
				b.register("wh_newcomer", func(r *tables.Registration) { r.Queue = "newcomer" })
				d.RegistryChanged()
				time.Sleep(5 * time.Second)
				select {
				case at := <-first:
					if late := at.Sub(joined); late > time.Second {
						t.Errorf("the first POST came after %s", late)
					}
				default:
					t.Error("no POST within 5 s")
				}
				want(t, "messages of the newcomer that are left", b.total("newcomer"), 0)
			})
		})
	}
}

type senderByWebhook func(context.Context, *webhook.Webhook, webhook.Request) webhook.Result

func (f senderByWebhook) Send(ctx context.Context, w *webhook.Webhook, r webhook.Request) webhook.Result {
	return f(ctx, w, r)
}
