package dispatcher

import (
	"testing"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// startApart is start where queues and records are kept apart, as on Azure.
func (b *bench) startApart(change func(*Options)) (stop func()) {
	b.t.Helper()
	o := b.options(change)
	o.RecordedCompletes = nil
	_, stop = b.run(o, (*Dispatcher).Run)
	return stop
}

// recordDelivered is what a holder records whose webhook took the message.
func (b *bench) recordDelivered(sent queue.Sent) {
	b.t.Helper()
	key := tables.MessageKey{Queue: testQueue, MessageID: sent.ID, Day: sent.InsertedAt}
	if err := b.db.Record(b.t.Context(), tables.Record{Deliveries: []tables.Delivery{{
		MessageKey: key, WebhookID: "wh_a", State: tables.Delivered, Attempts: 1, Charged: 1, UpdatedAt: time.Now().UTC(),
	}}}); err != nil {
		b.t.Fatal(err)
	}
}

// The first holder's webhook took the message, the answer of a renewal was lost, and its record
// is slower than the rest of the lease (the model in docs/model).
func TestWhoFindsAReceiveWithoutAnOutcomeWaitsForItsRecord(t *testing.T) {
	for _, late := range []time.Duration{time.Second, retry.Delivered.Longest() - time.Second} {
		inBubble(t, func(b *bench) {
			sent := b.send("x")
			b.receivedInVain()
			stop := b.startApart(nil)
			defer stop()
			time.Sleep(late)
			b.recordDelivered(sent)
			time.Sleep(time.Minute)
			want(t, "POSTs", b.sender.count(), 0)
			want(t, "messages left", b.total(testQueue), 0)
			want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
		})
	}
}

func TestWhoWaitedInVainPostsAndWaitsNoMoreForTheSame(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.answer = statuses(500, 200)
		sent := b.send("x")
		b.receivedInVain()
		began := time.Now()
		stop := b.startApart(nil)
		defer stop()
		time.Sleep(retry.Delivered.Longest() - time.Second)
		want(t, "POSTs while it waits", b.sender.count(), 0)
		time.Sleep(time.Minute)
		want(t, "POSTs", b.sender.count(), 2)
		bound := retry.Delivered.Longest()
		if first := b.sender.posts[0].at.Sub(began); first < bound || first > bound+5*time.Second {
			t.Errorf("POSTed %s after the start, want about %s", first, bound)
		}
		if again := b.sender.posts[1].at.Sub(b.sender.posts[0].at); again > 10*time.Second {
			t.Errorf("the second attempt came %s after the first, which is on record", again)
		}
		want(t, "attempts charged", b.delivery(sent, "wh_a").Charged, 2)
	})
}

// Nothing is waited for where a record can't be late, and where the message has no time.
func TestNobodyWaitsForAnOutcomeThatCannotComeOrForLongerThanTheMessageLives(t *testing.T) {
	for name, c := range map[string]struct {
		apart bool
		ttl   time.Duration
	}{
		"in one file": {false, 0}, "short of life": {true, 2 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.sendText([]byte("x"), queue.SendOptions{TTL: c.ttl})
				b.receivedInVain()
				var stop func()
				if c.apart {
					stop = b.startApart(nil)
				} else {
					_, stop = b.start(nil)
				}
				defer stop()
				time.Sleep(5 * time.Second)
				want(t, "POSTs", b.sender.count(), 1)
			})
		})
	}
}

func TestAStopEndsTheWaitForAnOutcomeAndGivesTheMessageBack(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.send("x")
		b.receivedInVain()
		stop := b.startApart(func(o *Options) { o.Drain = time.Second })
		time.Sleep(5 * time.Second)
		asked := time.Now()
		stop()
		if took := time.Since(asked); took > time.Minute {
			t.Errorf("stopping took %s", took)
		}
		want(t, "POSTs", b.sender.count(), 0)
		want(t, "messages, visible again", len(b.visible()), 1)
	})
}

// What waits leaves the webhook's room to others.
func TestMessagesThatWaitForAnOutcomeKeepNoneOfTheOthersWaiting(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sendMany(30, queue.SendOptions{})
		for range 30 {
			q := b.queue(testQueue)
			got, err := q.Receive(b.t.Context(), 1, time.Hour)
			if err != nil || len(got) != 1 {
				t.Fatal(len(got), err)
			}
		}
		time.Sleep(time.Hour + time.Second)
		stop := b.startApart(nil)
		defer stop()
		time.Sleep(5 * time.Second)
		b.sendMany(10, queue.SendOptions{})
		time.Sleep(5 * time.Second)
		want(t, "POSTs of the others", b.sender.count(), 10)
		time.Sleep(time.Minute)
		want(t, "POSTs", b.sender.count(), 40)
	})
}
