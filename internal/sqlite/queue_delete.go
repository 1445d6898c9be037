package sqlite

import (
	"context"
	"fmt"

	"github.com/pushlease/pushlease/queue"
)

// Delete implements queue.Service. What has expired by now is ended first, as a receive would.
func (qs *Queues) Delete(ctx context.Context, name string, onlyEmpty bool) error {
	if err := queue.ValidateName(name); err != nil {
		return fmt.Errorf("queue %q: %w", name, err)
	}
	q := &leasedQueue{db: qs.db, name: name}
	return q.write(ctx, "delete", func(tx *tx, id int64) error {
		if _, err := tx.removeExpired(qs.db.clock.now()); err != nil {
			return err
		}
		if onlyEmpty {
			var total int64
			if err := tx.row("SELECT count(*) FROM messages INDEXED BY messages_visible WHERE queue = ?", []any{id}, &total); err != nil {
				return err
			}
			if total > 0 {
				return queue.ErrNotEmpty
			}
		}
		if _, err := tx.exec("DELETE FROM messages WHERE queue = ?", id); err != nil {
			return err
		}
		if _, err := tx.exec("DELETE FROM queues WHERE id = ?", id); err != nil {
			return err
		}
		tx.forgetQueue(name)
		return nil
	})
}

// forgetQueue says that a queue has no row any more: neither for what comes after in this
// transaction, nor by what an earlier part of it notes at its commit.
func (t *tx) forgetQueue(name string) {
	delete(t.w.queues, name)
	t.afterCommit(func() { delete(t.w.queues, name) })
}
