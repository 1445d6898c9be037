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

// Overtaken reports whether d says no more what is next. Of what is about the message as
// a whole that is because the deliveries do: once it is received, or once a webhook takes
// what was held. Of a delivery it is when the message was given up as a whole, or is held
// because its webhook was deleted.
func (d *Delivery) Overtaken(all []Delivery) bool {
	switch {
	case d.WebhookID != "":
		return !d.State.Terminal() && slices.ContainsFunc(all, func(o Delivery) bool {
			return o.WebhookID == "" && o.Queue == d.Queue && (o.Generation == d.Generation || o.Day.Equal(d.Day)) &&
				(o.State.Terminal() || o.State == Held && o.Reason == policy.WebhookDeleted && !o.UpdatedAt.Before(d.UpdatedAt))
		})
	case d.State == Published:
		return len(all) > 1
	}
	return d.State == Held && slices.ContainsFunc(all, func(o Delivery) bool { return o.UpdatedAt.After(d.UpdatedAt) })
}

// ExpiredUnseen reports whether the life of a message has ended and nobody ended the message: all are its
// deliveries, the newest state of each. What was being dead-lettered may be a dead letter, a copy of one may
// expire, and what a replay has left is its dead letter's.
func ExpiredUnseen(all []Delivery, now time.Time) bool {
	return slices.ContainsFunc(all, func(d Delivery) bool {
		return d.Generation == 0 && !d.State.Terminal() && !d.Damage.Undecided && d.CopyOf() == "" && d.Over(now) && !d.Overtaken(all)
	})
}
