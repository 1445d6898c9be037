package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/admission"
	"github.com/pushlease/pushlease/dispatcher/internal/flow"
	"github.com/pushlease/pushlease/dispatcher/internal/lease"
	"github.com/pushlease/pushlease/dispatcher/internal/settle"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// Deliver POSTs a leased message to every webhook that is due, records what came of
// it, and returns what should happen to the message. It neither renews the lease
// nor settles: both belong to the caller. ctx ends with the cause
// queue.ErrLeaseLost or ErrStopping to cut POSTs short; nothing is charged then.
func (d *Dispatcher) Deliver(ctx context.Context, queueName string, m *queue.Message) Outcome {
	return d.deliver(ctx, queueName, m, d.margins(m), nil)
}

// deliver gives up what has to be held when as little of the message's life is left as give
// says. grant is told how far the message is.
func (d *Dispatcher) deliver(ctx context.Context, queueName string, m *queue.Message, give margins, grant *admission.Grant) (decision Outcome) {
	d.deliverInto(ctx, queueName, m, give, grant, &decision)
	return decision
}

// deliverInto is deliver without copies of the outcome on the stack: what is there while
// the POST is under way is held for each message in flight.
func (d *Dispatcher) deliverInto(ctx context.Context, queueName string, m *queue.Message, give margins, grant *admission.Grant, outcome *Outcome) {
	defer grant.Asked()
	var p *parcel
	defer func() {
		if r := recover(); r != nil {
			d.log.Error("panic while delivering; the message is given back", "queue", queueName, "message", m.ID,
				"panic", fmt.Sprintf("%T", r), "stack", string(debug.Stack()))
			*outcome = ownFault(m, policy.InternalFault)
		}
		outcome.Records = p.takeLast()
	}()
	p, h, targets, decided := d.route(ctx, queueName, m, give, grant)
	if decided != nil {
		*outcome = *decided
		return
	}
	defer d.endSuspect(p)
	if !d.beginSuspect(ctx, p, h, targets) {
		*outcome = ownFault(m, policy.InternalFault)
		return
	}
	d.post(ctx, p, targets)
	d.foldInto(p, h, targets, outcome)
}

// keepLast keeps the record of the POST that ends as the last one of the message, which the
// outcome takes along. With false the record is to be written now: others are still under way, or
// a note about the message has to be taken back before the next suspected one's turn.
func (p *parcel) keepLast(rec tables.Record) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.underWay--; p.underWay > 0 || p.alone {
		return false
	}
	p.last = []tables.Record{rec}
	return true
}

// takeLast returns the record that keepLast kept, if any.
func (p *parcel) takeLast() []tables.Record {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.last
	p.last = nil
	return last
}

func (d *Dispatcher) foldInto(p *parcel, h history, targets []target, decision *Outcome) {
	*decision = d.fold(p, h, targets)
}

// route finds out whom the message is due to; decided is there when it is settled without
// any POST.
func (d *Dispatcher) route(ctx context.Context, queueName string, m *queue.Message, give margins, grant *admission.Grant) (
	p *parcel, h history, targets []target, decided *Outcome) {
	p, err := d.open(ctx, queueName, m)
	p.give, p.grant = give, grant
	if err != nil && !errors.Is(err, queue.ErrUndecodable) && !errors.Is(err, queue.ErrNewer) {
		return p, h, nil, d.unopened(queueName, m, err)
	}
	h = d.claim(ctx, p)
	if decided = h.inDoubt(m); decided != nil {
		return p, h, nil, decided
	}
	if decided = d.endedBefore(p, h); decided != nil {
		return p, h, nil, decided
	}
	if errors.Is(err, queue.ErrNewer) {
		held := d.newer(ctx, p, h)
		return p, h, nil, &held
	}
	if err != nil {
		return p, h, nil, d.unposted(ctx, p, h, nil, policy.Undecodable)
	}
	targets, refused := d.targets(ctx, p, h)
	switch {
	case refused:
		return p, h, nil, d.unposted(ctx, p, h, nil, policy.Unmatched)
	case len(targets) == 0:
		return p, h, nil, d.unposted(ctx, p, h, nil, policy.NoWebhook)
	}
	if p.event != "" {
		decided = d.unlessOther(ctx, p, h, targets)
	}
	if decided == nil && d.isPoison(p, h, targets) {
		decided = d.unposted(ctx, p, h, targets, policy.PoisonMessage)
	}
	return p, h, targets, decided
}

// unopened decides about a message that could not be opened.
func (d *Dispatcher) unopened(queueName string, m *queue.Message, err error) *Outcome {
	decision := ownFault(m, policy.StorageFault)
	if errors.Is(err, errStaleReplay) {
		d.log.Info("a replay pointer without a replay is removed", "queue", queueName, "message", m.ID)
		decision = Outcome{Action: policy.Complete, Reason: policy.ReplayEnded}
	} else {
		d.log.Error("the message can't be opened now", "queue", queueName, "message", m.ID, "error", err)
	}
	return &decision
}

// endedBefore decides about a message that was given up before, as a whole; nil where it
// was not.
func (d *Dispatcher) endedBefore(p *parcel, h history) *Outcome {
	if len(h.deliveries) == 0 {
		return nil
	}
	whole, ok := h.deliveries[""]
	if !ok || !whole.State.Terminal() {
		return nil
	}
	decision := d.foldWhole(p, h, whole)
	return &decision
}

// unposted decides about a message that no POST is made of, for the reason.
func (d *Dispatcher) unposted(ctx context.Context, p *parcel, h history, targets []target, reason policy.Reason) *Outcome {
	var decision Outcome
	switch reason {
	case policy.Unmatched:
		decision = d.unmatched(ctx, p, h)
	case policy.NoWebhook:
		decision = d.nobody(ctx, p, h)
	default:
		decision = d.giveUpMessage(ctx, p, h, targets, reason)
	}
	return &decision
}

// unlessOther is otherCopy's decision; nil where the message may be POSTed.
func (d *Dispatcher) unlessOther(ctx context.Context, p *parcel, h history, targets []target) *Outcome {
	decision, other := d.otherCopy(ctx, p, h, targets)
	if !other {
		return nil
	}
	return &decision
}

// post makes all due POSTs at once, so that one webhook never waits for another. The last
// one is made here: a message with one webhook has no goroutine but its handler's.
func (d *Dispatcher) post(ctx context.Context, p *parcel, targets []target) {
	d.enter(ctx, p, targets)
	var posts sync.WaitGroup
	var last *target
	p.underWay = underWay(targets)
	p.grant.Posting(p.underWay, someEnded(targets))
	for i := range targets {
		if targets[i].flow == nil {
			continue
		}
		if t := last; t != nil {
			posts.Go(func() { d.postTo(ctx, p, t) })
		}
		last = &targets[i]
	}
	posted := last != nil
	if posted {
		d.postTo(ctx, p, last)
	}
	posts.Wait()
	d.recordHeld(ctx, p)
	if !posted && p.m.DequeueCount > 1 && allDelivered(targets) {
		d.log.Warn("a message that was delivered came back; it is deleted without a POST",
			"queue", p.key.Queue, "message", p.key.MessageID, "delivery_count", p.m.DequeueCount)
		d.metrics.Duplicate(p.key.Queue, "redelivery")
		d.completer.Reappeared(p.key.Queue, p.key.MessageID)
	}
}

// postTo makes one POST, if its webhook has room for it in time.
func (d *Dispatcher) postTo(ctx context.Context, p *parcel, t *target) {
	defer func() { t.ticket.Unused() }()
	defer p.answered(t)
	if d.survives(p, func() { d.timedAttempt(ctx, p, t) }) {
		return
	}
	t.delivery.State, t.delivery.Reason = tables.Pending, policy.InternalFault
	t.delivery.NextAt = time.Now().Add(settle.OwnFaultDelay(p.m))
	t.delivery.MissingRecords++
	// Recorded, so that the message stays due to this webhook, and so that a
	// message that always ends so does not go on for ever.
	d.survives(p, func() { d.journal.Record(d.writing(ctx), tables.Record{Deliveries: []tables.Delivery{t.delivery}}) })
}

// answered says that t's POST is over, or won't be made; once for each, whoever says so.
func (p *parcel) answered(t *target) {
	if !t.answered {
		t.answered = true
		p.grant.Answered()
	}
}

// survives runs f and reports whether it ended without a panic.
func (d *Dispatcher) survives(p *parcel, f func()) (ok bool) {
	defer func() {
		if r := recover(); r != nil {
			d.log.Error("panic during an attempt; the message is given back", "queue", p.key.Queue,
				"message", p.key.MessageID, "panic", fmt.Sprintf("%T", r), "stack", string(debug.Stack()))
		}
	}()
	f()
	return true
}

// fold makes one decision for the message from the states of its deliveries: it is
// completed when none is pending, and otherwise given back until the earliest
// next time.
func (d *Dispatcher) fold(p *parcel, h history, targets []target) Outcome {
	decision := Outcome{Action: policy.Complete, Reason: policy.Delivered, ReplayEnds: p.replay, Claim: p.claim}
	now := time.Now()
	copied, delivered := false, false
	for _, del := range h.deliveries {
		copied = copied || del.State == tables.DeadLettered
		delivered = delivered || del.State == tables.Delivered
	}
	var next time.Time
	for i := range targets {
		t := &targets[i]
		del := p.beforeExpiry(t.delivery, now)
		if t.took > 0 {
			decision.Posts = append(decision.Posts, lease.Posted{Webhook: del.WebhookID, Took: t.took})
		}
		switch del.State {
		case tables.Delivered:
			delivered = true
			continue
		case tables.DeadLettered, tables.Withdrawn:
			continue
		case tables.Duplicate:
			decision.Reason = policy.Duplicate
			continue
		case tables.Unmatched:
			decision.Reason = policy.Unmatched
			continue
		case tables.DeadLettering:
			decision.DeadLetters = append(decision.DeadLetters,
				settle.DeadLetter{Row: p.deadLetter(del, t.describe(del)), Delivery: del, Copy: !copied && p.replay == nil})
			copied = true
			if decision.Action == policy.Complete {
				decision.Reason = del.Reason
			}
			continue
		}
		if waitsForItsWebhook(&del) {
			decision.HeldFor = append(decision.HeldFor, flow.Since{WebhookID: del.WebhookID, At: del.UpdatedAt})
		}
		at := del.NextAt
		if at.Before(now) {
			at = now
		}
		if next.IsZero() || at.Before(next) {
			next = at
			decision.Action, decision.Reason = actionOf(del), del.Reason
		}
	}
	if decision.Claim != nil {
		decision.Claim.Delivered = delivered
	}
	if !next.IsZero() {
		decision.Delay = min(max(next.Sub(now), 0), queue.MaxDelay)
		decision.ReplayEnds = nil // not ended yet
	}
	return decision
}

// foldWhole is fold for a message that is decided about as a whole.
func (d *Dispatcher) foldWhole(p *parcel, h history, del tables.Delivery) Outcome {
	return d.fold(p, h, []target{gone(del)})
}

// actionOf says how a message with this unfinished delivery is given back.
func actionOf(del tables.Delivery) policy.Action {
	switch del.Reason {
	case policy.LeaseLost, policy.Stopping, policy.StorageFault, policy.InternalFault:
		return policy.NoVerdict
	case policy.WebhookDisabled, policy.WebhookDeleted, policy.NoWebhook, policy.EventInWork,
		policy.WebhookBusy, policy.WebhookPaused, policy.WebhookFailing:
		return policy.Hold
	}
	return policy.Abandon
}

// giveUpMessage dead-letters the message as a whole, without a POST; where it has ended for
// some webhook already, for each of the others.
func (d *Dispatcher) giveUpMessage(ctx context.Context, p *parcel, h history, targets []target, reason policy.Reason) Outcome {
	if h.anyEnded() {
		return d.giveUpRest(ctx, p, h, targets, reason)
	}
	del := p.newDelivery("", d.o.Instance)
	giveUp(&del, reason, time.Now())
	del.Size, del.Encoding = len(p.text), string(p.setting)
	d.journal.Record(d.writing(ctx), tables.Record{Deliveries: []tables.Delivery{del}})
	return d.foldWhole(p, h, del)
}

// giveUpRest dead-letters what is unfinished of a message: the targets, and the deliveries
// of webhooks that are not there.
func (d *Dispatcher) giveUpRest(ctx context.Context, p *parcel, h history, targets []target, reason policy.Reason) Outcome {
	rest := slices.Clone(targets)
	for id, del := range h.deliveries {
		if id != "" && !some(rest, func(t *target) bool { return t.delivery.WebhookID == id }) {
			rest = append(rest, gone(del))
		}
	}
	var given []tables.Delivery
	for i := range rest {
		if del := &rest[i].delivery; !del.State.Terminal() {
			giveUp(del, reason, time.Now())
			given = append(given, *del)
		}
	}
	d.journal.RecordAll(d.writing(ctx), given)
	return d.fold(p, h, rest)
}

// ownFault gives the message back because of us.
func ownFault(m *queue.Message, reason policy.Reason) Outcome {
	return Outcome{Action: policy.NoVerdict, Reason: reason, Delay: settle.OwnFaultDelay(m)}
}

// underWay counts the POSTs that begin now.
func underWay(targets []target) (n int) {
	for i := range targets {
		if targets[i].flow != nil {
			n++
		}
	}
	return n
}

// someEnded reports whether a webhook of the message is done with it.
func someEnded(targets []target) bool {
	return some(targets, func(t *target) bool { return t.delivery.State.Terminal() })
}

// waitsForItsWebhook reports whether a delivery waits until its webhook can be sent to, or a
// message until there is one.
func waitsForItsWebhook(del *tables.Delivery) bool {
	if del.State != tables.Held {
		return false
	}
	switch del.Reason {
	case policy.WebhookDisabled, policy.NoWebhook, policy.WebhookDeleted:
		return true
	}
	return flow.CannotBeSentTo(del)
}

func allDelivered(targets []target) bool {
	return !some(targets, func(t *target) bool { return t.delivery.State != tables.Delivered })
}

// describe says why the target's delivery was given up, as del: in the words of the decision
// that gave it up, which name the rule, the limit or the answer; a later receive, which goes
// on with what was recorded, knows the reason only.
func (t *target) describe(del tables.Delivery) string {
	if t.why != "" && t.delivery.State == tables.DeadLettering {
		return t.why
	}
	return describe(del)
}

// describe says in one sentence why a delivery was given up.
func describe(del tables.Delivery) string {
	last := fmt.Sprintf("the last answer was %d", del.LastStatus)
	if del.LastStatus == 0 {
		last = fmt.Sprintf("the last attempt ended without an answer (%s)", del.LastErrorClass)
	}
	switch del.Reason {
	case policy.NonRetryableError:
		return fmt.Sprintf("After %s %s, which the webhook's policy does not retry.", attempts(del.Attempts), last)
	case policy.MaxDeliveryCountExceeded:
		return fmt.Sprintf("All %d attempts are used up; %s.", del.Charged, last)
	case policy.MaxAgeExceeded:
		return fmt.Sprintf("The time for attempts is used up after %s; %s.", attempts(del.Attempts), last)
	case policy.MessageExpiring:
		return fmt.Sprintf("The next attempt would fall after the message's expiry; %s.", last)
	case policy.BlockedAddress:
		return "The webhook's address is one that must not be reached; no connection was made."
	case policy.WebhookGone:
		return "The webhook answered 410 Gone and was disabled."
	case policy.ReceiverAsked:
		return fmt.Sprintf("The receiver asked for it; %s.", last)
	case policy.PoisonMessage:
		return "The message was received over and over with no outcome ever recorded, so it was not sent again."
	case policy.Undecodable:
		return "The text is not what the queue's encoding promises, or was written by a newer version of pushlease; it is kept as it was received. Set the queue's encoding to what its producers write, or update every instance, and replay it."
	case policy.Unidentified:
		return "The Functions host did not surely say which message this is, and the text is too long to be sent anew."
	case policy.WebhookDisabled, policy.WebhookDeleted, policy.NoWebhook:
		return "No webhook took the message before it would have expired."
	case policy.WebhookBusy, policy.WebhookPaused, policy.WebhookFailing:
		return "The webhook could not be sent to before the message would have expired; its flow says why."
	case policy.EventInWork:
		return "Another message with the same event was still being delivered when this one was about to expire."
	case policy.Unmatched:
		return "Every filter of the queue's webhooks refuses the message, and the queue keeps such messages as dead letters."
	}
	return "The delivery was given up."
}

// attempts says a number of them.
func attempts(n int) string {
	if n == 1 {
		return "1 attempt"
	}
	return fmt.Sprintf("%d attempts", n)
}
