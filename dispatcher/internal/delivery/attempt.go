package delivery

import (
	"context"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/pushlease/pushlease/dispatcher/internal/flow"
	"github.com/pushlease/pushlease/dispatcher/internal/journal"
	"github.com/pushlease/pushlease/dispatcher/internal/meter"
	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/dispatcher/internal/settle"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

// attempts make POSTs.
type attempts struct {
	*Options
	tickets tickets
}

// timed makes one attempt. One that the receiver answered, or that timed out,
// tells how long the webhook takes; one that never reached it does not.
func (a attempts) timed(ctx context.Context, p *parcel, t *target) {
	if !a.tickets.waitToEnter(ctx, p, t) {
		return
	}
	before, start := t.delivery.Attempts, time.Now()
	a.attempt(ctx, p, t)
	if del := &t.delivery; del.Attempts > before && (del.LastStatus != 0 || del.LastErrorClass == policy.ClassTimeout) {
		t.took = max(time.Since(start), 1)
	}
}

// attempt makes one POST. t's delivery is then in its new state, of which the record is durable, or kept in memory
// until it can be, or, with the last POST, goes with the outcome. What is on the stack while the
// POST is under way is held for each message in flight: deciding and recording come after,
// in a function of their own.
func (a attempts) attempt(ctx context.Context, p *parcel, t *target) {
	if p.leaseEnds() || ctx.Err() != nil || !fairTime(ctx, &t.registration.Webhook) {
		a.tickets.notBegun(ctx, p, t)
		return
	}
	t.number = t.delivery.Attempts + 1 + p.untold
	ctx, span := a.Spans.Attempt(ctx, p.parent(), p.key.Queue, p.key.MessageID, t.registration.ID, t.number)
	defer span.End()

	request := p.request(t)
	request.Until = postBy(ctx)
	request.Begin = func() bool { return p.leased() && !a.Leases.TooLate(p.key.Queue, p.m) }
	p.begins(t)
	res := a.Sender.Send(ctx, &t.registration.Webhook, *request)
	p.over(t)
	var refused *flow.Refusal
	if !res.TokenAt.IsZero() {
		refused = t.ticket.NoToken(res.Error, res.TokenAt)
		a.tellUnusable(p, t, &res)
	}
	switch {
	case !res.NotBegun:
		a.answered(ctx, p, t, request.Body, &res)
		return
	case refused != nil:
		a.tickets.postpone(p, t, refused)
	default:
		a.tickets.notBegun(ctx, p, t)
	}
	p.notPosted()
}

// request is the next one to t.
func (p *parcel) request(t *target) *webhook.Request {
	request := t.registration.Request(p.content, p.origin(), t.number)
	// The connection on which nothing came may be dead, and so may its neighbours be.
	request.Fresh = t.delivery.LastErrorClass == policy.ClassTimeout
	request.Registered = t.registration.UpdatedAt
	if t.registration.Auth != nil {
		request.Meant = func(res *webhook.Result) bool { return t.registration.Policy.Told(responseOf(res)) }
	}
	return &request
}

// answered decides about a POST that has ended, and records it, or keeps its record for the outcome. t's delivery is
// then in its new state.
func (a attempts) answered(ctx context.Context, p *parcel, t *target, sent []byte, res *webhook.Result) {
	now := time.Now()
	left(t, p.key.MessageID, res)
	t.noteAnswered(p.grant)
	// What changes is a copy: until that is decided, t's delivery is what was known before.
	deliveries := append(make([]tables.Delivery, 0, 1), t.delivery)
	del := &deliveries[0]
	delivered := res.Status/100 == 2
	contested := ctx.Err() != nil || p.shared && !delivered || a.Leases.MayBeElsewhere(ctx, p.key.Queue, p.m)
	if contested {
		// Someone else may have gone on with the message meanwhile, or an earlier
		// holder may have ended only now: never overwrite what they recorded with
		// something older, nor what was delivered with a failure.
		a.rebase(ctx, p, del)
	}
	dec := a.decide(ctx, p, t, del, res, now)
	taken := dec.Action == policy.Complete && del.State == tables.Withdrawn // it was deleted meanwhile, and took the message
	if contested && del.State.Terminal() && !taken {
		a.tooLate(ctx, p, t, *del, res)
		return
	}
	t.flow.AskPause(dec.Pause, now)
	t.why = dec.Explanation
	if until := p.m.Lease.Until(); p.m.Lease.Over(now) {
		late := max(now.Sub(until), now.Round(0).Sub(until))
		dec.Explanation += " By this machine's clock the lease had ended " + late.Round(time.Second).String() + " before this answer: another instance may have POSTed the message too."
	}
	if res.Note != "" {
		dec.Explanation += " " + res.Note
	}
	attempts := []tables.Attempt{p.advance(t, del, res, &dec)}
	// A later attempt has a record, which the deletion has ended.
	if (t.delivery.Attempts == 0 && dec.Action != policy.Complete || dec.Action == policy.DeadLetter) && a.replayDeleted(ctx, p) {
		p.endReplay(del) // the deletion found no record that it could end
		attempts[0].Delay, attempts[0].NextAt = 0, time.Time{}
		attempts[0].Explanation += " The dead letter was deleted meanwhile, which ends its replay: nothing is tried again or kept."
	}
	attempts[0].Snippet = tables.CutText(res.Snippet(&t.registration.Webhook, sent, p.content.Body), tables.MaxSnippetUnits)
	after := *del // a record that is put off is changed
	rec := tables.Record{Deliveries: append(deliveries, a.tickets.takeSomeHeld(ctx, p, journal.MaxRows-2)...), Attempts: attempts}
	p.name(&rec)
	if contested || dec.Disable || !p.keepLast(rec) { // what disables a webhook is on record before
		a.Completer.Record(a.writing(ctx), p.m, rec)
	}
	if dec.Disable {
		a.Disable(a.writing(ctx), t.registration.ID, t.registration.ResetAt, dec.Reason)
	}
	meter.Decided(trace.SpanFromContext(ctx), string(dec.Action), string(dec.Reason), res.Status, dec.Action != policy.Complete)
	t.delivery = after
}

// tooLate records a POST whose delivery had ended elsewhere before its answer came: as an attempt
// that was made (C64), and that changes nothing.
func (a attempts) tooLate(ctx context.Context, p *parcel, t *target, ended tables.Delivery, res *webhook.Result) {
	a.Log.Warn("an answer came after its delivery had ended elsewhere; it changes nothing",
		"queue", p.key.Queue, "message", p.key.MessageID, "webhook", t.registration.ID, "status", res.Status,
		"error_class", res.ErrorClass, "state", ended.State)
	t.delivery = ended
	dec := policy.Decision{Action: policy.NoVerdict, Reason: policy.LeaseLost, Explanation: "The delivery had ended elsewhere before this answer, which changes nothing."}
	made := p.advance(t, &ended, res, &dec)
	made.NextAt = time.Time{}
	t.delivery.Attempts++
	a.Completer.Record(a.writing(ctx), p.m, tables.Record{Deliveries: []tables.Delivery{t.delivery}, Attempts: []tables.Attempt{made}})
}

// decide asks the webhook's policy what an answer means for del.
func (a attempts) decide(ctx context.Context, p *parcel, t *target, del *tables.Delivery, res *webhook.Result, now time.Time) policy.Decision {
	dec := t.registration.Policy.Decide(policy.Try{
		Now: now, Charged: del.Charged, Waits: del.Waits, FirstAt: firstOf(del.FirstAt, res.StartedAt),
		PreviousStatus: del.LastStatus, PreviousAt: del.LastAt, LastOK: t.flow.LastDelivered(),
		ExpiresAt: p.m.ExpiresAt, LookSlack: p.slack, Random: rand.Float64(), Response: responseOf(res),
		NotItsFault: t.ticket.Spared(), Quota: t.ticket.Quota(), Probe: t.ticket.Probed(),
	})
	if dec.Action == policy.NoVerdict {
		if dec.Reason = interruption(ctx); ctx.Err() == nil && !p.leased() {
			dec.Reason = policy.LeaseLost
		}
	}
	switch {
	case res.ErrorClass == string(policy.ClassRequest): // all of its messages come back, so they wait as those of a disabled one do
		dec.Delay = settle.WithinLife(p.m, holdDelay)
		a.tellUnusable(p, t, res)
	case dec.Action == policy.Hold: // a POST was answered 401, and there is no other token
		dec.Delay = max(res.TokenAt.Sub(now), time.Second)
	case dec.Reason == policy.InternalFault: // it may last, and must not be tried in a loop
		dec.Delay = settle.OwnFaultDelay(p.m)
	}
	return dec
}

// tellUnusable logs, now and then, why this process can make no request to a webhook.
func (a attempts) tellUnusable(p *parcel, t *target, res *webhook.Result) {
	if t.flow.TellUnusable(res.Error, time.Now()) {
		a.Log.Warn("no request can be made to a webhook by this process, by its registration or for lack of a token; its messages wait until that is mended",
			"queue", p.key.Queue, "message", p.key.MessageID, "webhook", t.registration.ID, "error", res.Error)
	}
}

// rebase brings a delivery up to what is known now, in the store or here.
func (a attempts) rebase(ctx context.Context, p *parcel, del *tables.Delivery) {
	merged, _ := a.Journal.Load(a.writing(ctx), retry.Call, p.key, []string{del.WebhookID}) // else by what is remembered
	for i := range merged {
		s := &merged[i]
		if s.WebhookID == del.WebhookID && p.owns(*s) && s.Newer(del) {
			a.Log.Warn("someone else went on with the message meanwhile; what they recorded stands", "queue", p.key.Queue,
				"message", p.key.MessageID, "webhook", del.WebhookID, "state", s.State, "instance", s.Instance)
			a.Meter.LeasesLost.Add(meter.Labels{Queue: p.key.Queue, Kind: "fenced"})
			*del = *s
			return
		}
	}
}

// advance applies one result and its decision to a delivery of t's, and returns the attempt.
func (p *parcel) advance(t *target, del *tables.Delivery, res *webhook.Result, dec *policy.Decision) tables.Attempt {
	del.Attempts++
	if dec.Charged {
		del.Charged++
	}
	if dec.Reason == policy.ReceiverBusy && !dec.Probed {
		del.Waits++
	}
	end := res.StartedAt.Add(res.Duration).UTC().Truncate(time.Millisecond)
	if del.LastAt = res.StartedAt.UTC(); dec.Action != policy.Hold && res.ErrorClass != string(policy.ClassRequest) { // else its own setting kept it from being one
		del.FirstAt = firstOf(del.FirstAt, del.LastAt).UTC()
	}
	del.LastStatus, del.LastErrorClass = res.Status, policy.ErrorClass(res.ErrorClass)
	del.Reason, del.Instance, del.UpdatedAt = dec.Reason, p.instance, end
	switch dec.Action {
	case policy.Complete:
		del.State, del.NextAt = tables.Delivered, time.Time{}
	case policy.DeadLetter:
		p.giveUp(del, dec.Reason, end)
	case policy.NoVerdict:
		del.State, del.NextAt = tables.Pending, end.Add(dec.Delay)
	case policy.Hold:
		p.hold(del, dec.Reason, dec.Delay, p.terms.Postponed)
	default:
		del.State, del.NextAt = tables.Pending, dec.NextAt.UTC()
	}
	return tables.Attempt{
		MessageKey: del.MessageKey, WebhookID: del.WebhookID, Generation: del.Generation, Number: t.number, DequeueCount: p.m.DequeueCount,
		StartedAt: res.StartedAt.UTC(), Duration: res.Duration,
		Status: res.Status, ErrorClass: policy.ErrorClass(res.ErrorClass), Error: res.Error,
		RetryAfter: res.RetryAfter, RedirectHost: res.RedirectHost, Redials: res.Redials,
		Action: dec.Action, Reason: dec.Reason, Charged: dec.Charged,
		Delay: dec.Delay, NextAt: del.NextAt, Explanation: dec.Explanation, Instance: p.instance, LeasedUntil: p.m.Lease.Until(),
		AnsweredAt: res.StartedAt.Add(res.Duration),
	}
}

func responseOf(res *webhook.Result) policy.Response {
	return policy.Response{
		Status: res.Status, Class: policy.ErrorClass(res.ErrorClass), NameBlocked: res.NameBlocked, StaleConn: res.StaleConn,
		RetryAfter: res.RetryAfter, Cause: res.Error, Redirect: res.RedirectHost,
		RateLimit: res.RateLimit, Steering: res.Steering, Date: res.Date, Body: string(res.Body),
	}
}

// leaseEnds reports whether too little of the lease is left for a POST to begin.
func (p *parcel) leaseEnds() bool {
	return time.Until(p.m.Lease.Until()) < min(p.m.Lease.Granted()/10, 5*time.Second)
}

// leased reports whether the message is nobody else's yet.
func (p *parcel) leased() bool { return !p.m.Lease.Over(time.Now()) }

// left hands the ticket of a POST back with what came of it.
func left(t *target, message string, res *webhook.Result) {
	t.ticket.Answered(flow.Answer{
		Sign: t.registration.Policy.Sign(responseOf(res), res.StartedAt.Add(res.Duration)), Began: res.StartedAt, Took: res.Duration,
		Failed: t.delivery.Charged + t.delivery.Waits, Message: message, Again: !t.delivery.FirstAt.IsZero(),
	})
}
