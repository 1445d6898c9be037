package delivery

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/settle"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

// posts make all POSTs of a message.
type posts struct {
	*Options
	tickets  tickets
	attempts attempts
}

// post makes all due POSTs at once, so that one webhook never waits for another. The last
// one is made here: a message with one webhook has no goroutine but its handler's.
func (x posts) post(ctx context.Context, p *parcel, targets []target) {
	x.tickets.enter(ctx, p, targets)
	var others sync.WaitGroup
	var last *target
	p.underWay = underWay(targets)
	p.grant.Posting(p.underWay, someEnded(targets))
	for i := range targets {
		if targets[i].flow == nil {
			continue
		}
		if t := last; t != nil {
			others.Go(func() { x.postTo(ctx, p, t) })
		}
		last = &targets[i]
	}
	posted := last != nil
	if posted {
		x.postTo(ctx, p, last)
	}
	others.Wait()
	x.tickets.recordHeld(ctx, p)
	if !posted && p.m.DequeueCount > 1 && allDelivered(targets) {
		x.Log.Warn("a message that was delivered came back; it is deleted without a POST",
			"queue", p.key.Queue, "message", p.key.MessageID, "delivery_count", p.m.DequeueCount)
		x.Meter.Duplicate(p.key.Queue, "redelivery")
		x.Completer.Reappeared(p.key.Queue, p.key.MessageID)
	}
}

// postTo makes one POST, if its webhook has room for it in time.
func (x posts) postTo(ctx context.Context, p *parcel, t *target) {
	defer func() { t.ticket.Unused() }()
	defer t.isAnswered(p.grant)
	if survives(x.Log, p, func() { x.attempts.timed(ctx, p, t) }) {
		return
	}
	t.delivery.State, t.delivery.Reason = tables.Pending, policy.InternalFault
	t.delivery.NextAt = time.Now().Add(settle.OwnFaultDelay(p.m))
	t.delivery.MissingRecords++
	// Recorded, so that the message stays due to this webhook, and so that a
	// message that always ends so does not go on for ever.
	survives(x.Log, p, func() { x.Journal.Record(x.writing(ctx), tables.Record{Deliveries: []tables.Delivery{t.delivery}}) })
}

// survives runs f and reports whether it ended without a panic.
func survives(log *slog.Logger, p *parcel, f func()) (ok bool) {
	defer func() {
		if r := recover(); r != nil {
			log.Error("panic while delivering; the message is given back", "queue", p.key.Queue,
				"message", p.key.MessageID, "panic", fmt.Sprintf("%T", r), "stack", string(debug.Stack()))
		}
	}()
	f()
	return true
}
