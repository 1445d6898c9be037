package tables

import (
	"slices"
	"time"

	"github.com/pushlease/pushlease/policy"
)

// LifeMargin is how long after its end a message's life is surely over, whatever the clocks
// say, and whoever still held it had to say what became of it.
const LifeMargin = 2 * time.Minute

// Over reports whether the message's life has ended without an outcome on record. One that was being
// dead-lettered has none until its dead letter is there.
func (d *Delivery) Over(now time.Time) bool {
	ended := d.State.Terminal() && d.State != DeadLettering
	return !ended && !d.ExpiresAt.IsZero() && now.Sub(d.ExpiresAt) > LifeMargin
}

// EndsAll reports whether a message that is in this state as a whole has ended for its webhooks, too. One that was being given up goes on
// where it has ended for one of them, and one that no filter took where one is on record: another holder had found whom it is due to.
func (s State) EndsAll(onRecord, ended bool) bool {
	switch s {
	case DeadLettering:
		return !ended
	case Unmatched:
		return !onRecord
	}
	return s.Terminal()
}

// Overtaken reports whether d says no more what is next. Of what is about the message as
// a whole that is because the deliveries do: once it is received, or once a webhook takes
// what was held, or was taken by no filter. Of a delivery it is when the message was given up as a whole, or is held
// because its webhook was deleted.
func (d *Delivery) Overtaken(all []Delivery) bool {
	onRecord, ended := false, false
	for _, o := range all {
		if o.WebhookID != "" && o.State != Withdrawn && o.Queue == d.Queue {
			replayed := o.Generation > d.Generation && !o.Day.Equal(d.Day) // after it had ended with a dead letter
			onRecord = onRecord || replayed || d.isOneWith(&o)
			ended = ended || replayed || d.isOneWith(&o) && o.State.Terminal()
		}
	}
	switch {
	case d.WebhookID != "":
		return !d.State.Terminal() && slices.ContainsFunc(all, func(o Delivery) bool {
			return o.WebhookID == "" && o.Queue == d.Queue && d.isOneWith(&o) &&
				(o.State.EndsAll(onRecord, ended) || o.State == Held && o.Reason == policy.WebhookDeleted && !o.UpdatedAt.Before(d.UpdatedAt))
		})
	case d.State == Published:
		return len(all) > 1
	case d.State == Unmatched:
		return onRecord
	}
	return d.State == Held && slices.ContainsFunc(all, func(o Delivery) bool { return o.UpdatedAt.After(d.UpdatedAt) })
}

// isOneWith reports whether o is about the same message, or the same replay of it. A webhook that was registered anew has a generation of its own.
func (d *Delivery) isOneWith(o *Delivery) bool {
	return o.Generation == d.Generation || o.Day.Equal(d.Day)
}

// ExpiredUnseen reports whether the life of a message has ended and nobody ended the message: all are its
// deliveries, the newest state of each. What was being dead-lettered may be a dead letter, a copy of one may
// expire, and what a replay has left is its dead letter's.
func ExpiredUnseen(all []Delivery, now time.Time) bool {
	return slices.ContainsFunc(all, func(d Delivery) bool {
		return d.Generation == 0 && !d.State.Terminal() && !d.Damage.Undecided && d.CopyOf() == "" && d.Over(now) && !d.Overtaken(all)
	})
}
