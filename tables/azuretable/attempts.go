package azuretable

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
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
	at, err := parsePlace(page.After)
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
func (s *Store) attemptsOfMessage(ctx context.Context, f tables.AttemptFilter, limit int, at place) ([]tables.Attempt, tables.Cursor, error) {
	if at.Day != "" || len(at.Others) > 0 {
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
// keys, which is newest first. The shards of all webhooks are walked side by side.
func (s *Store) recentAttempts(ctx context.Context, f tables.AttemptFilter, limit int, after place) ([]tables.Attempt, tables.Cursor, error) {
	prefixes := allPrefixes()
	if f.WebhookID != "" {
		prefixes = []string{webhookPrefix(f.WebhookID)}
	}
	at, ok := after.shards(len(prefixes))
	for i := range at {
		ok = ok && (at[i].Day != "" || at[i].Row == "") && (at[i].Day == "" || strings.HasPrefix(at[i].Partition, prefixes[i]))
	}
	if !after.begins() && !ok {
		return nil, "", tables.ErrBadCursor // of another list
	}
	wait, cancel := context.WithTimeout(ctx, flushWait)
	defer cancel()
	_ = s.recent.flush(wait) // a list may lag
	existing, err := s.listing.existing(ctx, listingAge)
	if err != nil {
		return nil, "", err
	}
	list := make(walks, len(prefixes))
	for i, prefix := range prefixes {
		w := &walk{store: s, filter: f, columns: attemptFilter(f), prefix: prefix, days: existing, limit: limit}
		if after.begins() {
			w.begin()
		} else {
			w.goOn(at[i])
		}
		list[i] = w
	}
	return list.page(ctx, limit)
}

// walks are one page of a list of recent attempts on its way, in each of its shards.
type walks []*walk

// page takes what the walks find, newest first. Each of them goes only as far as it takes to know which comes next.
func (ws walks) page(ctx context.Context, limit int) (as []tables.Attempt, next tables.Cursor, err error) {
	var last *recent
	for requests := 0; ; {
		first := ws.first()
		behind := slices.DeleteFunc(slices.Clone(ws), func(w *walk) bool { return w.over || len(w.found) > 0 || first != nil && w.past(first) })
		switch {
		case len(behind) > 0 && requests < maxRequests:
			requests += len(behind)
			if err := behind.step(ctx); err != nil {
				return nil, "", err
			}
		case len(behind) > 0, len(as) == limit && first != nil:
			return as, ws.cursor(last), nil
		case first == nil:
			return as, "", nil
		default:
			as, last = append(as, first.Attempt), first
			for _, w := range ws { // written again, it may be in two of them
				if len(w.found) > 0 && w.found[0].at.Row == first.at.Row {
					w.found = w.found[1:]
				}
			}
		}
	}
}

// first is the newest of what was found and not taken yet; nil for none.
func (ws walks) first() (first *recent) {
	for _, w := range ws {
		if len(w.found) > 0 && (first == nil || w.found[0].before(first)) {
			first = &w.found[0]
		}
	}
	return first
}

// step makes one request for each of the walks.
func (ws walks) step(ctx context.Context) error {
	errs := make([]error, len(ws))
	var walking sync.WaitGroup
	for i, w := range ws {
		walking.Go(func() { errs[i] = w.step(ctx) })
	}
	walking.Wait()
	return errors.Join(errs...)
}

// cursor is where the list goes on behind the last that was taken. Newer rows that come meanwhile are not in it.
func (ws walks) cursor(last *recent) tables.Cursor {
	var all []position
	for _, w := range ws {
		switch {
		case len(w.found) == 0 && w.over:
			all = append(all, position{})
		case len(w.found) == 0:
			all = append(all, w.at)
		case last == nil:
			all = append(all, w.from)
		default:
			all = append(all, position{Day: last.at.Day, Partition: w.prefix + last.at.hour(), Row: last.at.Row})
		}
	}
	return place{all[0], all[1:]}.cursor()
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

// walk is the way through one shard.
type walk struct {
	store   *Store
	filter  tables.AttemptFilter
	columns filter
	prefix  string
	days    days
	limit   int
	// at is behind the last row that was looked at; from is where this page began, and given the service's token there.
	at, from position
	given    token
	// found is not taken yet. over: there is nothing else.
	found []recent
	over  bool
}

// recent is an attempt in a list, when its row was written, and where the list goes on behind it.
type recent struct {
	tables.Attempt
	written time.Time
	at      position
}

// before reports whether r comes first: it began later, or is the same and was written later.
func (r *recent) before(other *recent) bool {
	return r.at.Row < other.at.Row || r.at.Row == other.at.Row && r.written.After(other.written)
}

// hour is the last part of a partition's name: inverted, and empty before all hours of a day.
func (p position) hour() string { return p.Partition[strings.LastIndex(p.Partition, separator)+1:] }

func (w *walk) begin() {
	w.over = !w.enter(w.firstDay())
	w.from = w.at
}

// goOn goes on behind the zero position, which is the end, or another one. Its table may be gone since the cursor was made.
func (w *walk) goOn(at position) {
	w.at, w.from, w.given = at, at, at.token()
	w.over = at == position{} || !slices.Contains(w.days.recent, at.Day) && !w.nextDay()
}

// past reports whether the walk finds nothing any more that comes before r.
func (w *walk) past(r *recent) bool {
	at, hour, other := w.at, w.at.hour(), r.at.hour()
	switch {
	case at.Day != r.at.Day:
		return at.Day < r.at.Day
	case hour != other:
		return hour > other
	}
	return at.Row == "" || at.Row >= r.at.Row
}

// step makes one request.
func (w *walk) step(ctx context.Context) error {
	rows, next, err := w.store.client.page(ctx, query{
		table: w.store.recentTable(w.at.Day), filter: w.span(), top: max(w.limit+1, pageRows),
	}, w.at.token())
	if w.at.token() == w.given && w.given != (token{}) && isRefused(err) {
		return tables.ErrBadCursor
	}
	if err != nil {
		return err
	}
	w.take(rows)
	switch {
	case len(rows) > 0 && next != (token{}):
		// Go on behind the last row.
	case next != (token{}):
		w.at = w.at.withToken(next)
	case w.at.Row != "" && !w.pastEnd():
		w.at = position{Day: w.at.Day, Partition: w.at.Partition}
	default:
		w.over = !w.nextDay()
	}
	return nil
}

// take keeps the rows that pass the filter.
func (w *walk) take(rows []entity) {
	for _, e := range rows {
		w.at = position{Day: w.at.Day, Partition: e.pk, Row: e.rk}
		a := e.attempt()
		// The records of a message may have expired before the day of its
		// last attempt has.
		if w.filter.Matches(a) && (a.Damage.Columns != "" || slices.Contains(w.days.log, day(a.Day))) {
			w.found = append(w.found, recent{a, e.changedAt, w.at})
		}
	}
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
