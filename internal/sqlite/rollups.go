package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/pushlease/pushlease/tables"
)

const (
	putRollupSQL     = "INSERT OR REPLACE INTO rollups (length, at, instance, started_at, tallies) VALUES (?, ?, ?, ?, ?)"
	eachRollupSQL    = "SELECT at, instance, started_at, tallies FROM rollups WHERE length = ? AND at >= ? AND at < ? ORDER BY at, instance, started_at"
	expireRollupsSQL = "DELETE FROM rollups WHERE length = ? AND at < ?"
)

// PutRollups implements tables.Rollups.
func (db *DB) PutRollups(ctx context.Context, rows ...tables.Rollup) error {
	if len(rows) == 0 {
		return nil
	}
	packed := make([][]byte, len(rows))
	for i, r := range rows {
		var err error
		if packed[i], err = tables.PackTallies(r.Tallies); err != nil {
			return fmt.Errorf("put rollups: %w", err)
		}
	}
	err := db.write(ctx, serviceTable, "put_rollups", func(tx *tx) error {
		for i, r := range rows {
			if _, err := tx.exec(putRollupSQL, int64(r.Length), millis(r.At), r.Instance, millis(r.StartedAt), packed[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("put rollups: %w", err)
	}
	return nil
}

// EachRollup implements tables.Rollups.
func (db *DB) EachRollup(ctx context.Context, length time.Duration, from, until time.Time, each func(tables.Rollup)) error {
	q := query{text: eachRollupSQL, args: []any{int64(length), from.UnixMilli(), until.UnixMilli()}}
	err := db.read(ctx, serviceTable, "list_rollups", q, func(scan func(...any) error) (bool, error) {
		r := tables.Rollup{Length: length}
		var packed []byte
		if err := scan(timeOf(&r.At), &r.Instance, timeOf(&r.StartedAt), &packed); err != nil {
			return false, err
		}
		var err error
		if r.Tallies, err = tables.UnpackTallies(packed); err == nil { // another program's bytes are no rollup
			each(r)
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("list rollups: %w", err)
	}
	return nil
}

// ExpireRollups implements tables.Rollups.
func (db *DB) ExpireRollups(ctx context.Context, length time.Duration, before time.Time) (n int64, err error) {
	err = db.write(ctx, serviceTable, "expire_rollups", func(tx *tx) (err error) {
		n, err = tx.exec(expireRollupsSQL, int64(length), before.UnixMilli())
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("expire rollups: %w", err)
	}
	return n, nil
}
