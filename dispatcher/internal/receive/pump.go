package receive

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pushlease/pushlease/queue"
)

// pumpPatience is how long Pump waits for a webhook that can't be sent to.
const pumpPatience = 5 * time.Second

// Pump does for a while what Run does all the time, for the queues that no host receives
// from. It receives from each that has an enabled webhook until the queue was seen empty
// or ctx ends, and guards all others, and those whose webhooks can't be sent to, until
// the rest is done: what is near its expiry there is dead-lettered. It returns when all that
// it received is settled, or a moment after work has ended, and how many messages that were.
// A queue that is in the hands of another one in this process, or of Run, is left to it.
func (r *Receiver) Pump(ctx, work context.Context) (handled int, err error) {
	if !r.Registry.Fresh(ctx, time.Now()) {
		return 0, errors.New("the registered webhooks can't be read")
	}
	r.Registry.RefreshLeft(ctx)
	p := &pump{r: r, work: work, drained: make(chan struct{})}
	polled, guarded := r.ours(r.Registry.ToPoll()), r.ours(r.Registry.ToGuard())
	for _, name := range slices.Sorted(maps.Keys(polled)) {
		p.poll(ctx, name)
	}
	for _, name := range slices.Sorted(maps.Keys(guarded)) {
		p.guard(ctx, name)
	}
	p.drains.Wait()
	close(p.drained)
	p.guards.Wait()
	maps.Copy(guarded, polled)
	r.mu.Lock()
	maps.DeleteFunc(r.resting, func(name string, _ *guard) bool { return !guarded[name] })
	maps.DeleteFunc(r.polled, func(name string, _ Poll) bool { return !polled[name] })
	r.mu.Unlock()
	return int(p.handled.Load()), errors.Join(p.errs...)
}

// pump is one run.
type pump struct {
	r    *Receiver
	work context.Context

	drains, guards sync.WaitGroup
	drained        chan struct{} // closed when all drains have ended
	handled        atomic.Int64

	mu   sync.Mutex
	errs []error
}

func (p *pump) note(queueName string, err error) {
	if err == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.errs = append(p.errs, fmt.Errorf("queue %s: %w", queueName, err))
}

// poll begins to receive from a queue, and to guard it while its webhooks can't be sent to.
func (p *pump) poll(ctx context.Context, name string) {
	r := p.r
	q, err := r.Queues.Queue(name)
	if err != nil {
		return // as in reconcile
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pollers[name] != nil {
		return
	}
	pollCtx, stop := context.WithCancel(ctx)
	poller := newPoller(p.work, r.Options, &r.handlers, q, pumpPatience)
	poller.stop = stop
	poller.poll = r.polled[name] // said already
	poller.poll.At = time.Time{}
	r.pollers[name] = poller
	g := r.rested(p.work, q, poller)
	p.drains.Go(func() {
		defer stop()
		defer poller.close()
		p.note(name, drain(pollCtx, poller, &p.handled))
	})
	p.guards.Go(func() {
		p.note(name, g.watch(p.work, p.drained))
		r.mu.Lock()
		defer r.mu.Unlock()
		r.resting[name], r.polled[name] = g, poller.status()
		if r.pollers[name] == poller {
			delete(r.pollers, name)
		}
	})
}

// guard begins to guard a queue that has no enabled webhook.
func (p *pump) guard(ctx context.Context, name string) {
	r := p.r
	q, err := r.Queues.Queue(name)
	if err != nil {
		return // as in reconcile
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.guards[name] != nil || ctx.Err() != nil {
		return
	}
	guardCtx, stop := context.WithCancel(p.work)
	g := r.rested(p.work, q, nil)
	g.stop = stop
	r.guards[name] = g
	p.guards.Go(func() {
		defer stop()
		p.note(name, g.watch(guardCtx, p.drained))
		r.mu.Lock()
		defer r.mu.Unlock()
		r.resting[name] = g
		if r.guards[name] == g {
			delete(r.guards, name)
		}
	})
}

// rested is the guard that an earlier run had for the queue, with what it knows, or a new
// one. r.mu is held.
func (r *Receiver) rested(work context.Context, q queue.Queue, beside *poller) *guard {
	g := r.resting[q.Name()]
	if g == nil {
		g = r.newGuard(work, q, beside)
	}
	delete(r.resting, q.Name())
	g.q, g.work, g.beside = q, work, beside
	return g
}

// drain handles what one queue has.
func drain(ctx context.Context, p *poller, handled *atomic.Int64) (err error) {
	var running sync.WaitGroup
	defer func() { err = errors.Join(err, await(p.work, &running, p.handlers)) }()
	for {
		n := p.seats.Acquire(ctx)
		if n == 0 {
			return nil
		}
		messages, err := p.receive(n)
		p.seats.Return(n - len(messages))
		p.observe(err, p.lookBack(ctx, err))
		for _, m := range messages {
			p.seats.Start(p.work, time.Time{}) // at once: nothing is received ahead
			running.Go(func() {
				p.handle(m)
				handled.Add(1)
			})
		}
		if errors.Is(err, queue.ErrQueueNotFound) || err == nil && len(messages) == 0 {
			return nil // the first publish creates it
		}
		if err != nil {
			return err
		}
	}
}
