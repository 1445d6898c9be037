package dispatcher

import (
	"context"
	"testing"
	"time"

	"github.com/pushlease/pushlease/queue"
)

// hangingQueues never answers a receive.
type hangingQueues struct{ queue.Service }

func (s hangingQueues) Queue(name string) (queue.Queue, error) {
	q, err := s.Service.Queue(name)
	return hangingQueue{q}, err
}

type hangingQueue struct{ queue.Queue }

func (hangingQueue) Receive(ctx context.Context, _ int, _ time.Duration) ([]*queue.Message, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestShutdownWaitsForAHangingReceiveNoLongerThanTheDrainBound(t *testing.T) {
	inBubble(t, func(b *bench) {
		_, stop := b.start(func(o *Options) { o.Queues = hangingQueues{b.db.Queues()}; o.Drain = 3 * time.Second })
		time.Sleep(time.Second)
		start := time.Now()
		stop()
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("stop took %s, want the drain bound of 3s", took)
		}
	})
}
