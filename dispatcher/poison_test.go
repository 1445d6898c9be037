package dispatcher

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

func rarely(o *Options) { o.PollMax, o.RegistryRefresh = time.Minute, time.Minute }

// killed lets any message's POST end its process.
func (b *bench) killed() { b.t.Helper(); b.killedBy("") }

// killedBy lets the POST of one message end its process: nothing is written any more,
// and what was in memory is gone.
func (b *bench) killedBy(id string) {
	b.t.Helper()
	var once sync.Once
	died := make(chan struct{})
	dead := func() {
		once.Do(func() { close(died) })
		b.store.on("record", always(failBefore))
		b.queues.on("abandon", always(failBefore))
		b.queues.on("complete", always(failBefore))
	}
	_, stop := b.start(func(o *Options) {
		o.Lease = 2 * time.Second
		o.Drain = time.Second
		o.Sender = anySender(func(ctx context.Context, w *webhook.Webhook, r webhook.Request) webhook.Result {
			if id == "" || id == r.MessageID {
				dead()
			}
			return b.sender.Send(ctx, w, r)
		})
	})
	select {
	case <-died:
	case <-time.After(10 * time.Minute):
	}
	stop()
	b.store.on("record", nil)
	b.queues.on("abandon", nil)
	b.queues.on("complete", nil)
	time.Sleep(10 * time.Second)
}

func TestMessageThatKillsItsProcessIsPoison(t *testing.T) {
	inBubble(t, func(b *bench) { // C06
		b.sender.answer = statuses(500)
		sent := b.send("x")
		kills := 0
		for ; len(b.deadLetters()) == 0 && kills < 50; kills++ {
			b.killed()
		}
		if most := 8 + poisonMargin + poisonProofs + 2; kills > most || b.sender.count() > most {
			t.Errorf("given up after %d starts and %d POSTs, want at most %d", kills, b.sender.count(), most)
		}
		list := b.deadLetters()
		want(t, "dead letters", len(list), 1)
		want(t, "reason", list[0].Reason, policy.PoisonMessage)
		want(t, "message", list[0].MessageID, sent.ID)
	})
}

// The POST that a killed process made is on no record. Its receiver knows it, and must not be told the same number again.
func TestAnAttemptOfAKilledProcessKeepsItsNumber(t *testing.T) { // C64
	inBubble(t, func(b *bench) {
		b.sender.answer = statuses(500, 500, 200)
		sent := b.send("x")
		b.killed()
		_, stop := b.start(nil)
		time.Sleep(5 * time.Minute)
		stop()
		want(t, "numbers that the receiver was told", fmt.Sprint(b.sender.numbers()), "[1 2 3]")
		want(t, "numbers on record", fmt.Sprint(b.numbers(sent)), "[2 3]")
		want(t, "attempts on record", b.delivery(sent, "wh_a").Attempts, 2)
	})
}

// A receive that was put off and is remembered here counts once, and not with each one that is on record since.
func TestAReceiveThatWasPutOffTakesNoNumberOfAnAttempt(t *testing.T) { // C64
	inBubble(t, func(b *bench) {
		b.sender.answer = statuses(500, 500, 500, 200)
		sent := b.send("x")
		b.killed()
		var dead outage
		b.store.on("load", dead.rule(failBefore))
		_, stop := b.start(nil)
		time.Sleep(20 * time.Second)
		dead.end()
		time.Sleep(20 * time.Minute)
		stop()
		want(t, "numbers that the receiver was told", fmt.Sprint(b.sender.numbers()), "[1 2 3 4]")
		want(t, "numbers on record", fmt.Sprint(b.numbers(sent)), "[2 3 4]")
	})
}

// Each receive has an outcome of each webhook: what is on record must not count a missing one away, or an attempt takes the
// number, and so the row, of another one.
func TestAttemptsAtSeveralWebhooksKeepTheirNumbers(t *testing.T) { // C64
	inBubble(t, func(b *bench) {
		b.register("wh_b", func(*tables.Registration) {})
		b.sender.answer = statuses(500, 500, 500, 500, 200)
		sent := b.send("x")
		b.killed()
		before := len(b.sender.numbers())
		_, stop := b.start(nil)
		time.Sleep(5 * time.Minute)
		stop()
		want(t, "attempts on record", len(b.numbers(sent)), len(b.sender.numbers())-before)
		for _, id := range []string{"wh_a", "wh_b"} {
			if d := b.delivery(sent, id); d.State != tables.Delivered || d.Attempts < 2 {
				t.Errorf("%s is %s after %d attempts: two are needed", id, d.State, d.Attempts)
			}
		}
	})
}

// C06 with its values: the process ends whenever X is being sent, at most five attempts,
// and 20 others are in the queue.
func TestMessageThatKillsItsProcessLeavesItsNeighboursAlone(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.webhook.Policy.MaxAttempts = 5
		b.update(b.webhook)
		b.sender.takes = 300 * time.Millisecond // so that all die with X
		x := b.send("x")
		var others []queue.Sent
		for range 20 {
			others = append(others, b.send("other"))
		}
		kills := 0
		for ; len(b.deadLetters()) == 0 && kills < 50; kills++ {
			b.killedBy(x.ID)
		}
		if most := 5 + poisonMargin + poisonProofs + 2; kills > most {
			t.Errorf("given up after %d starts, want at most %d", kills, most)
		}
		_, stop := b.start(nil)
		time.Sleep(time.Minute)
		stop()
		list := b.deadLetters()
		want(t, "dead letters", len(list), 1)
		want(t, "message", list[0].MessageID, x.ID)
		want(t, "reason", list[0].Reason, policy.PoisonMessage)
		for _, s := range others {
			want(t, "state of another message", b.delivery(s, "wh_a").State, tables.Delivered)
		}
		want(t, "messages left", b.total(testQueue), 0)
	})
}

// Suspected messages come one at a time, so that what kills the process says nothing about
// those before it: they are on record by then, although their deletes take long.
func TestASuspectedMessageIsOnRecordBeforeTheNextOne(t *testing.T) {
	inBubble(t, func(b *bench) {
		all := []queue.Sent{b.send("x"), b.send("y"), b.send("z")}
		for range 8 + poisonMargin + 2 {
			if got, err := b.queue(testQueue).Receive(b.t.Context(), 32, 2*time.Second); err != nil || len(got) != len(all) {
				t.Fatalf("received %d, %v", len(got), err)
			}
			time.Sleep(3 * time.Second)
		}
		b.together.before = func(*queue.Message) { time.Sleep(time.Second) }
		posts := 0
		_, stop := b.start(func(o *Options) {
			o.Sender = anySender(func(ctx context.Context, w *webhook.Webhook, r webhook.Request) webhook.Result {
				delivered := 0
				for _, s := range all {
					if del := b.delivery(s, "wh_a"); del.State == tables.Delivered && del.MissingRecords == 0 {
						delivered++
					}
				}
				want(t, "on record before the next POST", delivered, posts)
				posts++
				return b.sender.Send(ctx, w, r)
			})
		})
		time.Sleep(time.Minute)
		stop()
		want(t, "POSTs", posts, len(all))
		want(t, "messages left", b.total(testQueue), 0)
	})
}

func TestMessageThatAlwaysEndsInAPanicIsPoison(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.answer = func(webhook.Request, int) webhook.Result { panic("boom") }
		_, stop := b.start(rarely)
		b.send("x")
		time.Sleep(4 * time.Hour)
		stop()
		list := b.deadLetters()
		want(t, "dead letters", len(list), 1)
		want(t, "reason", list[0].Reason, policy.PoisonMessage)
	})
}

func TestReceivesThatCameToNothingAreNoPoison(t *testing.T) {
	t.Run("their answers were lost", func(t *testing.T) {
		inBubble(t, func(b *bench) { // I3
			b.sender.answer = statuses(500, 500, 500, 500, 200)
			sent := b.send("x")
			for range 40 {
				if _, err := b.queue(testQueue).Receive(b.t.Context(), 1, 2*time.Second); err != nil {
					t.Fatal(err)
				}
				time.Sleep(3 * time.Second)
			}
			_, stop := b.start(rarely)
			time.Sleep(time.Hour)
			stop()
			want(t, "POSTs", b.sender.count(), 5)
			want(t, "dead letters", len(b.deadLetters()), 0)
			want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
			want(t, "missing records", b.delivery(sent, "wh_a").MissingRecords, 0)
		})
	})
	t.Run("it could not be given back with its delay", func(t *testing.T) {
		inBubble(t, func(b *bench) {
			b.queues.on("abandon", always(failBefore))
			b.sender.answer = statuses(500, 500, 500, 500, 500, 200)
			_, stop := b.start(rarely)
			b.send("x")
			time.Sleep(3 * time.Hour)
			stop()
			want(t, "POSTs", b.sender.count(), 6)
			want(t, "dead letters", len(b.deadLetters()), 0)
		})
	})
	t.Run("its dead letter could not be read for the replay", func(t *testing.T) {
		inBubble(t, func(b *bench) {
			b.sender.answer = statuses(400, 200)
			_, stop := b.start(nil)
			b.send("x")
			time.Sleep(10 * time.Second)
			stop()
			b.replay(b.deadLetters()[0].ID, "token-1")
			unread := &unreadable{Store: b.store}
			_, stop = b.start(func(o *Options) { rarely(o); o.Store = unread })
			time.Sleep(3 * time.Hour)
			unread.over.end()
			time.Sleep(time.Hour)
			stop()
			want(t, "POSTs", b.sender.count(), 2)
			want(t, "status", b.deadLetters()[0].Status, tables.Replayed)
		})
	})
}

// unreadable is a store whose dead letters can't be read until it is over.
type unreadable struct {
	Store
	over outage
}

func (s *unreadable) GetDeadLetter(ctx context.Context, id string) (tables.DeadLetter, error) {
	if !s.over.over.Load() {
		return tables.DeadLetter{}, errBefore
	}
	return s.Store.GetDeadLetter(ctx, id)
}

// killedBeside lets the POST to wh_a end its process, when what is recorded of the other
// webhooks has been written.
func (b *bench) killedBeside(change func(*Options)) {
	b.t.Helper()
	died := make(chan struct{})
	var once sync.Once
	_, stop := b.start(func(o *Options) {
		change(o)
		o.Lease, o.Drain = 2*time.Second, time.Second
		o.Sender = anySender(func(ctx context.Context, w *webhook.Webhook, r webhook.Request) webhook.Result {
			if w.ID != b.webhook.ID {
				return b.sender.Send(ctx, w, r)
			}
			time.Sleep(200 * time.Millisecond)
			for _, operation := range []string{"record", "claim", "finish-claim", "release-claim"} {
				b.store.on(operation, always(failBefore))
			}
			b.queues.on("abandon", always(failBefore))
			b.queues.on("complete", always(failBefore))
			once.Do(func() { close(died) })
			return webhook.Result{Status: 500, StartedAt: time.Now()}
		})
	})
	select {
	case <-died:
	case <-time.After(10 * time.Minute):
	}
	stop()
	for _, operation := range []string{"record", "claim", "finish-claim", "release-claim"} {
		b.store.on(operation, nil)
	}
	b.queues.on("abandon", nil)
	b.queues.on("complete", nil)
	time.Sleep(10 * time.Second)
}

// What is held for one webhook says nothing about a POST to another that kills.
func TestMessageThatKillsItsProcessIsPoisonAlsoWhileAnotherWebhookIsHeld(t *testing.T) {
	for _, disabled := range []bool{true, false} {
		t.Run(fmt.Sprint("disabled ", disabled), func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.register("wh_b", func(r *tables.Registration) { r.Enabled = !disabled })
				paused := tables.Health{WebhookID: "wh_b", Instance: "test", PausedUntil: time.Now().Add(24 * time.Hour), UpdatedAt: time.Now().Add(time.Second)}
				if err := b.db.PutHealth(b.t.Context(), paused); err != nil {
					t.Fatal(err)
				}
				b.send("x")
				kills := 0
				for ; len(b.deadLetters()) == 0 && kills < 50; kills++ {
					b.killedBeside(func(*Options) {})
				}
				if most := 8 + poisonMargin + poisonProofs + 2; kills > most {
					t.Errorf("given up after %d starts, want at most %d", kills, most)
				}
				want(t, "dead letters", len(b.deadLetters()), 1)
				want(t, "POSTs to the other webhook", b.sender.count(), 0)
			})
		})
	}
}

func TestAnEventThatOneWebhookGotIsDeliveredAlsoWhenItsMessageIsPoison(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.register("wh_b", nil)
		b.send(event("1", "a"))
		for kills := 0; len(b.deadLetters()) == 0 && kills < 50; kills++ {
			b.killedBeside(byEvent)
		}
		want(t, "dead letters", len(b.deadLetters()), 1)
		want(t, "the dead letter is for", b.deadLetters()[0].WebhookID, b.webhook.ID)
		want(t, "POSTs to the other webhook", b.sender.count(), 1)
		_, stop := b.start(byEvent)
		defer stop()
		second := b.send(event("1", "a"))
		time.Sleep(time.Minute)
		want(t, "POSTs to the other webhook after the copy", b.sender.count(), 1)
		b.wantDuplicate(second)
	})
}
