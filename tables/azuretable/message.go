package azuretable

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/pushlease/pushlease/tables"
)

// messageQueries is how many tables one look for a message asks at once.
const messageQueries = 4

// Message implements tables.History. It asks the tables of all days: which ones
// know the message can't be told from its id, and a replay has a day of its own.
func (s *Store) Message(ctx context.Context, queue, messageID string) ([]tables.Delivery, []tables.Attempt, error) {
	ds, as, err := s.message(ctx, queue, messageID)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("look for message: %w", err)
	case len(ds) == 0 && len(as) == 0:
		return nil, nil, fmt.Errorf("message: %w", tables.ErrNotFound)
	}
	return ds, as, nil
}

// message is Message without ErrNotFound.
func (s *Store) message(ctx context.Context, queue, messageID string) ([]tables.Delivery, []tables.Attempt, error) {
	known, err := s.listing.existing(ctx, listingAge)
	if err != nil {
		return nil, nil, err
	}
	ds, as, err := s.messageOn(ctx, known.log, queue, messageID)
	if err != nil || len(ds)+len(as) > 0 {
		return ds, as, err
	}
	// Nothing: but then the list of tables must not be an old one.
	fresh, err := s.listing.existing(ctx, 0)
	if err != nil {
		return nil, nil, err
	}
	missed := slices.DeleteFunc(slices.Clone(fresh.log), func(day string) bool { return slices.Contains(known.log, day) })
	return s.messageOn(ctx, missed, queue, messageID)
}

// messageOn asks the Log tables of some days, a few at once.
func (s *Store) messageOn(ctx context.Context, days []string, queue, messageID string) ([]tables.Delivery, []tables.Attempt, error) {
	prefix := messagePrefix(messageID)
	if queue != "" {
		prefix = queuePrefix(queue, messageID)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	found := make([][]entity, len(days))
	slots := make(chan struct{}, messageQueries)
	var wg sync.WaitGroup
	var once sync.Once
	var failure error
	for i, day := range days {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			rows, err := s.client.all(ctx, query{
				table:  s.logTable(day),
				filter: filter{}.partition(s.logPartition(messageID)).prefix(prefix),
			})
			if err != nil {
				once.Do(func() { failure = err; cancel(err) })
			}
			found[i] = rows
		})
	}
	wg.Wait()
	if failure != nil {
		return nil, nil, failure
	}
	ds, as := sortRows(slices.Concat(found...))
	return ds, as, nil
}

// sortRows tells deliveries and attempts apart and puts them in the order of the
// contract. The row of a first success is both.
func sortRows(rows []entity) (ds []tables.Delivery, as []tables.Attempt) {
	for _, e := range rows {
		if !isDelivery(e.rk) {
			as = append(as, e.attempt())
			continue
		}
		ds = append(ds, e.delivery())
		if a, ok := e.completed(); ok {
			as = slices.DeleteFunc(as, func(alone tables.Attempt) bool {
				return attemptKey(alone) == attemptKey(a) && day(alone.Day) == day(a.Day)
			})
			as = append(as, a)
		}
	}
	slices.SortStableFunc(as, func(a, b tables.Attempt) int {
		return cmp.Or(a.StartedAt.Compare(b.StartedAt), cmp.Compare(a.WebhookID, b.WebhookID),
			cmp.Compare(a.Generation, b.Generation), cmp.Compare(a.Number, b.Number))
	})
	return tables.Newest(ds), as
}
