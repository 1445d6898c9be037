package azuretable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pushlease/pushlease/tables"
)

// leftPartition of the table of webhooks has a row for each queue that a webhook was
// deleted from.
const leftPartition = "left"

const leftAtColumn = "At"

// PutLeftQueue implements tables.LeftQueues.
func (s *Store) PutLeftQueue(ctx context.Context, l tables.LeftQueue) error {
	c := columns{}
	c.exact("Queue", l.Queue)
	c.time(leftAtColumn, l.At)
	if err := s.client.put(ctx, s.webhooksTable(), leftPartition, encodeID(l.Queue), c); err != nil {
		return fmt.Errorf("put left queue: %w", err)
	}
	return nil
}

// ListLeftQueues implements tables.LeftQueues.
func (s *Store) ListLeftQueues(ctx context.Context) ([]tables.LeftQueue, error) {
	rows, err := s.client.all(ctx, query{table: s.webhooksTable(), filter: filter{}.partition(leftPartition)})
	if err != nil {
		return nil, fmt.Errorf("list left queues: %w", err)
	}
	var list []tables.LeftQueue
	for _, e := range rows {
		if name, ok := decodeID(e.rk); ok { // another program's row is no note
			list = append(list, tables.LeftQueue{Queue: name, At: e.leftAt()})
		}
	}
	slices.SortFunc(list, func(a, b tables.LeftQueue) int { return cmp.Compare(a.Queue, b.Queue) })
	return list, nil
}

// leftAt is when the webhook was deleted. A time that another program has changed so that it can't be
// read, or is to come, is that of its change: what was on the queue was there before that.
func (e entity) leftAt() time.Time {
	at := e.notAhead(leftAtColumn)
	if at.IsZero() {
		at = e.changedAt
	}
	return at.Truncate(time.Millisecond)
}

// DropLeftQueue implements tables.LeftQueues.
func (s *Store) DropLeftQueue(ctx context.Context, l tables.LeftQueue) error {
	there, err := s.client.get(ctx, s.webhooksTable(), leftPartition, encodeID(l.Queue))
	if err == nil && there.leftAt().Equal(l.At.Truncate(time.Millisecond)) {
		err = s.client.remove(ctx, s.webhooksTable(), leftPartition, encodeID(l.Queue), there.etag)
	}
	if err != nil && !errors.Is(err, tables.ErrNotFound) && !errors.Is(err, tables.ErrConflict) {
		return fmt.Errorf("drop left queue: %w", err)
	}
	return nil
}
