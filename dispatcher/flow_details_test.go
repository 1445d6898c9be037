package dispatcher

import (
	"fmt"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/webhook"
)

func TestAPauseIsStoredWhenItIsAskedFor(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.answer = func(webhook.Request, int) webhook.Result { return webhook.Result{Status: 429, RetryAfter: "3600"} }
		_, stop := b.start(nil)
		defer stop()
		time.Sleep(time.Second)
		b.send("x")
		// Far sooner than what changes by itself is stored.
		for deadline := time.Now().Add(time.Second); ; time.Sleep(10 * time.Millisecond) {
			rows, err := b.db.ListHealth(b.t.Context())
			if err == nil && len(rows) == 1 && time.Until(rows[0].PausedUntil) > time.Duration(policy.DefaultPauseCap)-time.Minute {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("no pause of that length is stored: %+v, %v", rows, err)
			}
		}
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
