package dispatcher

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

// C80: what a process gave back for long because of a webhook is there within a minute of its
// stop, so that whoever enables the webhook then need not wait for it.
func TestWhatAStoppedProcessHeldIsThereWithinAMinute(t *testing.T) {
	const messages = 30
	inBubble(t, func(b *bench) {
		b.register("wh_b", func(r *tables.Registration) { r.Enabled = false })
		d, stop := b.start(nil)
		b.sendNumbered(messages)
		time.Sleep(3 * time.Minute)
		want(t, "visible while it runs", len(b.visible()), 0)
		start := time.Now()
		stop()
		want(t, "the stop is quick", time.Since(start) < time.Second, true)
		wantAtRest(t, d)
		time.Sleep(time.Minute)
		want(t, "visible", len(b.visible()), messages)
	})
}

// C80: few messages are held for a minute at a time, so that they are there within that
// time when their process was killed and nobody has the receipts.
func TestWhatAKilledProcessHeldIsThereWithinAMinute(t *testing.T) {
	const messages = 30
	inBubble(t, func(b *bench) {
		b.register("wh_b", func(r *tables.Registration) { r.Enabled = false })
		killed := &deafQueues{Service: b.db.Queues()}
		_, stop := b.start(func(o *Options) { o.Queues = killed })
		b.sendNumbered(messages)
		time.Sleep(10 * time.Minute)
		killed.dead.Store(true)
		stop()
		time.Sleep(time.Minute)
		want(t, "visible", len(b.visible()), messages)
	})
}

// C80: on a file the enabling itself shows what was held, by processes that were killed too.
func TestEnablingShowsWhatADispatcherHadHeld(t *testing.T) {
	inBubble(t, func(b *bench) {
		r := b.register("wh_b", func(r *tables.Registration) { r.Enabled = false })
		killed := &deafQueues{Service: b.db.Queues()}
		_, stop := b.start(func(o *Options) { o.Queues = killed })
		b.sendNumbered(20)
		time.Sleep(30 * time.Second)
		killed.dead.Store(true)
		stop()
		want(t, "visible", len(b.visible()), 0)
		_, stop = b.start(func(o *Options) { o.Instance = "second" })
		time.Sleep(time.Second)
		r.Enabled = true
		b.update(r)
		time.Sleep(20 * time.Second)
		want(t, "left", b.total(testQueue), 0)
		want(t, "POSTs", b.sender.count(), 40)
		stop()
	})
}

// C80: what was held because a webhook fails, or has asked for a pause, is not left to the memory of
// the process that held it either. On a file enabling the webhook anew shows it at once.
func TestWhatAKilledProcessHeldForAWebhookThatIsStoppedIsThereSoon(t *testing.T) {
	for name, refusal := range map[string]webhook.Result{
		"failing": {Status: 500}, "paused": {Status: 503, RetryAfter: "600"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.webhook.Flow = policy.Flow{}.OrDefault()
				b.webhook = b.update(b.webhook)
				b.register("wh_b", nil) // keeps the queue polled
				rs := receivers{
					"wh_a": {takes: after(time.Millisecond), answer: func(time.Time) webhook.Result { return refusal }},
					"wh_b": {takes: after(time.Millisecond), answer: answers(200)},
				}
				killed := &deafQueues{Service: b.db.Queues()}
				_, stop := b.start(func(o *Options) { o.Sender, o.Queues = rs, killed })
				sent := b.sendNumbered(90)
				time.Sleep(4 * time.Minute)
				sent = append(sent, b.sendNumbered(90)...)
				time.Sleep(time.Minute)
				killed.dead.Store(true)
				stop()
				time.Sleep(61 * time.Second) // 180 held at most
				depth, err := b.queue(testQueue).Depth(b.t.Context())
				want(t, "error", err, nil)
				tried := int64(0) // these wait for the time of their next attempt
				for _, s := range sent {
					if b.delivery(s, "wh_a").State == tables.Pending {
						tried++
					}
				}
				want(t, "most were not tried", tried < 20, true)
				want(t, "hidden", depth.Total-depth.Visible <= tried, true)

				rs["wh_a"].answer = answers(200)
				_, stop = b.start(func(o *Options) { o.Sender, o.Instance = rs, "second" })
				time.Sleep(30 * time.Second)
				b.webhook.ResetAt = time.Now().UTC()
				b.update(b.webhook)
				time.Sleep(20 * time.Second)
				for _, s := range sent {
					want(t, "is held", b.delivery(s, "wh_a").State == tables.Held, false)
				}
				time.Sleep(10 * time.Minute)
				want(t, "left", b.total(testQueue), 0)
				want(t, "dead letters", len(b.deadLetters()), 0)
				stop()
			})
		})
	}
}

// deafQueues take nothing back any more when their process is dead.
type deafQueues struct {
	queue.Service
	dead atomic.Bool
}

func (s *deafQueues) Queue(name string) (queue.Queue, error) {
	q, err := s.Service.Queue(name)
	return &deafQueue{q, s}, err
}

type deafQueue struct {
	queue.Queue
	s *deafQueues
}

func (q *deafQueue) Abandon(ctx context.Context, m *queue.Message, delay time.Duration) error {
	if q.s.dead.Load() {
		return queue.ErrBusy
	}
	return q.Queue.Abandon(ctx, m, delay)
}
