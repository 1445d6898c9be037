package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/pushlease/pushlease/tables"
)

// PutWebhook implements tables.Webhooks.
func (db *DB) PutWebhook(ctx context.Context, r tables.Registration) (tables.Registration, error) {
	stored, err := json.Marshal(r)
	if err != nil {
		return tables.Registration{}, fmt.Errorf("put webhook: %w", err)
	}
	expected := r.ETag
	err = db.write(ctx, serviceTable, "put_webhook", func(tx *tx) error {
		r.ETag = newETag()
		if err := tx.release(&r); err != nil {
			return err
		}
		if expected == "" {
			return tx.insertWebhook(&r, string(stored))
		}
		n, err := tx.exec("UPDATE webhooks SET etag = ?, registration = ? WHERE id = ? AND etag = ?", r.ETag, string(stored), r.ID, expected)
		if err == nil && n == 0 {
			err = tx.whyUnchanged("SELECT 1 FROM webhooks WHERE id = ?", r.ID)
		}
		return err
	})
	if err != nil {
		return tables.Registration{}, fmt.Errorf("put webhook: %w", err)
	}
	return r, nil
}

// waitsSQL is the condition that a delivery d waits for a webhook to be there or enabled, or for
// one webhook to be sent to again: its id, or none, is an argument.
const waitsSQL = `d.state = 'held' AND (d.reason IN ('WebhookDisabled', 'WebhookDeleted', 'NoWebhook')
    OR d.webhook_id = ? AND d.reason IN ('WebhookFailing', 'WebhookPaused', 'WebhookBusy', 'NoToken'))`

// releaseSQL shows the messages of a queue that were given back for such deliveries, and those that
// stand for replays: the records of a replay are under the id of the original message, and were
// inserted with the message that stands for it. What is under a lease stays with its holder.
const releaseSQL = `UPDATE messages SET visible_at = ?, hidden_at = ? WHERE seq IN (
  SELECT m.seq FROM queues q JOIN messages m INDEXED BY messages_visible ON m.queue = q.id
  WHERE q.name = ? AND m.visible_at > ? AND m.receipt & 1 = 0 AND m.dequeue_count > 0 AND (
    EXISTS (SELECT 1 FROM deliveries d
      WHERE d.message_id = m.id AND d.queue = q.name AND ` + waitsSQL + `
        AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.message_id = d.message_id AND a.queue = d.queue AND a.day = d.day
          AND a.webhook_id = d.webhook_id AND a.generation >= d.generation AND a.completed = 1))
    OR m.inserted_at IN (SELECT d.inserted_at FROM dead_letters l JOIN deliveries d ON d.message_id = l.message_id AND d.queue = l.queue
      WHERE l.queue = ? AND l.status = 'replaying' AND d.generation > l.generation AND ` + waitsSQL + `)))`

// release ends the delays of what waited for a webhook such as r, when it begins to take
// messages, and for r itself when it begins anew. The process that gave them back may be gone.
func (t *tx) release(r *tables.Registration) error {
	if !r.Enabled {
		return nil
	}
	var stored string
	var before tables.Registration
	err := t.row("SELECT registration FROM webhooks WHERE id = ?", []any{r.ID}, &stored)
	if err == nil && json.Unmarshal([]byte(stored), &before) == nil && before.Enabled && before.Queue == r.Queue && before.ResetAt.Equal(r.ResetAt) {
		return nil
	}
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	now := t.w.clock.now()
	_, err = t.exec(releaseSQL, now, now, r.Queue, now, r.ID, r.Queue, r.ID)
	return err
}

// insertWebhook inserts r, or finds that it is there already, word for word.
func (t *tx) insertWebhook(r *tables.Registration, stored string) error {
	n, err := t.exec("INSERT INTO webhooks (id, etag, registration) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", r.ID, r.ETag, stored)
	if err != nil || n == 1 {
		return err
	}
	var there string
	if err := t.row("SELECT etag, registration FROM webhooks WHERE id = ?", []any{r.ID}, &r.ETag, &there); err != nil {
		return err
	}
	if there != stored {
		return tables.ErrExists
	}
	return nil
}

// whyUnchanged tells a row that is gone from one that was changed; query finds it by
// its key alone.
func (t *tx) whyUnchanged(query string, key ...any) error {
	var one int
	switch err := t.row(query, key, &one); {
	case errors.Is(err, sql.ErrNoRows):
		return tables.ErrNotFound
	case err != nil:
		return err
	}
	return tables.ErrConflict
}

// GetWebhook implements tables.Webhooks.
func (db *DB) GetWebhook(ctx context.Context, id string) (tables.Registration, error) {
	rows, bad, err := db.readWebhooks(ctx, "get_webhook", query{text: "SELECT id, etag, registration FROM webhooks WHERE id = ?", args: []any{id}})
	switch {
	case err != nil:
	case len(bad) > 0:
		err = bad[0].Err
	case len(rows) == 0:
		err = tables.ErrNotFound
	default:
		return rows[0], nil
	}
	return tables.Registration{}, fmt.Errorf("get webhook: %w", err)
}

// ListWebhooks implements tables.Webhooks.
func (db *DB) ListWebhooks(ctx context.Context) ([]tables.Registration, []tables.RowError, error) {
	rows, bad, err := db.census.List(ctx, func() ([]tables.Registration, []tables.RowError, error) {
		return db.readWebhooks(ctx, "list_webhooks", query{text: "SELECT id, etag, registration FROM webhooks ORDER BY id"})
	}, tables.Traces{Deleted: db.deletedWebhooks, Met: db.ListHealth, Removed: db.opts.OnRemoved})
	if err != nil {
		return nil, nil, fmt.Errorf("list webhooks: %w", err)
	}
	return rows, bad, nil
}

// errUnreadable says nothing about the row's content, which holds secrets.
var errUnreadable = fmt.Errorf("%w: the stored registration can't be read: delete the webhook and register it again", tables.ErrDamaged)

func (db *DB) readWebhooks(ctx context.Context, operation string, q query) (rows []tables.Registration, bad []tables.RowError, err error) {
	err = db.read(ctx, serviceTable, operation, q, func(scan func(...any) error) (bool, error) {
		var id, etag, stored string
		if err := scan(&id, &etag, &stored); err != nil {
			return false, err
		}
		var r tables.Registration
		if readable := json.Unmarshal([]byte(stored), &r) == nil && r.ID == id; !readable {
			bad = append(bad, tables.RowError{ID: id, Err: errUnreadable, Queue: tables.QueueNamed([]byte(stored))})
			return true, nil
		}
		r.ETag = etag
		rows = append(rows, r)
		return true, nil
	})
	return rows, bad, err
}

// DeleteWebhook implements tables.Webhooks.
func (db *DB) DeleteWebhook(ctx context.Context, id, etag string) error {
	gone := false
	err := db.write(ctx, serviceTable, "delete_webhook", func(tx *tx) error {
		n, err := tx.exec("DELETE FROM webhooks WHERE id = ? AND (? = '' OR etag = ?)", id, etag, etag)
		if err == nil && n == 0 {
			err = tx.whyUnchanged("SELECT 1 FROM webhooks WHERE id = ?", id)
		}
		if gone = errors.Is(err, tables.ErrNotFound); err != nil && !gone {
			return err
		}
		// Whoever deletes what is gone says that it is to be.
		_, err = tx.exec("INSERT INTO deleted_webhooks (id, at) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET at = excluded.at", id, tx.w.clock.now())
		return err
	})
	if err == nil {
		db.census.Deleted(id)
	}
	if err == nil && gone {
		err = tables.ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("delete webhook: %w", err)
	}
	return nil
}

// deletedWebhooks are the traces of those that were deleted here, by any process.
func (db *DB) deletedWebhooks(ctx context.Context) (map[string]time.Time, error) {
	found := map[string]time.Time{}
	err := db.read(ctx, serviceTable, "list_deleted_webhooks", query{text: "SELECT id, at FROM deleted_webhooks"}, func(scan func(...any) error) (bool, error) {
		var id string
		var at time.Time
		err := scan(&id, timeOf(&at))
		found[id] = at
		return true, err
	})
	return found, err
}
