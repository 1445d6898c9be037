package dispatcher

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
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
