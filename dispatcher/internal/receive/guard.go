package receive

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/delivery"
	"github.com/pushlease/pushlease/dispatcher/internal/meter"
	"github.com/pushlease/pushlease/dispatcher/internal/registry"
	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/dispatcher/internal/settle"
	"github.com/pushlease/pushlease/queue"
)

const (
	// guardAgain is the longest wait after a fault, and the wait between the looks of a timer's run.
	guardAgain = time.Minute
	// guardInVain is how many batches in a row may hold nothing that is near its end, though looks show some: the next round goes on.
	guardInVain = 3
	// stuckMargin is guardMargin for a queue that is polled, whose webhooks may be sent to again at any time, or its LookGap if that is more.
	stuckMargin = 5 * time.Minute
)

// guard watches a queue that has webhooks of which none is enabled, or whose last webhook was deleted. Such a queue is not polled, and its messages
// wait for nothing but their expiry: those that are near it are dead-lettered, the others stay where they are.
//
// It watches a polled queue too, while none of its webhooks can be sent to, or not as much as there is: then nobody receives from it either, or not
// all.
type guard struct {
	*Options
	handlers *sync.WaitGroup // all of the process
	q        queue.Queue
	work     context.Context
	stop     context.CancelFunc
	// beside is the poller of a queue that is polled; nil for all others.
	beside *poller
	// behind: the poller receives, but there is more than its webhooks can be sent now.
	behind bool
	// inVain: the last batch held nothing that is near its end, though a peek showed some. Receiving goes by another order, so the next batch is a
	// full one.
	inVain bool
	// noted are the messages of a left queue, among those that the last peek showed, that are recorded as held.
	noted map[string]bool
}

// run looks at the queue until ctx ends.
func (g *guard) run(ctx context.Context) {
	for faults := 0; ; {
		err := g.round(ctx)
		if ctx.Err() != nil {
			return
		}
		wait := guardInterval - rand.N(guardInterval/10)
		if faults++; err == nil {
			faults = 0
		} else {
			wait = retry.Backoff(faults, guardInterval, guardAgain)
			g.Log.Warn("the queue can't be guarded against expiring messages now; trying again",
				"queue", g.q.Name(), "wait", wait.Round(time.Second), "error", err)
		}
		retry.Sleep(ctx, wait)
	}
}

// watch makes a round at once and one a minute until done is closed, and then a last one of a queue that was received from meanwhile.
func (g *guard) watch(ctx context.Context, done <-chan struct{}) error {
	for last := !g.polled(); ; {
		err := g.round(ctx)
		select {
		case <-done:
			if last {
				return err
			}
			last = true
		case <-ctx.Done():
			return err
		case <-time.After(guardAgain):
		}
	}
}

// round looks once, which is one transaction when nothing is near its end, and dead-letters what is, a batch at a time.
func (g *guard) round(ctx context.Context) error {
	for vain := 0; vain < guardInVain; {
		start := time.Now()
		ending, err := g.look(ctx)
		if err != nil || ending == 0 {
			g.inVain = false
			return err
		}
		// Nobody's time ends because of a registry that is behind.
		if !g.Registry.Fresh(ctx, start) {
			return errors.New("the registered webhooks can't be read")
		}
		if g.polled() != g.Registry.ToPoll()[g.q.Name()] || !g.polled() && !g.Registry.ToGuard()[g.q.Name()] {
			g.Registry.Tell() // the poller takes over, or the queue is nobody's any more
			return nil
		}
		if g.inVain {
			ending = queue.MaxReceive
		}
		messages, err := g.receive(ending)
		if err != nil {
			return err
		}
		left, err := g.handle(messages)
		if err != nil {
			return err
		}
		if vain++; left > 0 {
			vain = 0
		}
		g.inVain = left == 0
	}
	return nil
}

// look peeks and counts the messages that are near their end.
func (g *guard) look(ctx context.Context) (ending int, err error) {
	if g.polled() {
		room, _ := g.Flows.Room(g.q.Name(), 0, 0, 1, time.Now())
		g.behind = room > 0 && g.beside.backlogged() != nil
		if room > 0 && !g.behind {
			return 0, nil // the poller receives what comes
		}
	}
	ctx, cancel := context.WithTimeout(ctx, receiveTimeout)
	defer cancel()
	peeked, err := g.q.Peek(ctx, queue.MaxReceive)
	if errors.Is(err, queue.ErrQueueNotFound) {
		peeked, err = nil, nil
	}
	if err == nil {
		peeked, err = g.ownOnly(ctx, peeked)
	}
	if err != nil {
		return 0, fmt.Errorf("look for expiring messages: %w", err)
	}
	now := time.Now()
	for _, p := range peeked {
		if g.nearEnd(p.InsertedAt, p.ExpiresAt, now) {
			ending++
		}
	}
	return ending, nil
}

// receive is not cut short by a stop before the drain bound, as that of a poller.
func (g *guard) receive(n int) ([]*queue.Message, error) {
	ctx, cancel := context.WithTimeout(g.work, receiveTimeout)
	defer cancel()
	messages, err := g.q.Receive(ctx, min(n, g.Concurrency), g.Measure.Length(g.q.Name()))
	if err != nil {
		g.Meter.ReceiveErrors.Add(meter.Labels{Queue: g.q.Name()})
		return nil, fmt.Errorf("receive expiring messages: %w", err)
	}
	return messages, nil
}

// handle settles a batch and returns how many messages have left the queue.
func (g *guard) handle(messages []*queue.Message) (int, error) {
	var left atomic.Int64
	var batch sync.WaitGroup
	for _, m := range messages {
		batch.Go(func() {
			if g.Handle(g.work, g.q, m, g.terms(m), nil) == settle.Deleted {
				left.Add(1)
			}
		})
	}
	err := await(g.work, &batch, g.handlers)
	return int(left.Load()), err
}

// terms: near its end a message is dead-lettered, otherwise it is shown again at once, with its receive excused. Where a webhook was enabled
// meanwhile it is delivered. What was sent to a left queue later is given back untouched.
func (g *guard) terms(m *queue.Message) delivery.Terms {
	l, left := g.Registry.LeftQueue(g.q.Name())
	switch {
	case left && !registry.Before(l, m.InsertedAt):
		return delivery.Terms{Untouched: true}
	case g.nearEnd(m.InsertedAt, m.ExpiresAt, time.Now()):
		return delivery.Terms{Held: guardMargin, Postponed: guardMargin}
	case g.polled():
		return delivery.Usual(m, g.LookGap(g.q.Name()))
	}
	return delivery.Terms{Postponed: delivery.PostponeMargin(m), Shown: true}
}

func (g *guard) margin() time.Duration {
	switch {
	case !g.polled():
		return guardMargin
	case g.behind: // its turn may come yet
		return max(guardAgain, g.LookGap(g.q.Name()))
	}
	return max(stuckMargin, g.LookGap(g.q.Name()))
}

func (g *guard) polled() bool { return g.beside != nil }

const (
	// guardInterval is the wait between two looks at a guarded queue. A message of a life of a minute is near its end for half of it, and one that
	// was given back is shown again half a minute before its end: two looks fall into that, and time is left for what the first of them leads to.
	guardInterval = 12 * time.Second
	// guardMargin is how much of its life a message has left when it is dead-lettered, or half of its life if that is less.
	guardMargin = time.Hour
)

// nearEnd: it is within the margin, or in what may be its last look by a clock that is behind storage's.
func (g *guard) nearEnd(inserted, expires, now time.Time) bool {
	lastLook := delivery.LastLook(&queue.Message{InsertedAt: inserted, ExpiresAt: expires}, g.LookGap(g.q.Name()))
	return !expires.IsZero() && expires.Sub(now) <= max(delivery.LastOfLife(inserted, expires, g.margin()), lastLook)
}
