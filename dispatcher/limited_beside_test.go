package dispatcher

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/webhook"
)

// limitCount counts what a receiver with a limit of one in 50 ms takes and refuses.
type limitCount struct {
	mu             sync.Mutex
	taken, refused int
}

func (c *limitCount) by(answer func(time.Time) webhook.Result) func(time.Time) webhook.Result {
	return func(now time.Time) webhook.Result {
		res := answer(now)
		c.mu.Lock()
		defer c.mu.Unlock()
		if res.Status == 200 {
			c.taken++
		} else {
			c.refused++
		}
		return res
	}
}

// over returns what came in that time.
func (c *limitCount) over(d time.Duration) (taken, refused int) {
	c.mu.Lock()
	before, vain := c.taken, c.refused
	c.mu.Unlock()
	time.Sleep(d)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.taken - before, c.refused - vain
}

// wantShare wants the least share of 20 POSTs a second, and at most a tenth to be refused.
func (c *limitCount) wantShare(t *testing.T, d time.Duration, least float64) {
	t.Helper()
	taken, refused := c.over(d)
	share, vain := float64(taken)/(20*d.Seconds()), float64(refused)/float64(max(taken+refused, 1))
	t.Logf("%.0f %% of the limit, %.1f %% refused", 100*share, 100*vain)
	if share < least || vain > 0.1 {
		t.Errorf("%.0f %% of the limit and %.1f %% refused, want %.0f and at most 10", 100*share, 100*vain, 100*least)
	}
}

// A receiver that takes 300 ms for an answer, and one POST in 50 ms.
func TestASlowReceiverWithALimitGetsItsRate(t *testing.T) {
	inBubble(t, func(b *bench) {
		limited(nil)(&b.webhook)
		b.webhook = b.update(b.webhook)
		var c limitCount
		r := &receiver{takes: after(300 * time.Millisecond), answer: c.by(strictly(50*time.Millisecond, 503))}
		b.sendNumbered(2500)
		d, stop := b.start(func(o *Options) { o.Sender = receivers{"wh_a": r} })
		time.Sleep(20 * time.Second)
		c.wantShare(t, time.Minute, 0.75)
		s, _ := d.Webhook("wh_a")
		want(t, "state", s.State, status.Limited)
		want(t, "breaker", s.Breaker.Phase, policy.BreakerClosed)
		want(t, "dead letters", len(b.deadLetters()), 0)
		stop()
		wantAtRest(t, d)
	})
}

// The same messages go to a receiver with a limit and to one without, which gets them as if
// it were alone.
func TestALimitedWebhookDelaysNoNeighbourOnItsQueue(t *testing.T) {
	const messages = 1700
	alone := func(beside bool) (took time.Duration) {
		inBubble(t, func(b *bench) {
			var c limitCount
			slow := &receiver{takes: after(time.Millisecond), answer: c.by(strictly(50*time.Millisecond, 503))}
			good := &receiver{takes: after(20 * time.Millisecond), answer: answers(200)}
			if !beside {
				slow.answer = answers(200)
			}
			limited(nil)(&b.webhook)
			b.webhook = b.update(b.webhook)
			b.register("wh_b", limited(nil))
			b.sendNumbered(messages)
			start := time.Now()
			d, stop := b.start(func(o *Options) { o.Sender = receivers{"wh_a": slow, "wh_b": good} })
			for good.count() < messages && time.Since(start) < time.Hour {
				time.Sleep(5 * time.Millisecond)
			}
			took = time.Since(start)
			if beside {
				time.Sleep(10 * time.Second)
				c.wantShare(t, 50*time.Second, 0.8)
				time.Sleep(3 * time.Minute)
			}
			time.Sleep(10 * time.Second)
			want(t, "messages left", b.total(testQueue), 0)
			want(t, "POSTs to the good one", good.count(), messages)
			want(t, "dead letters", len(b.deadLetters()), 0)
			stop()
			wantAtRest(t, d)
		})
		return took
	}
	before, with := alone(false), alone(true)
	t.Logf("%d messages took %s beside a webhook without a limit, and %s beside one with one", messages, before, with)
	if with > before*11/10 {
		t.Errorf("%d messages took %s beside a webhook without a limit, and %s beside one with one", messages, before, with)
	}
}

// Dead letters that are replayed go at the rate of the limit like everything else, and none
// becomes one again.
func TestReplaysToALimitedWebhookGoAtItsRate(t *testing.T) {
	const messages = 90 // what one page of the list has
	inBubble(t, func(b *bench) {
		limited(nil)(&b.webhook)
		b.webhook.Flow.Breaker.Enabled = false
		b.webhook.Policy.MaxAttempts = 1
		b.webhook = b.update(b.webhook)
		var c limitCount
		r := &receiver{takes: after(time.Millisecond), answer: answers(500)}
		b.sendNumbered(messages)
		d, stop := b.start(func(o *Options) { o.Sender = receivers{"wh_a": r} })
		time.Sleep(time.Minute)
		dead := b.deadLetters()
		want(t, "dead letters", len(dead), messages)
		r.now(c.by(strictly(time.Second, 429)))
		for i, row := range dead {
			b.replay(row.ID, fmt.Sprint("token-", i))
		}
		early, learning := c.over(30 * time.Second) // with a trial whether it is a limit (ADR 0074)
		late, refused := c.over(150 * time.Second)
		want(t, "replayed", early+late, messages)
		if learning > 40 || refused > late/10 {
			t.Errorf("%d replays were refused while the rate was found, and %d beside %d that were taken later", learning, refused, late)
		}
		want(t, "dead letters at the end", len(b.deadLetters()), messages)
		want(t, "messages left", b.total(testQueue), 0)
		stop()
		wantAtRest(t, d)
	})
}

// Under a host each look at a message that has to wait is an invocation.
func TestALimitUnderAHostCostsFewInvocations(t *testing.T) {
	inBubble(t, func(b *bench) {
		const messages = 600
		limited(nil)(&b.webhook)
		b.webhook = b.update(b.webhook)
		var c limitCount
		r := &receiver{takes: after(time.Millisecond), answer: c.by(strictly(100*time.Millisecond, 503))}
		d, stop := b.run(b.options(func(o *Options) {
			o.Sender = receivers{"wh_a": r}
			o.Hosted = func(string) bool { return true }
		}), hostedAlone)
		defer stop()
		time.Sleep(time.Second)
		b.sendNumbered(messages)
		end := b.asHost(d) // 16 a second, and the limit is 10
		taken, refused := c.over(3 * time.Minute)
		invocations := end()
		t.Logf("%d invocations for %d messages, %d refused", invocations, messages, refused)
		want(t, "taken", taken, messages)
		if invocations > 4*messages || refused > messages/5 {
			t.Errorf("%d invocations and %d refusals for %d messages", invocations, refused, messages)
		}
		want(t, "messages left", b.total(testQueue), 0)
		want(t, "dead letters", len(b.deadLetters()), 0)
	})
}
