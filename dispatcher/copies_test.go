package dispatcher

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/internal/sqlite"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

// deadLetterWithCopy makes a dead letter of a message that its webhook refuses, with a copy on the poison
// queue, while nobody receives from that.
func (b *bench) deadLetterWithCopy(body string) (sent queue.Sent, d tables.DeadLetter) {
	b.t.Helper()
	answer := b.sender.answer
	b.sender.answer = statuses(400)
	_, stop := b.start(nil)
	sent = b.send(body)
	time.Sleep(10 * time.Second)
	stop()
	b.sender.answer = answer
	list := b.deadLetters()
	want(b.t, "copied to", list[0].CopiedToQueue, poisonQueue)
	return sent, list[0]
}

// copyRecords are those under the id of the one message that was on the poison queue.
func (b *bench) copyRecords(id string) []tables.Delivery {
	b.t.Helper()
	deliveries, _, err := b.db.Message(b.t.Context(), poisonQueue, id)
	if err != nil {
		b.t.Fatal(err)
	}
	return deliveries
}

func (b *bench) copyID() string {
	b.t.Helper()
	list, err := b.queue(poisonQueue).Peek(b.t.Context(), 32)
	if err != nil || len(list) != 1 {
		b.t.Fatalf("%d copies, %v", len(list), err)
	}
	return list[0].ID
}

// C65: a webhook on the poison queue gets the copy of a dead letter as a replay of it, under the id of the original;
// also where the record that names the dead letter is gone.
func TestACopyThatAWebhookTakesEndsItsDeadLetter(t *testing.T) {
	for name, age := range map[string]time.Duration{"soon": 0, "after its record": 20 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				sent, d := b.deadLetterWithCopy(`{"n":1}`)
				copyID := b.copyID()
				want(t, "the copy's record names", b.copyRecords(copyID)[0].CopyOf(), d.ID)
				time.Sleep(age)
				if _, err := b.db.Expire(b.t.Context(), time.Now().Add(-8*24*time.Hour)); err != nil {
					t.Fatal(err)
				}
				b.retryPoison(0)
				b.sender.answer = statuses(500, 200)
				_, stop := b.start(nil)
				time.Sleep(10 * time.Minute)
				stop()
				want(t, "POSTs", b.sender.count(), 3)
				for _, p := range b.sender.posts[1:] {
					want(t, "webhook", p.webhook, "wh_retry")
					want(t, "id", p.request.MessageID, sent.ID)
					want(t, "body", string(p.request.Body), `{"n":1}`)
				}
				list := b.deadLetters()
				want(t, "dead letters", len(list), 1)
				want(t, "status", list[0].Status, tables.Replayed)
				want(t, "it was replayed a moment ago", time.Since(list[0].ReplayedAt) < time.Hour, true)
				want(t, "messages left", b.total(poisonQueue), 0)
			})
		})
	}
}

// C65: what is gone is gone, though its copy was still there, and a replay is not doubled by it.
func TestACopyWhoseDeadLetterIsDoneWithIsRemoved(t *testing.T) {
	inBubble(t, func(b *bench) {
		_, d := b.deadLetterWithCopy(`{"n":1}`)
		copyID := b.copyID()
		if err := b.db.DeleteDeadLetter(b.t.Context(), d.ID, ""); err != nil {
			t.Fatal(err)
		}
		b.retryPoison(0)
		_, stop := b.start(nil)
		time.Sleep(time.Minute)
		stop()
		want(t, "POSTs of the deleted one", b.sender.count(), 1)
		want(t, "copies left", b.total(poisonQueue), 0)
		rec := b.copyRecords(copyID)
		want(t, "state", rec[0].State, tables.Duplicate)
		want(t, "names", rec[0].CopyOf(), d.ID)
	})
	inBubble(t, func(b *bench) { // a replay is under way when the copy is received, and has an end an hour later
		sent, d := b.deadLetterWithCopy(`{"n":1}`)
		b.retryPoison(0)
		b.webhook.Enabled = false
		b.webhook = b.update(b.webhook)
		b.replay(d.ID, "token-1")
		dispatcher, stop := b.start(nil)
		time.Sleep(time.Hour)
		want(t, "POSTs while the replay waits", b.sender.count(), 1)
		want(t, "copies", b.total(poisonQueue), 1)
		b.setEnabled(dispatcher, true)
		time.Sleep(20 * time.Minute)
		stop()
		want(t, "POSTs", b.sender.count(), 2)
		want(t, "webhook", b.sender.posts[1].webhook, "wh_a")
		want(t, "id", b.sender.posts[1].request.MessageID, sent.ID)
		want(t, "copies left", b.total(poisonQueue), 0)
		want(t, "status", b.deadLetters()[0].Status, tables.Replayed)
	})
}

// C65: a copy that a webhook refuses makes no second dead letter; its own goes on waiting.
func TestACopyThatIsGivenUpLeavesItsDeadLetterWaiting(t *testing.T) {
	for name, answer := range map[string]func(webhook.Request, int) webhook.Result{
		"refused": statuses(400), "failed": statuses(500), "by one of two": statuses(400),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				_, d := b.deadLetterWithCopy(`{"n":1}`)
				copyID := b.copyID()
				b.retryPoison(0)
				if name == "by one of two" {
					b.register("wh_takes", func(r *tables.Registration) {
						r.Queue, r.Policy.Rules = poisonQueue, []policy.Rule{{Match: "400", Action: "complete"}}
					})
				}
				b.sender.answer = answer
				_, stop := b.start(nil)
				time.Sleep(3 * time.Hour)
				stop()
				list := b.deadLetters()
				want(t, "dead letters", len(list), 1)
				want(t, "which", list[0].ID, d.ID)
				want(t, "status", list[0].Status, tables.Waiting)
				want(t, "copies left", b.total(poisonQueue), 0)
				for _, rec := range b.copyRecords(copyID) {
					want(t, "names", rec.DeadLetterID, d.ID)
					want(t, "terminal", rec.State.Terminal() || rec.State == tables.Published, true)
				}
			})
		})
	}
}

// C65: a poison queue whose only webhook is deleted, and that gets another one later.
func TestACopyIsKnownAfterItsQueueWasLeft(t *testing.T) {
	inBubble(t, func(b *bench) {
		gone := b.register("wh_gone", func(r *tables.Registration) { r.Queue, r.Enabled = poisonQueue, false })
		sent, _ := b.deadLetterWithCopy(`{"n":1}`)
		d, stop := b.start(nil)
		b.deleteRegistered(d, gone)
		time.Sleep(2 * time.Hour)
		want(t, "it is held", b.copyRecords(b.copyID())[0].State, tables.Held)
		b.retryPoison(0)
		d.RegistryChanged()
		time.Sleep(20 * time.Minute)
		stop()
		want(t, "POSTs", b.sender.count(), 2)
		want(t, "id", b.sender.posts[1].request.MessageID, sent.ID)
		want(t, "status", b.deadLetters()[0].Status, tables.Replayed)
	})
}

// C65: copies have a life of their own. What ends with one is nothing but the copy, whether a webhook is there for its
// queue that can't be sent to, or none, so that the file ends it.
func TestACopyHasALifeOfItsOwn(t *testing.T) {
	for _, watched := range []bool{true, false} {
		bubble.Test(t, func(t *testing.T) {
			var counted atomic.Int64
			db, err := sqlite.Open(t.Context(), filepath.Join(bubble.Folder(t), "test.db"), sqlite.Options{
				OnExpired: func(_ string, n int64) { counted.Add(n) },
			})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { want(t, "closed", db.Close(), nil) }()
			b := newBench(t, db)
			if watched {
				b.register("wh_off", func(r *tables.Registration) { r.Queue, r.Enabled = poisonQueue, false })
			}
			b.sender.answer = statuses(400)
			_, stop := b.start(func(o *Options) { o.PoisonCopyTTL = 24 * time.Hour })
			b.send(`{"n":1}`)
			time.Sleep(22 * time.Hour)
			copyID := b.copyID()
			time.Sleep(3 * time.Hour)
			stop()
			want(t, "copies at the end", b.total(poisonQueue), 0)
			list := b.deadLetters()
			want(t, "dead letters", len(list), 1)
			want(t, "reason", list[0].Reason, policy.NonRetryableError)
			want(t, "status", list[0].Status, tables.Waiting)
			want(t, "messages that count as expired", counted.Load(), 0)
			for _, rec := range b.copyRecords(copyID) {
				if rec.WebhookID != "" || !watched { // which takes the place of what is said of it as a whole
					want(t, "state", rec.State, tables.DeadLettered)
				}
				want(t, "names", rec.DeadLetterID, list[0].ID)
			}
		})
	}
}
