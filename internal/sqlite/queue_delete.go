package sqlite

import (
	"context"
	"fmt"

	"github.com/pushlease/pushlease/queue"
)

// Delete implements queue.Service. What has expired by now is ended first, as a receive would. The queue is
// gone at once, and its messages belong to none: nothing finds them, and they are removed in the background.
func (qs *Queues) Delete(ctx context.Context, name string, onlyEmpty bool) error {
	if err := queue.ValidateName(name); err != nil {
		return fmt.Errorf("queue %q: %w", name, err)
	}
	if err := qs.db.endExpired(ctx); err != nil {
		return err
	}
	q := &leasedQueue{db: qs.db, name: name}
	err := q.write(ctx, &Call{Operation: "delete"}, func(tx *tx, id int64) error {
		if onlyEmpty {
			var some bool
			if err := tx.row("SELECT EXISTS (SELECT 1 FROM messages INDEXED BY messages_visible WHERE queue = ?)", []any{id}, &some); err != nil {
				return err
			}
			if some {
				return queue.ErrNotEmpty
			}
		}
		if _, err := tx.exec("DELETE FROM queues WHERE id = ?", id); err != nil {
			return err
		}
		tx.forgetQueue(name)
		return nil
	})
	if err == nil {
		select {
		case qs.db.tidyUp <- struct{}{}:
		default: // it was told before
		}
	}
	return err
}

// forgetQueue says that a queue has no row any more: neither for what comes after in this
// transaction, nor by what an earlier part of it notes at its commit.
func (t *tx) forgetQueue(name string) {
	delete(t.w.queues, name)
	t.afterCommit(func() { delete(t.w.queues, name) })
}

// newQueueSQL gives a queue a number that no queue had whose messages are still there.
const newQueueSQL = `INSERT INTO queues (id, name)
SELECT 1 + max((SELECT coalesce(max(id), 0) FROM queues), (SELECT coalesce(max(queue), 0) FROM messages)), ?`

// ownerlessSQL removes messages of queues that were deleted. It goes from one number of a queue to the next, and
// not over the messages.
const ownerlessSQL = `WITH RECURSIVE numbers (n) AS (
  SELECT min(queue) FROM messages UNION ALL SELECT (SELECT min(queue) FROM messages WHERE queue > n) FROM numbers WHERE n IS NOT NULL)
DELETE FROM messages WHERE seq IN (
  SELECT m.seq FROM numbers JOIN messages m INDEXED BY messages_visible ON m.queue = n
  WHERE n NOT IN (SELECT id FROM queues) LIMIT ?)`

// removeOwnerless removes some messages of queues that were deleted.
func (t *tx) removeOwnerless() (int64, error) {
	return t.exec(ownerlessSQL, expireAtOnce)
}
