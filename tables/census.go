package tables

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
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
}

// Deleted notes that a webhook was deleted through this store.
func (c *Census) Deleted(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.queues, id)
}

// Look is given each list of all registrations, with how many rows could not be read. When
// it falls to none, left has to bring a note of each queue that had one: whoever deletes a
// webhook through pushlease leaves one first. The error is ErrVanished, or left's own.
func (c *Census) Look(all []Registration, unreadable int, left func() ([]LeftQueue, error)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(all)+unreadable > 0 {
		c.queues = make(map[string]string, len(all))
		for _, r := range all {
			c.queues[r.ID] = r.Queue
		}
		return nil
	}
	if len(c.queues) == 0 {
		return nil
	}
	notes, err := left()
	if err != nil {
		return err
	}
	var lost []string
	for _, name := range c.queues {
		if !slices.Contains(lost, name) && !slices.ContainsFunc(notes, func(l LeftQueue) bool { return l.Queue == name }) {
			lost = append(lost, name)
		}
	}
	if len(lost) == 0 {
		c.queues = nil
		return nil
	}
	slices.Sort(lost)
	return fmt.Errorf("%w: there were webhooks of %s, and nobody has deleted them here: bring the table back, or register them again; "+
		"those that are known stay in force. If there are to be none, start pushlease again", ErrVanished, strings.Join(lost, ", "))
}
