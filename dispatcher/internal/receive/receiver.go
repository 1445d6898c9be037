package receive

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/queue"
)

// Receiver receives from all queues that this process polls or guards. Safe for concurrent use.
type Receiver struct {
	*Options
	// handlers are all that go on, also when the run that began them has ended.
	handlers sync.WaitGroup

	mu      sync.Mutex
	pollers map[string]*poller
	guards  map[string]*guard
	// resting are the guards of earlier runs of Pump.
	resting map[string]*guard
	// polled is how earlier runs of Pump went.
	polled map[string]Poll
}

// New makes a Receiver, which receives nothing until it is told to.
func New(o Options) *Receiver {
	return &Receiver{
		Options: &o, pollers: map[string]*poller{}, guards: map[string]*guard{}, resting: map[string]*guard{}, polled: map[string]Poll{},
	}
}

// Wait returns when all that was received is settled. Call it once, when Run and the last Pump have
// returned.
func (r *Receiver) Wait() { r.handlers.Wait() }

func (r *Receiver) newGuard(work context.Context, q queue.Queue, beside *poller) *guard {
	return &guard{Options: r.Options, handlers: &r.handlers, q: q, work: work, beside: beside}
}

// errUnsettled: messages that were received go on without the run that has received them.
var errUnsettled = errors.New("what was received is not settled yet, since storage does not take it")

// await waits for handlers, and only for a moment more when work has ended: a delete that storage refuses
// is tried for as long as the message's lease can be kept. They go on as part of all.
func await(work context.Context, handlers, all *sync.WaitGroup) error {
	settled := make(chan struct{})
	all.Go(func() { handlers.Wait(); close(settled) })
	select {
	case <-settled:
		return nil
	case <-work.Done():
	}
	if !retry.Await(settled, retry.Timeout) {
		return errUnsettled
	}
	return nil
}

// reconcileGuards starts and stops guards so that they fit the registry. r.mu is held.
func (r *Receiver) reconcileGuards(ctx, work context.Context, running *sync.WaitGroup) {
	wanted := r.ours(r.Registry.ToGuard())
	for name, g := range r.guards {
		if !wanted[name] {
			g.stop()
			delete(r.guards, name)
		}
	}
	for name := range wanted {
		if r.guards[name] != nil || ctx.Err() != nil {
			continue
		}
		q, err := r.Queues.Queue(name)
		if err != nil {
			continue // as in reconcile
		}
		guardCtx, stop := context.WithCancel(ctx)
		g := r.newGuard(work, q, nil)
		g.stop = stop
		r.guards[name] = g
		running.Go(func() { defer stop(); g.run(guardCtx) })
		r.Log.Info("no webhook of the queue is enabled, or it has none any more: its messages wait, and are dead-lettered before they would expire", "queue", name)
	}
}

// Run keeps one poller for every queue that has an enabled webhook, and a guard for every other one that
// has webhooks, until ctx ends. It never gives up: a store that can't be asked is asked again. work is what
// messages are handled under.
func (r *Receiver) Run(ctx, work context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	faults := 0
	for {
		wait := r.RegistryRefresh
		if r.Registry.Refresh(ctx) {
			faults = 0
			r.Registry.RefreshLeft(ctx)
		} else {
			faults++
			wait = min(wait, retry.Backoff(faults, 500*time.Millisecond, wait))
		}
		r.reconcile(ctx, work, &running)
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		case <-r.Registry.Changed:
		}
	}
}

// reconcile starts and stops pollers so that they fit the registry.
func (r *Receiver) reconcile(ctx, work context.Context, running *sync.WaitGroup) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reconcileGuards(ctx, work, running)
	wanted := r.ours(r.Registry.ToPoll())
	for name, p := range r.pollers {
		if !wanted[name] {
			p.stop()
			delete(r.pollers, name)
			r.Log.Info("polling stopped: no enabled webhook is left on the queue", "queue", name)
		}
	}
	for name := range wanted {
		if r.pollers[name] != nil || ctx.Err() != nil {
			continue
		}
		q, err := r.Queues.Queue(name)
		if err != nil { // the API refuses such names; someone wrote the row by hand
			r.Log.Debug("a webhook is registered on a queue that can't be opened", "error", err)
			continue
		}
		p := newPoller(work, r.Options, &r.handlers, q, 0)
		pollCtx, stop := context.WithCancel(ctx)
		p.stop = stop
		r.pollers[name] = p
		running.Go(func() { defer stop(); defer p.close(); p.run(pollCtx) })
		running.Go(func() { r.newGuard(work, q, p).run(pollCtx) })
		r.Log.Info("polling started", "queue", name)
	}
}

// Polled names the queues that are polled.
func (r *Receiver) Polled() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.pollers))
}

// poller is the queue's; nil where it is not polled.
func (r *Receiver) poller(queueName string) *poller {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pollers[queueName]
}

// Wake makes the queue's poller receive at once, because a message was just sent.
func (r *Receiver) Wake(queueName string) {
	if p := r.poller(queueName); p != nil {
		p.wakeUp()
	}
}

// GivenBack tells the queue's poller when to look for a message that was given back. It does not look for one that is
// led, which another instance is to receive: it would be the first, and give it back again.
func (r *Receiver) GivenBack(queueName string, m *queue.Message, delay time.Duration, led bool) {
	if p := r.poller(queueName); p != nil && !led {
		p.willBeVisible(m, delay)
	}
}

// Received tells the queue's poller that a message has come back, so that it does not look for it
// at the time for which it was given back.
func (r *Receiver) Received(queueName, messageID string) {
	if p := r.poller(queueName); p != nil {
		p.due.back(messageID)
	}
}

// Shown makes the queue's poller receive at once, because a message that was given back is visible
// before its time. Any process may receive it.
func (r *Receiver) Shown(queueName, messageID string) {
	r.Received(queueName, messageID)
	r.Wake(queueName)
}

// ours are those of names that this process receives from itself: a host receives from the others.
func (r *Receiver) ours(names map[string]bool) map[string]bool {
	maps.DeleteFunc(names, func(name string, _ bool) bool { return r.Hosted(name) })
	return names
}

// Reserve keeps a place for a message on the queue, by the same limits as a receive: nil when
// no message could start now, or when this process does not receive from the queue. It
// never waits.
func (r *Receiver) Reserve(queueName string) *Place {
	p := r.poller(queueName)
	if p == nil {
		return nil
	}
	return p.reserve()
}

// MeasurePollAge makes the gauge that tells a poller that storage does not answer from an
// idle one: how long ago it last did. A poller that works but has no free slot, or whose
// webhooks can't be sent to, or whose process is full, does not ask, and counts as answered.
// So does one whose queue does not exist yet; one that is gone counts as silent.
func (r *Receiver) MeasurePollAge(m metric.Meter) error {
	age, err := m.Float64ObservableGauge("pushlease.poll.age", metric.WithUnit("s"),
		metric.WithDescription("Time since the last receive that storage answered, by queue; 0 while every slot is taken, no webhook can be sent to, or the queue does not exist yet."))
	if err != nil {
		return fmt.Errorf("gauge of the last poll: %w", err)
	}
	pause, err := m.Float64ObservableGauge("pushlease.poll.pause", metric.WithUnit("s"),
		metric.WithDescription("Pause after the last receive that storage answered, by queue: what the age of an idle queue may be, so that the difference is how long a receive is overdue. 0 after one that found messages."))
	if err != nil {
		return fmt.Errorf("gauge of the pause between polls: %w", err)
	}
	_, err = m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		r.mu.Lock()
		pollers := maps.Clone(r.pollers)
		r.mu.Unlock()
		for name, p := range pollers {
			queueName := metric.WithAttributes(attribute.String("queue", name))
			o.ObserveFloat64(age, p.age(time.Now()).Seconds(), queueName)
			o.ObserveFloat64(pause, p.expectedPause().Seconds(), queueName)
		}
		return nil
	}, age, pause)
	if err != nil {
		return fmt.Errorf("observe the polls: %w", err)
	}
	return nil
}

// Poll tells how polling a queue goes; false where it is not polled.
func (r *Receiver) Poll(queueName string) (Poll, bool) {
	p := r.poller(queueName)
	if p == nil {
		return Poll{}, false
	}
	return p.status(), true
}
