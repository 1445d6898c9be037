package dispatcher

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

func TestShutdownFinishesWhatItHasBegun(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.takes = 10 * time.Second
		_, stop := b.start(nil)
		sent := b.send("x")
		time.Sleep(2 * time.Second)
		start := time.Now()
		stop()
		if took := time.Since(start); took > 9*time.Second {
			t.Errorf("stop took %s, want the rest of the POST", took)
		}
		want(t, "POSTs", b.sender.count(), 1)
		want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
		want(t, "messages left", b.total(testQueue), 0)
	})
}

func TestShutdownPastTheDrainBoundBurnsNoAttempt(t *testing.T) {
	inBubble(t, func(b *bench) { // C12, I3
		b.webhook.Policy.MaxAttempts = 1
		b.update(b.webhook)
		b.sender.takes = time.Hour
		_, stop := b.start(func(o *Options) { o.Drain = 5 * time.Second })
		sent := b.send("x")
		time.Sleep(2 * time.Second)
		start := time.Now()
		stop()
		if took := time.Since(start); took < 5*time.Second || took > 6*time.Second {
			t.Errorf("stop took %s, want the drain bound of 5s", took)
		}
		del := b.delivery(sent, "wh_a")
		want(t, "charged", del.Charged, 0)
		want(t, "reason", del.Reason, policy.Stopping)
		b.sender.takes = 0
		_, stop = b.start(nil)
		time.Sleep(5 * time.Second) // given back at once, not at the end of its lease
		stop()
		want(t, "POSTs", b.sender.count(), 2)
		want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
		want(t, "dead letters", len(b.deadLetters()), 0)
	})
}

func TestPollerSurvivesEveryReceiveFaultAndReturnsToFullConcurrency(t *testing.T) {
	inBubble(t, func(b *bench) { // C11
		var down outage
		b.queues.on("receive", down.rule(failBefore))
		b.sender.takes = 10 * time.Second
		_, stop := b.start(func(o *Options) { o.Concurrency = 16; o.PollMax = 10 * time.Second })
		time.Sleep(10 * time.Minute)
		if n := b.queues.count("receive"); n > 10*60/5+15 {
			t.Errorf("%d receives in ten minutes of outage: the loop spins", n)
		}
		if n := strings.Count(b.log.String(), "receive failed"); n > 10*60/30+2 {
			t.Errorf("%d log lines about the same error", n)
		}
		for range 16 {
			b.send("x")
		}
		down.end()
		time.Sleep(10*time.Second + time.Second)
		want(t, "POSTs open at the same time", b.sender.count(), 16)
		time.Sleep(time.Minute)
		stop()
		want(t, "messages left", b.total(testQueue), 0)
	})
}

func TestIdleQueueIsPolledRarely(t *testing.T) {
	inBubble(t, func(b *bench) {
		_, stop := b.start(func(o *Options) { o.PollMax = 30 * time.Second })
		time.Sleep(time.Minute)
		before := b.queues.count("receive")
		time.Sleep(time.Hour)
		stop()
		if n := b.queues.count("receive") - before; n > 3600/15 {
			t.Errorf("%d receives in an idle hour, want at most one per 15 s", n)
		}
	})
}

func TestPublishWakesThePoller(t *testing.T) {
	inBubble(t, func(b *bench) {
		d, stop := b.start(func(o *Options) { o.PollMax = time.Hour })
		time.Sleep(5 * time.Hour)
		b.send("x")
		d.Wake(testQueue)
		time.Sleep(10 * time.Millisecond)
		want(t, "POSTs", b.sender.count(), 1)
		stop()
	})
}

func TestRecordThatCannotBeWrittenNeitherLosesNorDoublesNorCharges(t *testing.T) {
	t.Run("of a delivered message", func(t *testing.T) {
		inBubble(t, func(b *bench) {
			var down outage
			b.store.on("record", down.rule(failBefore))
			_, stop := b.start(nil)
			sent := b.send("x")
			time.Sleep(2 * time.Minute)
			want(t, "messages left", b.total(testQueue), 0)
			want(t, "recorded", b.delivery(sent, "wh_a").State, "")
			down.end()
			time.Sleep(time.Minute)
			want(t, "recorded late", b.delivery(sent, "wh_a").State, tables.Delivered)
			stop()
			want(t, "POSTs", b.sender.count(), 1)
		})
	})
	t.Run("of a failed attempt", func(t *testing.T) {
		inBubble(t, func(b *bench) { // C05
			b.webhook.Policy.MaxAttempts = 3
			b.update(b.webhook)
			b.sender.answer = statuses(500)
			b.store.on("record", firstCalls(3, failBefore)) // all tries for attempt 1
			_, stop := b.start(nil)
			sent := b.send("x")
			time.Sleep(10 * time.Minute)
			stop()
			want(t, "POSTs", b.sender.count(), 3)
			list := b.deadLetters()
			want(t, "dead letters", len(list), 1)
			want(t, "attempts", list[0].Attempts, 3)
			want(t, "attempts recorded, the first one late", len(b.attempts(sent)), 3)
			want(t, "records missing", b.delivery(sent, "wh_a").MissingRecords, 0)
		})
	})
	t.Run("answer lost", func(t *testing.T) {
		inBubble(t, func(b *bench) {
			b.sender.answer = statuses(500, 200)
			b.store.on("record", func(n int) fault {
				if n%2 == 1 {
					return answerLost
				}
				return 0
			})
			_, stop := b.start(nil)
			sent := b.send("x")
			time.Sleep(time.Minute)
			stop()
			want(t, "POSTs", b.sender.count(), 2)
			want(t, "attempts", len(b.attempts(sent)), 2)
			want(t, "messages left", b.total(testQueue), 0)
		})
	})
}

func TestDeadLetterThatCannotBeWrittenKeepsTheMessageAndIsNotPostedAgain(t *testing.T) {
	for _, what := range []fault{failBefore, answerLost} {
		inBubble(t, func(b *bench) { // I1, I3
			var down outage
			b.store.on("put-dead-letter", down.rule(what))
			b.sender.answer = statuses(400)
			_, stop := b.start(func(o *Options) { o.PollMax = 30 * time.Second })
			b.send("x")
			time.Sleep(3 * time.Hour) // more receives than the poison guard allows
			want(t, "messages left", b.total(testQueue), 1)
			down.end()
			time.Sleep(time.Hour)
			stop()
			want(t, "POSTs", b.sender.count(), 1)
			want(t, "messages left", b.total(testQueue), 0)
			list := b.deadLetters()
			want(t, "dead letters", len(list), 1)
			want(t, "reason", list[0].Reason, policy.NonRetryableError)
			want(t, "copies", b.total(testQueue+"-poison"), 1)
		})
	}
}

func TestDeadLetterHealsWhateverStepItsProcessDiedAt(t *testing.T) {
	// The process "dies" where an operation fails for ever and it is stopped; the
	// next one finds what is there.
	for _, step := range []string{"put-dead-letter", "send", "update-dead-letter", "complete"} {
		for _, what := range []fault{failBefore, answerLost} {
			inBubble(t, func(b *bench) {
				rule := func(n int) fault {
					if n == 1 && what == answerLost {
						return answerLost
					}
					return failBefore
				}
				if step == "send" || step == "complete" {
					b.queues.on(step, rule)
				} else {
					b.store.on(step, rule)
				}
				b.sender.answer = statuses(400)
				_, stop := b.start(func(o *Options) { o.Lease = 10 * time.Second; o.Drain = time.Second })
				b.send("x")
				time.Sleep(4 * time.Second)
				stop()
				b.queues.on(step, nil)
				b.store.on(step, nil)
				_, stop = b.start(nil)
				time.Sleep(10 * time.Minute)
				stop()
				want(t, step+": POSTs", b.sender.count(), 1)
				want(t, step+": messages left", b.total(testQueue), 0)
				want(t, step+": dead letters", len(b.deadLetters()), 1)
				if n := b.total(testQueue + "-poison"); n < 1 || n > 2 {
					t.Errorf("%s: %d copies, want one (two when the answer to the copy was lost)", step, n)
				}
			})
		}
	}
}

func TestStoreThatCannotBeAskedDoesNotStopADelivery(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.answer = statuses(500, 200)
		b.store.on("load", always(failBefore))
		_, stop := b.start(nil)
		sent := b.send("x")
		time.Sleep(time.Minute)
		stop()
		want(t, "POSTs", b.sender.count(), 2)
		want(t, "messages left", b.total(testQueue), 0)
		want(t, "attempts from memory", b.delivery(sent, "wh_a").Attempts, 2)
	})
}

func TestStartWithADeadStoreRecoversByItself(t *testing.T) {
	inBubble(t, func(b *bench) {
		var down outage
		b.store.on("list-webhooks", down.rule(failBefore))
		d, stop := b.start(nil)
		b.send("x")
		time.Sleep(10 * time.Minute)
		if d.Health()["webhooks"] == nil {
			t.Error("health does not say that the webhooks can't be read")
		}
		if n := b.store.count("list-webhooks"); n > 10*60/2 {
			t.Errorf("%d readings in ten minutes: the loop spins", n)
		}
		down.end()
		time.Sleep(10 * time.Second)
		stop()
		want(t, "POSTs", b.sender.count(), 1)
		want(t, "health", d.Health()["webhooks"], nil)
	})
}

func TestNothingIsPostedOnALeaseThatHasEnded(t *testing.T) {
	inBubble(t, func(b *bench) {
		q := b.queue(testQueue)
		b.send("x")
		got, err := q.Receive(b.t.Context(), 1, 10*time.Second)
		if err != nil || len(got) != 1 {
			t.Fatalf("%d, %v", len(got), err)
		}
		d, stop := b.start(func(o *Options) { o.PollMin, o.PollMax = time.Hour, time.Hour })
		time.Sleep(9500 * time.Millisecond)
		decision := d.Deliver(b.t.Context(), testQueue, got[0])
		want(t, "action", decision.Action, policy.NoVerdict)
		want(t, "reason", decision.Reason, policy.LeaseLost)
		want(t, "POSTs", b.sender.count(), 0)
		stop()
	})
}

func TestReceiverThatAsksToWaitIsNotCharged(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.answer = func(_ webhook.Request, n int) webhook.Result {
			if n <= 2 {
				return webhook.Result{Status: 503, RetryAfter: "20"}
			}
			return webhook.Result{Status: 200}
		}
		_, stop := b.start(nil)
		sent := b.send("x")
		time.Sleep(2 * time.Minute)
		stop()
		atts := b.attempts(sent)
		want(t, "attempts", len(atts), 3)
		want(t, "charged", b.delivery(sent, "wh_a").Charged, 1)
		if gap := atts[1].StartedAt.Sub(atts[0].StartedAt); gap < 20*time.Second || gap > 24*time.Second {
			t.Errorf("second attempt after %s, want 20 s", gap)
		}
	})
}

func TestOwnFaultOfAnAttemptIsNotTriedInALoop(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.answer = func(webhook.Request, int) webhook.Result {
			return webhook.Result{ErrorClass: string(policy.ClassCanceled), Error: "no socket left"}
		}
		_, stop := b.start(nil)
		b.send(`{"a":1}`)
		time.Sleep(10 * time.Minute)
		stop()
		if n := b.sender.count(); n < 2 || n > 60 {
			t.Errorf("%d attempts within ten minutes", n)
		}
	})
}

// A webhook for http is registered with --dev, and the process is started again without: that
// is its operator's to mend, and no message's fault.
func TestRegistrationThatThisProcessCanNotUseBurnsNoAttempt(t *testing.T) {
	inBubble(t, func(b *bench) {
		var mended atomic.Bool
		b.sender.answer = func(webhook.Request, int) webhook.Result {
			if !mended.Load() {
				return webhook.Result{ErrorClass: string(policy.ClassRequest), Error: "the URL is not https"}
			}
			return webhook.Result{Status: 200}
		}
		_, stop := b.start(nil)
		defer stop()
		sent := b.send(`{"a":1}`)
		time.Sleep(12 * time.Hour) // far more often received than a poisonous message may be
		want(t, "dead letters", len(b.deadLetters()), 0)
		del := b.delivery(sent, "wh_a")
		want(t, "before it is mended", del.State, tables.Pending)
		want(t, "charged", del.Charged, 0)
		all := b.attempts(sent)
		first := all[0]
		if n := len(all); n < 65 || n > 73 {
			t.Errorf("%d attempts within 12 hours, want one each 10 minutes", n)
		}
		if !strings.Contains(first.Explanation, "the URL is not https") || !strings.Contains(b.log.String(), "the URL is not https") {
			t.Errorf("nothing says why: %q, log %s", first.Explanation, b.log.String())
		}
		mended.Store(true)
		time.Sleep(time.Hour)
		del = b.delivery(sent, "wh_a")
		want(t, "after that", del.State, tables.Delivered)
		want(t, "charged", del.Charged, 1)
		want(t, "messages left", b.total(testQueue), 0)
	})
}

func TestStopWritesAllRecordsThatWait(t *testing.T) {
	inBubble(t, func(b *bench) {
		var down outage
		b.store.on("record", down.rule(failBefore))
		var sent []queue.Sent
		for range 250 {
			sent = append(sent, b.send("x"))
		}
		_, stop := b.start(func(o *Options) { o.Concurrency = 300 })
		time.Sleep(40 * time.Second)
		down.end()
		stop()
		for _, s := range sent {
			want(t, "state", b.delivery(s, "wh_a").State, tables.Delivered)
		}
	})
}

// A store may refuse one record for good, such as one whose table is being deleted.
func TestRecordThatIsNeverTakenDoesNotKeepTheOthersWaiting(t *testing.T) {
	inBubble(t, func(b *bench) {
		var down outage
		store := &refusing{Store: b.store}
		b.store.on("record", down.rule(failBefore))
		for range 5 {
			store.never = append(store.never, b.send("x").ID)
		}
		_, stop := b.start(func(o *Options) { o.Store = store })
		time.Sleep(time.Minute)
		later := b.send("y")
		time.Sleep(time.Minute)
		down.end()
		time.Sleep(30 * time.Second)
		want(t, "state", b.delivery(later, "wh_a").State, tables.Delivered)
		stop()
	})
}

// refusing never takes the records of some messages.
type refusing struct {
	Store
	never []string
}

func (s *refusing) Record(ctx context.Context, r tables.Record) error {
	if slices.Contains(s.never, r.Deliveries[0].MessageID) {
		return errBefore
	}
	return s.Store.Record(ctx, r)
}

func TestRecordsThatAreLostAtTheEndAreTold(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.store.on("record", always(failBefore))
		_, stop := b.start(nil)
		b.send("x")
		time.Sleep(time.Minute)
		stop()
		if !strings.Contains(b.log.String(), `"records":1`) {
			t.Error("the log does not say that one record is lost")
		}
	})
}
