package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/pushlease/pushlease/tables"
)

const healthColumns = `webhook_id, instance, breaker, breaker_since, next_probe, probe_wait_ns, samples, failures, paused_until, failing_since,
  failed_messages, last_success_at, last_failure_at, send_window, in_flight, delivered, failed, deferred, started_at, updated_at,
  pace_milli, pace_since, pace_refused, pace_noise, pace_window, refusing, throttles, queue`

const putHealthSQL = `INSERT OR REPLACE INTO health (` + healthColumns + `)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

// PutHealth implements tables.Healths.
func (db *DB) PutHealth(ctx context.Context, rows ...tables.Health) error {
	if len(rows) == 0 {
		return nil
	}
	err := db.write(ctx, serviceTable, "put_health", func(tx *tx) error {
		for _, h := range rows {
			pace, noise := h.Pace.Milli()
			_, err := tx.exec(putHealthSQL, h.WebhookID, h.Instance, h.Breaker.Phase, millis(h.Breaker.Since), millis(h.Breaker.NextProbe),
				h.Breaker.Wait, h.Breaker.Samples, h.Breaker.Failures, millis(h.PausedUntil), millis(h.Failing.FailingSince), h.Failing.FailedMessages,
				millis(h.Failing.LastSuccess), millis(h.LastFailureAt), h.Window, h.InFlight, h.Delivered, h.Failed, h.Postponed,
				millis(h.StartedAt), millis(h.UpdatedAt), pace, millis(h.Pace.Since), h.Pace.Refused, noise, h.Pace.Window.Milliseconds(),
				h.Refusing, h.Throttles, h.Queue)
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("put health: %w", err)
	}
	return nil
}

// ListHealth implements tables.Healths.
func (db *DB) ListHealth(ctx context.Context) (list []tables.Health, err error) {
	return db.listHealth(ctx, "")
}

// WebhookHealth implements tables.Healths.
func (db *DB) WebhookHealth(ctx context.Context, webhookID string) ([]tables.Health, error) {
	return db.listHealth(ctx, " WHERE webhook_id = ?", webhookID)
}

func (db *DB) listHealth(ctx context.Context, where string, args ...any) (list []tables.Health, err error) {
	q := query{text: "SELECT " + healthColumns + " FROM health" + where + " ORDER BY webhook_id, instance", args: args}
	err = db.read(ctx, serviceTable, "list_health", q, func(scan func(...any) error) (bool, error) {
		var h tables.Health
		var pace, noise, window int64
		err := scan(&h.WebhookID, &h.Instance, &h.Breaker.Phase, timeOf(&h.Breaker.Since), timeOf(&h.Breaker.NextProbe),
			&h.Breaker.Wait, &h.Breaker.Samples, &h.Breaker.Failures, timeOf(&h.PausedUntil), timeOf(&h.Failing.FailingSince), &h.Failing.FailedMessages,
			timeOf(&h.Failing.LastSuccess), timeOf(&h.LastFailureAt), &h.Window, &h.InFlight, &h.Delivered, &h.Failed, &h.Postponed,
			timeOf(&h.StartedAt), timeOf(&h.UpdatedAt), &pace, timeOf(&h.Pace.Since), &h.Pace.Refused, &noise, &window,
			&h.Refusing, &h.Throttles, &h.Queue)
		h.Pace.SetMilli(pace, noise)
		h.Pace.Window = time.Duration(window) * time.Millisecond
		list = append(list, h)
		return true, err
	})
	if err != nil {
		return nil, fmt.Errorf("list health: %w", err)
	}
	return list, nil
}

// DeleteHealth implements tables.Healths.
func (db *DB) DeleteHealth(ctx context.Context, webhookID string) error {
	err := db.write(ctx, serviceTable, "delete_health", func(tx *tx) error {
		_, err := tx.exec("DELETE FROM health WHERE webhook_id = ?", webhookID)
		return err
	})
	if err != nil {
		return fmt.Errorf("delete health: %w", err)
	}
	return nil
}

// ExpireHealth implements tables.Healths.
func (db *DB) ExpireHealth(ctx context.Context, before time.Time) (n int64, err error) {
	err = db.write(ctx, serviceTable, "expire_health", func(tx *tx) (err error) {
		n, err = tx.exec("DELETE FROM health WHERE updated_at < ?", before.UnixMilli())
		if err == nil {
			_, err = tx.exec("DELETE FROM deleted_webhooks WHERE at < ?", before.Add(-tables.TraceOutlives).UnixMilli())
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("expire health: %w", err)
	}
	return n, nil
}
