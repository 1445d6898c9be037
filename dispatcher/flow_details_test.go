package dispatcher

import (
	"fmt"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

func TestAPauseIsStoredWhenItIsAskedFor(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.answer = func(webhook.Request, int) webhook.Result { return webhook.Result{Status: 429, RetryAfter: "3600"} }
		_, stop := b.start(nil)
		defer stop()
		time.Sleep(time.Second)
		b.send("x")
		for b.sender.count() == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(10 * time.Millisecond)
		rows, err := b.db.ListHealth(b.t.Context())
		if err != nil || len(rows) != 1 {
			t.Fatalf("health %+v, %v", rows, err)
		}
		want(t, "is paused for an hour", time.Until(rows[0].PausedUntil) > 59*time.Minute, true)
	})
}

func TestManyPausesAreStoredInFewTransactions(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.answer = func(webhook.Request, int) webhook.Result { return webhook.Result{Status: 429, RetryAfter: "5"} }
		_, stop := b.start(nil)
		defer stop()
		b.sendNumbered(50)
		time.Sleep(10 * time.Second)
		n := b.store.count("put_health")
		want(t, fmt.Sprintf("%d writes of health are some, and few", n), n >= 1 && n <= 11, true)
	})
}

func TestA410OfAnOldURLDoesNotDisableTheNewOne(t *testing.T) {
	inBubble(t, func(b *bench) {
		r := &receiver{takes: after(10 * time.Second), answer: func(time.Time) webhook.Result { return webhook.Result{Status: 410} }}
		_, stop := b.start(func(o *Options) { o.Sender = receivers{"wh_a": r} })
		defer stop()
		b.send("x")
		for r.count() == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		b.webhook.URL, b.webhook.ResetAt = "https://example.com/new", time.Now().UTC()
		b.webhook = b.update(b.webhook)
		time.Sleep(20 * time.Second)
		now, err := b.db.GetWebhook(b.t.Context(), "wh_a")
		want(t, "enabled", err == nil && now.Enabled, true)
		b.send("y") // to the new URL
		time.Sleep(20 * time.Second)
		now, err = b.db.GetWebhook(b.t.Context(), "wh_a")
		want(t, "enabled after a 410 of its own", err == nil && now.Enabled, false)
	})
}

func testFlow(change func(*policy.Flow)) *flow {
	r := tables.Registration{Webhook: webhook.Webhook{ID: "wh_a", Queue: testQueue}, Flow: policy.DefaultFlow(), Enabled: true}
	change(&r.Flow)
	return newFlow(r)
}

func TestATicketThatIsGivenBackGivesItsTokenBack(t *testing.T) {
	f := testFlow(func(f *policy.Flow) { f.Rate, f.Burst = 0.1, 1 })
	now := time.Now()
	for range 3 {
		ticket, refused := f.enter(now)
		if refused != nil {
			t.Fatalf("refused: %+v", refused)
		}
		ticket.abort()
	}
	if _, refused := f.enter(now); refused != nil {
		t.Fatalf("refused: %+v", refused)
	}
	if _, refused := f.enter(now); refused == nil {
		t.Error("a token that was used is there again")
	}
}

func TestAProbeDoesNotWaitForPostsOfBefore(t *testing.T) {
	f := testFlow(func(f *policy.Flow) { f.Concurrency = 2 })
	now := time.Now()
	for range 2 {
		if _, refused := f.enter(now); refused != nil {
			t.Fatal(refused)
		}
	}
	f.breaker.Restore(policy.BreakerState{Phase: policy.BreakerOpen, Since: now, NextProbe: now.Add(time.Second), Wait: policy.Duration(time.Minute)})
	due := now.Add(time.Second)
	n, _ := f.room(0, 4, due)
	want(t, "room for the probe", n, 1)
	if ticket, _ := f.enter(due); ticket == nil {
		t.Fatal("no probe beside POSTs of before")
	}
	n, _ = f.room(0, 4, due)
	want(t, "room beside the probe", n, 0)
}

func TestWhatALeavingQueueHadIsDividedAmongTheOthers(t *testing.T) {
	s := newShares(20)
	s.join("one")
	s.join("two")
	s.take(t.Context(), "two", 1)
	s.leave("two")
	s.give("two", 1)
	want(t, "part", s.part, 10)
	want(t, "reserved", s.reserved, 10)
}
