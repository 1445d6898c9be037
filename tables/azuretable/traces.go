package azuretable

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// deletedPartition of the table of webhooks has a row for each webhook that was deleted lately.
const deletedPartition = "deleted"

func (s *Store) putTrace(ctx context.Context, id string, at time.Time) error {
	c := columns{}
	c.time(leftAtColumn, at)
	if err := s.client.put(ctx, s.webhooksTable(), deletedPartition, encodeID(id), c); err != nil {
		return fmt.Errorf("note the deletion: %w", err)
	}
	return nil
}

// deletedWebhooks are the traces of those that were deleted, by any process.
func (s *Store) deletedWebhooks(ctx context.Context) (map[string]time.Time, error) {
	rows, err := s.traces(ctx)
	found := map[string]time.Time{}
	for _, e := range rows {
		if id, ok := decodeID(e.rk); ok {
			found[id] = e.leftAt()
		}
	}
	return found, err
}

func (s *Store) traces(ctx context.Context) ([]entity, error) {
	rows, err := s.client.all(ctx, query{table: s.webhooksTable(), filter: filter{}.partition(deletedPartition), etags: true})
	if err != nil {
		return nil, fmt.Errorf("list deleted webhooks: %w", err)
	}
	return rows, nil
}

// expireTraces removes those of before that time.
func (s *Store) expireTraces(ctx context.Context, before time.Time) error {
	rows, err := s.traces(ctx)
	for _, e := range rows {
		if !e.leftAt().Before(before) {
			continue
		}
		if removeErr := s.client.remove(ctx, s.webhooksTable(), deletedPartition, e.rk, e.etag); !movedOn(removeErr) {
			err = errors.Join(err, removeErr)
		}
	}
	return err
}
