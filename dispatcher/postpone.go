package dispatcher

import (
	"context"
	"slices"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/flow"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

// enter asks each webhook that is due whether it may be sent to. Those that may not, and
// those that are disabled, have their delivery held and are charged nothing. Where a POST
// is made, what is held waits for it and goes into its record: one webhook's POST waits for
// no record about another, and costs no transaction more beside it.
func (d *Dispatcher) enter(ctx context.Context, p *parcel, targets []target) {
	now := time.Now()
	var refusals []*target
	for i := range targets {
		t := &targets[i]
		switch {
		case t.due(now):
			t.flow = d.flows.Of(t.registration)
			var refused *flow.Refusal
			if t.ticket, refused = t.flow.Enter(now); refused != nil {
				d.postpone(p, t, refused)
				refusals = append(refusals, t)
			}
		case t.disabled():
			p.hold(&t.delivery, policy.WebhookDisabled, holdDelay, p.give.held)
			t.delivery.Excused++
			refusals = append(refusals, t)
		}
	}
	p.grant.Asked()
	posted := posting(targets)
	for _, t := range refusals {
		if posted { // what comes of the POST tells of this receive
			t.delivery.Excused--
		}
		p.heldRows = append(p.heldRows, t.delivery)
	}
	if !posted {
		d.recordHeld(ctx, p)
	}
}

// recordHeld records what is held and went with no POST's record.
func (d *Dispatcher) recordHeld(ctx context.Context, p *parcel) {
	d.journal.RecordAll(d.writing(ctx), d.takeHeld(ctx, p, len(p.heldRows)))
}

// takeHeld takes up to n deliveries that are held and not recorded yet. The POSTs of one
// message end side by side. When the lease is over, or was, none is left: someone else may have
// sent to those webhooks meanwhile, and what came of that stands.
func (d *Dispatcher) takeHeld(ctx context.Context, p *parcel, n int) []tables.Delivery {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.heldRows) > 0 && d.leases.MayBeElsewhere(ctx, p.key.Queue, p.m) {
		p.heldRows = slices.DeleteFunc(p.heldRows, func(del tables.Delivery) bool { return del.State == tables.Held })
	}
	n = min(n, len(p.heldRows))
	some := p.heldRows[:n:n]
	p.heldRows = p.heldRows[n:]
	return some
}

// posting reports whether a POST is made, or waited for, with this receive. Then nothing that
// is held excuses the receive: it is what kills the process, if anything does.
func posting(targets []target) bool {
	for i := range targets {
		if targets[i].flow != nil {
			return true
		}
	}
	return false
}

// waitToEnter waits for the ticket of a target that has none yet, and holds its delivery when
// it gets none.
func (d *Dispatcher) waitToEnter(ctx context.Context, p *parcel, t *target) (ok bool) {
	var refused *flow.Refusal
	if t.ticket == nil {
		t.ticket, refused = t.flow.Wait(ctx)
	}
	if refused == nil { // it has a place by its webhook's rate
		refused = t.ticket.Begin(ctx)
	}
	if refused == nil {
		return true
	}
	t.ticket.Unused()
	if ctx.Err() != nil {
		d.notBegun(ctx, p, t)
		return false
	}
	d.postpone(p, t, refused)
	d.journal.Record(d.writing(ctx), tables.Record{Deliveries: []tables.Delivery{t.delivery}})
	return false
}

// postpone holds a delivery whose webhook can't be sent to now, with its receive excused.
func (d *Dispatcher) postpone(p *parcel, t *target, refused *flow.Refusal) {
	d.metrics.Postponed(p.key.Queue, t.registration.ID, string(refused.Reason))
	now := time.Now()
	until := d.hostsLook(p.key.Queue, t.delivery.Excused, refused, now)
	p.hold(&t.delivery, refused.Reason, postponement(p, until, now), p.give.postponed)
	t.delivery.Excused++
	t.flow = nil
}

// postponement is the wait until then, but never past the middle of the message's
// remaining life: what is left of it may be needed.
func postponement(p *parcel, until, now time.Time) time.Duration {
	delay := max(until.Sub(now), time.Second)
	if !p.m.ExpiresAt.IsZero() {
		delay = min(delay, max(p.m.ExpiresAt.Sub(now)/2, time.Second))
	}
	return delay
}

// left hands the ticket of a POST back with what came of it.
func left(t *target, res *webhook.Result) {
	t.ticket.Answered(flow.Answer{
		Sign: t.registration.Policy.Sign(responseOf(res), res.StartedAt.Add(res.Duration)), Began: res.StartedAt, Took: res.Duration,
		First: t.delivery.Charged+t.delivery.Waits == 0,
	})
}
