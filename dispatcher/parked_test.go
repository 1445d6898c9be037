package dispatcher

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

// What was held because of a webhook goes on when that takes messages again, and not
// minutes later; as fast as it takes them.
func TestWhatIsHeldGoesOnWhenItsWebhookTakesMessagesAgain(t *testing.T) {
	const messages = 200
	wait := func(time.Time) webhook.Result { return webhook.Result{Status: 429, RetryAfter: "7200"} }
	for name, c := range map[string]struct {
		bad    func(time.Time) webhook.Result
		takes  time.Duration
		flow   func(*policy.Flow)
		change func(b *bench, r tables.Registration, rs receivers)
	}{
		"a pause, enabled anew": {bad: wait, change: func(b *bench, r tables.Registration, _ receivers) {
			r.ResetAt = time.Now().UTC()
			b.update(r)
		}},
		"an open breaker, enabled anew": {bad: answers(500), change: func(b *bench, r tables.Registration, _ receivers) {
			r.ResetAt = time.Now().UTC()
			b.update(r)
		}},
		"an open breaker, another URL": {bad: answers(500), change: func(b *bench, r tables.Registration, _ receivers) {
			r.URL, r.ResetAt = "https://example.com/other", time.Now().UTC()
			b.update(r)
		}},
		"a rate that is raised": {bad: answers(200), flow: func(f *policy.Flow) { f.Rate = 0.01 },
			change: func(b *bench, r tables.Registration, _ receivers) {
				r.Flow.Rate = 0
				b.update(r)
			}},
		"disabled, then enabled": {bad: func(time.Time) webhook.Result { return webhook.Result{Status: 410} },
			change: func(b *bench, r tables.Registration, _ receivers) {
				r, _ = b.db.GetWebhook(b.t.Context(), r.ID)
				want(b.t, "enabled", r.Enabled, false)
				r.Enabled, r.ResetAt = true, time.Now().UTC()
				b.update(r)
			}},
		"a breaker that a probe closes": {bad: answers(500), change: func(*bench, tables.Registration, receivers) {},
			flow: func(f *policy.Flow) {
				f.Breaker.ProbeAfter, f.Breaker.ProbeMax = policy.Duration(200*time.Second), policy.Duration(200*time.Second)
			}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				r := b.register("wh_b", limited(c.flow))
				rs := receivers{
					"wh_a": {takes: after(time.Millisecond), answer: answers(200)},
					"wh_b": {takes: after(20 * time.Millisecond), answer: c.bad},
				}
				d, stop := b.start(func(o *Options) { o.Sender = rs })
				time.Sleep(time.Second)
				b.sendNumbered(20)
				time.Sleep(10 * time.Second)
				b.sendNumbered(messages)
				time.Sleep(100 * time.Second)
				left := b.total(testQueue)
				want(t, "most wait", left >= messages, true)
				rs["wh_b"].now(answers(200))
				posts := rs["wh_b"].count()
				c.change(b, r, rs)
				start := time.Now()
				for b.total(testQueue) > left-messages*9/10 && time.Since(start) < time.Hour {
					time.Sleep(time.Second)
				}
				took := time.Since(start)
				t.Logf("%d of %d went on within %s", left-b.total(testQueue), left, took)
				bound := 30 * time.Second
				if strings.HasPrefix(name, "a breaker") {
					bound = 200 * time.Second
				}
				want(t, "is soon", took <= bound, true)
				want(t, "POSTs at once", rs["wh_b"].mostAtOnce() <= policy.DefaultFlow().Concurrency, true)
				want(t, "some POSTs", rs["wh_b"].count()-posts >= messages*9/10, true)
				stop()
				wantAtRest(t, d)
			})
		})
	}
}

// hookedQueues calls hide before each message is hidden.
type hookedQueues struct {
	queue.Service
	hide func()
}

func (s *hookedQueues) Queue(name string) (queue.Queue, error) {
	q, err := s.Service.Queue(name)
	return &hookedQueue{q, s}, err
}

type hookedQueue struct {
	queue.Queue
	s *hookedQueues
}

func (q *hookedQueue) Hide(ctx context.Context, m *queue.Message, delay time.Duration) error {
	q.s.hide()
	return q.Queue.Hide(ctx, m, delay)
}

// A webhook may be released after a message was refused because of it and before the message
// is parked: it is shown then, and not at its time.
func TestAReleaseWhileAMessageIsBeingParkedCounts(t *testing.T) {
	inBubble(t, func(b *bench) {
		r := b.register("wh_b", nil)
		hooked := &hookedQueues{Service: b.db.Queues(), hide: func() {}}
		d, stop := b.start(func(o *Options) { o.Queues = hooked })
		time.Sleep(time.Second)
		f := d.flows.Get("wh_b")
		f.AskPause(20*time.Minute, time.Now())
		hooked.hide = func() {
			hooked.hide = func() {}
			r.ResetAt = time.Now().UTC()
			b.update(r)
			d.RegistryChanged()
			time.Sleep(2 * time.Second)
		}
		b.send("x")
		time.Sleep(30 * time.Second)
		want(t, "POSTs", b.sender.count(), 2)
		want(t, "left", b.total(testQueue), 0)
		stop()
	})
}
