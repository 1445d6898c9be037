package delivery

import (
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/admission"
	"github.com/pushlease/pushlease/dispatcher/internal/flow"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

// target is one webhook that the parcel is due to.
type target struct {
	// registration is the registry's, which nobody changes; unregistered where the webhook
	// is not there.
	registration *tables.Registration
	delivery     tables.Delivery
	// flow is its webhook's, while a POST is due that may be made or waited for; ticket is
	// the right to it.
	flow   *flow.Flow
	ticket *flow.Ticket
	// late: it was registered after the message was inserted, and has it since it was there at the first receive.
	late bool
	// later: its flow is asked when others of the message have answered.
	later bool
	// noted: the store holds a note that a POST began (see suspects).
	noted bool
	// told: others were told, or are being told, that its POST is under way. The parcel's mu guards it.
	told bool
	// took is how long the attempt that was made now took, from dial to record, if it
	// tells how long the webhook takes; zero otherwise.
	took time.Duration
	// number is that of the attempt that is made now.
	number int
	// why explains the decision about the attempt that was made now; empty without one.
	why string
	// answered: its POST is over.
	answered bool
	// begun is when the POST that is under way began; zero for none. The parcel's mu guards it.
	begun time.Time
}

// unregistered is the registration of a target whose webhook is not there.
var unregistered = &tables.Registration{}

// gone is a target whose webhook is not there: nothing is sent, but its delivery is settled.
func gone(del tables.Delivery) target { return target{registration: unregistered, delivery: del} }

// some reports whether test holds for one of the targets.
func some(targets []target, test func(*target) bool) bool {
	for i := range targets {
		if test(&targets[i]) {
			return true
		}
	}
	return false
}

// due reports whether a POST may be made now.
func (t *target) due(now time.Time) bool {
	del := &t.delivery
	return t.registration.Enabled && !del.State.Terminal() &&
		(del.State == tables.Held && !flow.CannotBeSentTo(del) || !del.NextAt.After(now))
}

// disabled reports whether the delivery waits for its webhook to be enabled.
func (t *target) disabled() bool {
	return !t.registration.Enabled && t.registration.ID != "" && !t.delivery.State.Terminal()
}

// unread reports whether the delivery waits for its webhook's registration, which can't be read now.
func (t *target) unread() bool {
	return t.registration == unregistered && !t.delivery.State.Terminal()
}

// lateOnes are the deliveries of which the first record of the message has to tell.
func lateOnes(targets []target) (due []tables.Delivery) {
	for i := range targets {
		if targets[i].late {
			due = append(due, targets[i].delivery)
		}
	}
	return due
}

// someEnded reports whether a webhook of the message is done with it.
func someEnded(targets []target) bool {
	return some(targets, func(t *target) bool { return t.delivery.State.Terminal() })
}

func allDelivered(targets []target) bool {
	return !some(targets, func(t *target) bool { return t.delivery.State != tables.Delivered })
}

func anyAttempt(targets []target) bool {
	return some(targets, func(t *target) bool { return t.delivery.Attempts > 0 })
}

func anyDue(targets []target) bool {
	now := time.Now()
	return some(targets, func(t *target) bool { return t.due(now) })
}

// underWay counts the POSTs that are made, or waited for, with this receive.
func underWay(targets []target) (n int) {
	for i := range targets {
		if targets[i].flow != nil {
			n++
		}
	}
	return n
}

// isUnderWay reports whether another holder has told that it is POSTing, and must not be over yet.
func isUnderWay(del *tables.Delivery, now time.Time) bool {
	return del.State == tables.Pending && del.Reason == policy.LeaseLost && del.NextAt.After(now)
}

// noteAnswered says that t's POST is over, or won't be made; once for each, whoever says so.
func (t *target) noteAnswered(g *admission.Grant) {
	if !t.answered {
		t.answered = true
		g.Answered()
	}
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

func firstOf(a, b time.Time) time.Time {
	if a.IsZero() {
		return b
	}
	return a
}
