package dispatcher

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/delivery"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
	"github.com/pushlease/pushlease/webhook/content"
)

// way is a change of a delivery's state, as two records tell it.
type way struct{ from, to tables.State }

// wayStore is a store that notes every change of state within a generation.
type wayStore struct {
	Store
	mu   sync.Mutex
	ways map[way]bool
}

func (w *wayStore) Record(ctx context.Context, r tables.Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := map[string]tables.Delivery{}
	if len(r.Deliveries) > 0 {
		known, err := w.Load(ctx, r.Deliveries[0].MessageKey)
		if err != nil {
			return err
		}
		for _, del := range known {
			before[del.WebhookID] = del
		}
	}
	if err := w.Store.Record(ctx, r); err != nil {
		return err
	}
	for _, del := range r.Deliveries {
		old, known := before[del.WebhookID]
		if known && old.Generation != del.Generation {
			old.State = "" // a replay
		}
		w.ways[way{old.State, del.State}] = true
	}
	return nil
}

// allowed reports whether the table has the way, at once or with a pending that was not recorded.
func (w way) allowed() bool {
	return w.from == w.to || slices.Contains(w.from.Next(), w.to) ||
		slices.Contains(w.from.Next(), tables.Pending) && slices.Contains(tables.Pending.Next(), w.to)
}

// lives are messages of which each goes some ways of the table.
var lives = map[string]func(b *bench, d *Dispatcher){
	"tried again, then delivered": func(b *bench, _ *Dispatcher) {
		b.sender.answer = statuses(500, 500, 200)
		b.send("x")
		time.Sleep(5 * time.Minute)
	},
	"given up, replayed, delivered": func(b *bench, _ *Dispatcher) {
		b.sender.answer = statuses(500, 400, 500, 200)
		b.send("x")
		time.Sleep(time.Minute)
		b.replay(b.deadLetters()[0].ID, "t")
		time.Sleep(10 * time.Minute)
	},
	"given up, and so is its copy": func(b *bench, d *Dispatcher) {
		b.sender.answer = statuses(400)
		b.send("x")
		time.Sleep(time.Minute)
		b.retryPoison(0)
		d.RegistryChanged()
		time.Sleep(time.Hour)
	},
	"given up, and no filter takes its copy": func(b *bench, d *Dispatcher) {
		b.sender.answer = statuses(400)
		b.send("x")
		time.Sleep(time.Minute)
		b.register("wh_never", func(r *tables.Registration) {
			r.Queue, r.Filter = poisonQueue, content.Filter{Types: []string{"never.sent"}}
		})
		d.RegistryChanged()
		time.Sleep(time.Hour)
	},
	"given up, and its copy held until the end of its life": func(b *bench, d *Dispatcher) {
		b.sender.answer = statuses(400)
		b.send("x")
		time.Sleep(time.Minute)
		b.register("wh_off", func(r *tables.Registration) { r.Queue, r.Enabled = poisonQueue, false })
		b.register("wh_later", func(r *tables.Registration) {
			r.Queue, r.Policy.Rules = poisonQueue, []policy.Rule{{Match: "400", Action: "abandon"}}
		})
		d.RegistryChanged()
		time.Sleep(4 * time.Hour)
	},
	"held for one webhook, delivered when it is enabled": func(b *bench, d *Dispatcher) {
		b.register("wh_b", nil)
		b.setEnabled(d, false)
		b.send("x")
		time.Sleep(time.Minute)
		b.setEnabled(d, true)
		time.Sleep(15 * time.Minute)
	},
	"tried, held, tried again": func(b *bench, d *Dispatcher) {
		b.register("wh_b", nil)
		b.sender.answer = statuses(500)
		d.RegistryChanged()
		b.send("x")
		time.Sleep(20 * time.Second)
		b.setEnabled(d, false)
		time.Sleep(15 * time.Minute)
		b.setEnabled(d, true)
		time.Sleep(30 * time.Minute)
	},
	"held until its end": func(b *bench, d *Dispatcher) {
		b.register("wh_b", nil)
		b.setEnabled(d, false)
		b.sendMany(1, queue.SendOptions{TTL: time.Hour})
		time.Sleep(2 * time.Hour)
	},
	"cut short near its end": func(b *bench, _ *Dispatcher) {
		b.sender.takes = time.Hour
		b.sendMany(1, queue.SendOptions{TTL: time.Minute})
		time.Sleep(time.Second)
	},
	"its webhook is deleted while another one takes it": func(b *bench, d *Dispatcher) {
		b.register("wh_b", func(r *tables.Registration) { r.Policy.Backoff.Initial = policy.Duration(10 * time.Minute) })
		b.sender.answer = statuses(500)
		d.RegistryChanged()
		b.send("x")
		time.Sleep(10 * time.Second)
		b.deleteWebhook(d)
		time.Sleep(time.Hour)
	},
	"held for a webhook that is deleted then": func(b *bench, d *Dispatcher) {
		b.register("wh_b", nil)
		b.setEnabled(d, false)
		b.send("x")
		time.Sleep(time.Minute)
		b.deleteWebhook(d)
		time.Sleep(15 * time.Minute)
	},
	"withdrawn while a POST is under way, which it takes": func(b *bench, d *Dispatcher) {
		known := make(chan queue.Sent, 1)
		b.queues.on("renew", always(failBefore))
		b.sender.answer = func(webhook.Request, int) webhook.Result {
			sent := <-known
			time.Sleep(2 * time.Minute) // longer than its lease: somebody else may have it
			withdrawn := tables.Delivery{
				MessageKey: tables.MessageKey{Queue: testQueue, MessageID: sent.ID, Day: sent.InsertedAt}, WebhookID: "wh_a",
				State: tables.Withdrawn, Reason: policy.WebhookDeleted, UpdatedAt: time.Now().UTC(),
			}
			if err := d.o.Store.Record(b.t.Context(), tables.Record{Deliveries: []tables.Delivery{withdrawn}}); err != nil {
				b.t.Error(err)
			}
			return webhook.Result{Status: 200}
		}
		known <- b.send("x")
		time.Sleep(3 * time.Minute)
	},
	"published, and refused by every filter": func(b *bench, d *Dispatcher) {
		b.refilter("invoice.*")
		d.RegistryChanged()
		time.Sleep(time.Second) // it is read
		b.published(paid)
		b.send(paid)
		time.Sleep(time.Minute)
	},
	"published where the only webhook is deleted then": func(b *bench, d *Dispatcher) {
		b.setEnabled(d, false)
		b.published("x")
		b.deleteWebhook(d)
		time.Sleep(time.Hour)
	},
	"published twice, with one event": func(b *bench, d *Dispatcher) {
		b.published(event("1", "a"))
		time.Sleep(time.Minute)
		b.published(event("1", "a"))
		b.send(event("1", "a"))
		time.Sleep(time.Minute)
	},
	"waits for another message with its event": func(b *bench, _ *Dispatcher) {
		b.sender.answer = statuses(500, 200)
		b.send(event("1", "a"))
		time.Sleep(time.Second)
		b.send(event("1", "a"))
		time.Sleep(10 * time.Minute)
	},
	"its claim has lapsed, and another message with its event is delivered": func(b *bench, d *Dispatcher) {
		b.sender.answer = func(_ webhook.Request, n int) webhook.Result {
			return webhook.Result{Status: []int{500, 200}[min(b.sender.count()-1, 1)], RetryAfter: "600"}
		}
		b.send(event("1", "a"))
		time.Sleep(10 * time.Second)
		if err := b.db.ReleaseClaim(b.t.Context(), b.claimOn("1")); err != nil {
			b.t.Fatal(err)
		}
		other, err := New(b.options(func(o *Options) { o.Store, o.ByEvent = d.o.Store, d.o.ByEvent })) // knows nothing of the first one
		if err != nil {
			b.t.Fatal(err)
		}
		defer other.stopWrite()
		b.send(event("1", "a"))
		m := b.receiveOne()
		want(b.t, "the other message is", other.handle(b.t.Context(), b.queue(testQueue), m, delivery.Usual(m, 0), nil, func() {}), "deleted")
		time.Sleep(20 * time.Minute)
	},
}

// published sends a message with the record that a publish through the API makes; it is shown when that is there.
func (b *bench) published(body string) {
	b.t.Helper()
	text, err := queue.Encode(queue.EncodingAuto, []byte(body), "")
	if err != nil {
		b.t.Fatal(err)
	}
	sent := b.sendText(text, queue.SendOptions{Delay: time.Second})
	if err := b.db.Record(b.t.Context(), tables.Record{Deliveries: []tables.Delivery{{
		MessageKey: tables.MessageKey{Queue: testQueue, MessageID: sent.ID, Day: sent.InsertedAt}, State: tables.Published,
	}}}); err != nil {
		b.t.Fatal(err)
	}
}

// The table of states is what happens: no record goes another way, and each way is gone.
func TestEveryChangeOfStateIsAWayOfTheTableAndEachWayIsGone(t *testing.T) {
	gone := map[way]bool{{"", tables.Published}: true} // by the API
	for name, live := range lives {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				w := &wayStore{Store: b.db, ways: map[way]bool{}}
				d, stop := b.start(func(o *Options) {
					o.Store = w
					o.ByEvent = func(string) bool { return true }
					o.PoisonCopyTTL, o.KeepUnmatched = 3*time.Hour, func(name string) bool { return name == poisonQueue }
				})
				live(b, d)
				stop()
				for one := range w.ways {
					if !one.allowed() {
						t.Errorf("a record goes from %q to %q", one.from, one.to)
					}
					gone[one] = true
					if one.from != one.to && !slices.Contains(one.from.Next(), one.to) { // by a pending that was not recorded
						gone[way{one.from, tables.Pending}], gone[way{tables.Pending, one.to}] = true, true
					}
				}
			})
		})
	}
	for _, from := range append(tables.States(), "") {
		for _, to := range from.Next() {
			if !gone[way{from, to}] {
				t.Errorf("nothing goes from %q to %q", from, to)
			}
		}
	}
}
