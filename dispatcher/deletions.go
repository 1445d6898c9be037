package dispatcher

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/queue"
)

// keptFailures bounds the failed deletions that are remembered for one queue.
const keptFailures = 20

// Deletions counts what became of the deletes of one queue's messages since this
// process started (REQUIREMENTS R2).
type Deletions struct {
	// Total is Successful and Failed. A delete counts once, however often it was
	// tried; one that could not be made because the lease was lost has failed.
	Total, Successful, Failed int64
	// Unverified counts the messages that were received again after their delivery was
	// recorded: their delete failed, was never made, or did not last.
	Unverified int64
	// LastFailures are the newest keptFailures ones, newest first.
	LastFailures []DeletionFailure
}

// DeletionFailure is one message that could not be deleted. It comes back, and is
// deleted then without a POST.
type DeletionFailure struct {
	MessageID string
	// Error is "lease_lost", "unverified", or the class of the last error: "busy",
	// "denied", "timeout" or "storage".
	Error string
	At    time.Time
}

// deletions keeps the Deletions of every queue. Safe for concurrent use.
type deletions struct {
	mu     sync.Mutex
	queues map[string]*Deletions
}

func newDeletions() *deletions { return &deletions{queues: map[string]*Deletions{}} }

// note changes a queue's counts, and keeps failure if it is one.
func (ds *deletions) note(queueName string, count func(*Deletions), failure DeletionFailure) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	c := ds.queues[queueName]
	if c == nil {
		c = &Deletions{}
		ds.queues[queueName] = c
	}
	count(c)
	if failure.Error != "" {
		c.LastFailures = slices.Insert(c.LastFailures, 0, failure)
		c.LastFailures = c.LastFailures[:min(len(c.LastFailures), keptFailures)]
	}
}

func (ds *deletions) of(queueName string) Deletions {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	c := ds.queues[queueName]
	if c == nil {
		return Deletions{}
	}
	counts := *c
	counts.LastFailures = slices.Clone(c.LastFailures)
	return counts
}

// complete deletes the message, and counts what storage answered. last is a record that is
// to be written with it; empty when all are written.
func (d *Dispatcher) complete(ctx context.Context, k *keeper, last lastRecord) (result string) {
	result, err := d.deleteMessage(ctx, k, last)
	failure := DeletionFailure{MessageID: k.m.ID, At: time.Now()}
	if result == "lease_lost" {
		failure.Error = result
	} else if result != "deleted" {
		failure.Error = deletionError(err)
	}
	d.deleted.note(k.q.Name(), func(c *Deletions) {
		c.Total++
		if failure.Error == "" {
			c.Successful++
		} else {
			c.Failed++
		}
	}, failure)
	d.metrics.deleted(k.q.Name(), result)
	return result
}

// deleteMessage removes the message: a few quick tries, then with backoff for as
// long as the lease can be kept. "Deleted" is what storage answered, not hope. The
// error is the last one of a delete that failed. The first try takes the last record
// along; when it fails that is written by itself, before the next one.
func (d *Dispatcher) deleteMessage(ctx context.Context, k *keeper, last lastRecord) (result string, err error) {
	unanswered := false // an earlier try may have taken effect
	for try := 1; ; try++ {
		var err error
		if try == 1 && !last.none() {
			err = d.deleteRecorded(ctx, k, last)
		} else {
			callCtx, cancel := context.WithTimeout(ctx, settleTimeout)
			err = k.settling(func() error { return k.q.Complete(callCtx, k.m) })
			cancel()
		}
		switch {
		case err == nil:
			return "deleted", nil
		case errors.Is(err, queue.ErrLeaseLost) && unanswered:
			return "deleted", nil // gone, after a try of ours that was not answered
		case errors.Is(err, queue.ErrLeaseLost):
			d.log.Warn("the message could not be deleted: its lease was lost; when it comes back it is deleted without a POST",
				"queue", k.q.Name(), "message", k.m.ID)
			return "lease_lost", nil
		case errors.Is(err, queue.ErrQueueNotFound):
			return "deleted", nil // with its queue
		}
		unanswered = unanswered || queue.Ambiguous(err)
		wait := quickPause()
		if try >= quickTries {
			wait = retry.Backoff(try-quickTries+1, time.Second, completeRetryMax)
			d.log.Warn("delete failed; trying again while the lease is kept", "queue", k.q.Name(), "message", k.m.ID, "try", try, "error", err)
		}
		if k.isLost() || !retry.Sleep(ctx, wait) {
			d.log.Error("the message could not be deleted; when it comes back it is deleted without a POST",
				"queue", k.q.Name(), "message", k.m.ID, "error", err)
			return "failed", err
		}
	}
}

// reappeared counts a message that is there again although its delivery was
// recorded. Looking after a delete would prove nothing: a leased message can't be
// seen anyway.
func (d *Dispatcher) reappeared(queueName, messageID string) {
	d.deleted.note(queueName, func(c *Deletions) { c.Unverified++ },
		DeletionFailure{MessageID: messageID, Error: "unverified", At: time.Now()})
	d.metrics.deleted(queueName, "unverified")
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

// quickPause is the wait between quick tries: quickRetry and up to a third more, so
// that what failed together does not come back together.
func quickPause() time.Duration {
	return quickRetry + time.Duration(rand.Int64N(int64(quickRetry/3)))
}
