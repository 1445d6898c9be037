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
// take it at all: to learn what others did meanwhile, and then to write.
var recordBound = retry.Call.Longest() + retry.Delivered.For + retry.Timeout

// begins notes that t's POST begins, and over that it has ended.
func (p *parcel) begins(t *target) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t.begun = time.Now()
}

func (p *parcel) over(t *target) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t.begun = time.Time{}
}

// tellOthers writes, for each POST that is under way, that the delivery is tried again only when
// that POST and the record of its answer must be over. Whoever receives the message finds that,
// and gives it back until then, uncharged. It is for a lease that can't be renewed any more
// (ADR 0058), and returns until when the message is left alone.
func (x posts) tellOthers(ctx context.Context, p *parcel, targets []target) (until time.Time) {
	err := x.Journal.Note(ctx, func() []tables.Delivery {
		var list []tables.Delivery
		list, until = p.underWayNow(targets)
		return list
	})
	if err != nil && errors.Is(context.Cause(ctx), context.Canceled) {
		return time.Time{} // the POST is over, or the lease was renewed: there is nothing to tell
	}
	if err != nil {
		x.Log.Error("nobody could be told that a POST is under way whose lease can't be renewed: who receives the message then may POST it too",
			"queue", p.key.Queue, "message", p.key.MessageID, "error", err)
		return time.Time{}
	}
	x.PutOffs.Remember(p.key.Queue, p.m.ID, p.m.DequeueCount) // what others receive from now on proves nothing
	return until
}

// lastLook is when the last look at the message that is sure to come must begin; the zero time where
// it lives for ever.
func (p *parcel) lastLook() time.Time {
	if p.m.ExpiresAt.IsZero() {
		return time.Time{}
	}
	return p.m.ExpiresAt.Add(-PostponeMargin(p.m) - p.slack)
}

// isUnderWay reports whether another holder has told that it is POSTing, and must not be over yet.
func isUnderWay(del *tables.Delivery, now time.Time) bool {
	return del.State == tables.Pending && del.Reason == policy.LeaseLost && del.NextAt.After(now)
}

// underWayOfDeleted are the deliveries that another holder is POSTing, to webhooks that were deleted
// meanwhile. Before they are over nobody knows whether the message has to be handed on.
func underWayOfDeleted(h history) (list []target) {
	now := time.Now()
	for id, del := range h.deliveries {
		if id != "" && isUnderWay(&del, now) {
			list = append(list, gone(del))
		}
	}
	return list
}

// underWayNow are the deliveries whose POST is under way, as they are told to others, and until
// when: not past the message's last look.
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
	return list, until
}

// withoutThem are the targets of a message whose webhooks were all deleted.
func (f finder) withoutThem(p *parcel, h history) []target {
	if list := underWayOfDeleted(h); len(list) > 0 {
		return list
	}
	if list := f.handedOn(p, h); len(list) > 0 {
		return list
	}
	return ended(h)
}

// noteAt dates a delivery that is noted: later than what is on record of it, whatever clock that was
// dated by, so that the note counts.
func (t *target) noteAt(now time.Time) {
	now = now.UTC().Truncate(time.Millisecond)
	if !now.After(t.delivery.UpdatedAt) {
		now = t.delivery.UpdatedAt.Add(time.Millisecond)
	}
	t.delivery.UpdatedAt = now
}

// afterNote dates the delivery, which has changed or ends a note, later than that of noted: it undoes
// what was noted about it.
func (t *target) afterNote(noted time.Time) {
	if !t.delivery.UpdatedAt.After(noted) {
		t.delivery.UpdatedAt = noted.Add(time.Millisecond)
	}
}
