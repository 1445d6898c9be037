package dispatcher

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/internal/sqlite"
	"github.com/pushlease/pushlease/internal/sqlite/sqlitetest"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
	"github.com/pushlease/pushlease/webhook/content"
)

// deadLetterWithCopy makes a dead letter of a message that its webhook refuses, with a copy on the poison
// queue, while nobody receives from that.
func (b *bench) deadLetterWithCopy(body string) (sent queue.Sent, d tables.DeadLetter) {
	b.t.Helper()
	answer := b.sender.answer
	b.sender.answer = statuses(400)
	_, stop := b.start(nil)
	sent = b.send(body)
	time.Sleep(45 * time.Second) // the copy is hidden at first
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
// one whose record is gone is a message like any other.
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
				id, status := sent.ID, tables.Replayed
				if age > 0 {
					id, status = copyID, tables.Waiting
				}
				for _, p := range b.sender.posts[1:] {
					want(t, "webhook", p.webhook, "wh_retry")
					want(t, "id", p.request.MessageID, id)
					want(t, "body", string(p.request.Body), `{"n":1}`)
				}
				list := b.deadLetters()
				want(t, "dead letters", len(list), 1)
				want(t, "status", list[0].Status, status)
				want(t, "it was replayed a moment ago", time.Since(list[0].ReplayedAt) < time.Hour, age == 0)
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
		"refused": statuses(400), "failed": statuses(500), "by one of two": statuses(400), "unmatched": statuses(200),
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
				if name == "unmatched" {
					row, err := b.db.GetWebhook(b.t.Context(), "wh_retry")
					if err != nil {
						t.Fatal(err)
					}
					row.Filter = content.Filter{Types: []string{"never.sent"}}
					b.update(row)
				}
				b.sender.answer = answer
				_, stop := b.start(func(o *Options) {
					rarely(o)
					o.Store, o.KeepUnmatched = noSecondLetter{b.store, t}, func(string) bool { return true }
				})
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

// noSecondLetter wants no record of a copy that promises a dead letter of its own: who dies after it leaves that to be made.
type noSecondLetter struct {
	Store
	t *testing.T
}

func (s noSecondLetter) Record(ctx context.Context, r tables.Record) error {
	for _, del := range r.Deliveries {
		if del.Queue == poisonQueue && del.State == tables.DeadLettering {
			s.t.Errorf("a copy was recorded as %s with the dead letter %s", del.State, del.DeadLetterID)
		}
	}
	return s.Store.Record(ctx, r) //nolint:wrapcheck // as it is
}

// C65: what another program puts on the poison queue is never taken for a copy by its bytes, nor for one that is done with.
func TestAStrangersMessageWithTheBytesOfACopyIsDelivered(t *testing.T) {
	inBubble(t, func(b *bench) {
		sent, _ := b.deadLetterWithCopy(`{}`)
		b.retryPoison(0)
		before := b.sendPoison(`{}`)
		_, stop := b.start(nil)
		time.Sleep(10 * time.Second)
		after := b.sendPoison(`{}`)
		time.Sleep(time.Minute)
		stop()
		want(t, "POSTs", b.sender.count(), 4)
		ids := map[string]bool{}
		for _, p := range b.sender.posts[1:] {
			ids[p.request.MessageID] = true
		}
		for _, id := range []string{sent.ID, before.ID, after.ID} {
			want(t, "delivered "+id, ids[id], true)
		}
		want(t, "status", b.deadLetters()[0].Status, tables.Replayed)
	})
}

// C65: nobody receives a copy before the record that names its dead letter, also while that takes long.
func TestACopyIsShownAfterItsRecord(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.retryPoison(0)
		b.sender.answer = statuses(400)
		_, stopOther := b.start(func(o *Options) { o.Instance, o.Store = "other", b.db })
		time.Sleep(10 * time.Second)
		var down outage
		b.store.on("record", down.rule(failBefore))
		sent := b.send(`{}`)
		_, stop := b.start(nil)
		time.Sleep(6 * time.Second)
		down.end()
		time.Sleep(5 * time.Minute)
		stop()
		stopOther()
		want(t, "POSTs", b.sender.count(), 2)
		want(t, "id", b.sender.posts[1].request.MessageID, sent.ID)
	})
}

// C65: a copy waits while its dead letter can't be asked for, is no suspect for that, and is delivered before its life is over.
func TestACopyWhoseDeadLetterCantBeAskedForWaits(t *testing.T) {
	for name, ends := range map[string]bool{"for ever": false, "with a life": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.sender.answer = statuses(400, 200)
				_, stop := b.start(func(o *Options) {
					if ends {
						o.PoisonCopyTTL = 2 * time.Hour
					}
				})
				b.retryPoison(0)
				var down outage
				b.store.on("get-dead-letter", down.rule(failBefore))
				sent := b.send(`{}`)
				time.Sleep(time.Hour)
				want(t, "POSTs while nothing can be read", b.sender.count(), 1)
				want(t, "copies", b.total(poisonQueue), 1)
				if !ends {
					down.end()
				}
				time.Sleep(time.Hour)
				down.end()
				time.Sleep(time.Minute)
				stop()
				want(t, "POSTs", b.sender.count(), 2)
				want(t, "under its original's id", b.sender.posts[1].request.MessageID == sent.ID, !ends)
				want(t, "dead letters", len(b.deadLetters()), 1)
				want(t, "suspected", strings.Contains(b.log.String(), "many times without an outcome"), false)
			})
		})
	}
}

// C65: a replay whose message was never sent keeps the copy for as long as the row is reserved, and no longer.
func TestACopyDoesNotWaitForAReplayThatNeverCame(t *testing.T) {
	inBubble(t, func(b *bench) {
		sent, d := b.deadLetterWithCopy(`{}`)
		row, err := b.db.GetDeadLetter(b.t.Context(), d.ID)
		if err != nil {
			t.Fatal(err)
		}
		row.ReplayToken, row.Replays, row.ReplayedAt = "token-1", 1, time.Now().UTC()
		if _, err := b.db.UpdateDeadLetter(b.t.Context(), row); err != nil {
			t.Fatal(err)
		}
		b.retryPoison(0)
		_, stop := b.start(nil)
		time.Sleep(50 * time.Second)
		want(t, "POSTs while it is reserved", b.sender.count(), 1)
		time.Sleep(5 * time.Minute)
		stop()
		want(t, "POSTs", b.sender.count(), 2)
		want(t, "id", b.sender.posts[1].request.MessageID, sent.ID)
		want(t, "status", b.deadLetters()[0].Status, tables.Replayed)
	})
}

// C65: a copy that was delivered, and could not be deleted then, is no duplicate of its own original.
func TestADeliveredCopyThatComesBackIsNoDuplicate(t *testing.T) {
	inBubble(t, func(b *bench) {
		_, _ = b.deadLetterWithCopy(`{}`)
		copyID := b.copyID()
		b.retryPoison(0)
		var down outage
		b.queues.on("complete", down.rule(failBefore))
		_, stop := b.start(nil)
		time.Sleep(10 * time.Second)
		stop()
		want(t, "status", b.deadLetters()[0].Status, tables.Replayed)
		down.end()
		_, stop = b.start(nil)
		time.Sleep(10 * time.Minute)
		stop()
		want(t, "POSTs", b.sender.count(), 2)
		want(t, "copies left", b.total(poisonQueue), 0)
		for _, rec := range b.copyRecords(copyID) {
			want(t, "a duplicate", rec.State == tables.Duplicate, false)
		}
		want(t, "told as one that came back", strings.Contains(b.log.String(), "a message that was delivered came back"), true)
	})
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
			db, err := sqlite.Open(t.Context(), sqlitetest.File(t), sqlite.Options{
				OnExpired: func(e sqlite.Expired) { counted.Add(int64(e.Messages)) },
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
			_, stop := b.start(func(o *Options) { rarely(o); o.PoisonCopyTTL = 24 * time.Hour })
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

// lostLetters has lost its dead letters with their table.
type lostLetters struct{ Store }

func (lostLetters) HasLostDeadLetters(_ context.Context, of time.Time) (bool, error) {
	return time.Since(of) > time.Second, nil
}

// C85: a copy whose dead letter went with a table that another program dropped is all that is left of its message: it
// is delivered, and a dead letter of its own is made when it is given up.
func TestACopyWhoseDeadLetterWasLostIsAMessageOfItsOwn(t *testing.T) {
	for name, answer := range map[string]int{"taken": 200, "refused": 400} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				_, d := b.deadLetterWithCopy(`{"n":1}`)
				copyID := b.copyID()
				if err := b.db.DeleteDeadLetter(b.t.Context(), d.ID, ""); err != nil {
					t.Fatal(err)
				}
				b.retryPoison(0)
				b.sender.answer = statuses(answer)
				_, stop := b.start(func(o *Options) { o.Store = lostLetters{b.store} })
				time.Sleep(time.Minute)
				stop()
				want(t, "POSTs", b.sender.count(), 2)
				want(t, "id", b.sender.posts[1].request.MessageID, copyID)
				want(t, "body", string(b.sender.posts[1].request.Body), `{"n":1}`)
				want(t, "copies left", b.total(poisonQueue), 0)
				list := b.deadLetters()
				want(t, "a dead letter of its own", len(list) == 1 && list[0].Queue == poisonQueue, answer == 400)
			})
		})
	}
}
