package dispatcher

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
	"github.com/pushlease/pushlease/webhook/content"
)

func (s *faultyStore) Claim(ctx context.Context, c tables.Claim, now time.Time) (current tables.Claim, won bool, err error) {
	err = s.do("claim", func() error { current, won, err = s.Store.Claim(ctx, c, now); return err })
	return current, won, err
}

func (s *faultyStore) FinishClaim(ctx context.Context, c tables.Claim) error {
	return s.do("finish-claim", func() error { return s.Store.FinishClaim(ctx, c) })
}

func (s *faultyStore) ReleaseClaim(ctx context.Context, c tables.Claim) error {
	return s.do("release-claim", func() error { return s.Store.ReleaseClaim(ctx, c) })
}

// event is a CloudEvents event.
func event(id, data string) string {
	return fmt.Sprintf(`{"specversion":"1.0","type":"order.placed","source":"/shop","id":%q,"data":%q}`, id, data)
}

// byEvent is a dispatcher on a queue whose messages are told apart by their event.
func byEvent(o *Options) { o.ByEvent = func(name string) bool { return name == testQueue } }

// byEventCounted is byEvent with counters.
func (b *bench) byEventCounted() (c *counters, stop func()) {
	_, stop = b.start(func(o *Options) { byEvent(o); c = newCounters(o) })
	return c, stop
}

// wantDuplicate wants a message to be gone without a POST, and its record to say so.
func (b *bench) wantDuplicate(sent queue.Sent) {
	b.t.Helper()
	del := b.delivery(sent, "")
	want(b.t, "state of the copy", del.State, tables.Duplicate)
	want(b.t, "reason of the copy", del.Reason, policy.Duplicate)
	want(b.t, "names the other message", del.SameEventAs != "" && del.SameEventAs != sent.ID, true)
	want(b.t, "attempts for the copy", len(b.attempts(sent)), 0)
}

func TestAnEventThatComesTwiceIsPostedOnce(t *testing.T) {
	inBubble(t, func(b *bench) { // R3
		c, stop := b.byEventCounted()
		first := b.send(event("1", "a"))
		time.Sleep(time.Minute)
		second := b.send(event("1", "a"))
		other := b.send(event("2", "a"))
		time.Sleep(time.Minute)
		stop()
		want(t, "POSTs", b.sender.count(), 2)
		want(t, "messages left", b.total(testQueue), 0)
		want(t, "state of the first", b.delivery(first, b.webhook.ID).State, tables.Delivered)
		want(t, "state of the other", b.delivery(other, b.webhook.ID).State, tables.Delivered)
		b.wantDuplicate(second)
		want(t, "duplicates", c.sum(b.t, "pushlease.messages.duplicate", "kind", "event"), 1)
		want(t, "settled as duplicates", c.sum(b.t, "pushlease.messages.settled", "reason", "Duplicate", "result", "deleted"), 1)
	})
}

func TestByMessageIDTwoMessagesOfOneEventAreTwoMessages(t *testing.T) {
	inBubble(t, func(b *bench) {
		_, stop := b.start(nil)
		b.send(event("1", "a"))
		b.send(event("1", "a"))
		time.Sleep(time.Minute)
		stop()
		want(t, "POSTs", b.sender.count(), 2)
		want(t, "claims asked for", b.store.count("claim"), 0)
	})
}

func TestACopyWaitsWhileTheEventIsBeingDelivered(t *testing.T) {
	for _, instances := range []int{1, 2} {
		t.Run(fmt.Sprint(instances, " instances"), func(t *testing.T) {
			inBubble(t, func(b *bench) { // C16 (c)
				b.sender.takes = 25 * time.Second
				var stops []func()
				for range instances {
					_, stop := b.start(byEvent)
					stops = append(stops, stop)
				}
				first, second := b.send(event("1", "a")), b.send(event("1", "a"))
				time.Sleep(20 * time.Second)
				want(t, "POSTs in flight", b.sender.count(), 1)
				want(t, "messages while the first is in flight", b.total(testQueue), 2)
				time.Sleep(10 * time.Minute)
				for _, stop := range stops {
					stop()
				}
				want(t, "POSTs", b.sender.count(), 1)
				want(t, "messages left", b.total(testQueue), 0)
				if b.delivery(first, b.webhook.ID).State == tables.Delivered {
					b.wantDuplicate(second)
				} else {
					b.wantDuplicate(first)
				}
			})
		})
	}
}

func TestACopyWaitsThroughAllRetriesAndTakesOverWhenTheyFail(t *testing.T) {
	tests := []struct {
		name                string
		answers             func(webhook.Request, int) webhook.Result
		posts               int
		duplicates, letters int
	}{
		{"retried, then delivered", statuses(503, 503, 503, 200), 4, 1, 0},
		{"given up, and so is the copy", statuses(503, 400), 4, 0, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.sender.answer = tt.answers
				c, stop := b.byEventCounted()
				b.send(event("1", "a"))
				time.Sleep(time.Second)
				b.send(event("1", "a"))
				time.Sleep(3 * time.Hour)
				stop()
				want(t, "POSTs", b.sender.count(), tt.posts)
				want(t, "messages left", b.total(testQueue), 0)
				want(t, "duplicates", c.sum(b.t, "pushlease.messages.duplicate", "kind", "event"), int64(tt.duplicates))
				want(t, "dead letters", len(b.deadLetters()), tt.letters)
			})
		})
	}
}

func TestDuplicatesAreKnownAfterARestartAndInOtherInstances(t *testing.T) {
	inBubble(t, func(b *bench) { // R3
		_, stop := b.start(byEvent)
		b.send(event("1", "a"))
		time.Sleep(time.Minute)
		stop()
		time.Sleep(6 * 24 * time.Hour)
		_, stop = b.start(byEvent)
		second := b.send(event("1", "a"))
		time.Sleep(time.Minute)
		stop()
		want(t, "POSTs", b.sender.count(), 1)
		b.wantDuplicate(second)
	})
}

func TestAfterTheWindowTheEventIsNew(t *testing.T) {
	inBubble(t, func(b *bench) {
		_, stop := b.start(byEvent)
		b.send(event("1", "a"))
		time.Sleep(time.Minute)
		stop()
		time.Sleep(tables.ClaimWindow)
		_, stop = b.start(byEvent)
		defer stop()
		if _, err := b.db.ExpireClaims(b.t.Context(), time.Now()); err != nil {
			t.Error(err)
		}
		b.send(event("1", "a"))
		time.Sleep(time.Minute)
		want(t, "POSTs", b.sender.count(), 2)
	})
}

// The owner of the claim died between the claim and the POST.
func TestAClaimOfADeadProcessIsTakenOver(t *testing.T) {
	inBubble(t, func(b *bench) { // C16 (a)
		sent := b.send(event("1", "a"))
		dead := tables.Claim{
			Key: tables.ClaimKey("event", testQueue, (&content.Event{Source: "/shop", ID: "1"}).Key()), Owner: "another message",
			At: sent.InsertedAt, Until: time.Now().Add(2 * time.Minute), BodyHash: bodyHash([]byte(event("1", "a"))),
		}
		if _, won, err := b.db.Claim(b.t.Context(), dead, time.Now()); err != nil || !won {
			t.Fatalf("claim: %v %v", won, err)
		}
		_, stop := b.start(byEvent)
		defer stop()
		time.Sleep(time.Minute)
		want(t, "POSTs while the claim lasts", b.sender.count(), 0)
		want(t, "state", b.delivery(sent, "").State, tables.Held)
		want(t, "reason", b.delivery(sent, "").Reason, policy.EventInWork)
		time.Sleep(5 * time.Minute)
		want(t, "POSTs", b.sender.count(), 1)
		want(t, "messages left", b.total(testQueue), 0)
	})
}

// A process that was killed leaves its own message claimed by that very message.
func TestARedeliveryIsNoCopyOfItself(t *testing.T) {
	for name, fault := range map[string]fault{"failed before": failBefore, "answer lost": answerLost} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.queues.on("complete", always(failBefore))
				b.queues.on("abandon", always(failBefore))
				b.store.on("claim", firstCalls(2, fault))
				_, stop := b.start(byEvent)
				b.send(event("1", "a"))
				time.Sleep(5 * time.Second)
				stop()
				b.queues.on("complete", nil)
				_, stop = b.start(byEvent)
				time.Sleep(5 * time.Minute)
				stop()
				want(t, "POSTs", b.sender.count(), 1)
				want(t, "messages left", b.total(testQueue), 0)
			})
		})
	}
}

func TestAStoreThatCanNotBeAskedIsNeitherYesNorNo(t *testing.T) {
	inBubble(t, func(b *bench) { // C16 (b)
		out := &outage{}
		b.store.on("claim", out.rule(failBefore))
		b.store.on("finish-claim", out.rule(failBefore))
		c, stop := b.byEventCounted()
		first := b.send(event("1", "a"))
		time.Sleep(5 * time.Minute)
		want(t, "POSTs", b.sender.count(), 1)
		want(t, "messages left", b.total(testQueue), 0)
		want(t, "state", b.delivery(first, b.webhook.ID).State, tables.Delivered)
		want(t, "counted", c.sum(b.t, "pushlease.dedup.lookup.failures"), 1)
		want(t, "claims that could not be ended", c.sum(b.t, "pushlease.dedup.claims.unfinished"), 1)
		// The first tier knows it still.
		second := b.send(event("1", "a"))
		third := b.send(event("2", "b"))
		time.Sleep(5 * time.Minute)
		want(t, "POSTs", b.sender.count(), 2)
		b.wantDuplicate(second)
		want(t, "state", b.delivery(third, b.webhook.ID).State, tables.Delivered)
		out.end()
		stop()
	})
}

// damagedClaims is a store in which another program has changed the claims.
type damagedClaims struct{ *faultyStore }

func (s damagedClaims) Claim(context.Context, tables.Claim, time.Time) (tables.Claim, bool, error) {
	return tables.Claim{}, false, tables.ErrDamaged
}

func TestACopyWhoseEventHasADamagedClaimWaitsUntilItIsMended(t *testing.T) {
	for _, mended := range []bool{true, false} {
		inBubble(t, func(b *bench) { // C86
			_, stop := b.start(byEvent)
			b.send(event("1", "a"))
			time.Sleep(time.Minute)
			stop()
			_, stop = b.start(func(o *Options) { byEvent(o); o.Store = damagedClaims{b.store} })
			second := b.sendText([]byte(event("1", "a")), queue.SendOptions{TTL: time.Hour})
			time.Sleep(30 * time.Minute)
			want(t, "POSTs", b.sender.count(), 1)
			want(t, "state", b.delivery(second, "").State, tables.Held)
			want(t, "reason", b.delivery(second, "").Reason, policy.EventInWork)
			if mended {
				stop()
				_, stop = b.start(byEvent)
			}
			time.Sleep(45 * time.Minute)
			stop()
			want(t, "POSTs", b.sender.count(), 1)
			want(t, "messages left", b.total(testQueue), 0)
			if mended {
				b.wantDuplicate(second)
				return
			}
			want(t, "dead letters", len(b.deadLetters()), 1)
		})
	}
}

func TestTheClaimIsMadeAfterwardsWhenTheStoreCouldNotBeAskedBefore(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.takes = 20 * time.Second
		b.store.on("claim", firstCalls(retry.Call.Tries, failBefore))
		_, stop := b.start(byEvent)
		b.send(event("1", "a"))
		time.Sleep(time.Minute)
		stop()
		_, stop = b.start(byEvent)
		second := b.send(event("1", "a"))
		time.Sleep(time.Minute)
		stop()
		want(t, "POSTs", b.sender.count(), 1)
		b.wantDuplicate(second)
	})
}

func TestAClaimWhoseEndIsNotAnsweredHoldsAllTheSame(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.store.on("finish-claim", always(answerLost))
		_, stop := b.start(byEvent)
		b.send(event("1", "a"))
		time.Sleep(time.Minute)
		stop()
		_, stop = b.start(byEvent)
		second := b.send(event("1", "a"))
		time.Sleep(time.Minute)
		stop()
		want(t, "POSTs", b.sender.count(), 1)
		b.wantDuplicate(second)
	})
}

func TestTheSameEventWithAnotherBodyIsDeliveredAndCounted(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("restart ", restart), func(t *testing.T) {
			inBubble(t, func(b *bench) { // C16 (d)
				c, stop := b.byEventCounted()
				b.send(event("1", "a"))
				time.Sleep(time.Minute)
				if restart {
					stop()
					c, stop = b.byEventCounted()
				}
				b.send(event("1", "b"))
				time.Sleep(time.Minute)
				stop()
				want(t, "POSTs", b.sender.count(), 2)
				want(t, "messages left", b.total(testQueue), 0)
				want(t, "conflicts", c.sum(b.t, "pushlease.dedup.conflicts"), 1)
				want(t, "warnings", strings.Count(b.log.String(), "have different bodies"), 1)
			})
		})
	}
}

func TestAnIdempotencyKeyCountsOnEveryQueue(t *testing.T) {
	inBubble(t, func(b *bench) {
		keyed := func(body, key string) queue.Sent {
			text, err := queue.EncodeEnvelope(queue.EncodingNone, queue.Body{Bytes: []byte(body), IdempotencyKey: key})
			if err != nil {
				t.Fatal(err)
			}
			return b.sendText(text, queue.SendOptions{})
		}
		_, stop := b.start(nil)
		keyed("hello", "k1")
		time.Sleep(time.Minute)
		second := keyed("hello", "k1")
		keyed("hello", "k2")
		time.Sleep(time.Minute)
		stop()
		want(t, "POSTs", b.sender.count(), 2)
		b.wantDuplicate(second)
	})
}

// An event that nobody got may come again: published anew, or as the dead letter's text
// put back by hand. A replay is POSTed whatever was delivered.
func TestAnEventThatNobodyGotMayComeAgain(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.answer = statuses(400)
		_, stop := b.start(byEvent)
		defer stop()
		b.send(event("1", "a"))
		time.Sleep(time.Minute)
		want(t, "dead letters", len(b.deadLetters()), 1)
		b.sender.answer = statuses(200)
		b.send(event("1", "a"))
		time.Sleep(time.Minute)
		want(t, "POSTs after it was put back", b.sender.count(), 2)
		b.replay(b.deadLetters()[0].ID, "token-1")
		time.Sleep(time.Minute)
		want(t, "POSTs after the replay", b.sender.count(), 3)
		want(t, "messages left", b.total(testQueue), 0)
	})
}

// What a replay brought to a webhook is delivered: its producer's copy is a duplicate, in
// another process and as long after the replay as it would be after a first delivery.
func TestAnEventThatAReplayDeliveredIsDelivered(t *testing.T) {
	for _, wait := range []time.Duration{time.Minute, 6 * 24 * time.Hour} {
		t.Run(wait.String(), func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.sender.answer = statuses(400, 503, 200)
				_, stop := b.start(byEvent)
				b.send(event("1", "a"))
				time.Sleep(time.Minute)
				stop()
				time.Sleep(wait)
				_, stop = b.start(byEvent)
				b.replay(b.deadLetters()[0].ID, "token-1")
				time.Sleep(time.Minute)
				want(t, "POSTs after the replay", b.sender.count(), 3)
				stop()
				time.Sleep(wait)
				_, stop = b.start(byEvent)
				second := b.send(event("1", "a"))
				time.Sleep(time.Minute)
				stop()
				want(t, "POSTs after the copy", b.sender.count(), 3)
				b.wantDuplicate(second)
			})
		})
	}
}

func TestACopyWaitsWhileItsEventIsReplayed(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.answer = statuses(400, 200)
		_, stop := b.start(byEvent)
		defer stop()
		b.send(event("1", "a"))
		time.Sleep(time.Minute)
		b.sender.mu.Lock()
		b.sender.takes = 20 * time.Second
		b.sender.mu.Unlock()
		b.replay(b.deadLetters()[0].ID, "token-1")
		time.Sleep(5 * time.Second)
		second := b.send(event("1", "a"))
		time.Sleep(5 * time.Second)
		want(t, "state of the copy meanwhile", b.delivery(second, "").State, tables.Held)
		time.Sleep(5 * time.Minute)
		want(t, "POSTs", b.sender.count(), 2)
		b.wantDuplicate(second)
	})
}

func TestAReplayThatFailsLeavesTheEventAsItWas(t *testing.T) {
	t.Run("one of two webhooks has it", func(t *testing.T) {
		inBubble(t, func(b *bench) {
			b.register("wh_b", nil)
			sender := &perWebhook{scripted: b.sender, statuses: map[string][]int{"wh_a": {200}, "wh_b": {400}}}
			_, stop := b.start(func(o *Options) { byEvent(o); o.Sender = sender })
			b.send(event("1", "a"))
			time.Sleep(time.Minute)
			b.replay(b.deadLetters()[0].ID, "token-1")
			time.Sleep(time.Minute)
			want(t, "dead letters", len(b.deadLetters()), 2)
			stop()
			time.Sleep(time.Hour)
			_, stop = b.start(byEvent)
			second := b.send(event("1", "a"))
			time.Sleep(time.Minute)
			stop()
			want(t, "POSTs", b.sender.count(), 3)
			b.wantDuplicate(second)
			want(t, "claims released", b.store.count("release-claim"), 0)
		})
	})
	t.Run("nobody has it", func(t *testing.T) {
		inBubble(t, func(b *bench) {
			b.sender.answer = statuses(400, 400, 200)
			_, stop := b.start(byEvent)
			defer stop()
			b.send(event("1", "a"))
			time.Sleep(time.Minute)
			b.replay(b.deadLetters()[0].ID, "token-1")
			time.Sleep(30 * time.Second)
			want(t, "claims released", b.store.count("release-claim"), 1) // the original's
			// Replayed again before the claim of the replay that failed has lapsed.
			b.replay(b.deadLetters()[0].ID, "token-2")
			time.Sleep(10 * time.Minute)
			want(t, "POSTs", b.sender.count(), 3)
			second := b.send(event("1", "a"))
			time.Sleep(time.Minute)
			want(t, "POSTs after the copy", b.sender.count(), 3)
			b.wantDuplicate(second)
		})
	})
}

// The replay is not taken for the end of the original, which waits for another webhook.
func TestAReplayDoesNotEndItsOriginal(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.register("wh_b", nil)
		sender := &perWebhook{scripted: b.sender, statuses: map[string][]int{"wh_a": {400, 200}, "wh_b": {503, 503, 503, 503, 200}}}
		_, stop := b.start(func(o *Options) { byEvent(o); o.Sender = sender })
		defer stop()
		first := b.send(event("1", "a"))
		time.Sleep(10 * time.Second)
		b.replay(b.deadLetters()[0].ID, "token-1")
		time.Sleep(time.Hour)
		want(t, "POSTs", b.sender.count(), 7)
		want(t, "state for the other webhook", b.delivery(first, "wh_b").State, tables.Delivered)
		second := b.send(event("1", "a"))
		time.Sleep(time.Minute)
		want(t, "POSTs after the copy", b.sender.count(), 7)
		b.wantDuplicate(second)
	})
}

// Nor by a process that knows of the event by the replay alone, nor when the original's claim has lapsed meanwhile.
func TestAReplayByAnotherProcessDoesNotEndItsOriginal(t *testing.T) {
	for _, away := range []time.Duration{0, time.Hour} {
		t.Run(away.String(), func(t *testing.T) {
			inBubble(t, func(b *bench) {
				other := b.register("wh_b", func(r *tables.Registration) { r.Enabled = false })
				sender := &perWebhook{scripted: b.sender, statuses: map[string][]int{"wh_a": {400, 200}, "wh_b": {200}}}
				_, stop := b.start(func(o *Options) { byEvent(o); o.Sender = sender })
				first := b.send(event("1", "a"))
				time.Sleep(10 * time.Second)
				stop()
				time.Sleep(away)
				b.replay(b.deadLetters()[0].ID, "token-1")
				dispatcher, stop := b.start(func(o *Options) { byEvent(o); o.Sender = sender })
				time.Sleep(10 * time.Second)
				want(t, "POSTs with the replay", b.sender.count(), 2)
				want(t, "state for the other webhook", b.delivery(first, "wh_b").State, tables.Held)
				other.Enabled = true
				b.update(other)
				dispatcher.RegistryChanged()
				time.Sleep(15 * time.Minute)
				stop()
				want(t, "POSTs to the other webhook", sender.posts("wh_b"), 1)
				want(t, "its state then", b.delivery(first, "wh_b").State, tables.Delivered)
			})
		})
	}
}

func TestAnEventThatOneOfManyWebhooksGotIsDelivered(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.register("wh_b", nil)
		sender := &perWebhook{scripted: b.sender, statuses: map[string][]int{"wh_a": {200}, "wh_b": {400}}}
		_, stop := b.start(func(o *Options) { byEvent(o); o.Sender = sender })
		defer stop()
		b.send(event("1", "a"))
		time.Sleep(time.Minute)
		second := b.send(event("1", "a"))
		time.Sleep(time.Minute)
		want(t, "POSTs", b.sender.count(), 2)
		want(t, "dead letters", len(b.deadLetters()), 1)
		b.wantDuplicate(second)
	})
}

// What can't wait any longer becomes a dead letter and does not vanish.
func TestACopyThatExpiresWhileItWaitsIsADeadLetter(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.answer = statuses(503)
		_, stop := b.start(byEvent)
		defer stop()
		b.send(event("1", "a"))
		time.Sleep(time.Second)
		b.sendText([]byte(event("1", "a")), queue.SendOptions{TTL: 5 * time.Minute})
		time.Sleep(10 * time.Minute)
		list := b.deadLetters()
		want(t, "dead letters", len(list), 1)
		want(t, "reason", list[0].Reason, policy.EventInWork)
		want(t, "messages left", b.total(testQueue), 1)
	})
}

// A copy with a life that is shorter than the guard waits for half of it.
func TestACopyWithAShortLifeWaitsToo(t *testing.T) {
	for name, tt := range map[string]struct {
		statuses           []int
		duplicates, gaveUp int
	}{"the first is delivered meanwhile": {[]int{503, 200}, 1, 0}, "the first is not": {[]int{503}, 0, 1}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.sender.answer = statuses(tt.statuses...)
				c, stop := b.byEventCounted()
				defer stop()
				b.send(event("1", "a"))
				time.Sleep(time.Second)
				b.sendText([]byte(event("1", "a")), queue.SendOptions{TTL: 20 * time.Second})
				time.Sleep(9 * time.Second)
				want(t, "dead letters in the first half of its life", len(b.deadLetters()), 0)
				time.Sleep(9 * time.Second)
				want(t, "dead letters", len(b.deadLetters()), tt.gaveUp)
				want(t, "duplicates", c.sum(b.t, "pushlease.messages.duplicate", "kind", "event"), int64(tt.duplicates))
			})
		})
	}
}

// A message that one webhook has, and that another message's claim keeps from the other
// until it expires, is a dead letter for that other one only.
func TestWhatExpiresPartlyDeliveredIsADeadLetterForTheRestOnly(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.register("wh_b", nil)
		sender := &perWebhook{scripted: b.sender, statuses: map[string][]int{"wh_a": {200}, "wh_b": {503, 200}}}
		change := func(o *Options) { byEvent(o); o.Sender = sender }
		_, stop := b.start(change)
		sent := b.sendText([]byte(event("1", "a")), queue.SendOptions{TTL: 5 * time.Minute})
		time.Sleep(2 * time.Second)
		stop()
		now := time.Now()
		c := tables.Claim{
			Key: tables.ClaimKey("event", testQueue, (&content.Event{Source: "/shop", ID: "1"}).Key()), Owner: sent.ID,
			At: sent.InsertedAt, MessageID: "m2", BodyHash: bodyHash([]byte(event("1", "a"))),
		}
		if err := b.db.ReleaseClaim(b.t.Context(), c); err != nil {
			t.Fatal(err)
		}
		c.Owner, c.Until = "another message", now.Add(time.Hour)
		if _, won, err := b.db.Claim(b.t.Context(), c, now); err != nil || !won {
			t.Fatalf("claim: %v %v", won, err)
		}
		_, stop = b.start(change)
		defer stop()
		time.Sleep(10 * time.Minute)
		want(t, "messages left", b.total(testQueue), 0)
		list := b.deadLetters()
		want(t, "dead letters", len(list), 1)
		want(t, "webhook", list[0].WebhookID, "wh_b")
		want(t, "reason", list[0].Reason, policy.EventInWork)
		want(t, "state of the other", b.delivery(sent, "wh_a").State, tables.Delivered)
		b.replay(list[0].ID, "token-1")
		time.Sleep(time.Minute)
		want(t, "POSTs", b.sender.count(), 3)
		want(t, "status", b.deadLetters()[0].Status, tables.Replayed)
	})
}

func TestWhatEveryFilterRefusesIsADeadLetterWhereTheQueueSaysSo(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.webhook.Filter.Types = []string{"invoice.*"}
		b.webhook = b.update(b.webhook)
		_, stop := b.start(func(o *Options) { o.KeepUnmatched = func(name string) bool { return name == testQueue } })
		defer stop()
		b.send(event("1", "a"))
		time.Sleep(time.Minute)
		want(t, "POSTs", b.sender.count(), 0)
		want(t, "messages left", b.total(testQueue), 0)
		list := b.deadLetters()
		want(t, "dead letters", len(list), 1)
		want(t, "reason", list[0].Reason, policy.Unmatched)
		b.webhook.Filter = content.Filter{}
		b.webhook = b.update(b.webhook)
		b.replay(list[0].ID, "token-1")
		time.Sleep(time.Minute)
		want(t, "POSTs after the filter was mended", b.sender.count(), 1)
	})
}

// A replay that every filter refuses is no replayed dead letter: nobody has the message.
func TestAReplayThatEveryFilterRefusesIsKept(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.webhook.Filter.Types = []string{"invoice.*"}
		b.webhook = b.update(b.webhook)
		var loses atomic.Bool
		_, stop := b.start(func(o *Options) { o.KeepUnmatched = func(string) bool { return !loses.Load() } })
		defer stop()
		sent := b.send(event("1", "a"))
		time.Sleep(time.Minute)
		loses.Store(true)
		b.replay(b.deadLetters()[0].ID, "token-1")
		time.Sleep(time.Minute)
		want(t, "POSTs", b.sender.count(), 0)
		want(t, "messages left", b.total(testQueue), 0)
		waiting := 0
		for _, dl := range b.deadLetters() {
			if dl.Status == tables.Waiting && dl.MessageID == sent.ID && dl.Reason == policy.Unmatched && dl.Generation == 1 {
				waiting++
			}
		}
		want(t, "dead letters that wait", waiting, 1)
	})
}

// One webhook has taken the event, and its message waits for the other one while no process
// is there to keep the claim. A copy that is received first is not POSTed to either.
func TestACopyIsNeverPostedToAWebhookThatHasTheEvent(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.register("wh_b", nil)
		var posts atomic.Int64
		sender := anySender(func(ctx context.Context, w *webhook.Webhook, r webhook.Request) webhook.Result {
			if w.ID == b.webhook.ID {
				posts.Add(1)
				return b.sender.Send(ctx, w, r)
			}
			return webhook.Result{Status: 503, StartedAt: time.Now()}
		})
		change := func(o *Options) { byEvent(o); o.Sender = sender }
		_, stop := b.start(change)
		first := b.send(event("1", "a"))
		time.Sleep(time.Second)
		for range 8 {
			b.send(event("1", "a"))
		}
		time.Sleep(2 * time.Minute)
		stop()
		time.Sleep(20 * time.Minute) // nobody is there
		_, stop = b.start(change)
		time.Sleep(3 * time.Hour)
		stop()
		want(t, "POSTs to the webhook that has it", posts.Load(), 1)
		want(t, "state there", b.delivery(first, b.webhook.ID).State, tables.Delivered)
	})
}
