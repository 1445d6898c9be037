package tables

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// ErrVanished means that registrations that were there are gone, and nobody has deleted them
// through pushlease.
var ErrVanished = errors.New("the registered webhooks have vanished from storage")

// Census tells a store whose registrations were deleted one by one from one that has lost
// them: a table that another program dropped, or a storage that was replaced by an empty
// one. The zero value has seen none. Safe for concurrent use.
type Census struct {
	mu     sync.Mutex
	queues map[string]string // of the webhooks that were there, by id
	seen   time.Time         // when they were
	// lost are those of queues that were there when all, or several at once, were gone, until each is
	// back, or deleted.
	lost map[string]string
}

// Deleted notes that a webhook was deleted through this store.
func (c *Census) Deleted(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.queues, id)
	delete(c.lost, id)
}

// Look is given each list of all registrations, with the rows that could not be read, and returns
// those with what is missed beside them. When the list falls to none, left has to bring a note of
// each queue that had one, as new as that, and so it has when several are gone at once: whoever deletes a webhook through pushlease leaves one
// first. The error is ErrVanished, or left's own. When some are there again, the others are
// missed until they are, too.
func (c *Census) Look(all []Registration, unreadable []RowError, left func() ([]LeftQueue, error)) ([]RowError, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(all)+len(unreadable) > 0 {
		return c.some(all, unreadable, left)
	}
	if len(c.queues)+len(c.lost) == 0 {
		return nil, nil
	}
	c.miss(c.queues)
	c.queues = nil
	if err := c.forgetDeleted(left); err != nil {
		return nil, err
	}
	if len(c.lost) == 0 {
		return nil, nil
	}
	lost := slices.Compact(slices.Sorted(maps.Values(c.lost)))
	return nil, fmt.Errorf("%w: there were webhooks of %s, and nobody has deleted them here: bring the table back, or register them again; "+
		"those that are known stay in force. If there are to be none, start pushlease again", ErrVanished, strings.Join(lost, ", "))
}

// some is Look where there are registrations. c.mu is held.
func (c *Census) some(all []Registration, unreadable []RowError, left func() ([]LeftQueue, error)) ([]RowError, error) {
	there := make(map[string]string, len(all)+len(unreadable))
	for _, r := range all {
		there[r.ID] = r.Queue
	}
	for _, e := range unreadable {
		there[e.ID] = e.Queue
		if name := c.queues[e.ID]; name != "" {
			there[e.ID] = name
		}
	}
	for id := range there {
		delete(c.lost, id)
	}
	c.missSeveral(there)
	if len(c.lost) > 0 {
		if err := c.forgetDeleted(left); err != nil {
			return nil, err
		}
	}
	c.queues = there
	if len(c.lost) == 0 {
		c.seen = time.Now()
	}
	for _, id := range slices.Sorted(maps.Keys(c.lost)) {
		unreadable = append(unreadable, RowError{ID: id, Queue: c.lost[id], Err: fmt.Errorf("%w: register it again under this id; if it is to be gone, delete it at each instance, or start that again", ErrVanished)})
	}
	return unreadable, nil
}

// missSeveral misses registrations of which several are gone at once: that is a table restored in
// part, or a tool that went too far. A single one is taken for a deletion. c.mu is held.
func (c *Census) missSeveral(there map[string]string) {
	gone := maps.Clone(c.queues)
	maps.DeleteFunc(gone, func(id, _ string) bool { _, ok := there[id]; return ok })
	if len(gone) >= 2 {
		c.miss(gone)
	}
}

// miss misses what is gone. Of a registration that could never be read, and did not say of which queue it
// was, there is nothing that could stay in force: it would hold the messages of every queue. c.mu is held.
func (c *Census) miss(gone map[string]string) {
	if c.lost == nil {
		c.lost = map[string]string{}
	}
	for id, name := range gone {
		if name != "" {
			c.lost[id] = name
		}
	}
}

// forgetDeleted takes those out of what is missed whose queue has a note of since they were seen: another
// instance has deleted them. c.mu is held.
func (c *Census) forgetDeleted(left func() ([]LeftQueue, error)) error {
	notes, err := left()
	if err != nil {
		return err
	}
	maps.DeleteFunc(c.lost, func(_, name string) bool {
		return slices.ContainsFunc(notes, func(l LeftQueue) bool { return l.Queue == name && l.After(c.seen) })
	})
	return nil
}
