package tables

import (
	"context"
	"time"
)

// LeftQueue notes that a webhook was deleted from a queue. When it was the queue's
// last one, what was sent to the queue until then still waits for somebody.
type LeftQueue struct {
	Queue string
	// At is when, to the millisecond; the last time if there were several.
	At time.Time
}

// LeftSkew is how far clocks may differ: storage's, which inserts messages, and those of instances.
const LeftSkew = 5 * time.Minute

// After reports whether the note is of that time or later, as far as clocks agree.
func (l LeftQueue) After(t time.Time) bool { return !l.At.Before(t.Add(-LeftSkew)) }

// LeftQueues remembers which queues webhooks were deleted from. Safe for concurrent
// use.
type LeftQueues interface {
	// PutLeftQueue writes the note, over an earlier one of the same queue.
	PutLeftQueue(ctx context.Context, l LeftQueue) error

	// ListLeftQueues returns all notes in ascending order of the queue's name.
	ListLeftQueues(ctx context.Context) ([]LeftQueue, error)

	// DropLeftQueue removes the note if its time is still l.At. It is no error
	// when the note was written anew meanwhile, or is gone.
	DropLeftQueue(ctx context.Context, l LeftQueue) error
}
