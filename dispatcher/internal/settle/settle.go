// Package settle completes, abandons and dead-letters messages. What is held is shown again
// by flow, before its time. It owns every write that follows the last answer, in the one right order:
// records, dead letters, the end of a replay, the claim on the event, and the message itself.
package settle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/claims"
	"github.com/pushlease/pushlease/dispatcher/internal/flow"
	"github.com/pushlease/pushlease/dispatcher/internal/journal"
	"github.com/pushlease/pushlease/dispatcher/internal/lease"
	"github.com/pushlease/pushlease/dispatcher/internal/meter"
	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// Outcome is what delivering a message came to, and what is to happen to it.
type Outcome struct {
	// Action is Complete, Abandon, Hold (abandoned for longer) or NoVerdict
	// (given back, nothing charged). Dead letters are in DeadLetters: once they are
	// durable, Action is what happens to the queue message.
	Action policy.Action
	Reason policy.Reason
	// Delay before the message is shown again, unless Action is Complete.
	Delay time.Duration
	// Records are to be written before anything follows from them.
	Records []tables.Record
	// DeadLetters must be durable before Action is applied.
	DeadLetters []DeadLetter
	// ReplayEnds is the dead letter whose replay has ended with this; nil for none.
	ReplayEnds *tables.DeadLetter
	// HeldFor are the webhooks that the message waits for.
	HeldFor []flow.Since
	// Claim is the message's claim on its event; nil for none.
	Claim *claims.Claim
	// Posts are those that were made now.
	Posts []lease.Posted
	// Duplicate is the kind of the duplicate that the message is; empty where it is none.
	Duplicate string
	// DecideAnew decides once more, by what is on record, where nobody may be there to receive the message again. With false it
	// has changed nothing: the next receive decides.
	DecideAnew func(ctx context.Context, o *Outcome) bool
}

// DeadLetter is one dead letter to make durable.
type DeadLetter struct {
	Row tables.DeadLetter
	// Delivery is recorded as DeadLettered afterwards.
	Delivery tables.Delivery
	// Copy is whether the row's text is also to be copied to the poison queue:
	// once per message, however many webhooks gave it up.
	Copy bool
}

// RecordedCompletes is a store that keeps queues and records together.
type RecordedCompletes interface {
	// CompleteRecorded removes a message from the queue of this name, as Complete of
	// queue.Queue does, and records r, as tables.Deliveries does, in one transaction. A
	// record does not depend on the lease: with queue.ErrLeaseLost and
	// queue.ErrQueueNotFound it is as durable as with nil. After any other error both or
	// neither may have been done; both may be done again, here or one by one.
	CompleteRecorded(ctx context.Context, queueName string, m *queue.Message, r tables.Record) error
}

// Options are what a Completer needs of others.
type Options struct {
	Queues      queue.Service
	DeadLetters tables.DeadLetters
	// Recorded completes and records in one step; nil where the store has no such thing.
	Recorded RecordedCompletes
	Journal  *journal.Journal
	Claims   *claims.Claims
	Flows    *flow.Flows
	Meter    *meter.Instruments
	Spans    meter.Spans
	Log      *slog.Logger
	// PoisonCopy copies each dead-lettered message to <queue>-poison, for PoisonCopyTTL; zero is for ever.
	PoisonCopy    bool
	PoisonCopyTTL time.Duration
	// GivenBack tells that a message is shown again after delay, and whether another instance is to receive it.
	GivenBack func(queueName string, m *queue.Message, delay time.Duration, led bool)
	// Attempted is told of each attempt that is on record, and must not wait; nil for nobody.
	Attempted func(*tables.Attempt)
	// PutOff is told of a message that is given back without a record of its receive.
	PutOff func(queueName string, m *queue.Message)
}

// Completer settles messages. Safe for concurrent use.
type Completer struct{ o Options }

// New makes a Completer.
func New(o Options) *Completer { return &Completer{o: o} }

// Settle does what the outcome says, and returns what became of the message. What it can't do now heals on redelivery: the
// outcome then says that the message was given back, and why. ctx ends when nothing may be written any more.
//
// What was answered is on record whoever has the message now. What ends by no answer was decided by what was known then, and stands only
// while the message is ours: another holder may know more.
func (c *Completer) Settle(ctx context.Context, l *lease.Lease, o *Outcome) Result {
	key := keyOf(l, o)
	together := c.goTogether(o) && !l.CameBack() && (!o.ends() || !l.MayBeElsewhere())
	if !together {
		o.Records = c.recordPosts(ctx, l.Message, o.Records)
		if !c.stands(ctx, l, o) {
			l.Forget()
			return LeaseLost
		}
		for _, rec := range o.Records {
			c.Record(ctx, l.Message, rec)
		}
		l.Forget()
	}
	if l.IsLost() && o.Action != policy.Complete {
		return LeaseLost // the message is someone else's now, and goes on from what was recorded
	}
	if o.Duplicate != "" {
		c.o.Meter.Duplicates.Add(meter.Labels{Queue: l.Queue.Name(), Kind: o.Duplicate})
	}
	c.deadLetters(ctx, l, o)
	if o.ReplayEnds != nil {
		if err := c.finishReplay(ctx, *o.ReplayEnds); err != nil {
			c.o.Log.Error("the dead letter could not be marked as replayed; the message stays and is tried again",
				"dead_letter", o.ReplayEnds.ID, "error", err)
			o.GiveBack(l.Message)
		}
	}
	if o.Action == policy.Complete {
		c.o.Claims.End(ctx, o.Claim)
		var last *tables.Record
		if together {
			last = &o.Records[0]
		}
		result, class := c.deleteMessage(ctx, l, last, key)
		c.o.Meter.Deleted(l.Queue.Name(), l.Message.ID, string(result), class)
		return result
	}
	c.o.Claims.Keep(ctx, o.Claim, o.Delay, l.Message.Lease.Granted())
	return c.abandon(ctx, l, o)
}

// stands reports whether the message is not somebody else's, who decides then what ends by no answer. Where others may have gone on with it
// the outcome goes by what they did: with the next receive, or by another look-up where there may be none.
func (c *Completer) stands(ctx context.Context, l *lease.Lease, o *Outcome) bool {
	ends, expires := o.ends(), l.Expires()
	switch {
	case !l.MayBeElsewhere():
		return true
	case ends && (l.IsLost() || !expires && !l.Sure()):
		return false
	case ends && (expires || l.CameBack()) && o.DecideAnew(ctx, o), !l.CameBack() || expires:
		return true
	case ends || o.Action == policy.Complete: // it may be due to a webhook that another one has found
		c.o.Log.Info("another instance may have gone on with the message meanwhile: what becomes of it is decided with the next receive",
			"queue", l.Queue.Name(), "message", l.Message.ID, "reason", o.Reason)
		if o.endsUnasked() {
			o.Records, o.DeadLetters, o.Duplicate = nil, nil, ""
			if len(o.Posts) == 0 {
				c.o.PutOff(l.Queue.Name(), l.Message)
			}
		}
		o.GiveBack(l.Message)
	}
	return true
}

// recordPosts writes the records of POSTs, and returns the others.
func (c *Completer) recordPosts(ctx context.Context, m *queue.Message, records []tables.Record) (others []tables.Record) {
	for _, rec := range records {
		if len(rec.Attempts) > 0 {
			c.Record(ctx, m, rec)
		} else {
			others = append(others, rec)
		}
	}
	return others
}

// ends reports whether the outcome owes dead letters, or ends something unasked.
func (o *Outcome) ends() bool { return len(o.DeadLetters) > 0 || o.endsUnasked() }

// endsUnasked reports whether the outcome ends a delivery, or the message, by no answer.
func (o *Outcome) endsUnasked() bool {
	return slices.ContainsFunc(o.Records, func(r tables.Record) bool {
		return len(r.Attempts) == 0 && slices.ContainsFunc(r.Deliveries, func(d tables.Delivery) bool {
			return d.State.Terminal() && d.State != tables.Withdrawn
		})
	})
}

// goTogether reports whether the one record that is left may go into one transaction with the
// delete, where the store keeps both: nothing comes in between then.
func (c *Completer) goTogether(o *Outcome) bool {
	return c.o.Recorded != nil && o.Action == policy.Complete && len(o.Records) == 1 &&
		len(o.DeadLetters) == 0 && o.ReplayEnds == nil && o.Claim == nil
}

// GiveBack makes a message be tried again, because of us.
func (o *Outcome) GiveBack(m *queue.Message) {
	o.Action, o.Reason, o.Delay, o.ReplayEnds = policy.NoVerdict, policy.StorageFault, OwnFaultDelay(m), nil
}

// Record writes a record, and then tells of the attempts in it: whoever reads of them may rely
// on it.
func (c *Completer) Record(ctx context.Context, m *queue.Message, rec tables.Record) {
	c.o.Journal.Record(ctx, rec)
	c.tell(ctx, m, rec)
}

// tell logs and counts the attempts that are on record.
func (c *Completer) tell(ctx context.Context, m *queue.Message, rec tables.Record) {
	for i := range rec.Attempts {
		a := &rec.Attempts[i]
		cause := a.Error
		if a.RedirectHost != "" {
			cause = "redirects are not followed; this one points to " + a.RedirectHost
		}
		// As strings: types of their own would go through encoding/json.
		c.o.Log.LogAttrs(ctx, slog.LevelInfo, "attempt",
			slog.String("queue", a.Queue), slog.String("message", a.MessageID), slog.String("webhook", a.WebhookID),
			slog.Int("attempt", a.Number), slog.Int("generation", a.Generation), slog.Int64("delivery_count", m.DequeueCount),
			slog.Int("status", a.Status), slog.String("error_class", string(a.ErrorClass)), slog.String("cause", cause),
			slog.Int64("duration_ms", a.Duration.Milliseconds()), slog.String("decision", string(a.Action)),
			slog.String("reason", string(a.Reason)), slog.Bool("charged", a.Charged), slog.Duration("delay", a.Delay),
			slog.Int("redials", a.Redials))
		c.o.Meter.Attempted(ctx, a, i < len(rec.Deliveries) && rec.Deliveries[i].Attempts == 1)
		if c.o.Attempted != nil {
			c.o.Attempted(a)
		}
	}
}

// abandon gives the message back after the outcome's delay. When that fails, the lease's
// own end gives it back: later, but surely.
func (c *Completer) abandon(ctx context.Context, l *lease.Lease, o *Outcome) Result {
	giveBack := func(ctx context.Context) error { return l.Queue.Abandon(ctx, l.Message, o.Delay) }
	if len(o.HeldFor) > 0 && o.Delay >= flow.HoldMin {
		giveBack = func(ctx context.Context) error { return c.hideFor(ctx, l, o) }
	}
	unanswered, err := untilAnswered(ctx, func(ctx context.Context) error {
		return l.Settling(func() error { return giveBack(ctx) })
	})
	if tookEffect(l, err, unanswered) {
		err = nil // it comes back in time, though nobody can show it before
	}
	switch {
	case err == nil:
		c.o.GivenBack(l.Queue.Name(), l.Message, o.Delay, c.o.Flows.Led(o.HeldFor))
		return Abandoned
	case errors.Is(err, queue.ErrLeaseLost):
		return LeaseLost
	}
	c.o.Log.Warn("the message could not be given back with its delay; it comes back when its lease ends",
		"queue", l.Queue.Name(), "message", l.Message.ID, "error", err)
	return Failed
}

// tookEffect reports whether err, with which storage does not know the receipt, comes of an earlier
// try of ours that was unanswered. Once the lease is over somebody else may have received the
// message as well, and it may come of a renewal that was not answered: nobody can tell then.
func tookEffect(l *lease.Lease, err error, unanswered bool) bool {
	return unanswered && errors.Is(err, queue.ErrLeaseLost) && !l.Message.Lease.Over(time.Now()) && !l.MayBeReplaced()
}

// untilAnswered gives a message back, and again until storage has answered; unanswered is whether an earlier try
// was not.
func untilAnswered(ctx context.Context, giveBack func(context.Context) error) (unanswered bool, err error) {
	err = retry.Do(ctx, retry.GiveBack, func(ctx context.Context, _ int) error {
		err := giveBack(ctx)
		unanswered = unanswered || queue.Ambiguous(err)
		return err
	})
	return unanswered, err
}

// GiveBack gives back a message that nothing was begun with, to be shown after delay. Where a try was not answered and the
// next one finds another receipt, that is an error: it may be somebody else's.
func GiveBack(ctx context.Context, q queue.Queue, m *queue.Message, delay time.Duration) error {
	if _, err := untilAnswered(ctx, func(ctx context.Context) error { return q.Abandon(ctx, m, delay) }); err != nil {
		return fmt.Errorf("give the message back: %w", err)
	}
	return nil
}

// Refuse gives back a message that was received and not begun: the process stops, or all slots stay taken.
func (c *Completer) Refuse(ctx context.Context, q queue.Queue, m *queue.Message) {
	ctx, cancel := context.WithTimeout(ctx, retry.Timeout)
	defer cancel()
	if err := GiveBack(ctx, q, m, 0); err != nil && !errors.Is(err, queue.ErrLeaseLost) {
		c.o.Log.Warn("a message that was received and not begun comes back when its lease ends", "queue", q.Name(), "message", m.ID, "error", err)
	}
}

// hideFor gives a message back for longer than flow.HoldMin, and keeps its receipt.
func (c *Completer) hideFor(ctx context.Context, l *lease.Lease, o *Outcome) error {
	m := &queue.Message{
		ID: l.Message.ID, InsertedAt: l.Message.InsertedAt, ExpiresAt: l.Message.ExpiresAt,
		Lease: queue.NewLease(l.Message.Lease.Receipt(), time.Now(), o.Delay),
	}
	if err := l.Queue.Hide(ctx, m, o.Delay); err != nil {
		return err // as it is: it stands for the error of Abandon
	}
	c.o.Flows.Hold(l.Queue, m, o.HeldFor)
	return nil
}

const (
	ownFaultMin = 2 * time.Second
	ownFaultMax = 5 * time.Minute
)

// OwnFaultDelay spaces out redeliveries that our own faults cause. It grows with the
// dequeue count, the only counter that works when nothing can be recorded. A
// message that will expire is never hidden for more than half of what is left of it.
func OwnFaultDelay(m *queue.Message) time.Duration {
	return WithinLife(m, retry.Backoff(int(min(m.DequeueCount, 30)), ownFaultMin, ownFaultMax))
}

// WithinLife shortens a delay so that the message is looked at again before it expires.
func WithinLife(m *queue.Message, delay time.Duration) time.Duration {
	if m.ExpiresAt.IsZero() {
		return delay
	}
	return min(delay, max(time.Until(m.ExpiresAt)/2, time.Second))
}

// deleteMessage removes the message: a few quick tries, then with backoff for as
// long as the lease can be kept. "Deleted" is what storage answered, not hope. The
// class is that of the last error of a delete that failed. The first try takes the last record
// along, unless all are written; when it fails that is written by itself, before the next one.
func (c *Completer) deleteMessage(ctx context.Context, l *lease.Lease, last *tables.Record, key tables.MessageKey) (result Result, class string) {
	unanswered, by := false, retry.Delete
	by.Final = func(err error) bool { return l.IsLost() || retry.Delete.Final(err) }
	err := retry.Do(ctx, by, func(ctx context.Context, try int) (err error) {
		if try == 1 && last != nil {
			err = c.deleteRecorded(ctx, l, *last)
		} else {
			err = deleteOnce(ctx, l)
		}
		switch {
		case errors.Is(err, queue.ErrQueueNotFound), tookEffect(l, err, unanswered):
			return nil // with its queue; or after a try of ours that was not answered
		case err == nil, errors.Is(err, queue.ErrLeaseLost):
			return err
		}
		unanswered = unanswered || queue.Ambiguous(err)
		if try >= 3 {
			c.o.Log.Warn("delete failed; trying again while the lease is kept", "queue", l.Queue.Name(), "message", l.Message.ID, "try", try, "error", err)
		}
		return err
	})
	switch {
	case err == nil:
		return Deleted, ""
	case !errors.Is(err, queue.ErrLeaseLost):
		c.o.Log.Error("the message could not be deleted; "+c.whenItComesBack(key), "queue", l.Queue.Name(), "message", l.Message.ID, "error", err)
		return Failed, deletionError(err)
	}
	c.o.Log.Warn("the message could not be deleted: its lease was lost; "+c.whenItComesBack(key), "queue", l.Queue.Name(), "message", l.Message.ID)
	return LeaseLost, string(LeaseLost)
}

// deleteOnce tries once to delete the message, with its newest receipt.
func deleteOnce(ctx context.Context, l *lease.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, retry.Timeout)
	defer cancel()
	return l.Settling(func() error { return l.Queue.Complete(ctx, l.Message) })
}

// keyOf finds the records of a message; those of a replay are the original's.
func keyOf(l *lease.Lease, o *Outcome) tables.MessageKey {
	for i := range o.Records {
		for j := range o.Records[i].Deliveries {
			return o.Records[i].Deliveries[j].MessageKey
		}
	}
	return tables.MessageKey{Queue: l.Queue.Name(), MessageID: l.Message.ID, Day: l.Message.InsertedAt}
}

// whenItComesBack promises what is kept: a record that the store has not taken ends with this process.
func (c *Completer) whenItComesBack(key tables.MessageKey) string {
	if c.o.Journal.Lacks(key) {
		return "that it was delivered is not on record so far: when it comes back it is deleted without a POST only if storage takes the record first, or if it comes back to this process"
	}
	return "when it comes back it is deleted without a POST"
}

// deletionError is the class of an error: texts of storage may hold names and URLs.
func deletionError(err error) string {
	switch {
	case errors.Is(err, queue.ErrBusy):
		return "busy"
	case errors.Is(err, queue.ErrDenied):
		return "denied"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return "timeout"
	}
	return "storage"
}

// deleteRecorded tries once to delete the message together with its last record. Where its
// lease had ended, and this process received it anew before anything was recorded, this work
// was given the new lease, and the message is deleted with that one.
func (c *Completer) deleteRecorded(ctx context.Context, l *lease.Lease, last tables.Record) error {
	recorded := false
	err := l.Settling(func() error {
		callCtx, cancel := context.WithTimeout(ctx, retry.Timeout)
		defer cancel()
		receipt := l.Message.Lease.Receipt()
		err := c.o.Recorded.CompleteRecorded(callCtx, l.Queue.Name(), l.Message, journal.Late(last))
		if !errors.Is(err, queue.ErrLeaseLost) {
			return err
		}
		c.recordedWith(ctx, l, last, err)
		if recorded = true; l.Message.Lease.Receipt() == receipt || l.CameBack() {
			return err // with the next receive, where it may be due to others
		}
		callAgain, cancelAgain := context.WithTimeout(ctx, retry.Timeout)
		defer cancelAgain()
		return l.Queue.Complete(callAgain, l.Message)
	})
	if !recorded {
		c.recordedWith(ctx, l, last, err)
	}
	return err
}

// recordedWith sees to the last record of a message, after a try to write it together with
// the delete ended with err. Until then the message is in work here: if it is received anew
// meanwhile, nobody knows yet that it was delivered.
func (c *Completer) recordedWith(ctx context.Context, l *lease.Lease, last tables.Record, err error) {
	switch {
	case err == nil, errors.Is(err, queue.ErrLeaseLost), errors.Is(err, queue.ErrQueueNotFound):
		c.o.Journal.Written(last)
	default: // it may be there or not, and is the same when it is written again
		c.o.Journal.Record(ctx, last)
	}
	c.tell(ctx, l.Message, last)
	l.Forget()
}
