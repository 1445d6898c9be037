package meter

import (
	"slices"
	"sync"
	"time"
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

// Deletes keeps the Deletions of every queue. Safe for concurrent use.
type Deletes struct {
	mu     sync.Mutex
	queues map[string]*Deletions
}

// NewDeletes makes one that has counted nothing.
func NewDeletes() *Deletes { return &Deletes{queues: map[string]*Deletions{}} }

// Note changes a queue's counts, and keeps failure if it is one.
func (ds *Deletes) Note(queueName string, count func(*Deletions), failure DeletionFailure) {
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

// Of returns the counts of a queue.
func (ds *Deletes) Of(queueName string) Deletions {
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
