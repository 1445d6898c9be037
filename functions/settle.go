package functions

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pushlease/pushlease/queue"
)

// hostedQueue is a queue as settling sees it under the host, for one message.
//
//   - Complete does nothing: the host deletes the message when it is answered 2xx.
//   - Abandon gives the message back by the receipt that the trigger told, which makes
//     the host's own receipt stale. The host is then answered 2xx as well; its delete
//     fails, and it passes over that (docs/adr/0020-functions.md). So the message
//     comes back after our delay and not after the host's.
//   - Where Abandon can't be made, the host is answered 5xx and gives the message back
//     after its own delay. It then comes back too early, is not due yet, and is given
//     back again for the rest of its delay, without a POST.
//
// A message is never given back here and then answered 5xx when that can be known, and
// never answered 2xx unless one of the two has surely happened.
type hostedQueue struct {
	queue.Queue

	mu        sync.Mutex
	answered  bool
	abandoned bool
}

// Complete implements queue.Queue.
func (q *hostedQueue) Complete(context.Context, *queue.Message) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.tooLate()
}

// Abandon implements queue.Queue.
func (q *hostedQueue) Abandon(ctx context.Context, m *queue.Message, delay time.Duration) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.tooLate(); err != nil {
		return err
	}
	err := q.Queue.Abandon(ctx, m, delay)
	q.abandoned = q.abandoned || err == nil
	return err
}

// tooLate: after the host was answered the message is not ours any more.
func (q *hostedQueue) tooLate() error {
	if q.answered {
		return fmt.Errorf("%w: the host was answered before", queue.ErrLeaseLost)
	}
	return nil
}

// close ends settling, after a call that is under way, and reports whether the message
// was given back.
func (q *hostedQueue) close() (abandoned bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.answered = true
	return q.abandoned
}
