package dispatcher

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/journal"
	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

// limited gives a webhook a flow with the defaults, changed.
func limited(change func(*policy.Flow)) func(*tables.Registration) {
	return func(r *tables.Registration) {
		r.Flow = policy.DefaultFlow()
		if change != nil {
			change(&r.Flow)
		}
	}
}

// receiver answers one webhook's POSTs after the time that each takes, and counts what is
// in flight.
type receiver struct {
	takes func() time.Duration

	mu             sync.Mutex
	answer         func(now time.Time) webhook.Result // called under mu
	inFlight, most int
	at             []time.Time
}

func (r *receiver) send(ctx context.Context) webhook.Result {
	start := time.Now()
	r.mu.Lock()
	r.inFlight++
	r.most = max(r.most, r.inFlight)
	r.at = append(r.at, start)
	r.mu.Unlock()
	res := webhook.Result{ErrorClass: string(policy.ClassCanceled)}
	done := retry.Sleep(ctx, r.takes())
	r.mu.Lock()
	defer r.mu.Unlock()
	if done {
		res = r.answer(time.Now())
	}
	r.inFlight--
	res.StartedAt, res.Duration = start, time.Since(start)
	return res
}

// now sets what is answered from now on.
func (r *receiver) now(answer func(time.Time) webhook.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

func (r *receiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.at)
}

func (r *receiver) mostAtOnce() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.most
}

// mostWithin is the largest number of POSTs that began within any such time.
func (r *receiver) mostWithin(d time.Duration) (most int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.SortFunc(r.at, time.Time.Compare)
	first := 0
	for i, t := range r.at {
		for t.Sub(r.at[first]) >= d {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// receivers are the receivers of several webhooks.
type receivers map[string]*receiver

func (rs receivers) Send(ctx context.Context, w *webhook.Webhook, _ webhook.Request) webhook.Result {
	return rs[w.ID].send(ctx)
}

func after(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

func answers(code int) func(time.Time) webhook.Result {
	return func(time.Time) webhook.Result { return webhook.Result{Status: code} }
}

func (b *bench) sendNumbered(n int) (all []queue.Sent) {
	b.t.Helper()
	for i := range n {
		all = append(all, b.send(fmt.Sprintf(`{"n":%d}`, i)))
	}
	return all
}

// wantAtRest wants nothing of the flows and the admission to be held by anybody.
func wantAtRest(t *testing.T, d *Dispatcher) {
	t.Helper()
	for _, f := range d.flows.All() {
		s := f.Status(time.Now())
		want(t, "in flight and waiting at rest to "+f.ID(), s.InFlight+s.Waiting, 0)
	}
	inHand, lingering := d.admission.Counts()
	want(t, "messages in hand at rest", inHand, 0)
	want(t, "messages without a slot at rest", lingering, 0)
}

// B hangs until its deadline. The other webhook of the queue gets every message as if it
// were alone, and B's messages wait without a charge and without end.
func TestAHangingWebhookDoesNotDelayItsNeighbour(t *testing.T) {
	alone, beside := time.Duration(0), time.Duration(0)
	for _, with := range []bool{false, true} {
		inBubble(t, func(b *bench) {
			const messages = 600
			rs := receivers{
				"wh_a": {takes: after(20 * time.Millisecond), answer: answers(200)},
				"wh_b": {takes: after(30 * time.Second), answer: func(time.Time) webhook.Result {
					return webhook.Result{ErrorClass: string(policy.ClassTimeout)}
				}},
			}
			b.webhook = b.update(func() tables.Registration { limited(nil)(&b.webhook); return b.webhook }())
			if with {
				b.register("wh_b", limited(nil))
			}
			b.sendNumbered(messages)
			start := time.Now()
			d, stop := b.start(func(o *Options) { o.Sender = rs })
			for rs["wh_a"].count() < messages && time.Since(start) < time.Hour {
				time.Sleep(50 * time.Millisecond)
			}
			took := time.Since(start)
			want(t, "POSTs to A", rs["wh_a"].count(), messages)
			if with {
				beside = took
				want(t, "POSTs to B at once are few", rs["wh_b"].mostAtOnce() <= policy.WindowStart, true)
				want(t, "dead letters", len(b.deadLetters()), 0)
			} else {
				alone = took
			}
			stop()
			wantAtRest(t, d)
		})
	}
	t.Logf("A took %s alone and %s beside B", alone, beside)
	if beside > alone*11/10+time.Second/10 {
		t.Errorf("A took %s beside B, and %s alone", beside, alone)
	}
}

func TestAWebhookThatAsksForTimeGetsIt(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.webhook.Flow = policy.DefaultFlow()
		b.webhook = b.update(b.webhook)
		var until time.Time
		r := &receiver{takes: after(10 * time.Millisecond)}
		r.answer = func(now time.Time) webhook.Result {
			if until.IsZero() {
				until = now.Add(20 * time.Second)
			}
			if now.Before(until) {
				return webhook.Result{Status: 429, RetryAfter: "20"}
			}
			return webhook.Result{Status: 200}
		}
		all := b.sendNumbered(100)
		d, stop := b.start(func(o *Options) { o.Sender = receivers{"wh_a": r} })
		time.Sleep(10 * time.Second)
		asked := r.count()
		want(t, "POSTs before the pause are a window at most", asked <= policy.WindowStart, true)
		s, _ := d.Webhook("wh_a")
		want(t, "state", s.State, status.Paused)
		want(t, "receives during the pause", b.queues.count("receive") <= 3, true)
		time.Sleep(10 * time.Minute)
		want(t, "POSTs in all", r.count(), 100+asked)
		want(t, "messages left", b.total(testQueue), 0)
		charged := 0
		for _, sent := range all {
			charged += b.delivery(sent, "wh_a").Charged
		}
		want(t, "charged attempts", charged, 100)
		stop()
		wantAtRest(t, d)
	})
}

// A receiver is down for two minutes, and can then take 50 POSTs a second.
func TestARecoveringReceiverIsNotFlooded(t *testing.T) {
	inBubble(t, func(b *bench) {
		limited(func(f *policy.Flow) { f.Rate, f.Burst = 50, 50 })(&b.webhook)
		b.webhook = b.update(b.webhook)
		var up, back time.Time
		r := &receiver{takes: after(20 * time.Millisecond)}
		r.answer = func(now time.Time) webhook.Result {
			if now.Before(up) {
				return webhook.Result{Status: 503}
			}
			if back.IsZero() {
				back = now
			}
			return webhook.Result{Status: 200}
		}
		const messages = 3000
		b.sendNumbered(messages)
		up = time.Now().Add(2 * time.Minute)
		d, stop := b.start(func(o *Options) { o.Sender = receivers{"wh_a": r} })
		time.Sleep(2 * time.Minute)
		down := r.count()
		want(t, "POSTs while it is down are few", down <= 40, true)
		s, _ := d.Webhook("wh_a")
		want(t, "state", s.State == status.Failing || s.State == status.Probing, true)
		for b.total(testQueue) > messages/100 && time.Since(up) < time.Hour {
			time.Sleep(time.Second)
		}
		r.mu.Lock()
		took, found := time.Since(back), back.Sub(up)
		r.mu.Unlock()
		t.Logf("%d POSTs while it was down; a probe found it back after %s; 99 %% of %d were delivered %s later, at 50/s", down, found, messages, took)
		if ideal := messages / 50 * time.Second; took > ideal*13/10 {
			t.Errorf("it took %s, and could take %s", took, ideal)
		}
		want(t, "the wait for the probe had doubled twice at most", found < 120*13/10*time.Second, true)
		want(t, "POSTs within a second are at most rate and burst", r.mostWithin(time.Second) <= 100, true)
		time.Sleep(2 * time.Hour)
		want(t, "messages left", b.total(testQueue), 0)
		want(t, "dead letters", len(b.deadLetters()), 0)
		stop()
		wantAtRest(t, d)
	})
}

func TestAnOpenBreakerOutlivesARestartAndEndsWhenTheWebhookIsEnabledAnew(t *testing.T) {
	inBubble(t, func(b *bench) {
		limited(func(f *policy.Flow) { f.Breaker.ProbeAfter = policy.Duration(30 * time.Second) })(&b.webhook)
		b.webhook = b.update(b.webhook)
		r := &receiver{takes: after(time.Millisecond), answer: answers(500)}
		start := func() (*Dispatcher, func()) {
			return b.start(func(o *Options) { o.Sender = receivers{"wh_a": r}; o.Instance = fmt.Sprint(time.Now().UnixNano()) })
		}
		b.sendNumbered(30)
		d, stop := start()
		time.Sleep(10 * time.Second)
		s, _ := d.Webhook("wh_a")
		want(t, "state", s.State, status.Failing)
		want(t, "breaker", s.Breaker.Phase, policy.BreakerOpen)
		stop()
		posts := r.count()
		r.now(answers(200))
		d, stop = start()
		time.Sleep(5 * time.Second)
		want(t, "POSTs after the restart", r.count()-posts, 0)
		s, _ = d.Webhook("wh_a")
		want(t, "state after the restart", s.State, status.Failing)

		b.webhook.Enabled = false
		b.webhook = b.update(b.webhook)
		time.Sleep(6 * time.Second)
		b.webhook.Enabled = true
		b.webhook = b.update(b.webhook)
		time.Sleep(5 * time.Minute)
		want(t, "messages left", b.total(testQueue), 0)
		want(t, "POSTs after it was enabled", r.count()-posts, 30)
		stop()
		wantAtRest(t, d)
	})
}

func TestAWebhookThatFailsForDaysIsDisabledAndItsMessagesWait(t *testing.T) {
	inBubble(t, func(b *bench) { // C34
		limited(func(f *policy.Flow) { f.AutoDisableAfter = policy.DurationOrNever(2 * time.Hour) })(&b.webhook)
		b.webhook.Policy.MaxAttempts, b.webhook.Policy.MaxAge = 50, policy.Duration(100*time.Hour)
		b.webhook = b.update(b.webhook)
		r := &receiver{takes: after(time.Millisecond), answer: answers(500)}
		_, stop := b.start(func(o *Options) { o.Sender = receivers{"wh_a": r}; o.PollMax = 30 * time.Second })
		b.sendNumbered(60)
		time.Sleep(110 * time.Minute)
		now, err := b.db.GetWebhook(b.t.Context(), "wh_a")
		want(t, "enabled before its time", err == nil && now.Enabled, true)
		time.Sleep(6 * time.Hour)
		now, err = b.db.GetWebhook(b.t.Context(), "wh_a")
		want(t, "disabled", err == nil && !now.Enabled && now.DisabledReason == "failing", true)
		want(t, "dead letters", len(b.deadLetters()), 0)
		want(t, "messages left", b.total(testQueue), 60)
		r.now(answers(200))
		now.Enabled, now.DisabledReason, now.DisabledAt = true, "", time.Time{}
		b.update(now)
		time.Sleep(3 * time.Hour)
		want(t, "messages left after it was enabled", b.total(testQueue), 0)
		stop()
	})
}

func TestTheRateIsKept(t *testing.T) {
	inBubble(t, func(b *bench) {
		limited(func(f *policy.Flow) { f.Rate, f.Burst = 5, 2 })(&b.webhook)
		b.webhook = b.update(b.webhook)
		r := &receiver{takes: after(time.Millisecond), answer: answers(200)}
		b.sendNumbered(200)
		start := time.Now()
		d, stop := b.start(func(o *Options) { o.Sender = receivers{"wh_a": r} })
		for b.total(testQueue) > 0 && time.Since(start) < time.Hour {
			time.Sleep(time.Second)
		}
		took := time.Since(start)
		t.Logf("200 messages at 5/s took %s with %d receives", took, b.queues.count("receive"))
		want(t, "POSTs within a second are at most rate and burst", r.mostWithin(time.Second) <= 7, true)
		want(t, "a receive brings several messages", b.queues.count("receive") <= 120, true)
		want(t, "is as fast as it may be", took < 45*time.Second, true)
		want(t, "POSTs", r.count(), 200)
		stop()
		wantAtRest(t, d)
	})
}

// What waits for a webhook becomes a dead letter before it would expire, and not before.
func TestWhatCanNotBeSentBeforeItExpiresIsADeadLetter(t *testing.T) {
	inBubble(t, func(b *bench) {
		limited(func(f *policy.Flow) {
			f.Breaker.ProbeAfter, f.Breaker.ProbeMax = policy.Duration(time.Hour), policy.Duration(time.Hour)
		})(&b.webhook)
		b.webhook = b.update(b.webhook)
		b.register("wh_b", nil) // keeps the queue polled
		rs := receivers{
			"wh_a": {takes: after(time.Millisecond), answer: answers(500)},
			"wh_b": {takes: after(time.Millisecond), answer: answers(200)},
		}
		d, stop := b.start(func(o *Options) { o.Sender = rs })
		b.sendNumbered(20)
		time.Sleep(30 * time.Second)
		s, _ := d.Webhook("wh_a")
		want(t, "state", s.State, status.Failing)
		sent := b.sendText([]byte(`{"short":"life"}`), queue.SendOptions{TTL: 5 * time.Minute})
		time.Sleep(3 * time.Minute)
		want(t, "state", b.delivery(sent, "wh_a").State, tables.Held)
		want(t, "reason", b.delivery(sent, "wh_a").Reason, policy.WebhookFailing)
		want(t, "delivered to the other at once", b.delivery(sent, "wh_b").State, tables.Delivered)
		time.Sleep(3 * time.Minute)
		list := b.deadLetters()
		want(t, "dead letters", len(list), 1)
		want(t, "reason", list[0].Reason, policy.WebhookFailing)
		want(t, "attempts", list[0].Attempts, 0)
		stop()
		wantAtRest(t, d)
	})
}

func TestHeldDeliveriesCostFewTransactions(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.register("wh_b", limited(func(f *policy.Flow) { f.Concurrency = 1 }))
		rs := receivers{
			"wh_a": {takes: after(10 * time.Millisecond), answer: answers(200)},
			"wh_b": {takes: after(5 * time.Second), answer: answers(200)},
		}
		const messages = 500
		b.sendNumbered(messages)
		start := time.Now()
		d, stop := b.start(func(o *Options) { o.Sender = rs })
		for b.total(testQueue) > 0 && time.Since(start) < 24*time.Hour {
			time.Sleep(10 * time.Second)
		}
		took := time.Since(start)
		t.Logf("%d messages at 1 in 5 s took %s; %d records, %d abandons and renewals", messages, took, b.store.count("record"), b.queues.count("abandon")+b.queues.count("renew"))
		want(t, "POSTs to A", rs["wh_a"].count(), messages)
		want(t, "POSTs to B", rs["wh_b"].count(), messages)
		want(t, "most at once to B", rs["wh_b"].mostAtOnce(), 1)
		want(t, "is nearly as fast as it may be", took < messages*5*time.Second*11/10, true)
		want(t, "times that a message is given back", b.queues.count("abandon")+b.queues.count("renew") <= 5*messages, true)
		stop()
		wantAtRest(t, d)
	})
}

func TestAnInstanceThatIsBehindDoesNotDisableWhatWasEnabledElsewhere(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.answer = statuses(500)
		b.webhook.Flow.AutoDisableAfter, b.webhook.Flow.AutoDisableMinFailures = policy.DurationOrNever(40*time.Second), 1
		b.webhook = b.update(b.webhook)
		_, stop := b.start(readRarely)
		defer stop()
		b.send("x")
		time.Sleep(55 * time.Second) // health is compared every minute
		b.webhook.ResetAt = time.Now().UTC()
		b.webhook = b.update(b.webhook) // elsewhere: this dispatcher is not told
		time.Sleep(10 * time.Second)
		r, err := b.db.GetWebhook(b.t.Context(), b.webhook.ID)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "enabled", r.Enabled, true)
	})
}

func TestAMessageThatIsAskedToWaitCountsOnceAsFailed(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.answer = func(webhook.Request, int) webhook.Result { return webhook.Result{Status: 429, RetryAfter: "20"} }
		d, stop := b.start(nil)
		defer stop()
		sent := b.send("x")
		time.Sleep(2 * time.Minute)
		want(t, "waits are more than one", b.delivery(sent, "wh_a").Waits > 1, true)
		s, _ := d.Webhook("wh_a")
		want(t, "failed messages", s.Failing.FailedMessages, 1)
	})
}

func TestAPostThatWaitsForItsRateDoesNotBeginOnALeaseThatHasEnded(t *testing.T) {
	inBubble(t, func(b *bench) { // I2
		b.webhook.Flow.Rate = 0.5
		b.webhook = b.update(b.webhook)
		d, stop := b.startHosted()
		defer stop()
		b.sendNumbered(2)
		messages, err := b.queue(testQueue).Receive(b.t.Context(), 2, 2*time.Second) // and nobody renews
		if err != nil || len(messages) != 2 {
			t.Fatalf("Receive = %d, %v", len(messages), err)
		}
		want(t, "the first", d.Deliver(b.t.Context(), testQueue, messages[0]).Action, policy.Complete)
		decision := d.Deliver(b.t.Context(), testQueue, messages[1])
		want(t, "the second", decision.Reason, policy.LeaseLost)
		want(t, "POSTs", b.sender.count(), 1)
	})
}

func TestMoreWebhooksThanRowsGoTogetherAreHeldAllTheSame(t *testing.T) {
	inBubble(t, func(b *bench) {
		const n = journal.MaxRows + 5
		rs := receivers{"wh_a": {takes: after(0), answer: answers(200)}} // which has the queue polled
		for i := range n {
			id := fmt.Sprintf("wh_%d", i)
			b.register(id, nil)
			rs[id] = &receiver{takes: after(0), answer: func(time.Time) webhook.Result { return webhook.Result{Status: 429, RetryAfter: "3600"} }}
		}
		_, stop := b.start(func(o *Options) { o.Sender = rs })
		defer stop()
		b.send("x")
		time.Sleep(time.Minute)
		sent := b.send("y")
		time.Sleep(time.Minute)
		all, err := b.db.Load(b.t.Context(), tables.MessageKey{Queue: testQueue, MessageID: sent.ID, Day: sent.InsertedAt})
		if err != nil {
			t.Fatal(err)
		}
		want(t, "deliveries", len(all), n+1)
		want(t, "records that were refused", strings.Contains(b.log.String(), "record could not be written"), false)
	})
}
