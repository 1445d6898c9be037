package azuretable

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pushlease/pushlease/tables"
)

// flushWait is how long a list waits for this process's own attempts to
// reach the index, which it asks for, so that what was recorded here just now
// is mostly there.
const flushWait = time.Second

// Attempts implements tables.History.
func (s *Store) Attempts(ctx context.Context, f tables.AttemptFilter, page tables.Page) ([]tables.Attempt, tables.Cursor, error) {
	if err := checkLimit(page.Limit); err != nil {
		return nil, "", err
	}
	at, err := parsePosition(page.After)
	if err != nil {
		return nil, "", fmt.Errorf("list attempts: %w", err)
	}
	var as []tables.Attempt
	var next tables.Cursor
	if f.MessageID != "" {
		as, next, err = s.attemptsOfMessage(ctx, f, page.Limit, at)
	} else {
		as, next, err = s.recentAttempts(ctx, f, page.Limit, at)
	}
	if err != nil {
		return nil, "", fmt.Errorf("list attempts: %w", err)
	}
	return as, next, nil
}

// attemptsOfMessage lists from the Log tables, which know a message by its id.
func (s *Store) attemptsOfMessage(ctx context.Context, f tables.AttemptFilter, limit int, at position) ([]tables.Attempt, tables.Cursor, error) {
	if at.Day != "" {
		return nil, "", tables.ErrBadCursor // of another list
	}
	_, all, err := s.message(ctx, f.Queue, f.MessageID)
	if err != nil {
		return nil, "", err
	}
	all = slices.DeleteFunc(all, func(a tables.Attempt) bool { return !f.Matches(a) || recentKey(a) <= at.Row })
	slices.SortFunc(all, func(a, b tables.Attempt) int { return strings.Compare(recentKey(a), recentKey(b)) })
	if len(all) <= limit {
		return all, "", nil
	}
	return all[:limit], position{Row: recentKey(all[limit-1])}.cursor(), nil
}

// recentAttempts lists from the Recent tables: the tables from the newest day to
// the oldest, and in each the partitions and rows in ascending order of their
// keys, which is newest first.
func (s *Store) recentAttempts(ctx context.Context, f tables.AttemptFilter, limit int, at position) ([]tables.Attempt, tables.Cursor, error) {
	prefix := allWebhooks
	if f.WebhookID != "" {
		prefix = webhookPrefix(f.WebhookID)
	}
	if (at.Day == "" && at.Row != "") || !strings.HasPrefix(at.Partition, prefix) && at.Day != "" {
		return nil, "", tables.ErrBadCursor // of another list
	}
	wait, cancel := context.WithTimeout(ctx, flushWait)
	defer cancel()
	_ = s.recent.flush(wait) // a list may lag
	existing, err := s.listing.existing(ctx, listingAge)
	if err != nil {
		return nil, "", err
	}
	w := walk{store: s, filter: f, columns: attemptFilter(f), prefix: prefix, days: existing, limit: limit, at: at}
	return w.run(ctx)
}

// attemptFilter is the part of f that the service can check. Values that might be
// stored as binary are left to Matches.
func attemptFilter(f tables.AttemptFilter) filter {
	var q filter
	for _, c := range []struct{ column, value string }{
		{"Queue", f.Queue}, {"ErrorClass", string(f.ErrorClass)}, {"Action", string(f.Action)}, {"Reason", string(f.Reason)},
	} {
		if c.value != "" && safeKey(c.value) {
			q = q.where(c.column, "eq", c.value)
		}
	}
	if f.Status != 0 {
		q = q.whereNumber("Status", "eq", f.Status)
	}
	if f.StatusClass > 0 && f.StatusClass < 10 {
		q = q.whereNumber("Status", "ge", 100*f.StatusClass).whereNumber("Status", "lt", 100*f.StatusClass+100)
	}
	return q
}

// walk is one page of a list of recent attempts on its way.
type walk struct {
	store   *Store
	filter  tables.AttemptFilter
	columns filter
	prefix  string
	days    days
	limit   int
	// at is behind the last row that was looked at.
	at    position
	found []tables.Attempt
	// last is behind the last row of a full page.
	last position
}

func (w *walk) run(ctx context.Context) ([]tables.Attempt, tables.Cursor, error) {
	if w.at.Day == "" && !w.enter(w.firstDay()) {
		return nil, "", nil
	}
	// The table may be gone since the cursor was made.
	if !slices.Contains(w.days.recent, w.at.Day) && !w.nextDay() {
		return nil, "", nil
	}
	given := w.at.token()
	for range maxRequests {
		rows, next, err := w.store.client.page(ctx, query{
			table: w.store.recentTable(w.at.Day), filter: w.span(), top: max(w.limit+1-len(w.found), pageRows),
		}, w.at.token())
		if w.at.token() == given && given != (token{}) && isRefused(err) {
			return nil, "", tables.ErrBadCursor
		}
		if err != nil {
			return nil, "", err
		}
		if w.take(rows) {
			return w.found[:w.limit], w.last.cursor(), nil
		}
		switch {
		case len(rows) > 0 && next != (token{}):
			// Go on behind the last row.
		case next != (token{}):
			w.at = w.at.withToken(next)
		case w.at.Row != "" && !w.pastEnd():
			w.at = position{Day: w.at.Day, Partition: w.at.Partition}
		case !w.nextDay():
			return w.found, "", nil
		}
	}
	return w.found, w.at.cursor(), nil
}

// take keeps the rows that pass the filter and reports whether there are more
// than the page has room for.
func (w *walk) take(rows []entity) (full bool) {
	for _, e := range rows {
		w.at = position{Day: w.at.Day, Partition: e.pk, Row: e.rk}
		a := e.attempt()
		// The records of a message may have expired before the day of its
		// last attempt has.
		if !w.filter.Matches(a) || a.Damage.Columns == "" && !slices.Contains(w.days.log, day(a.Day)) {
			continue
		}
		if w.found = append(w.found, a); len(w.found) > w.limit {
			return true
		}
		w.last = w.at
	}
	return false
}

// span is the filter for the rest of a partition, or for the partitions after it.
func (w *walk) span() filter {
	if w.at.Row != "" {
		return slices.Concat(filter{}.partition(w.at.Partition).where("RowKey", "gt", w.at.Row), w.columns)
	}
	f := filter{}.where("PartitionKey", "gt", w.at.Partition)
	if from := w.filter.From; !from.IsZero() && w.at.Day == day(from) {
		f = f.where("PartitionKey", "le", w.prefix+invertedHour(from))
	} else {
		f = f.where("PartitionKey", "lt", w.prefix+separator)
	}
	return slices.Concat(f, w.columns)
}

// pastEnd reports whether no later partition of the day can match.
func (w *walk) pastEnd() bool {
	from := w.filter.From
	return !from.IsZero() && w.at.Day == day(from) && w.at.Partition >= w.prefix+invertedHour(from)
}

// firstDay returns the newest day that can have rows; "" when there is none.
func (w *walk) firstDay() string {
	for _, d := range w.days.recent {
		if w.filter.Until.IsZero() || d <= day(w.filter.Until) {
			return d
		}
	}
	return ""
}

// nextDay goes to the next older day and reports whether there is one.
func (w *walk) nextDay() bool {
	for _, d := range w.days.recent {
		if d < w.at.Day {
			return w.enter(d)
		}
	}
	return false
}

// enter goes to the first row of a day that can match and reports whether there
// can be any.
func (w *walk) enter(d string) bool {
	if d == "" || (!w.filter.From.IsZero() && d < day(w.filter.From)) {
		return false
	}
	w.at = position{Day: d, Partition: w.prefix}
	if until := w.filter.Until; !until.IsZero() && d == day(until) {
		// Behind all rows of the millisecond that is excluded, in its hour.
		w.at.Partition = w.prefix + invertedHour(until)
		w.at.Row = invertedMillis(until) + separator + separator
	}
	return true
}
