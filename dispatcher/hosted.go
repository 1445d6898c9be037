package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/webhook"
)

// This file is the dispatcher under a host that receives messages by itself, keeps
// them leased, and wants an answer within a bounded time (Azure Functions). What a
// message goes through is the same; nothing is polled and nothing is renewed.

// RunHosted writes what could not be written before until ctx ends, and then what is
// left of it. It receives nothing: the host hands messages to HandleHosted, and Pump and
// Tidy work when they are called. Call it instead of Run, once, and end ctx when the
// last of these calls has returned.
func (d *Dispatcher) RunHosted(ctx context.Context) {
	d.run(ctx, d.superviseHosted)
}

// superviseHosted reads the registered webhooks at the start and when they were changed
// here. What others changed is read when the next message comes.
func (d *Dispatcher) superviseHosted(ctx, _ context.Context) {
	for {
		_ = d.registry.refresh(ctx) // it is logged there, and read again before it is needed
		select {
		case <-ctx.Done():
			return
		case <-d.registry.changed:
		}
	}
}

// HandleHosted delivers a message that the host received, and settles it through q,
// whose Complete and Abandon do what there is to do under this host. m.Lease ends
// when the host's patience does: it is never renewed, and no POST runs past it (see
// WithPostDeadline). The result is "deleted" or "abandoned" when q took the decision;
// with any other the host has to give the message back.
func (d *Dispatcher) HandleHosted(ctx context.Context, q queue.Queue, m *queue.Message) (Decision, string) {
	start := time.Now()
	d.metrics.received(q.Name(), m)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(context.Canceled)
	k := &keeper{d: d, q: q, m: m, ctx: ctx, cancel: cancel, using: make(chan struct{}, 1)}
	if !d.begin(k) {
		return ownFault(m, policy.LeaseLost), "work_goes_on"
	}
	ctx, span := d.startMessageSpan(WithPostDeadline(ctx, m.Lease.Until(), m.Lease.Granted()/3), q.Name(), m)
	defer span.End()

	decision := ownFault(m, policy.StorageFault)
	if d.upToDate(ctx, start) {
		decision = d.Deliver(ctx, q.Name(), m)
	}
	d.end(k)
	delivered := time.Now()
	result := d.settle(d.writing(ctx), k, decision)

	d.endMessageSpan(span, decision, result)
	d.metrics.settled(q.Name(), decision, result, time.Since(start), m.Lease.Granted())
	d.measure.settled(q.Name(), decision.posts, delivered.Sub(start)+min(time.Since(delivered), settleTimeout), m.Lease.Granted())
	return decision, result
}

// upToDate re-reads the registered webhooks where that is due: no loop does it while
// nothing is invoked, since that would cost transactions all day. One that could
// never be read decides nothing; an older one is better than none.
func (d *Dispatcher) upToDate(ctx context.Context, now time.Time) bool {
	readAt, _ := d.registry.status()
	if now.Sub(readAt) < d.o.RegistryRefresh {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	return d.registry.fresh(ctx, now) || !readAt.IsZero()
}

// ours are those of names that d receives from itself: a host receives from the others.
func (d *Dispatcher) ours(names map[string]bool) map[string]bool {
	maps.DeleteFunc(names, func(name string, _ bool) bool { return d.o.Hosted(name) })
	return names
}

// Pump receives from every queue that has an enabled webhook and that no host receives
// from, until each was seen empty or ctx ends. It returns when all that it received is
// settled, or work has ended, and how many messages that were. Several may run at a
// time, here and elsewhere. The error is about queues that could not be received from.
func (d *Dispatcher) Pump(ctx, work context.Context) (handled int, err error) {
	if !d.registry.fresh(ctx, time.Now()) {
		return 0, errors.New("the registered webhooks can't be read")
	}
	var drains sync.WaitGroup
	var n atomic.Int64
	var mu sync.Mutex
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(d.ours(d.registry.queuesToPoll()))) {
		q, err := d.o.Queues.Queue(name)
		if err != nil {
			continue // as in reconcile
		}
		drains.Go(func() {
			p := newPoller(work, d, q)
			defer p.close()
			p.patience = pumpPatience
			if err := d.drain(ctx, p, &n); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("queue %s: %w", name, err))
			}
		})
	}
	drains.Wait()
	return int(n.Load()), errors.Join(errs...)
}

// pumpPatience is how long Pump waits for a webhook that can't be sent to.
const pumpPatience = 5 * time.Second

// drain handles what one queue has.
func (d *Dispatcher) drain(ctx context.Context, p *poller, handled *atomic.Int64) error {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		n := p.takeSlots(ctx)
		if n == 0 {
			return nil
		}
		messages, err := p.receive(n)
		p.giveSlots(n - len(messages))
		for _, m := range messages {
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

// Tidy does what no message asks for: it writes what could not be written before, and
// looks once at each queue of which no webhook is enabled, or can be sent to, or whose last
// one was deleted, so that what waits there is dead-lettered before it would expire. It may
// be called at any time and any number of times; call it at least every ten minutes.
func (d *Dispatcher) Tidy(ctx, work context.Context) error {
	d.flushOnce(ctx)
	if !d.registry.fresh(ctx, time.Now()) {
		return errors.New("the registered webhooks can't be read")
	}
	d.registry.refreshLeft(ctx)
	var errs []error
	polled := d.registry.queuesToPoll()
	watched := d.registry.queuesToGuard()
	maps.Copy(watched, polled)
	for _, name := range slices.Sorted(maps.Keys(d.ours(watched))) {
		q, err := d.o.Queues.Queue(name)
		if err != nil {
			continue
		}
		g := &guard{d: d, q: q, work: work}
		if polled[name] {
			g.stuck = 2 * guardInterval // Tidy looks no more often
		}
		if _, err := g.round(ctx); err != nil {
			errs = append(errs, fmt.Errorf("queue %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

type postDeadlineKey struct{}

type postDeadline struct {
	by    time.Time
	least time.Duration
}

// WithPostDeadline makes every POST under ctx end by then, whatever its webhook's own
// timeout allows. A POST that ends so is a timeout like any other: it is charged, or a
// receiver that is slower than the host allows would be tried for ever. For that it
// has to be given a fair time: none is begun with less than the webhook's timeout, or
// least if that is shorter.
func WithPostDeadline(ctx context.Context, by time.Time, least time.Duration) context.Context {
	return context.WithValue(ctx, postDeadlineKey{}, postDeadline{by, least})
}

// fairTime reports whether a POST may begin under ctx's deadline.
func fairTime(ctx context.Context, w *webhook.Webhook) bool {
	d, ok := ctx.Value(postDeadlineKey{}).(postDeadline)
	return !ok || time.Until(d.by) >= min(w.Timeout, d.least)
}

// capped is the webhook with the timeout that it has under ctx.
func capped(ctx context.Context, w *webhook.Webhook) *webhook.Webhook {
	d, ok := ctx.Value(postDeadlineKey{}).(postDeadline)
	if !ok || time.Until(d.by) >= w.Timeout {
		return w
	}
	short := *w
	short.Timeout = max(time.Until(d.by), time.Millisecond)
	return &short
}
