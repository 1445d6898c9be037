package settle

import (
	"context"
	"errors"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/lease"
	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// complete deletes the message, and counts what storage answered. last is a record that is
// to be written with it; nil when all are written.
func (c *Completer) complete(ctx context.Context, l *lease.Lease, last *tables.Record) (result string) {
	result, class := c.deleteMessage(ctx, l, last)
	failure := status.DeletionFailure{MessageID: l.Message.ID, Error: class, At: time.Now()}
	c.o.Deletes.Note(l.Queue.Name(), func(c *status.Deletions) {
		c.Total++
		if failure.Error == "" {
			c.Successful++
		} else {
			c.Failed++
		}
	}, failure)
	c.o.Meter.Deleted(l.Queue.Name(), result)
	return result
}

// deleteMessage removes the message: a few quick tries, then with backoff for as
// long as the lease can be kept. "Deleted" is what storage answered, not hope. The
// class is that of the last error of a delete that failed. The first try takes the last record
// along; when it fails that is written by itself, before the next one.
func (c *Completer) deleteMessage(ctx context.Context, l *lease.Lease, last *tables.Record) (result, class string) {
	ctx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	unanswered := false // an earlier try may have taken effect
	err := retry.Do(ctx, retry.Delete, func(callCtx context.Context, try int) (err error) {
		if try == 1 && last != nil {
			err = c.deleteRecorded(ctx, l, *last)
		} else {
			err = l.Settling(func() error { return l.Queue.Complete(callCtx, l.Message) })
		}
		switch {
		case errors.Is(err, queue.ErrQueueNotFound), errors.Is(err, queue.ErrLeaseLost) && unanswered:
			return nil // with its queue; or after a try of ours that was not answered
		case err == nil, errors.Is(err, queue.ErrLeaseLost):
			return err
		}
		unanswered = unanswered || queue.Ambiguous(err)
		if try >= 3 {
			c.o.Log.Warn("delete failed; trying again while the lease is kept", "queue", l.Queue.Name(), "message", l.Message.ID, "try", try, "error", err)
		}
		if l.IsLost() {
			giveUp()
		}
		return err
	})
	switch {
	case err == nil:
		return "deleted", ""
	case !errors.Is(err, queue.ErrLeaseLost):
		c.o.Log.Error("the message could not be deleted; when it comes back it is deleted without a POST",
			"queue", l.Queue.Name(), "message", l.Message.ID, "error", err)
		return "failed", deletionError(err)
	}
	c.o.Log.Warn("the message could not be deleted: its lease was lost; when it comes back it is deleted without a POST",
		"queue", l.Queue.Name(), "message", l.Message.ID)
	return "lease_lost", "lease_lost"
}

// Reappeared counts a message that is there again although its delivery was
// recorded. Looking after a delete would prove nothing: a leased message can't be
// seen anyway.
func (c *Completer) Reappeared(queueName, messageID string) {
	c.o.Deletes.Note(queueName, func(c *status.Deletions) { c.Unverified++ },
		status.DeletionFailure{MessageID: messageID, Error: "unverified", At: time.Now()})
	c.o.Meter.Deleted(queueName, "unverified")
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
		err := c.o.Recorded.CompleteRecorded(callCtx, l.Queue.Name(), l.Message, last)
		if !errors.Is(err, queue.ErrLeaseLost) {
			return err
		}
		c.recordedWith(ctx, l, last, err)
		if recorded = true; l.Message.Lease.Receipt() == receipt {
			return err
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
	l.End()
}
