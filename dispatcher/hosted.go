package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/delivery"
	"github.com/pushlease/pushlease/dispatcher/internal/lease"
	"github.com/pushlease/pushlease/dispatcher/internal/meter"
	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/dispatcher/internal/settle"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// This file is the dispatcher under a host that receives messages by itself and calls for each
// (Azure Functions). The message is taken over, and goes the way of any other from then on.

// RunHosted works beside a host until ctx ends, and then drains as Run does. It receives nothing:
// the host hands messages to HandleHosted, and Pump works when it is called. Call it instead of
// Run, once.
//
// finish is called when ctx has ended. It lets no such call begin any more, and returns when the
// last has returned; those under way are cut short when work ends, with its cause.
func (d *Dispatcher) RunHosted(ctx context.Context, finish func(work context.Context)) {
	d.run(ctx, beside(finish, func(ctx, _ context.Context) {
		for ctx.Err() == nil { // what others changed is read when the next message comes
			d.registry.Refresh(ctx) // what can't be read is read again before it is needed
			select {
			case <-ctx.Done():
			case <-d.registry.Changed:
			}
		}
	}))
}

// RunBeside is RunHosted for a process that polls, as Run does, the queues that the host does not
// receive from.
func (d *Dispatcher) RunBeside(ctx context.Context, finish func(work context.Context)) {
	d.run(ctx, beside(finish, d.receiver.Run))
}

// beside adds the host's calls to what is received here: one drain is for both.
func beside(finish func(work context.Context), receive func(ctx, work context.Context)) func(ctx, work context.Context) {
	return func(ctx, work context.Context) {
		var received sync.WaitGroup
		received.Go(func() { receive(ctx, work) })
		<-ctx.Done()
		finish(work)
		received.Wait()
	}
}

// HandleHosted takes over a message that the host received, and delivers and settles it. m.Lease
// has the host's receipt: it is renewed to a lease of our own first, which makes that
// receipt stale. The result is how settling ended, or PutOff: the process has as much in hand
// as it may, and gave the message back. decided is called when nothing but settling is left, which
// storage may hold up for long. An error means that nothing was POSTed: the
// message is still the host's, was given back, or is hidden for a while where storage took our update and its
// answer was lost.
func (d *Dispatcher) HandleHosted(ctx context.Context, q queue.Queue, m *queue.Message, decided func()) (_ Result, err error) {
	defer func() {
		if err != nil { // nothing was begun, so this receive proves nothing against the message
			d.putOffs.Remember(q.Name(), m.ID, m.DequeueCount)
		}
	}()
	leave, ok := d.admission.Admit(q.Name())
	switch {
	case ok:
		defer leave()
	case !d.mustBegin(q.Name(), m):
		return d.putOff(ctx, q, m)
	}
	length := lease.Within(m, d.measure.Length(q.Name()))
	d.metrics.LeaseAsked(q.Name(), length)
	err = retry.Do(ctx, retry.Call, func(ctx context.Context, _ int) error { return q.Renew(ctx, m, length) })
	if err != nil {
		return "", fmt.Errorf("take the message over: %w", err)
	}
	if err := d.upToDate(ctx); err != nil { // after the take-over: a process that dies in it keeps nothing for the host's 10 minutes
		return "", errors.Join(err, settle.GiveBack(ctx, q, m, settle.OwnFaultDelay(m)))
	}
	return d.handle(ctx, q, m, delivery.Usual(m, d.o.LookGap(q.Name())), nil, decided), nil
}

// mustBegin reports whether a message is taken over however much is in hand: near its end nobody
// may see it again, one that is in work here already needs its new lease for that, and one of which
// the store lacks a record may be POSTed again by whoever else receives it.
func (d *Dispatcher) mustBegin(queueName string, m *queue.Message) bool {
	if d.leases.At(queueName, m.ID) {
		return true
	}
	if d.journal.Lacks(tables.MessageKey{Queue: queueName, MessageID: m.ID, Day: m.InsertedAt}) {
		return true
	}
	return !m.ExpiresAt.IsZero() && d.beforeLastLook(queueName, m) <= 0
}

// beforeLastLook is how long it is until a message, which expires, has only one look left that is
// sure to come.
func (d *Dispatcher) beforeLastLook(queueName string, m *queue.Message) time.Duration {
	return time.Until(m.ExpiresAt) - delivery.LastLook(m, d.o.LookGap(queueName))
}

// putOff gives a message back that the host has brought over the limit, by its receipt and for
// longer the more often it has come. Nothing is recorded: it is storage that such a process waits for.
func (d *Dispatcher) putOff(ctx context.Context, q queue.Queue, m *queue.Message) (Result, error) {
	d.flows.Received(q.Name(), m.ID) // whoever holds it has a receipt that is stale
	delay := settle.OwnFaultDelay(m)
	if !m.ExpiresAt.IsZero() {
		delay = min(delay, max(d.beforeLastLook(q.Name(), m), time.Second))
	}
	if err := settle.GiveBack(ctx, q, m, delay); err != nil {
		return "", fmt.Errorf("as many messages as max_in_flight allows are in hand: %w", err)
	}
	d.metrics.PutOff.Add(meter.Labels{Queue: q.Name()})
	d.putOffs.Remember(q.Name(), m.ID, m.DequeueCount)
	if messages, log := d.putOffs.Unlogged(q.Name()); log {
		d.log.Warn("the host brings more messages than max_in_flight allows in hand: those beyond are given back and come again later; raise max_in_flight, or lower the host's batchSize and newBatchThreshold, unless storage is away",
			"queue", q.Name(), "messages", messages, "max_in_flight", d.o.MaxInFlight)
	}
	return settle.PutOff, nil
}

// upToDate re-reads the registered webhooks where that is due: no loop does it while
// nothing is invoked, since that would cost transactions all day. Where they could
// never be read nothing is decided; older ones are better than none. Where all have vanished
// messages are held, and are dead letters before their end.
func (d *Dispatcher) upToDate(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, retry.Timeout)
	defer cancel()
	if d.registry.Fresh(ctx, time.Now().Add(-d.o.RegistryRefresh)) {
		return nil
	}
	readAt, err := d.registry.Status()
	if !readAt.IsZero() || errors.Is(err, tables.ErrVanished) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the registered webhooks can't be read: %w", err)
	}
	return fmt.Errorf("the registered webhooks were not read within %s", retry.Timeout)
}

// WithPostDeadline makes every POST under ctx end by then, whatever its webhook's own
// timeout allows, and none begin with less than the webhook's timeout, or least if that is
// shorter.
func WithPostDeadline(ctx context.Context, by time.Time, least time.Duration) context.Context {
	return delivery.WithPostDeadline(ctx, by, least)
}
