package azuretable

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pushlease/pushlease/tables"
)

const webhooksPartition = "webhooks"

// PutWebhook implements tables.Webhooks.
func (s *Store) PutWebhook(ctx context.Context, r tables.Registration) (tables.Registration, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return tables.Registration{}, errors.New("put webhook: registration can't be encoded") // err may quote it
	}
	if r.ETag == "" {
		r.ETag, err = s.insertWebhook(ctx, r, b)
	} else {
		r.ETag, err = s.client.replace(ctx, s.webhooksTable(), webhooksPartition, encodeID(r.ID), registrationColumns(r, b), r.ETag)
	}
	if err != nil {
		return tables.Registration{}, fmt.Errorf("put webhook: %w", err)
	}
	return r, nil
}

// insertWebhook returns the new row's ETag, or that of the row that is there when
// it says the same; encoded is r.
func (s *Store) insertWebhook(ctx context.Context, r tables.Registration, encoded []byte) (string, error) {
	etag, err := s.client.insert(ctx, s.webhooksTable(), webhooksPartition, encodeID(r.ID), registrationColumns(r, encoded))
	if !errors.Is(err, tables.ErrExists) {
		return etag, err
	}
	there, getErr := s.client.get(ctx, s.webhooksTable(), webhooksPartition, encodeID(r.ID))
	if getErr != nil {
		return "", err
	}
	if !bytes.Equal(encoded, there.binary(registrationColumn)) {
		return "", err
	}
	return there.etag, nil
}

// GetWebhook implements tables.Webhooks.
func (s *Store) GetWebhook(ctx context.Context, id string) (tables.Registration, error) {
	e, err := s.client.get(ctx, s.webhooksTable(), webhooksPartition, encodeID(id))
	if err != nil {
		return tables.Registration{}, fmt.Errorf("get webhook: %w", err)
	}
	r, err := e.registration()
	if err != nil {
		return tables.Registration{}, fmt.Errorf("get webhook: %w", err)
	}
	return r, nil
}

// ListWebhooks implements tables.Webhooks.
func (s *Store) ListWebhooks(ctx context.Context) ([]tables.Registration, []tables.RowError, error) {
	rs, bad, err := s.census.List(ctx, func() ([]tables.Registration, []tables.RowError, error) { return s.readWebhooks(ctx) },
		tables.Traces{Deleted: s.deletedWebhooks, Met: s.ListHealth, Removed: s.removed})
	if err != nil {
		return nil, nil, fmt.Errorf("list webhooks: %w", err)
	}
	slices.SortFunc(rs, func(a, b tables.Registration) int { return cmp.Compare(a.ID, b.ID) })
	return rs, bad, nil
}

func (s *Store) readWebhooks(ctx context.Context) (rs []tables.Registration, bad []tables.RowError, err error) {
	rows, err := s.client.all(ctx, query{table: s.webhooksTable(), filter: filter{}.partition(webhooksPartition), etags: true})
	if err != nil {
		return nil, nil, err
	}
	for _, e := range rows {
		r, err := e.registration()
		if err != nil {
			id, ok := decodeID(e.rk)
			if !ok {
				id = e.rk
			}
			name := tables.QueueNamed(e.binary(registrationColumn))
			if name == "" {
				name = e.text("Queue")
			}
			bad = append(bad, tables.RowError{ID: id, Err: err, Queue: name})
			continue
		}
		rs = append(rs, r)
	}
	return rs, bad, nil
}

// DeleteWebhook implements tables.Webhooks. The trace comes first: one of a webhook that stays is older than
// what is seen of it later, and does no harm.
func (s *Store) DeleteWebhook(ctx context.Context, id, etag string) error {
	if err := s.putTrace(ctx, id, time.Now()); err != nil {
		return fmt.Errorf("delete webhook: %w", err)
	}
	err := s.client.remove(ctx, s.webhooksTable(), webhooksPartition, encodeID(id), etag)
	if err == nil || errors.Is(err, tables.ErrNotFound) { // whoever deletes what is gone says that it is to be
		s.census.Deleted(id)
	}
	if err != nil {
		return fmt.Errorf("delete webhook: %w", err)
	}
	return nil
}

// registrationColumn holds the registration as JSON. It is binary because a
// string property takes only half as much.
const registrationColumn = "Registration"

func registrationColumns(r tables.Registration, encoded []byte) columns {
	c := columns{}
	c.flag("Enabled", r.Enabled) // for people, as is Queue
	c.exact("Queue", r.Queue)
	c.binary(registrationColumn, encoded)
	return c
}

func (e entity) registration() (tables.Registration, error) {
	var r tables.Registration
	if err := json.Unmarshal(e.binary(registrationColumn), &r); err != nil {
		return tables.Registration{}, fmt.Errorf("%w: the registration is malformed", tables.ErrDamaged) // err may quote it
	}
	if encodeID(r.ID) != e.rk {
		return tables.Registration{}, fmt.Errorf("%w: the registration is another webhook's", tables.ErrDamaged)
	}
	r.ETag = e.etag
	return r, nil
}
