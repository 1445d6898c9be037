package azuretable

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"github.com/pushlease/pushlease/tables"
)

// withTable calls f, which writes to table, and when the table is missing creates
// it and calls f again.
func (s *Store) withTable(ctx context.Context, table string, f func() error) error {
	began := time.Now()
	err := f()
	s.saw(table, began, err)
	for try := 0; tableMissing(err) && try < 3; try++ {
		if err := s.createTable(ctx, table); err != nil {
			return err
		}
		began = time.Now()
		err = f()
		s.saw(table, began, err)
	}
	return err
}

// The pause between two tries to create a table that is being deleted, which
// takes the service 40 seconds or more.
const (
	firstCreatePause = 200 * time.Millisecond
	maxCreatePause   = 5 * time.Second
)

// createTable makes sure that table exists. It waits for a deletion under way as
// long as ctx lasts.
func (s *Store) createTable(ctx context.Context, table string) error {
	const operation = "create table"
	for pause := firstCreatePause; ; pause = min(2*pause, maxCreatePause) {
		err := twice(ctx, func() error {
			_, err := s.service.CreateTable(ctx, table, nil)
			return storageErr(ctx, operation, err)
		})
		switch {
		case err == nil || hasCode(err, string(aztables.TableAlreadyExists)):
			s.listing.forget()
			return nil
		case !hasCode(err, string(aztables.TableBeingDeleted)):
			return err
		}
		if !sleep(ctx, pause) {
			return fmt.Errorf("table %s can't be created: storage is still deleting the one of that name, which takes about a minute: %w", table, ctx.Err())
		}
	}
}

// listing caches which tables by day exist, so that nothing is asked of tables
// that don't.
type listing struct {
	mu   sync.Mutex
	at   time.Time
	days days
	// version grows with forget, so that an answer from before is not kept.
	version int
}

// listingAge is how long tables that other processes made may stay unseen.
const listingAge = 10 * time.Second

// days are the days that have tables, newest first.
type days struct {
	log, recent []string
}

func (l *listing) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at = time.Time{}
	l.version++
}

// existing returns the days that have tables, not older than maxAge.
func (s *Store) existing(ctx context.Context, maxAge time.Duration) (days, error) {
	l := &s.listing
	l.mu.Lock()
	cached, version, fresh := l.days, l.version, time.Since(l.at) <= maxAge
	l.mu.Unlock()
	if fresh {
		return cached, nil
	}
	at := time.Now()
	found, err := s.listDays(ctx)
	if err != nil {
		return days{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.version == version {
		l.at, l.days = at, found
	}
	return found, nil
}

func (s *Store) listDays(ctx context.Context) (days, error) {
	// Log… to Recent…; what else lies between is sorted out below.
	names, err := s.tableNames(ctx, s.logTable(""), s.recentTable("a"))
	if err != nil {
		return days{}, err
	}
	var d days
	for _, name := range names {
		if day, ok := cutDay(name, s.logTable("")); ok {
			d.log = append(d.log, day)
		} else if day, ok := cutDay(name, s.recentTable("")); ok {
			d.recent = append(d.recent, day)
		}
	}
	for _, list := range [][]string{d.log, d.recent} {
		slices.Sort(list)
		slices.Reverse(list)
	}
	return d, nil
}

// tableNames returns the names of the tables from one name up to another, which is
// not included.
func (s *Store) tableNames(ctx context.Context, from, to string) ([]string, error) {
	names := filter{}.where("TableName", "ge", from).where("TableName", "lt", to).String()
	opts := &aztables.ListTablesOptions{Filter: &names}
	var found []string
	for {
		var page aztables.ListTablesResponse
		err := twice(ctx, func() (err error) {
			page, err = s.service.NewListTablesPager(opts).NextPage(ctx)
			return storageErr(ctx, "list tables", err)
		})
		if err != nil {
			return nil, err
		}
		for _, t := range page.Tables {
			found = append(found, deref(t.Name))
		}
		if deref(page.NextTableName) == "" {
			return found, nil
		}
		opts.NextTableName = page.NextTableName
	}
}

// Expire implements tables.History by dropping whole tables. It does not count
// rows.
func (s *Store) Expire(ctx context.Context, before time.Time) (int64, error) {
	existing, err := s.existing(ctx, 0)
	if err != nil {
		return 0, err
	}
	limit := day(before)
	counting, cancel := context.WithTimeout(ctx, countingBound)
	defer cancel()
	var errs []error
	for _, d := range existing.log {
		if d < limit {
			errs = append(errs, s.dropLog(ctx, counting, s.logTable(d)))
		}
	}
	for _, d := range existing.recent {
		if d < limit {
			_, err := s.deleteTable(ctx, s.recentTable(d))
			errs = append(errs, err)
		}
	}
	s.listing.forget()
	return 0, errors.Join(errs...)
}

// deleteTable reports whether it was this call that deleted the table, as far as that is known.
func (s *Store) deleteTable(ctx context.Context, table string) (dropped bool, err error) {
	err = rowErr(twice(ctx, func() error {
		_, err := s.service.DeleteTable(ctx, table, nil)
		return storageErr(ctx, "delete table", err)
	}))
	if errors.Is(err, tables.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}
