package dispatcher

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

const (
	testTimeout = 5 * time.Minute // the packaged function timeout
	testLookGap = testTimeout + time.Minute
)

func underATimer(o *Options) { o.LookGap = func(string) time.Duration { return testLookGap } }

// startTimer runs a dispatcher that is pumped as the timer function does it: every minute,
// receiving for a quarter of the function timeout, with no run beside another.
func (b *bench) startTimer(every time.Duration, change func(*Options)) (d *Dispatcher, stop func()) {
	b.t.Helper()
	o := b.options(underATimer)
	if change != nil {
		change(&o)
	}
	d, end := b.run(o, hostedAlone)
	ctx, cancel := context.WithCancel(b.t.Context())
	var timer sync.WaitGroup
	timer.Go(func() {
		for t := time.NewTicker(every); ; {
			select {
			case <-ctx.Done():
				t.Stop()
				return
			case <-t.C:
				b.pump(d)
			}
		}
	})
	return d, func() { cancel(); timer.Wait(); end() }
}

// pump is one run.
func (b *bench) pump(d *Dispatcher) (handled int) {
	start := time.Now()
	work, cancel := context.WithDeadlineCause(b.t.Context(), start.Add(testTimeout*17/20), ErrStopping)
	defer cancel()
	receive, stop := context.WithDeadline(work, start.Add(testTimeout/4))
	defer stop()
	handled, err := d.Pump(receive, WithPostDeadline(work, start.Add(testTimeout*3/4), testTimeout/4))
	if err != nil {
		b.t.Errorf("pump: %v", err)
	}
	return handled
}

// Whatever its webhooks do, no message without a trigger expires unseen: neither one that
// nobody may be sent, nor one whose next attempt lies far off.
func TestUnderATimerEveryMessageIsDeliveredOrDeadLetteredBeforeItExpires(t *testing.T) {
	says := func(status int, wait string) func(webhook.Request, int) webhook.Result {
		return func(webhook.Request, int) webhook.Result { return webhook.Result{Status: status, RetryAfter: wait} }
	}
	flowing := func(rate float64) func(*bench) {
		return func(b *bench) {
			b.webhook.Flow = policy.DefaultFlow()
			b.webhook.Flow.Rate = rate
		}
	}
	situations := []struct {
		name   string
		set    func(*bench)
		answer func(webhook.Request, int) webhook.Result
		takes  time.Duration
	}{
		{name: "disabled", set: func(b *bench) { b.webhook.Enabled = false }},
		{name: "fails", set: flowing(0), answer: says(503, "")},
		{name: "paused", set: flowing(0), answer: says(429, "40000")},
		{name: "rate used up", set: flowing(0.01)},
		{name: "tried again much later", answer: says(500, ""), set: func(b *bench) {
			b.webhook.Policy.Backoff = policy.Backoff{Delays: []policy.Duration{policy.Duration(20 * time.Hour)}}
		}},
		{name: "slow", takes: 50 * time.Second},
	}
	for _, s := range situations {
		for _, ttl := range []time.Duration{3 * time.Minute, 12 * time.Minute, 90 * time.Minute} {
			t.Run(s.name+" "+ttl.String(), func(t *testing.T) {
				inBubble(t, func(b *bench) {
					if s.set != nil {
						s.set(b)
						b.webhook = b.update(b.webhook)
					}
					b.sender.takes = s.takes
					if s.answer != nil {
						b.sender.answer = s.answer
					}
					_, stop := b.startTimer(time.Minute, nil)
					var sent []queue.Sent
					for range 40 { // at all times between two runs
						sent = append(sent, b.sendText([]byte("x"), queue.SendOptions{TTL: ttl}))
						time.Sleep(7 * time.Second)
					}
					time.Sleep(ttl + time.Minute)
					stop()
					b.wantNoneLost(sent)
				})
			})
		}
	}
}

// A delete that storage refuses is tried for as long as its message's lease can be kept. A run of the
// timer ends all the same, and the next one looks at everything again.
func TestARunOfTheTimerDoesNotWaitForADeleteThatStorageRefuses(t *testing.T) {
	for _, enabled := range []bool{true, false} { // received by the poller, and by the guard
		t.Run(fmt.Sprint("enabled ", enabled), func(t *testing.T) {
			inBubble(t, func(b *bench) {
				down := &outage{}
				b.queues.on("complete", down.rule(failBefore))
				b.together.on("complete-recorded", down.rule(failBefore))
				b.webhook.Enabled = enabled
				b.webhook = b.update(b.webhook)
				d, stop := b.run(b.options(underATimer), hostedAlone)
				b.sendText([]byte("x"), queue.SendOptions{TTL: time.Hour})
				time.Sleep(31 * time.Minute) // it is near its end for the guard
				start := time.Now()
				work, cancel := context.WithTimeout(b.t.Context(), testTimeout)
				defer cancel()
				receive, end := context.WithTimeout(work, time.Minute)
				defer end()
				_, err := d.Pump(receive, work)
				want(t, "the run tells", err != nil && strings.Contains(err.Error(), "not settled yet"), true)
				want(t, "it took", time.Since(start), testTimeout+retry.Timeout)
				want(t, "on the queue", b.total(testQueue), 1)
				down.end()
				stop() // waits for what goes on
				want(t, "on the queue", b.total(testQueue), 0)
			})
		})
	}
}

func (b *bench) wantNoneLost(sent []queue.Sent) {
	b.t.Helper()
	delivered := 0
	for _, s := range sent {
		if b.delivery(s, b.webhook.ID).State == tables.Delivered {
			delivered++
		}
	}
	want(b.t, "messages left", b.total(testQueue), 0)
	want(b.t, "delivered or dead letters", delivered+len(b.deadLetters()), len(sent))
}

// While a run waits for slow receivers no other one begins, and the queues that nobody
// may be sent to are looked at all the same.
func TestAPumpThatWaitsForASlowReceiverGuardsTheOtherQueues(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.takes = 4 * time.Minute
		b.register("wh_idle", func(r *tables.Registration) { r.Queue, r.Enabled = "idle", false })
		d, stop := b.startHosted()
		defer stop()
		b.send("slow")
		if _, err := b.queue("idle").Send(b.t.Context(), []byte("x"), queue.SendOptions{TTL: 4 * time.Minute}); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		b.pump(d)
		if took := time.Since(start); took < 4*time.Minute {
			t.Fatalf("the pump took %s: it waited for nothing", took)
		}
		b.wantDeadLetters(1, policy.WebhookDisabled)
		want(t, "POSTs", b.sender.count(), 1)
	})
}

// A guard's knowledge outlives its run: what is behind many younger messages is reached,
// and what waits on a left queue is looked up once.
func TestWhatAGuardKnowsOutlivesAPump(t *testing.T) {
	inBubble(t, func(b *bench) {
		old := b.sendText([]byte("old"), queue.SendOptions{TTL: 2 * time.Hour, Delay: time.Hour + 10*time.Minute})
		b.webhook.Enabled = false
		b.webhook = b.update(b.webhook)
		b.sendMany(100, queue.SendOptions{TTL: day})
		_, stop := b.startTimer(time.Minute, readRarely)
		time.Sleep(2*time.Hour + time.Minute)
		stop()
		b.wantDeadLetters(1, policy.WebhookDisabled)
		want(t, "the dead letter", b.deadLetters()[0].MessageID, old.ID)
	})
	inBubble(t, func(b *bench) {
		b.sendMany(5, queue.SendOptions{TTL: day})
		b.deleteWebhook(nil)
		_, stop := b.startTimer(time.Minute, readRarely)
		time.Sleep(5 * time.Minute)
		loads, records := b.store.count("load"), b.store.count("record")
		time.Sleep(time.Hour)
		stop()
		want(t, "look-ups afterwards", b.store.count("load")-loads, 0)
		want(t, "writes afterwards", b.store.count("record")-records, 0)
	})
}

// Pumps at a time in one process leave each other's queues alone, and those of Run: a
// second poller would take the first one's signals and its share of the process.
func TestPumpsAtATimeShareTheQueues(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.takes = 10 * time.Second
		b.register("wh_idle", func(r *tables.Registration) { r.Queue, r.Enabled = "idle", false })
		d, stop := b.startHosted()
		sent := b.sendMany(40, queue.SendOptions{})
		var pumps sync.WaitGroup
		for range 5 {
			pumps.Go(func() { b.pump(d) })
			time.Sleep(time.Millisecond) // one that found all queues taken would look, and end, before others begin
		}
		time.Sleep(5 * time.Second)
		want(t, "in flight", statusOf(d, testQueue).InFlight, len(sent))
		pumps.Wait()
		want(t, "POSTs", b.sender.count(), len(sent))
		want(t, "in flight afterwards", statusOf(d, testQueue).InFlight, 0)
		want(t, "polling afterwards", statusOf(d, testQueue).Polling, false)
		want(t, "pollers", len(d.receiver.Polled()), 0)
		want(t, "looks at the idle queue", b.queues.count("peek idle"), 1)
		stop()
	})
	inBubble(t, func(b *bench) {
		d, stop := b.start(nil)
		time.Sleep(time.Second)
		want(t, "handled beside a poller", b.pump(d), 0)
		want(t, "polling afterwards", statusOf(d, testQueue).Polling, true)
		stop()
	})
}

// A queue that nobody has made yet is told of once, and not by each run.
func TestThePumpTellsOnceOfAQueueThatIsNotThere(t *testing.T) {
	inBubble(t, func(b *bench) {
		_, stop := b.startTimer(time.Minute, nil)
		told := func() int { return strings.Count(b.log.String(), "the queue does not exist yet") }
		time.Sleep(30 * time.Minute)
		want(t, "told in half an hour", told(), 1)
		b.send("makes it")
		time.Sleep(2 * time.Minute)
		stop()
		want(t, "POSTs", b.sender.count(), 1)
		want(t, "receiving again", strings.Count(b.log.String(), "receiving again"), 1)
		want(t, "told in the end", told(), 1)
	})
}
