package dispatcher

import (
	"context"
	"slices"
	"time"

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
			t.flow = d.flows.of(t.registration)
			var refused *refusal
			if t.ticket, refused = t.flow.enter(now); refused != nil {
				d.postpone(p, t, refused)
				refusals = append(refusals, t)
			}
		case t.disabled():
			p.hold(&t.delivery, policy.WebhookDisabled, holdDelay, p.margin)
			t.delivery.Excused++
			refusals = append(refusals, t)
		}
	}
	p.arrived.done()
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
	d.recordAll(d.writing(ctx), d.takeHeld(ctx, p, len(p.heldRows)))
}

// takeHeld takes up to n deliveries that are held and not recorded yet. The POSTs of one
// message end side by side. When the lease is over, or was, none is left: someone else may have
// sent to those webhooks meanwhile, and what came of that stands.
func (d *Dispatcher) takeHeld(ctx context.Context, p *parcel, n int) []tables.Delivery {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.heldRows) > 0 && d.mayBeElsewhere(ctx, p) {
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
	if t.ticket != nil {
		return true
	}
	var refused *refusal
	if t.ticket, refused = t.flow.wait(ctx); refused == nil {
		return true
	}
	if ctx.Err() != nil {
		d.notBegun(ctx, p, t)
		return false
	}
	d.postpone(p, t, refused)
	d.record(d.writing(ctx), tables.Record{Deliveries: []tables.Delivery{t.delivery}})
	return false
}

// postpone holds a delivery whose webhook can't be sent to now, with its receive excused.
func (d *Dispatcher) postpone(p *parcel, t *target, refused *refusal) {
	d.metrics.postponed(p.key.Queue, t.registration.ID, refused.reason)
	margin := policy.ExpiryMargin
	if p.margin == guardMargin { // the guard has it, since nobody would receive it once more
		margin = guardMargin
	}
	now := time.Now()
	until := d.hostsLook(p.key.Queue, t.delivery.Excused, refused, now)
	p.hold(&t.delivery, refused.reason, postponement(p, until, now), margin)
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

// flowHeld reports whether a delivery is held because its webhook could not be sent to
// at that time, so that there is nothing to try before its next time.
func flowHeld(del *tables.Delivery) bool {
	if del.State != tables.Held {
		return false
	}
	switch del.Reason {
	case policy.WebhookBusy, policy.WebhookPaused, policy.WebhookFailing:
		return true
	}
	return false
}

// releasedSince makes a delivery due that was held before its webhook was found to take
// messages again.
func (fs *flows) releasedSince(del *tables.Delivery) {
	if !flowHeld(del) {
		return
	}
	if f := fs.get(del.WebhookID); f != nil && f.wasReleasedAfter(del.UpdatedAt) {
		del.NextAt = del.UpdatedAt
	}
}

func (f *flow) wasReleasedAfter(t time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.releasedAt.After(t)
}

// left hands the ticket of a POST back with what came of it.
func (d *Dispatcher) left(t *target, res *webhook.Result) {
	now := time.Now()
	sign := policy.SignOf(responseOf(res))
	turned := t.ticket.leave(outcome{
		sign: sign, began: res.StartedAt, took: res.Duration, first: t.delivery.Charged+t.delivery.Waits == 0,
		ours: d.flows.report(t.registration.ID, sign, now),
	}, now)
	t.ticket.used = true
	d.flows.signal(t.registration.Queue)
	switch turned {
	case policy.BreakerOpen:
		d.log.Warn("the webhook mostly fails: until a probe succeeds nothing else is sent to it, and its messages wait uncharged",
			"webhook", t.registration.ID, "queue", t.registration.Queue)
	case policy.BreakerClosed:
		d.log.Info("the webhook takes messages again", "webhook", t.registration.ID, "queue", t.registration.Queue)
	default:
		return
	}
	d.metrics.turned(t.registration.ID, turned)
	d.flows.saveSoon()
}

// giveTicket hands a ticket back that was not used; none twice.
func (d *Dispatcher) giveTicket(t *target) {
	if t.ticket == nil || t.ticket.used {
		return
	}
	t.ticket.used = true
	t.ticket.abort()
	d.flows.signal(t.registration.Queue)
}
