package azuretable

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pushlease/pushlease/tables"
)

// queuesPartition has a row for each queue that ever had a dead letter. No queue
// has such a name.
const queuesPartition = "~queues"

// PutDeadLetter implements tables.DeadLetters.
func (s *Store) PutDeadLetter(ctx context.Context, d tables.DeadLetter) (tables.DeadLetter, error) {
	stored, err := s.putDeadLetter(ctx, d)
	if err != nil {
		return tables.DeadLetter{}, fmt.Errorf("put dead letter: %w", err)
	}
	return stored, nil
}

func (s *Store) putDeadLetter(ctx context.Context, d tables.DeadLetter) (tables.DeadLetter, error) {
	queue, order, ok := tables.SplitDeadLetterID(d.ID)
	if !ok {
		return tables.DeadLetter{}, errors.New("its id is not one that tables.DeadLetterID makes")
	}
	// The queue first, so that a list over all queues misses no row.
	if err := s.rememberQueue(ctx, queue, time.Time{}); err != nil {
		return tables.DeadLetter{}, err
	}
	etag, err := s.client.insert(ctx, s.deadLettersTable(), queue, order, deadLetterColumns(d))
	if err == nil { // again, where the table was made anew meanwhile
		err = s.rememberQueue(ctx, queue, time.Time{})
	}
	if errors.Is(err, tables.ErrExists) {
		e, err := s.client.get(ctx, s.deadLettersTable(), queue, order)
		if err != nil {
			return tables.DeadLetter{}, err
		}
		return e.deadLetter(), nil
	}
	d.ETag = etag
	return d, err
}

// rememberFor is how long a row of the list of queues is taken to be there: another program may have
// removed it, or the table, and what is not on the list is found by nobody.
const rememberFor = 10 * time.Minute

const (
	// sinceColumn of a queue that was put back on the list is a time at which this table was there.
	sinceColumn = "SinceMs"
	// sinceMargin is by how much the time of a copy, which is one of whole seconds and of the queue service, may be
	// before that of its queue on the list. The name of a dropped table is free again after half a minute.
	sinceMargin = 10 * time.Second
)

// rememberQueue adds the queue to the list of queues, now and then. One that is there stays as it is. since is set where the
// table is known to be older.
func (s *Store) rememberQueue(ctx context.Context, queue string, since time.Time) error {
	if at, known := s.queues.Load(queue); known && time.Since(at.(time.Time)) < rememberFor { //nolint:forcetypeassert // it is stored below
		return nil
	}
	c := columns{}
	c.time(sinceColumn, since)
	if _, err := s.client.insert(ctx, s.deadLettersTable(), queuesPartition, queue, c); err != nil && !errors.Is(err, tables.ErrExists) {
		return err
	}
	s.queues.Store(queue, time.Now())
	return nil
}

// Relist puts queues back on the list of those that have had dead letters, which another program has taken off it, and
// names them. Without that no list over all queues, no count and no expiry finds their dead letters.
func (s *Store) Relist(ctx context.Context) (unlisted []string, err error) {
	var there []string
	var since time.Time // the oldest row that is seen
	for last := ""; ; {
		f := filter{}.where("PartitionKey", "gt", last).where("PartitionKey", "lt", separator)
		first, err := (&lane{store: s, query: query{table: s.deadLettersTable(), filter: f, columns: []string{"Timestamp"}, top: 1}}).head(ctx)
		if err != nil {
			return nil, fmt.Errorf("look for queues with dead letters: %w", err)
		}
		if first == nil {
			break
		}
		if last = first.pk; strings.Trim(last, "abcdefghijklmnopqrstuvwxyz0123456789-") == "" { // another program's rows are no dead letters
			there = append(there, last)
			if since.IsZero() || first.changedAt.Before(since) {
				since = first.changedAt
			}
		}
	}
	listed, err := s.deadLetterQueues(ctx, "") // later: a queue is on the list before its first dead letter is there
	for _, queue := range there {
		if err == nil && !slices.Contains(listed, queue) {
			unlisted = append(unlisted, queue)
			s.queues.Delete(queue)
			err = s.rememberQueue(ctx, queue, since)
		}
	}
	if err != nil {
		err = fmt.Errorf("list the queues with dead letters: %w", err)
	}
	return unlisted, err
}

// UpdateDeadLetter implements tables.DeadLetters.
func (s *Store) UpdateDeadLetter(ctx context.Context, d tables.DeadLetter) (tables.DeadLetter, error) {
	queue, order, ok := tables.SplitDeadLetterID(d.ID)
	if !ok {
		return tables.DeadLetter{}, fmt.Errorf("update dead letter: %w", tables.ErrNotFound)
	}
	c := deadLetterColumns(d)
	if len(d.Text) == 0 {
		there, err := s.client.get(ctx, s.deadLettersTable(), queue, order)
		if err != nil {
			return tables.DeadLetter{}, fmt.Errorf("update dead letter: %w", err)
		}
		c.binary("Text", there.binary("Text"))
	}
	etag, err := s.client.replace(ctx, s.deadLettersTable(), queue, order, c, d.ETag)
	if err != nil {
		return tables.DeadLetter{}, fmt.Errorf("update dead letter: %w", err)
	}
	d.ETag = etag
	return d, nil
}

// GetDeadLetter implements tables.DeadLetters.
func (s *Store) GetDeadLetter(ctx context.Context, id string) (tables.DeadLetter, error) {
	queue, order, ok := tables.SplitDeadLetterID(id)
	if !ok {
		return tables.DeadLetter{}, fmt.Errorf("get dead letter: %w", tables.ErrNotFound)
	}
	e, err := s.client.get(ctx, s.deadLettersTable(), queue, order)
	if err != nil {
		return tables.DeadLetter{}, fmt.Errorf("get dead letter: %w", err)
	}
	return e.deadLetter(), nil
}

// HasLostDeadLetters implements tables.DeadLetters. Each row of the list of queues says that this table was there when it was written.
func (s *Store) HasLostDeadLetters(ctx context.Context, of time.Time) (bool, error) {
	rows, err := s.client.all(ctx, query{table: s.deadLettersTable(), filter: filter{}.partition(queuesPartition), columns: []string{"Timestamp", sinceColumn}})
	if err != nil {
		return false, fmt.Errorf("look since when there are dead letters: %w", err)
	}
	for _, e := range rows {
		for _, there := range []time.Time{e.changedAt, e.time(sinceColumn)} {
			if !there.IsZero() && !of.Before(there.Add(-sinceMargin)) {
				return false, nil
			}
		}
	}
	return true, nil
}

// DeleteDeadLetter implements tables.DeadLetters.
func (s *Store) DeleteDeadLetter(ctx context.Context, id, etag string) error {
	queue, order, ok := tables.SplitDeadLetterID(id)
	if !ok {
		return fmt.Errorf("delete dead letter: %w", tables.ErrNotFound)
	}
	if err := s.client.remove(ctx, s.deadLettersTable(), queue, order, etag); err != nil {
		return fmt.Errorf("delete dead letter: %w", err)
	}
	return nil
}

// ListDeadLetters implements tables.DeadLetters. The partitions of several queues
// are merged by their row keys, which sort newest first.
func (s *Store) ListDeadLetters(ctx context.Context, f tables.DeadLetterFilter, page tables.Page) ([]tables.DeadLetter, tables.Cursor, error) {
	if err := checkLimit(page.Limit); err != nil {
		return nil, "", err
	}
	after, err := parsePosition(page.After)
	if err == nil && after.Day != "" {
		err = tables.ErrBadCursor // of another list
	}
	if err != nil {
		return nil, "", fmt.Errorf("list dead letters: %w", err)
	}
	ds, next, err := s.listDeadLetters(ctx, f, page.Limit, after)
	if err != nil {
		return nil, "", fmt.Errorf("list dead letters: %w", err)
	}
	return ds, next, nil
}

func (s *Store) listDeadLetters(ctx context.Context, f tables.DeadLetterFilter, limit int, after position) ([]tables.DeadLetter, tables.Cursor, error) {
	queues, err := s.deadLetterQueues(ctx, f.Queue)
	if err != nil {
		return nil, "", err
	}
	lanes := make([]*lane, 0, len(queues))
	for _, queue := range queues {
		lanes = append(lanes, &lane{store: s, query: deadLetterQuery(s.deadLettersTable(), queue, f, after.Row, limit+1)})
	}
	var found []tables.DeadLetter
	last := after
	for looked := 0; ; looked++ {
		e, err := nextOf(ctx, lanes)
		if err != nil {
			return nil, "", err
		}
		if e == nil {
			return found, "", nil
		}
		if looked >= maxRequests*pageRows || len(found) == limit && f.Matches(e.deadLetter()) {
			return found, last.cursor(), nil
		}
		if d := e.deadLetter(); f.Matches(d) {
			found = append(found, d)
		}
		last = position{Row: e.rk}
	}
}

// deadLetterQueues returns the queues to list, in order.
func (s *Store) deadLetterQueues(ctx context.Context, only string) ([]string, error) {
	if only != "" {
		if !safeKey(only) || strings.HasPrefix(only, separator) {
			return nil, nil
		}
		return []string{only}, nil
	}
	rows, err := s.client.all(ctx, query{table: s.deadLettersTable(), filter: filter{}.partition(queuesPartition)})
	queues := make([]string, 0, len(rows))
	for _, e := range rows {
		queues = append(queues, e.rk)
	}
	return queues, err
}

// deadLetterQuery asks for one queue's rows behind the row key after.
func deadLetterQuery(table, queue string, f tables.DeadLetterFilter, after string, top int) query {
	q := filter{}.partition(queue)
	if !f.Until.IsZero() {
		after = max(after, invertedMillis(f.Until))
	}
	if after != "" {
		q = q.where("RowKey", "gt", after)
	}
	if !f.From.IsZero() {
		q = q.where("RowKey", "lt", invertedMillis(f.From)+separator)
	}
	return query{table: table, filter: q, columns: deadLetterListColumns, top: max(top, pageRows), etags: true}
}

// lane reads the rows of one query as they are needed.
type lane struct {
	store *Store
	query query
	rows  []entity
	from  token
	ended bool
}

// head returns the next row without taking it; nil at the end.
func (l *lane) head(ctx context.Context) (*entity, error) {
	for len(l.rows) == 0 && !l.ended {
		rows, next, err := l.store.client.page(ctx, l.query, l.from)
		if err != nil {
			return nil, err
		}
		l.rows, l.from, l.ended = rows, next, next == (token{})
	}
	if len(l.rows) == 0 {
		return nil, nil
	}
	return &l.rows[0], nil
}

// nextOf takes the first row of all lanes by row key; nil when all are empty.
func nextOf(ctx context.Context, lanes []*lane) (*entity, error) {
	var first *lane
	for _, l := range lanes {
		e, err := l.head(ctx)
		if err != nil {
			return nil, err
		}
		if e != nil && (first == nil || e.rk < first.rows[0].rk) {
			first = l
		}
	}
	if first == nil {
		return nil, nil
	}
	e := first.rows[0]
	first.rows = first.rows[1:]
	return &e, nil
}
