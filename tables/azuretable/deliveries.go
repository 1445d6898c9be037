package azuretable

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/tables/azuretable/internal/commit"
)

// Load implements tables.Deliveries.
func (s *Store) Load(ctx context.Context, key tables.MessageKey) ([]tables.Delivery, error) {
	rows, err := s.client.all(ctx, query{
		table:  s.logTable(day(key.Day)),
		filter: filter{}.partition(s.logPartition(key.MessageID)).prefix(deliveriesPrefix(key.Queue, key.MessageID)),
	})
	if err != nil {
		return nil, fmt.Errorf("load deliveries: %w", err)
	}
	var ds []tables.Delivery
	for _, e := range rows {
		d := e.delivery()
		if d.Damage.Columns == "" && !sameDay(d.Day, key.Day) {
			d.Damage = tables.NewDamage([]string{"DayMs"}, decisive)
		}
		if err := d.Damage.Err(); err != nil { // what is decided by it would be wrong
			return nil, fmt.Errorf("load deliveries: row %s: %w", e.rk, err)
		}
		ds = append(ds, d)
	}
	return tables.Newest(ds), nil
}

var errMixedRecord = errors.New("rows of one record must be about one message")

// Record implements tables.Deliveries.
func (s *Store) Record(ctx context.Context, r tables.Record) error {
	if len(r.Deliveries)+len(r.Attempts) == 0 {
		return nil
	}
	p, rows, index, err := s.recordRows(r)
	if err == nil {
		err = s.commits.Commit(ctx, p, rows, func() { s.recent.add(index) })
	}
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	return nil
}

var errTwoNotes = errors.New("two notes on one delivery")

// Note implements tables.Deliveries. Each instance has a row of its own for its notes on a delivery.
func (s *Store) Note(ctx context.Context, ds []tables.Delivery) error {
	if len(ds) == 0 {
		return nil
	}
	p, rows, _, err := s.recordRows(tables.Record{Deliveries: ds})
	switch {
	case err != nil:
	case len(rows) != len(ds):
		err = errTwoNotes
	default: // in the order of ds, since they are of deliveries alone
		for i, d := range ds {
			rows[i].RK = noteKey(d)
		}
		err = s.commits.Commit(ctx, p, rows, nil)
	}
	if err != nil {
		return fmt.Errorf("note: %w", err)
	}
	return nil
}

// recordRows encodes a record's rows, and those of the index. Should they not fit into one transaction,
// texts for people are cut shorter: the record counts more than they do.
func (s *Store) recordRows(r tables.Record) (commit.Partition, []commit.Row, []indexRow, error) {
	if n := len(r.Deliveries) + len(r.Attempts); n > commit.MaxRows {
		return commit.Partition{}, nil, nil, fmt.Errorf("%d rows: at most %d can be written together", n, commit.MaxRows)
	}
	p, rows, index, err := s.encodeRecord(r)
	if err != nil || totalSize(rows) <= commit.MaxBytes {
		return p, rows, index, err
	}
	r.Attempts = slices.Clone(r.Attempts)
	for i := range r.Attempts {
		a := &r.Attempts[i]
		a.Error = tables.CutText(a.Error, maxShortText)
		a.Snippet = tables.CutText(a.Snippet, maxShortText)
		a.Explanation = tables.CutText(a.Explanation, maxShortText)
	}
	p, rows, index, err = s.encodeRecord(r)
	if size := totalSize(rows); err == nil && size > commit.MaxBytes {
		err = fmt.Errorf("%d rows of %d bytes: more than the 4 MiB that can be written together", len(rows), size)
	}
	return p, rows, index, err
}

// encodeRecord encodes rows that are all about one message, each key once: the
// last one wins.
func (s *Store) encodeRecord(r tables.Record) (p commit.Partition, rows []commit.Row, index []indexRow, err error) {
	var key tables.MessageKey
	if len(r.Deliveries) > 0 {
		key = r.Deliveries[0].MessageKey
	} else {
		key = r.Attempts[0].MessageKey
	}
	p = commit.Partition{Table: s.logTable(day(key.Day)), Key: s.logPartition(key.MessageID)}
	add := func(k tables.MessageKey, rk string, c columns) error {
		if k.Queue != key.Queue || k.MessageID != key.MessageID || !sameDay(k.Day, key.Day) {
			return errMixedRecord
		}
		encoded, err := c.row(p.Key, rk)
		rows = append(rows, encoded)
		return err
	}
	for d, a := range r.Rows() {
		var err error
		switch {
		case a == nil:
			err = add(d.MessageKey, deliveryKey(*d), deliveryColumns(*d))
		case d == nil:
			c := attemptColumns(*a)
			err = add(a.MessageKey, attemptKey(*a), c)
			index = s.addIndexRows(index, a, c.json)
		default:
			c, attempt := completedColumns(*d, *a)
			err = add(d.MessageKey, completedKey(*d), c)
			index = s.addIndexRows(index, a, attempt)
		}
		if err != nil {
			return p, nil, nil, err
		}
	}
	if !distinct(rows) {
		rows = commit.LastOfEach(rows)
	}
	return p, rows, index, nil
}

// distinct reports whether it is plain that no two rows have one key: there are few of them,
// nearly always.
func distinct(rows []commit.Row) bool {
	if len(rows) > 8 {
		return false
	}
	for i, r := range rows {
		for _, other := range rows[:i] {
			if r.RK == other.RK {
				return false
			}
		}
	}
	return true
}

func totalSize(rows []commit.Row) (n int) {
	for _, r := range rows {
		n += r.Size()
	}
	return n
}
