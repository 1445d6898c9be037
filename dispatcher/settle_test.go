package dispatcher

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// slowSettling is a storage that takes its time to answer settling calls.
type slowSettling struct {
	queue.Service
	takes time.Duration
}

func (s slowSettling) Queue(name string) (queue.Queue, error) {
	q, err := s.Service.Queue(name)
	return slowQueue{q, s.takes}, err
}

type slowQueue struct {
	queue.Queue
	takes time.Duration
}

func (q slowQueue) Complete(ctx context.Context, m *queue.Message) error {
	err := q.Queue.Complete(ctx, m)
	time.Sleep(q.takes)
	return err
}

func (q slowQueue) Abandon(ctx context.Context, m *queue.Message, delay time.Duration) error {
	err := q.Queue.Abandon(ctx, m, delay)
	time.Sleep(q.takes)
	return err
}

// A renewal that falls due while the message is being settled waits for that, and then
// there is nothing left to renew.
func TestSettledMessageIsNotRenewed(t *testing.T) {
	for _, status := range []int{200, 500} {
		inBubble(t, func(b *bench) {
			b.sender.takes = 3 * time.Second
			b.sender.answer = statuses(status, 200)
			_, stop := b.start(func(o *Options) { o.Lease, o.Queues = 8*time.Second, slowSettling{b.queues, 4 * time.Second} })
			b.send("x")
			time.Sleep(7200 * time.Millisecond) // half of the lease and the settling call are over
			want(t, "renewals", b.queues.count("renew"), 0)
			time.Sleep(time.Minute)
			stop()
			want(t, "messages left", b.total(testQueue), 0)
			if strings.Contains(b.log.String(), "lease lost") {
				t.Error("a lease that ended with its message counts as lost")
			}
		})
	}
}

func TestReplayThatCannotBeMarkedStaysUntilItIs(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.answer = statuses(400, 200)
		_, stop := b.start(nil)
		b.send("x")
		time.Sleep(10 * time.Second)
		var down outage
		b.store.on("update-dead-letter", down.rule(failBefore))
		b.replay(b.deadLetters()[0].ID, "token-1")
		time.Sleep(time.Minute)
		want(t, "status", b.deadLetters()[0].Status, tables.Replaying)
		down.end()
		time.Sleep(10 * time.Minute)
		stop()
		want(t, "status", b.deadLetters()[0].Status, tables.Replayed)
		want(t, "POSTs", b.sender.count(), 2)
		want(t, "messages left", b.total(testQueue), 0)
	})
}

// A message that was given back, but for the answer, is not called lost: the second try finds
// that its receipt is not known any more.
func TestAGivenBackMessageWhoseAnswerWasLostIsAbandoned(t *testing.T) {
	for _, operation := range []string{"abandoned", "held"} {
		t.Run(operation, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.sender.answer = statuses(500)
				b.queues.on("abandon", firstCalls(1, answerLost))
				b.send("x")
				d, stop := b.startHosted()
				defer stop()
				if operation == "held" {
					b.deleteWebhook(d)
					d.RegistryChanged()
					time.Sleep(time.Second)
				}
				m := b.receiveOne()
				result, err := d.HandleHosted(b.t.Context(), &faultyQueue{b.queue(testQueue), b.queues}, m, func() {})
				want(t, "error", err, nil)
				want(t, "result", result, "abandoned")
				want(t, "tries", b.queues.count("abandon"), 2)
			})
		})
	}
}
