package dispatcher

import (
	"sync"
	"time"
)

// tallyHour is the length of a tally's window; it looks back one to two of them.
const tallyHour = time.Hour

// tally counts what was lately finished with, by queue. The metrics count for ever, and
// are for others to read; this is what the API can say without them.
type tally struct {
	mu      sync.Mutex
	byQueue map[string]*[2]tallied // this window and the one before
}

type tallied struct {
	start                 time.Time
	handled, deadLettered int
}

func newTally() *tally { return &tally{byQueue: map[string]*[2]tallied{}} }

// add counts a message that was finished with.
func (t *tally) add(queueName string, deadLettered bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.windows(queueName)
	w[0].handled++
	if deadLettered {
		w[0].deadLettered++
	}
}

// recent returns the counts of the last one to two hours.
func (t *tally) recent(queueName string) (handled, deadLettered int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byQueue[queueName] == nil {
		return 0, 0
	}
	w := t.windows(queueName)
	return w[0].handled + w[1].handled, w[0].deadLettered + w[1].deadLettered
}

// windows returns a queue's windows as they are now.
func (t *tally) windows(queueName string) *[2]tallied {
	w := t.byQueue[queueName]
	if w == nil {
		w = &[2]tallied{}
		t.byQueue[queueName] = w
	}
	now := time.Now()
	switch age := now.Sub(w[0].start); {
	case age >= 2*tallyHour:
		w[0], w[1] = tallied{start: now}, tallied{}
	case age >= tallyHour:
		w[0], w[1] = tallied{start: now}, w[0]
	}
	return w
}
