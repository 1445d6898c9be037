package sqlite

import (
	"context"
	"fmt"

	"github.com/pushlease/pushlease/tables"
)

// PutLeftQueue implements tables.LeftQueues.
func (db *DB) PutLeftQueue(ctx context.Context, l tables.LeftQueue) error {
	err := db.write(ctx, serviceTable, "put_left_queue", func(tx *tx) error {
		_, err := tx.exec("INSERT INTO left_queues (queue, at) VALUES (?, ?) ON CONFLICT (queue) DO UPDATE SET at = excluded.at", l.Queue, millis(l.At))
		return err
	})
	if err != nil {
		return fmt.Errorf("put left queue: %w", err)
	}
	return nil
}

// ListLeftQueues implements tables.LeftQueues.
func (db *DB) ListLeftQueues(ctx context.Context) (list []tables.LeftQueue, err error) {
	q := query{text: "SELECT queue, at FROM left_queues ORDER BY queue"}
	err = db.read(ctx, serviceTable, "list_left_queues", q, func(scan func(...any) error) (bool, error) {
		var l tables.LeftQueue
		err := scan(&l.Queue, timeOf(&l.At))
		list = append(list, l)
		return true, err
	})
	if err != nil {
		return nil, fmt.Errorf("list left queues: %w", err)
	}
	return list, nil
}

// DropLeftQueue implements tables.LeftQueues.
func (db *DB) DropLeftQueue(ctx context.Context, l tables.LeftQueue) error {
	err := db.write(ctx, serviceTable, "drop_left_queue", func(tx *tx) error {
		_, err := tx.exec("DELETE FROM left_queues WHERE queue = ? AND at = ?", l.Queue, millis(l.At))
		return err
	})
	if err != nil {
		return fmt.Errorf("drop left queue: %w", err)
	}
	return nil
}
