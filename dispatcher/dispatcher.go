package dispatcher

import (
	"context"
	"errors"
	"log/slog"
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
	"github.com/pushlease/pushlease/dispatcher/internal/receive"
	"github.com/pushlease/pushlease/dispatcher/internal/registry"
	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/dispatcher/internal/settle"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// ErrStopping is the cause with which work is cut short at the end of a drain.
var ErrStopping = delivery.ErrStopping

const (
	// settleBound is how long settling may go on after work was cut short.
	settleBound = 10 * time.Second
	// lastWords is the part of it in which what is known is stored although a message can't be settled, and
	// flushAgain how often the store is tried in it.
	lastWords  = 2 * time.Second
	flushAgain = 250 * time.Millisecond
)

// Dispatcher receives, delivers and settles. Make one with New, run it once with
// Run, RunHosted or RunBeside. All other methods may be called from any goroutine until that has returned.
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
	putOffs   *admission.PutOffs
	measure   *lease.Measure
	leases    *lease.Leases
	receiver  *receive.Receiver
	deliverer *delivery.Deliverer
	completer *settle.Completer

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
	measure := lease.NewMeasure(o.Lease, o.Estimate, o.Hosted)
	d := &Dispatcher{
		write: write, stopWrite: stopWrite,
		o: o, log: o.Logger, metrics: m,
		journal:   journal.New(o.Store, m, o.Logger),
		claims:    claims.New(o.Store, m, o.Logger),
		admission: admission.New(admission.Bounds{Slots: o.Concurrency, Total: o.MaxInFlight}),
		putOffs:   admission.NewPutOffs(),
		measure:   measure,
		leases:    lease.New(write, measure.Length, m, o.Logger),
		spans:     meter.Spans{Tracer: o.Tracer, Unrecorded: o.Unrecorded},
	}
	d.flows = flow.New(flow.Options{
		Store: o.Store, Instance: o.Instance, Log: o.Logger, Turned: func(id string, phase policy.BreakerPhase) {
			m.BreakerTurns.Add(meter.Labels{Webhook: id, State: string(phase)})
		}, Shown: func(queueName, messageID string) { d.receiver.Shown(queueName, messageID) },
		Fresh: func(ctx context.Context, since time.Time) bool { return d.registry.Fresh(ctx, since) },
		Disable: func(ctx context.Context, id string, resetAt time.Time) {
			d.disable(ctx, id, resetAt, policy.WebhookFailing)
		},
	})
	d.completer = settle.New(settle.Options{
		Queues: o.Queues, DeadLetters: o.Store, Recorded: o.RecordedCompletes, PoisonCopy: o.PoisonCopy, PoisonCopyTTL: o.PoisonCopyTTL,
		Journal: d.journal, Claims: d.claims, Flows: d.flows, Meter: m, Spans: d.spans, Log: o.Logger, Attempted: o.Attempted,
		GivenBack: func(queueName string, m *queue.Message, delay time.Duration, led bool) {
			d.receiver.GivenBack(queueName, m, delay, led)
		},
		PutOff: func(queueName string, m *queue.Message) { d.putOffs.Remember(queueName, m.ID, m.DequeueCount) },
	})
	d.registry = registry.New(o.Store, o.Logger, func(ctx context.Context, all []tables.Registration) {
		for _, r := range all {
			m.Known(r.Queue, r.ID)
		}
		d.flows.Sync(ctx, all)
	})
	d.deliverer = delivery.New(delivery.Options{
		Sender: o.Sender, DeadLetters: o.Store, Registry: d.registry, Journal: d.journal, Claims: d.claims, Flows: d.flows,
		Leases: d.leases, Completer: d.completer, PutOffs: d.putOffs, Meter: m, Spans: d.spans, Log: o.Logger,
		Encoding: o.Encoding, ByEvent: o.ByEvent, KeepUnmatched: o.KeepUnmatched, Hosted: o.Hosted, LookGap: o.LookGap,
		MorePosts: o.MaxInFlight, Instance: o.Instance, Disable: d.disable, Write: write,
	})
	d.receiver = receive.New(receive.Options{
		Queues: o.Queues, Registry: d.registry, Flows: d.flows, Journal: d.journal, Attempts: o.Store, Measure: measure, Admission: d.admission,
		Meter: m, Tracer: o.Tracer, Log: o.Logger, Hosted: o.Hosted, LookGap: o.LookGap, Concurrency: o.Concurrency,
		PollMin: o.PollMin, PollMax: o.PollMax, Pollers: o.Pollers, RegistryRefresh: o.RegistryRefresh, Instance: o.Instance, Write: write,
		Handle: d.handleReceived,
		Refuse: func(q queue.Queue, m *queue.Message) {
			d.putOffs.Remember(q.Name(), m.ID, m.DequeueCount)
			d.completer.Refuse(write, q, m)
		},
	})
	return d, errors.Join(m.Queues.MeasureInFlight(o.Meter, d.receiver.Polled), d.receiver.MeasurePollAge(o.Meter), d.flows.Measure(o.Meter, m.Label), meter.MeasurePlaces(o.Meter, d.placesTaken))
}

// Run works until ctx ends, then drains. It stops in three steps: no more
// receives at once; work in flight, a receive that hangs included, is cut short with
// the cause ErrStopping when Drain has passed; writing ends settleBound later. What
// was cut short is given back and charged to nobody. No fault of storage makes Run
// return.
func (d *Dispatcher) Run(ctx context.Context) { d.run(ctx, d.receiver.Run) }

// run is Run with another way to get messages.
func (d *Dispatcher) run(ctx context.Context, receive func(ctx, work context.Context)) {
	work, stopWork := context.WithCancelCause(context.WithoutCancel(ctx))
	defer d.stopWrite()

	var flusher sync.WaitGroup
	flusher.Go(func() { d.journal.Keep(d.write) })
	flusher.Go(func() { d.claims.WriteLate(d.write) })
	flusher.Go(func() { d.flows.Watch(d.write) })
	flusher.Go(func() { d.flows.ShowHeld(d.write) })

	drained := make(chan struct{})
	go func() {
		receive(ctx, work)
		d.receiver.Wait()
		close(drained)
	}()
	<-ctx.Done()
	if !retry.Await(drained, d.o.Drain) {
		d.log.Warn("drain bound reached: cutting POSTs in flight short", "drain", d.o.Drain)
	}
	stopWork(ErrStopping)
	last, cancel := context.WithTimeout(d.write, settleBound)
	defer cancel()
	var leaving sync.WaitGroup
	leaving.Go(func() { d.flows.Leave(last) }) // which has to wait for no message that can't be settled
	if !retry.Await(drained, settleBound-lastWords) {
		d.store(last)
	}
	for !retry.Await(drained, flushAgain) {
		if last.Err() != nil {
			d.log.Warn("settling did not end in time: the messages in question come back when their lease ends")
			break
		}
		d.journal.Flush(last)
	}
	d.store(last)
	leaving.Wait()
	d.stopWrite()
	<-drained
	flusher.Wait()
	d.journal.TellLost()
}

// store writes what is known in memory only, and shows what is held.
func (d *Dispatcher) store(ctx context.Context) {
	d.journal.Flush(ctx)
	d.claims.Flush(ctx)
	d.flows.Tend(ctx)
	d.flows.Leave(ctx)
}

// Wake makes the queue's poller receive at once, because a message was just sent.
func (d *Dispatcher) Wake(queueName string) { d.receiver.Wake(queueName) }

// Place is a seat that is kept free for one message that is about to be sent.
type Place = receive.Place

// Reserve keeps a place for a message on the queue: nil when no message could start now, or
// when this process does not receive from the queue. It never waits.
func (d *Dispatcher) Reserve(queueName string) *Place { return d.receiver.Reserve(queueName) }

// Pump does for a while what Run does all the time, for the queues that no host receives from:
// it handles what they have, and guards those whose webhooks can't be sent to. Call it at least
// every Options.LookGap, under WithPostDeadline where that is bounded; any number may run at a
// time. The error is about queues that could not be received from or looked at.
func (d *Dispatcher) Pump(ctx, work context.Context) (handled int, err error) {
	return d.receiver.Pump(ctx, work)
}

// RegistryChanged makes the dispatcher read the registered webhooks again at once.
// Messages that are received from now on go by what it finds.
func (d *Dispatcher) RegistryChanged() { d.registry.Tell() }

// Removed takes a webhook for deleted whose registration another program has deleted (tables.Traces).
func (d *Dispatcher) Removed(id, queueName string) { d.registry.Removed(id, queueName) }

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
	return trace.ContextWithSpan(d.write, trace.SpanFromContext(ctx))
}
