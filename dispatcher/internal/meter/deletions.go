package meter

import (
	"slices"
	"sync"

	"github.com/pushlease/pushlease/internal/status"
)

// keptFailures bounds the failed deletions that are remembered for one queue.
const keptFailures = 20

// Deletes keeps the Deletions of every queue. Safe for concurrent use.
type Deletes struct {
	mu     sync.Mutex
	queues map[string]*status.Deletions
}

// NewDeletes makes one that has counted nothing.
func NewDeletes() *Deletes { return &Deletes{queues: map[string]*status.Deletions{}} }

// Note changes a queue's counts, and keeps failure if it is one.
func (ds *Deletes) Note(queueName string, count func(*status.Deletions), failure status.DeletionFailure) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	c := ds.queues[queueName]
	if c == nil {
		c = &status.Deletions{}
		ds.queues[queueName] = c
	}
	count(c)
	if failure.Error != "" {
		c.LastFailures = slices.Insert(c.LastFailures, 0, failure)
		c.LastFailures = c.LastFailures[:min(len(c.LastFailures), keptFailures)]
	}
}

// Of returns the counts of a queue.
func (ds *Deletes) Of(queueName string) status.Deletions {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	c := ds.queues[queueName]
	if c == nil {
		return status.Deletions{}
	}
	counts := *c
	counts.LastFailures = slices.Clone(c.LastFailures)
	return counts
}
