package dispatcher

import (
	"context"
	"errors"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/lease"
	"github.com/pushlease/pushlease/dispatcher/internal/meter"
	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/queue"
)

// complete deletes the message, and counts what storage answered. last is a record that is
// to be written with it; empty when all are written.
func (d *Dispatcher) complete(ctx context.Context, k *lease.Lease, last lastRecord) (result string) {
	result, err := d.deleteMessage(ctx, k, last)
	failure := meter.DeletionFailure{MessageID: k.Message.ID, At: time.Now()}
	if result == "lease_lost" {
		failure.Error = result
	} else if result != "deleted" {
		failure.Error = deletionError(err)
	}
	d.deletes.Note(k.Queue.Name(), func(c *meter.Deletions) {
		c.Total++
		if failure.Error == "" {
			c.Successful++
		} else {
			c.Failed++
		}
	}, failure)
	d.metrics.Deleted(k.Queue.Name(), result)
	return result
}

// deleteMessage removes the message: a few quick tries, then with backoff for as
// long as the lease can be kept. "Deleted" is what storage answered, not hope. The
// error is the last one of a delete that failed. The first try takes the last record
// along; when it fails that is written by itself, before the next one.
func (d *Dispatcher) deleteMessage(ctx context.Context, k *lease.Lease, last lastRecord) (result string, err error) {
	ctx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	unanswered := false // an earlier try may have taken effect
	err = retry.Do(ctx, retry.Delete, func(ctx context.Context, try int) (err error) {
		if try == 1 && !last.none() {
			err = d.deleteRecorded(ctx, k, last)
		} else {
			err = k.Settling(func() error { return k.Queue.Complete(ctx, k.Message) })
		}
		switch {
		case errors.Is(err, queue.ErrQueueNotFound), errors.Is(err, queue.ErrLeaseLost) && unanswered:
			return nil // with its queue; or after a try of ours that was not answered
		case err == nil, errors.Is(err, queue.ErrLeaseLost):
			return err
		}
		unanswered = unanswered || queue.Ambiguous(err)
		if try >= 3 {
			d.log.Warn("delete failed; trying again while the lease is kept", "queue", k.Queue.Name(), "message", k.Message.ID, "try", try, "error", err)
		}
		if k.IsLost() {
			giveUp()
		}
		return err
	})
	switch {
	case err == nil:
		return "deleted", nil
	case !errors.Is(err, queue.ErrLeaseLost):
		d.log.Error("the message could not be deleted; when it comes back it is deleted without a POST",
			"queue", k.Queue.Name(), "message", k.Message.ID, "error", err)
		return "failed", err
	}
	d.log.Warn("the message could not be deleted: its lease was lost; when it comes back it is deleted without a POST",
		"queue", k.Queue.Name(), "message", k.Message.ID)
	return "lease_lost", nil
}

// reappeared counts a message that is there again although its delivery was
// recorded. Looking after a delete would prove nothing: a leased message can't be
// seen anyway.
func (d *Dispatcher) reappeared(queueName, messageID string) {
	d.deletes.Note(queueName, func(c *meter.Deletions) { c.Unverified++ },
		meter.DeletionFailure{MessageID: messageID, Error: "unverified", At: time.Now()})
	d.metrics.Deleted(queueName, "unverified")
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
