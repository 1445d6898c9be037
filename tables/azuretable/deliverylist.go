package azuretable

import (
	"context"
	"fmt"
	"slices"

	"github.com/pushlease/pushlease/tables"
)

// Deliveries implements tables.History: the Log tables from the newest day to the oldest, and in each the partitions and
// rows in the order of their keys, which says nothing of time.
func (s *Store) Deliveries(ctx context.Context, f tables.DeliveryFilter, page tables.Page) ([]tables.Delivery, tables.Cursor, error) {
	if err := checkLimit(page.Limit); err != nil {
		return nil, "", err
	}
	at, err := parsePosition(page.After)
	if err == nil && page.After != "" && (at.Day == "" || !slices.Contains(s.shards(), at.Partition)) {
		err = tables.ErrBadCursor // of another list
	}
	var existing days
	if err == nil {
		existing, err = s.listing.existing(ctx, listingAge)
	}
	if err != nil {
		return nil, "", fmt.Errorf("list deliveries: %w", err)
	}
	w := deliveryWalk{store: s, filter: f, limit: page.Limit, at: at}
	for _, d := range existing.log {
		if (f.From.IsZero() || d >= day(f.From)) && (f.Until.IsZero() || d <= day(f.Until)) {
			w.days = append(w.days, d)
		}
	}
	found, next, err := w.run(ctx)
	if err != nil {
		return nil, "", fmt.Errorf("list deliveries: %w", err)
	}
	return found, next, nil
}

// deliveryWalk is one page of a list of deliveries on its way.
type deliveryWalk struct {
	store  *Store
	filter tables.DeliveryFilter
	days   []string // newest first
	limit  int
	at     position
	found  []tables.Delivery
}

// run looks at rows for as many requests as a page may have. Where a day's table is gone since the cursor was made, the next older one is gone on with.
func (w *deliveryWalk) run(ctx context.Context) ([]tables.Delivery, tables.Cursor, error) {
	if !slices.Contains(w.days, w.at.Day) && !w.nextDay() {
		return nil, "", nil
	}
	given := w.at.token()
	for range maxRequests {
		if len(w.found) == w.limit {
			break
		}
		rows, next, err := w.store.client.page(ctx, query{table: w.store.logTable(w.at.Day), filter: w.span(), top: w.limit - len(w.found)}, w.at.token())
		if w.at.token() == given && given != (token{}) && isRefused(err) {
			return nil, "", tables.ErrBadCursor
		}
		if err != nil {
			return nil, "", err
		}
		for _, e := range rows {
			w.at = position{Day: w.at.Day, Partition: w.at.Partition, Row: e.rk}
			if d := e.delivery(); w.filter.Matches(d) {
				w.found = append(w.found, d)
			}
		}
		switch {
		case len(rows) > 0 && next != (token{}):
			// Go on behind the last row.
		case next != (token{}):
			w.at = w.at.withToken(next)
		case !w.nextPartition() && !w.nextDay():
			return w.found, "", nil
		}
	}
	return w.found, w.at.cursor(), nil
}

// span is the filter for the rest of a partition. Attempts have no state. What might be stored as binary is left to Matches.
func (w *deliveryWalk) span() filter {
	q := filter{}.partition(w.at.Partition).where("RowKey", "gt", w.at.Row)
	if w.filter.State == "" {
		q = q.where("State", "gt", "")
	}
	for column, value := range map[string]string{"State": string(w.filter.State), "Queue": w.filter.Queue, "WebhookID": w.filter.WebhookID} {
		if value != "" && safeKey(value) {
			q = q.where(column, "eq", value)
		}
	}
	return q
}

func (w *deliveryWalk) nextPartition() bool {
	all := w.store.shards()
	i := slices.Index(all, w.at.Partition) + 1
	if i == len(all) {
		return false
	}
	w.at = position{Day: w.at.Day, Partition: all[i]}
	return true
}

// nextDay goes to the newest day that is older than where the walk is.
func (w *deliveryWalk) nextDay() bool {
	for _, d := range w.days {
		if w.at.Day == "" || d < w.at.Day {
			w.at = position{Day: d, Partition: w.store.shards()[0]}
			return true
		}
	}
	return false
}
