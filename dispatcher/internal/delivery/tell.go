package delivery

import (
	"context"
	"errors"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/dispatcher/internal/settle"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

// recordBound is how long it takes at most until an answer is on record, unless the store does not
// take it at all: to learn what others did meanwhile, and then to write. Others read by a clock of their own, which
// may be ahead of this one.
var recordBound = retry.Call.Longest() + retry.Ended.For + retry.Timeout + tables.ClocksApart

// tellOthers writes, for each POST that is under way, that the delivery is tried again only when
// that POST and the record of its answer must be over. Whoever receives the message finds that,
// and gives it back until then, uncharged. It is for a lease that can't be renewed any more
// (ADR 0058), and returns until when the message is left alone.
func (o *Options) tellOthers(ctx context.Context, p *parcel, targets []target) (until time.Time) {
	err := o.Journal.Note(ctx, func() []tables.Delivery {
		var list []tables.Delivery
		list, until = p.underWayNow(targets)
		return list
	})
	if err != nil && errors.Is(context.Cause(ctx), context.Canceled) {
		return time.Time{} // the POST is over, or the lease was renewed: there is nothing to tell
	}
	if err != nil {
		o.Log.Error("nobody could be told that a POST is under way whose lease can't be renewed: who receives the message then may POST it too",
			"queue", p.key.Queue, "message", p.key.MessageID, "error", err)
		return time.Time{}
	}
	o.PutOffs.RememberPosted(p.key.Queue, p.m.ID, p.m.DequeueCount) // what others receive from now on proves nothing
	return until
}

// underWayNow are the deliveries whose POST is under way, as they are told to others, and until
// when: not past the message's last look. Those that wait for their turn are named beside them.
func (p *parcel) underWayNow(targets []target) (list []tables.Delivery, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	lastLook := p.lastLook()
	now := time.Now() // with the monotonic clock: a clock that is set changes no wait
	for i := range targets {
		t := &targets[i]
		if t.begun.IsZero() {
			continue
		}
		ends := now.Add(settle.WithinLife(p.m, t.registration.Longest()+recordBound-now.Sub(t.begun)))
		if !lastLook.IsZero() && ends.After(lastLook) {
			ends = lastLook
		}
		t.noteAt(now) // it is no other's record
		t.told = true
		del := t.delivery
		del.State, del.Reason, del.NextAt, del.Instance = tables.Pending, policy.LeaseLost, ends.UTC().Truncate(time.Millisecond), p.instance
		del.FirstAt = firstOf(del.FirstAt, t.begun.UTC())
		if t.noted {
			del.MissingRecords++
		}
		list = append(list, del)
		if ends.After(until) {
			until = ends
		}
	}
	return append(list, p.dueBeside(list)...), until
}
