package delivery

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/admission"
	"github.com/pushlease/pushlease/dispatcher/internal/settle"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// Deliverer delivers messages. Safe for concurrent use.
type Deliverer struct {
	*Options
	opener    opener
	historian historian
	finder    finder
	wholes    wholes
	events    events
	copies    copies
	suspects  *suspects
	posts     posts
}

// New makes a Deliverer.
func New(o Options) *Deliverer {
	w, k := wholes{&o}, tickets{&o}
	e := events{&o, w}
	return &Deliverer{
		Options: &o, opener: opener{&o}, historian: historian{&o}, finder: finder{&o}, wholes: w,
		events: e, copies: copies{&o, e}, suspects: &suspects{Options: &o, tickets: k, turn: make(chan struct{}, 1)},
		posts: posts{&o, k, attempts{&o, k}, make(places, o.MorePosts)},
	}
}

// Deliver POSTs a leased message to every webhook that is due, and returns what should happen
// to the message. It neither renews the lease nor settles. ctx ends with the cause
// queue.ErrLeaseLost or ErrStopping to cut POSTs short; nothing is charged then. grant is told
// how far the message is.
func (d *Deliverer) Deliver(ctx context.Context, queueName string, m *queue.Message, terms Terms, grant *admission.Grant) Outcome {
	defer grant.Asked() // where it was not asked for anything
	if terms.Untouched {
		return Outcome{Action: policy.Hold, Reason: policy.NoWebhook}
	}
	p := d.opener.parcel(queueName, m, terms, grant)
	var outcome *Outcome
	if !survives(d.Log, p, func() { outcome = d.steps(ctx, p) }) {
		outcome = ownFault(m, policy.InternalFault)
	}
	outcome.Records = slices.Concat(p.takeLast(), d.posts.tickets.takeHeld(ctx, p), outcome.Records)
	outcome.DecideAnew = func(ctx context.Context, o *Outcome) bool {
		if !p.lastLookIsOver(time.Now()) {
			return false
		}
		survives(d.Log, p, func() { *o = *d.afterOthers(ctx, p, o) })
		p.finish(o)
		return true
	}
	p.finish(outcome)
	return *outcome
}

// finish completes what was decided about the parcel.
func (p *parcel) finish(o *Outcome) {
	o.Records = p.named(o.Records)
	if p.terms.Shown && o.Action == policy.Hold {
		o.Delay = 0
	}
}

// steps are what is done about a message, in order. The first one with an outcome is the last.
func (d *Deliverer) steps(ctx context.Context, p *parcel) *Outcome {
	unread := d.opener.open(ctx, p)
	if outcome := d.unopened(p, unread); outcome != nil {
		return outcome
	}
	h := history{known: true}
	if !p.isNew() {
		var outcome *Outcome
		if h, outcome = d.metBefore(ctx, p); outcome != nil {
			return outcome
		}
	}
	if unread != nil {
		return d.wholes.unreadable(p, h, unread)
	}
	targets, refused := d.finder.targets(ctx, p, h)
	if len(targets) == 0 {
		return d.wholes.untaken(p, h, refused)
	}
	p.targets = targets
	p.due = lateOnes(targets)
	defer d.suspects.end(ctx, p)
	if p.event != "" {
		if outcome := d.events.otherCopy(ctx, p, h, targets); outcome != nil {
			return outcome
		}
	}
	if suspect(h, p.m, targets) {
		if isPoison(targets) {
			return d.wholes.giveUpMessage(p, h, targets, policy.PoisonMessage)
		}
		if !d.suspects.begin(ctx, p, targets) {
			return ownFault(p.m, policy.InternalFault)
		}
	}
	if len(targets) == 1 { // one receive of several has several outcomes, so that nobody knows how many have none
		p.untold = max(int(p.m.DequeueCount)-1-h.recorded-int(d.PutOffs.Times(p.key.Queue, p.m.ID)), 0)
	}
	d.posts.post(ctx, p, targets)
	outcome := fold(p, h, targets)
	if p.behind && outcome.Action == policy.Complete { // it may be due to one that was registered just now
		if p.posted > 0 {
			d.PutOffs.RememberPosted(p.key.Queue, p.m.ID, p.m.DequeueCount)
		} else {
			d.PutOffs.Remember(p.key.Queue, p.m.ID, p.m.DequeueCount)
		}
		outcome.GiveBack(p.m)
	}
	return d.shownSoon(p, outcome)
}

// afterOthers decides once more, by what is on record now, where another holder may have gone on with a message that is about to
// expire: with the next receive nobody may be there for that. What can't be looked up ends nothing, so that nothing is lost. The
// POSTs are on record by now.
func (d *Deliverer) afterOthers(ctx context.Context, p *parcel, o *Outcome) *Outcome {
	if p.behind {
		return o
	}
	h := d.historian.lookUp(ctx, p)
	if ended := endedBefore(p, h); ended != nil {
		return ended
	}
	var withdrawn []tables.Delivery // which are no verdicts
	for _, rec := range o.Records {
		withdrawn = append(withdrawn, slices.DeleteFunc(slices.Clone(rec.Deliveries), func(del tables.Delivery) bool { return del.State != tables.Withdrawn })...)
	}
	whole := slices.ContainsFunc(o.DeadLetters, func(dl settle.DeadLetter) bool { return dl.Delivery.WebhookID == "" })
	for i := range p.targets {
		t := &p.targets[i]
		if del := h.deliveries[t.delivery.WebhookID]; del.Generation > t.delivery.Generation || del.State.Terminal() && del.State != tables.DeadLettering {
			t.delivery = del
		}
	}
	ofOne := p.replay != nil && p.replay.WebhookID != "" // what is said of the message as a whole is said of its webhook
	switch {
	case ofOne && !h.anyEnded():
		return o
	case ofOne && len(p.targets) == 0:
		return foldWhole(p, h, p.whole(h))
	case o.Reason == policy.Unmatched && len(o.DeadLetters) == 0 && h.anyTaken(): // another one had found a webhook
		p.ended = nil
		o = d.wholes.giveUpRest(p, h, nil, policy.MessageExpiring)
	case len(o.DeadLetters) == 0 || whole && !h.anyEnded():
		return o
	case whole:
		p.ended = nil
		o = d.wholes.giveUpRest(p, h, p.targets, o.Reason)
	default:
		p.ended = slices.DeleteFunc(p.ended, func(e tables.Delivery) bool {
			return !some(p.targets, func(t *target) bool { return t.delivery == e })
		})
		o = fold(p, h, p.targets)
	}
	return recorded(o, append(p.ended, withdrawn...)...)
}

// metBefore finds out what was done about a message before, and decides where that is enough to.
func (d *Deliverer) metBefore(ctx context.Context, p *parcel) (history, *Outcome) {
	h := d.historian.lookUp(ctx, p)
	h.explained = h.recorded + int(d.PutOffs.Receives(p.key.Queue, p.m.ID, p.m.DequeueCount))
	if outcome := h.inDoubt(p.m, p.slack); outcome != nil {
		d.PutOffs.Remember(p.key.Queue, p.m.ID, p.m.DequeueCount)
		return h, outcome
	}
	if outcome := d.copies.recognise(ctx, p, h); outcome != nil {
		return h, outcome
	}
	return h, endedBefore(p, h)
}

// shownSoon shortens the wait for a webhook that is not sent to: this process shows the message when it is,
// and if it dies nobody does.
func (d *Deliverer) shownSoon(p *parcel, o *Outcome) *Outcome {
	stopped := o.Reason == policy.WebhookFailing || o.Reason == policy.WebhookPaused || o.Reason == policy.NoToken
	if stopped && o.Action == policy.Hold && !d.Hosted(p.key.Queue) {
		o.Delay = min(o.Delay, holdFor(d.Flows.Held(), false))
	}
	return o
}

// unopened decides about a message of which storage does not say what it is; nil where it does,
// or where the message itself says nothing.
func (d *Deliverer) unopened(p *parcel, err error) *Outcome {
	switch {
	case err == nil, errors.Is(err, queue.ErrUndecodable), errors.Is(err, queue.ErrNewer):
		return nil
	case errors.Is(err, errStaleReplay):
		d.Log.Info("a replay pointer without a replay is removed", "queue", p.key.Queue, "message", p.m.ID)
		return &Outcome{Action: policy.Complete, Reason: policy.ReplayEnded}
	case errors.Is(err, errAltered):
		d.Log.Error("a replay is not sent: another program has changed its dead letter, which can be replayed again as it was, or with force",
			"queue", p.key.Queue, "message", p.m.ID, "error", err)
		return &Outcome{Action: policy.Complete, Reason: policy.ReplayEnded}
	}
	d.PutOffs.Remember(p.key.Queue, p.m.ID, p.m.DequeueCount)
	d.Log.Error("the message can't be opened now", "queue", p.key.Queue, "message", p.m.ID, "error", err)
	return ownFault(p.m, policy.StorageFault)
}
