package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// completing notes when each delete was tried, and may answer in its place.
type completing struct {
	queue.Service
	mu     sync.Mutex
	at     []time.Time
	answer func(try int) error // nil leaves it to the queue
}

func (s *completing) Queue(name string) (queue.Queue, error) {
	q, err := s.Service.Queue(name)
	return completingQueue{q, s}, err
}

type completingQueue struct {
	queue.Queue
	s *completing
}

func (q completingQueue) Complete(ctx context.Context, m *queue.Message) error {
	q.s.mu.Lock()
	q.s.at = append(q.s.at, time.Now())
	n, answer := len(q.s.at), q.s.answer
	q.s.mu.Unlock()
	if answer != nil {
		if err := answer(n); err != nil {
			return err
		}
	}
	return q.Queue.Complete(ctx, m)
}

func TestDeletesAreCountedByWhatStorageAnswered(t *testing.T) { // R2
	tests := []struct {
		name   string
		answer func(try int) error
		result string
		class  string // of the failure
	}{
		{"deleted", nil, "deleted", ""},
		{"busy twice", func(n int) error {
			if n <= 2 {
				return queue.ErrBusy
			}
			return nil
		}, "deleted", ""},
		{"gone after a try that was not answered", func(n int) error {
			if n == 1 {
				return errLost
			}
			return queue.ErrLeaseLost
		}, "deleted", ""},
		{"gone at the first try", func(int) error { return queue.ErrLeaseLost }, "lease_lost", "lease_lost"},
		{"gone after a refusal", func(n int) error {
			if n == 1 {
				return queue.ErrBusy
			}
			return queue.ErrLeaseLost
		}, "lease_lost", "lease_lost"},
		{"busy for ever", func(int) error { return fmt.Errorf("injected: %w", queue.ErrBusy) }, "failed", "busy"},
		{"denied", func(int) error { return queue.ErrDenied }, "failed", "denied"},
		{"not answered", func(int) error { return context.DeadlineExceeded }, "failed", "timeout"},
		{"something else", func(int) error { return errors.New("secret of storage") }, "failed", "storage"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				var c *counters
				queues := &completing{Service: b.queues, answer: tt.answer}
				d, stop := b.start(func(o *Options) { o.Queues = queues; o.Drain = time.Second; c = newCounters(o) })
				begin := time.Now()
				sent := b.send("x")
				time.Sleep(10 * time.Second)
				stop() // what can't be deleted is tried until then
				n := statusOf(d, testQueue).Deletions
				want(t, "total", n.Total, 1)
				want(t, "successful", n.Successful == 1, tt.class == "")
				want(t, "failed", n.Failed == 1, tt.class != "")
				want(t, "unverified", n.Unverified, 0)
				want(t, "counted", c.sum(t, "pushlease.messages.deleted", "queue", testQueue, "result", tt.result), 1)
				want(t, "counted in all", c.sum(t, "pushlease.messages.deleted"), 1)
				want(t, "failures kept", len(n.LastFailures), int(n.Failed))
				for _, f := range n.LastFailures {
					want(t, "message", f.MessageID, sent.ID)
					want(t, "error", f.Error, tt.class)
					if f.At.Before(begin) || f.At.After(time.Now()) {
						t.Errorf("failed at %s", f.At)
					}
				}
			})
		})
	}
}

func TestThreeQuickTriesAreHalfASecondApartWithJitter(t *testing.T) { // R2
	gaps := map[time.Duration]bool{}
	for range 5 {
		inBubble(t, func(b *bench) {
			queues := &completing{Service: b.queues, answer: func(int) error { return queue.ErrBusy }}
			_, stop := b.start(func(o *Options) { o.Queues = queues; o.Drain = time.Second })
			b.send("x")
			time.Sleep(20 * time.Second)
			stop()
			if len(queues.at) < 5 {
				t.Fatalf("%d tries in 20 s", len(queues.at))
			}
			for i := range 2 {
				gap := queues.at[i+1].Sub(queues.at[i])
				gaps[gap] = true
				if gap < retry.Delete.First || gap > retry.Delete.First*4/3 {
					t.Errorf("try %d came %s after the one before", i+2, gap)
				}
			}
		})
	}
	if len(gaps) < 5 {
		t.Errorf("only %d lengths among ten pauses: there is no jitter", len(gaps))
	}
}

// The first process records the delivery and can't delete; the message comes back to
// the next one.
func TestMessageThatComesBackAfterItsDeliveryIsAnUnverifiedDeletion(t *testing.T) { // R2
	inBubble(t, func(b *bench) {
		queues := &completing{Service: b.queues, answer: func(int) error { return queue.ErrBusy }}
		first, stop := b.start(func(o *Options) { o.Queues = queues; o.Lease = 10 * time.Second; o.Drain = time.Second })
		sent := b.send("x")
		time.Sleep(5 * time.Second)
		stop()
		want(t, "failed", statusOf(first, testQueue).Deletions.Failed, 1)
		want(t, "messages left", b.total(testQueue), 1)

		var c *counters
		second, stop := b.start(func(o *Options) { c = newCounters(o) })
		time.Sleep(time.Minute)
		stop()
		n := statusOf(second, testQueue).Deletions
		want(t, "unverified", n.Unverified, 1)
		want(t, "deleted again", n.Successful, 1)
		want(t, "failed", n.Failed, 0)
		want(t, "last failure", n.LastFailures[0].MessageID+" "+n.LastFailures[0].Error, sent.ID+" unverified")
		want(t, "counted", c.sum(t, "pushlease.messages.deleted", "result", "unverified"), 1)
		want(t, "duplicates", c.sum(t, "pushlease.messages.duplicate"), 1)
		want(t, "POSTs", b.sender.count(), 1)
		want(t, "messages left", b.total(testQueue), 0)
		want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
	})
}

func TestQueuesAreCountedApart(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.register("wh_b", func(r *tables.Registration) { r.Queue = "other" })
		d, stop := b.start(nil)
		for range 3 {
			b.send("x")
		}
		time.Sleep(5 * time.Second)
		stop()
		want(t, "of this queue", statusOf(d, testQueue).Deletions.Successful, 3)
		want(t, "of the other", statusOf(d, "other").Deletions.Total, 0)
		want(t, "messages measured", statusOf(d, "other").Processing.Samples, 0)
	})
}
