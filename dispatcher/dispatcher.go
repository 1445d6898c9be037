package dispatcher

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/pushlease/pushlease/dispatcher/internal/admission"
	"github.com/pushlease/pushlease/dispatcher/internal/claims"
	"github.com/pushlease/pushlease/dispatcher/internal/delivery"
	"github.com/pushlease/pushlease/dispatcher/internal/flow"
	"github.com/pushlease/pushlease/dispatcher/internal/journal"
	"github.com/pushlease/pushlease/dispatcher/internal/lease"
	"github.com/pushlease/pushlease/dispatcher/internal/meter"
	"github.com/pushlease/pushlease/dispatcher/internal/registry"
	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/dispatcher/internal/settle"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// ErrStopping is the cause with which work is cut short at the end of a drain.
var ErrStopping = delivery.ErrStopping

// settleBound is how long settling may go on after work was cut short.
const settleBound = 10 * time.Second

// Dispatcher receives, delivers and settles. Make one with New, run it once with
// Run or RunHosted. All other methods may be called at any time from any goroutine.
type Dispatcher struct {
	o         Options
	log       *slog.Logger
	metrics   *meter.Instruments
	spans     meter.Spans
	registry  *registry.Registry
	journal   *journal.Journal
	claims    *claims.Claims
	flows     *flow.Flows
	admission *admission.Admission
	measure   *lease.Measure
	leases    *lease.Leases
	deliverer *delivery.Deliverer
	completer *settle.Completer
	deletes   *meter.Deletes
	late      *late
	inFlight  meter.InFlight

	mu      sync.Mutex
	pollers map[string]*poller
	guards  map[string]*guard
	// resting are the guards of earlier runs of Pump.
	resting map[string]*guard

	handlers sync.WaitGroup

	// write outlives work: records and settling go on while work is cut short. It
	// ends when Run returns.
	write     context.Context
	stopWrite context.CancelFunc
}

// New validates o and makes a Dispatcher. It asks storage for nothing.
func New(o Options) (*Dispatcher, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	m, err := meter.New(o.Meter)
	if err != nil {
		return nil, err
	}
	write, stopWrite := context.WithCancel(context.Background())
	measure := lease.NewMeasure(o.Lease, o.Estimate)
	d := &Dispatcher{
		write: write, stopWrite: stopWrite,
		o: o, log: o.Logger, metrics: m,
		journal:   journal.New(o.Store, m, o.Logger),
		claims:    claims.New(o.Store, m, o.Logger),
		admission: admission.New(admission.Bounds{Slots: o.Concurrency, Total: o.MaxInFlight}),
		measure:   measure,
		leases:    lease.New(write, measure.Length, m, o.Logger),
		deletes:   meter.NewDeletes(),
		spans:     meter.Spans{Tracer: o.Tracer},
		late:      newLate(),
		pollers:   map[string]*poller{},
		guards:    map[string]*guard{},
		resting:   map[string]*guard{},
	}
	d.flows = flow.New(flow.Options{
		Store: o.Store, Instance: o.Instance, Log: o.Logger, Turned: func(id string, phase policy.BreakerPhase) { m.Turned(id, string(phase)) }, Shown: d.Wake,
		Fresh: func(ctx context.Context, since time.Time) bool { return d.registry.Fresh(ctx, since) },
		Disable: func(ctx context.Context, id string, resetAt time.Time) {
			d.disable(ctx, id, resetAt, policy.WebhookFailing)
		},
	})
	d.completer = settle.New(settle.Options{
		Queues: o.Queues, DeadLetters: o.Store, Recorded: o.RecordedCompletes, PoisonCopy: o.PoisonCopy,
		Journal: d.journal, Claims: d.claims, Flows: d.flows, Meter: m, Deletes: d.deletes, Spans: d.spans, Log: o.Logger,
		Sent: d.Wake, GivenBack: d.givenBack,
	})
	d.registry = registry.New(o.Store, o.Logger, d.flows.Sync)
	d.deliverer = delivery.New(delivery.Options{
		Sender: o.Sender, DeadLetters: o.Store, Registry: d.registry, Journal: d.journal, Claims: d.claims, Flows: d.flows,
		Leases: d.leases, Completer: d.completer, Meter: m, Spans: d.spans, Log: o.Logger,
		Encoding: o.Encoding, ByEvent: o.ByEvent, KeepUnmatched: o.KeepUnmatched, Hosted: o.Hosted, LookGap: o.LookGap,
		Instance: o.Instance, Disable: d.disable, Write: write,
	})
	return d, errors.Join(d.inFlight.Measure(o.Meter, d.polled), d.measurePollAge(o.Meter), d.flows.Measure(o.Meter, m.Label))
}

// Run works until ctx ends, then drains. It stops in three steps: no more
// receives at once; work in flight, a receive that hangs included, is cut short with
// the cause ErrStopping when Drain has passed; writing ends settleBound later. What
// was cut short is given back and charged to nobody. No fault of storage makes Run
// return.
func (d *Dispatcher) Run(ctx context.Context) { d.run(ctx, d.supervise) }

// run is Run with another way to get messages.
func (d *Dispatcher) run(ctx context.Context, supervise func(ctx, work context.Context)) {
	work, stopWork := context.WithCancelCause(context.WithoutCancel(ctx))
	defer d.stopWrite()

	var flusher sync.WaitGroup
	flusher.Go(func() { d.journal.Keep(d.write) })
	flusher.Go(func() { d.flows.Watch(d.write) })
	flusher.Go(func() { d.flows.ShowHeld(d.write) })

	drained := make(chan struct{})
	go func() {
		supervise(ctx, work)
		d.handlers.Wait() // all pollers have returned: nothing is received any more
		close(drained)
	}()
	<-ctx.Done()
	if !retry.Await(drained, d.o.Drain) {
		d.log.Warn("drain bound reached: cutting POSTs in flight short", "drain", d.o.Drain)
	}
	stopWork(ErrStopping)
	last, cancel := context.WithTimeout(d.write, settleBound)
	defer cancel()
	select {
	case <-drained:
	case <-last.Done():
		d.log.Warn("settling did not end in time: the messages in question come back when their lease ends")
	}
	d.journal.KeepLast(last)
	d.flows.Tend(last)
	d.stopWrite()
	<-drained
	flusher.Wait()
}

// supervise keeps one poller for every queue that has an enabled webhook, and a guard
// for every other one that has webhooks, until ctx ends. It never gives up: a store
// that can't be asked is asked again.
func (d *Dispatcher) supervise(ctx, work context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	faults := 0
	for {
		wait := d.o.RegistryRefresh
		if err := d.registry.Refresh(ctx); err != nil {
			faults++
			wait = min(wait, retry.Backoff(faults, 500*time.Millisecond, wait))
		} else {
			faults = 0
			d.registry.RefreshLeft(ctx)
		}
		d.reconcile(ctx, work, &running)
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		case <-d.registry.Changed:
		}
	}
}

// reconcile starts and stops pollers so that they fit the registry.
func (d *Dispatcher) reconcile(ctx, work context.Context, running *sync.WaitGroup) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reconcileGuards(ctx, work, running)
	wanted := d.ours(d.registry.ToPoll())
	for name, p := range d.pollers {
		if !wanted[name] {
			p.stop()
			delete(d.pollers, name)
			d.log.Info("polling stopped: no enabled webhook is left on the queue", "queue", name)
		}
	}
	for name := range wanted {
		if d.pollers[name] != nil || ctx.Err() != nil {
			continue
		}
		q, err := d.o.Queues.Queue(name)
		if err != nil { // the API refuses such names; someone wrote the row by hand
			d.log.Debug("a webhook is registered on a queue that can't be opened", "error", err)
			continue
		}
		p := newPoller(work, d, q, 0)
		pollCtx, stop := context.WithCancel(ctx)
		p.stop = stop
		d.pollers[name] = p
		running.Go(func() { defer stop(); defer p.close(); p.run(pollCtx) })
		running.Go(func() { (&guard{d: d, q: q, work: work, stuck: d.stuckMargin()}).run(pollCtx) })
		d.log.Info("polling started", "queue", name)
	}
}

// polled names the queues that are polled.
func (d *Dispatcher) polled() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.pollers))
}

// backlogged is whether the queue's last receive brought as many messages as were asked for.
func (d *Dispatcher) backlogged(queueName string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.pollers[queueName]
	return p != nil && p.backlogged() != nil
}

// Wake makes the queue's poller receive at once, because a message was just sent.
func (d *Dispatcher) Wake(queueName string) {
	d.mu.Lock()
	p := d.pollers[queueName]
	d.mu.Unlock()
	if p != nil {
		p.wakeUp()
	}
}

// givenBack tells the queue's poller and its guard when to look for a message that was given back.
func (d *Dispatcher) givenBack(queueName string, m *queue.Message, delay time.Duration) {
	d.late.note(queueName, m, delay)
	d.mu.Lock()
	p := d.pollers[queueName]
	d.mu.Unlock()
	if p != nil {
		p.willBeVisible(delay)
	}
}

// RegistryChanged makes the dispatcher read the registered webhooks again at once.
// Messages that are received from now on go by what it finds.
func (d *Dispatcher) RegistryChanged() { d.registry.Tell() }

// disable switches a webhook off because of what it answered, unless it has begun anew since
// it had this resetAt: what the old URL answered is nothing against the new one.
func (d *Dispatcher) disable(ctx context.Context, id string, resetAt time.Time, reason policy.Reason) {
	why := map[policy.Reason]string{policy.WebhookGone: "gone", policy.ReceiverAsked: "receiver", policy.WebhookFailing: "failing"}[reason]
	if why == "" {
		why = "rule"
	}
	ctx, cancel := context.WithTimeout(ctx, retry.Timeout)
	defer cancel()
	var err error
	for range 3 { // someone may be changing it at the same time
		var r tables.Registration
		if r, err = d.o.Store.GetWebhook(ctx, id); err == nil && r.Enabled && r.ResetAt.Equal(resetAt) {
			now := time.Now().UTC()
			r.Enabled, r.DisabledReason, r.DisabledAt, r.UpdatedAt = false, why, now, now
			if _, err = d.o.Store.PutWebhook(ctx, r); err == nil {
				d.log.Warn("webhook disabled; its messages wait until it is enabled again", "webhook", id, "reason", why)
			}
		}
		if err == nil || errors.Is(err, tables.ErrNotFound) {
			d.RegistryChanged()
			return
		}
		if !errors.Is(err, tables.ErrConflict) {
			break
		}
	}
	d.log.Error("webhook could not be disabled; the next answer of this kind tries again", "webhook", id, "reason", why, "error", err)
}

// writing is the context for records and settling: it carries ctx's trace, not its
// end.
func (d *Dispatcher) writing(ctx context.Context) context.Context {
	return trace.ContextWithSpanContext(d.write, trace.SpanContextFromContext(ctx))
}
