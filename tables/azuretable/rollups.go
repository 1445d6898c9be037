package azuretable

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/tables/azuretable/internal/commit"
)

// rollupsPartition has all rows of the table of rollups: one transaction writes a minute and its hour,
// and one query reads those of all instances, in order of time.
const rollupsPartition = "rollups"

// rollupPrefix begins the row keys of the rollups of a length that began at a time.
func rollupPrefix(length time.Duration, at time.Time) string {
	kind := "m"
	if length == tables.HourRollup {
		kind = "h"
	}
	return fmt.Sprintf("%s%s%012d", kind, separator, at.Unix())
}

func rollupKey(r tables.Rollup) string {
	return rollupPrefix(r.Length, r.At) + separator + encodeID(r.Instance) + separator + strconv.FormatInt(r.StartedAt.UnixMilli(), 36)
}

// rollupsBetween selects the rollups of a length that began from from until before until.
func rollupsBetween(length time.Duration, from, until time.Time) filter {
	return filter{}.partition(rollupsPartition).where("RowKey", "ge", rollupPrefix(length, from)).where("RowKey", "lt", rollupPrefix(length, until))
}

// PutRollups implements tables.Rollups.
func (s *Store) PutRollups(ctx context.Context, rows ...tables.Rollup) error {
	var encoded []commit.Row
	for _, r := range rows {
		packed, err := tables.PackTallies(r.Tallies)
		if err != nil {
			return fmt.Errorf("put rollups: %w", err)
		}
		encodedRow, err := rollupColumns(r, packed).row(rollupsPartition, rollupKey(r))
		if err != nil {
			return fmt.Errorf("put rollups: %w", err)
		}
		encoded = append(encoded, encodedRow)
	}
	if len(encoded) == 0 {
		return nil
	}
	if err := s.client.submit(ctx, s.rollupsTable(), encoded); err != nil {
		return fmt.Errorf("put rollups: %w", err)
	}
	return nil
}

func rollupColumns(r tables.Rollup, packed []byte) columns {
	c := columns{}
	c.int64("Seconds", int64(r.Length/time.Second))
	c.time("AtMs", r.At)
	c.exact("Instance", r.Instance)
	c.time("StartedAtMs", r.StartedAt)
	c.binary("Tallies", packed)
	return c
}

// EachRollup implements tables.Rollups.
func (s *Store) EachRollup(ctx context.Context, length time.Duration, from, until time.Time, each func(tables.Rollup)) error {
	q := query{table: s.rollupsTable(), filter: rollupsBetween(length, from, until)}
	for at := (token{}); ; {
		rows, next, err := s.client.page(ctx, q, at)
		if err != nil {
			return fmt.Errorf("list rollups: %w", err)
		}
		for _, e := range rows {
			r := tables.Rollup{Length: length, At: e.time("AtMs"), Instance: e.text("Instance"), StartedAt: e.time("StartedAtMs")}
			r.Tallies, err = tables.UnpackTallies(e.binary("Tallies"))
			if err == nil && rollupKey(r) == e.rk { // another program's row is no rollup
				each(r)
			}
		}
		if next == (token{}) {
			return nil
		}
		at = next
	}
}

// ExpireRollups implements tables.Rollups.
func (s *Store) ExpireRollups(ctx context.Context, length time.Duration, before time.Time) (int64, error) {
	q := query{table: s.rollupsTable(), filter: rollupsBetween(length, time.Unix(0, 0), before), columns: []string{"AtMs"}}
	rows, err := s.client.all(ctx, q)
	var n int64
	if err == nil {
		n, err = s.client.removeAll(ctx, s.rollupsTable(), rows)
	}
	if err != nil {
		return n, fmt.Errorf("expire rollups: %w", err)
	}
	return n, nil
}
