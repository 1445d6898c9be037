package sqlite

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/pushlease/pushlease/tables"
)

// dayPlace is a place in one of the two tables that have deliveries, the newest day first, and within it what was
// written last. Zero is the end.
type dayPlace struct{ day, seq int64 }

// beforeAll is the place before the first row.
var beforeAll = dayPlace{day: 1 << 40}

func (p dayPlace) compare(o dayPlace) int {
	return slices.Compare([]int64{p.day, p.seq}, []int64{o.day, o.seq})
}

// deliveryCursor is where a list goes on in each of the tables.
type deliveryCursor struct{ rows, completed dayPlace }

func (c deliveryCursor) text() tables.Cursor {
	return tables.Cursor(fmt.Sprintf("m.%d.%d.%d.%d", c.rows.day, c.rows.seq, c.completed.day, c.completed.seq))
}

func parseDeliveryCursor(text tables.Cursor) (deliveryCursor, error) {
	if text == "" {
		return deliveryCursor{beforeAll, beforeAll}, nil
	}
	var c deliveryCursor
	_, err := fmt.Sscanf(string(text), "m.%d.%d.%d.%d", &c.rows.day, &c.rows.seq, &c.completed.day, &c.completed.seq)
	if err != nil || c.text() != text {
		return deliveryCursor{}, fmt.Errorf("list deliveries: %w", tables.ErrBadCursor)
	}
	return c, nil
}

// deliveryTable is one of the two tables.
type deliveryTable struct{ name, columns, where string }

var (
	deliveryRows  = deliveryTable{"deliveries", deliveryColumns, ""}
	completedRows = deliveryTable{"attempts", completedColumns, " AND completed"}
)

// The queries keep to one day: only then the index of days leads to a place within it.
const dayWhere = " INDEXED BY %[1]s_day WHERE day = ? AND seq < ?"

// day finds the newest day with rows before one, and not before another.
func (t deliveryTable) day(before, first int64) query {
	return query{text: fmt.Sprintf("SELECT ifnull(max(day), 0) FROM %[1]s INDEXED BY %[1]s_day WHERE day < ? AND day >= ?", t.name), args: []any{before, first}}
}

// look counts the next rows of a day, up to so many, and finds the last of them.
func (t deliveryTable) look(from dayPlace, most int) query {
	return query{
		text: fmt.Sprintf("SELECT count(*), ifnull(min(seq), 0) FROM (SELECT seq FROM %[1]s"+dayWhere+" ORDER BY seq DESC LIMIT ?)", t.name),
		args: []any{from.day, from.seq, most},
	}
}

// matching are the rows from a place to another of its day which pass the filter: SQLite tells them apart many times faster than
// they can be read here.
func (t deliveryTable) matching(f tables.DeliveryFilter, from dayPlace, last int64, most int) query {
	where, args := t.where+" AND seq >= ?", []any{from.day, from.seq, last}
	add := func(narrows bool, condition string, value any) {
		if narrows {
			where, args = where+condition, append(args, value)
		}
	}
	add(f.Queue != "", " AND queue = ?", f.Queue)
	add(f.WebhookID != "", " AND webhook_id = ?", f.WebhookID)
	add(f.State != "" && t == deliveryRows, " AND state = ?", string(f.State))
	add(!f.From.IsZero(), " AND inserted_at >= ?", nextMilli(f.From))
	add(!f.Until.IsZero(), " AND inserted_at < ?", nextMilli(f.Until))
	return query{
		text: fmt.Sprintf("SELECT seq, "+t.columns+" FROM %[1]s"+dayWhere, t.name) + where + " ORDER BY seq DESC LIMIT ?",
		args: append(args, most), filtered: true,
	}
}

// nextMilli is the first millisecond that is not before t.
func nextMilli(t time.Time) int64 { return t.Add(time.Millisecond - 1).UnixMilli() }

// deliveryLane is what one table has for a page.
type deliveryLane struct {
	found  []tables.Delivery
	places []dayPlace
	// end is the last place that was looked at; zero where there is no more.
	end dayPlace
}

// deliveryLane looks at the rows of one table day by day, until the page is full or enough were looked at.
func (db *DB) deliveryLane(ctx context.Context, t deliveryTable, f tables.DeliveryFilter, at dayPlace, limit int) (l deliveryLane, err error) {
	first := int64(1)
	if !f.From.IsZero() {
		first = dayOf(f.From)
	}
	if !f.Until.IsZero() {
		at = slices.MinFunc([]dayPlace{at, {day: dayOf(f.Until) + 1}}, dayPlace.compare)
	}
	for left := int64(scanBound); ; {
		var looked, last int64
		if err := db.readOne(ctx, t.look(at, int(left)), &looked, &last); err != nil {
			return l, err
		}
		if looked > 0 {
			full, err := db.addMatching(ctx, &l, t.matching(f, at, last, limit+1-len(l.found)), at.day, limit)
			if full || err != nil {
				return l, err
			}
		}
		if left -= looked; left == 0 {
			l.end = dayPlace{at.day, last}
			return l, nil
		}
		at.seq = math.MaxInt64
		if err := db.readOne(ctx, t.day(at.day, first), &at.day); err != nil || at.day == 0 {
			return l, err
		}
	}
}

// readOne reads a query of one row.
func (db *DB) readOne(ctx context.Context, q query, into ...any) error {
	return db.read(ctx, serviceTable, "list_deliveries", q, func(scan func(...any) error) (bool, error) { return false, scan(into...) })
}

// addMatching adds rows of a day to a lane, and reports whether there are more than the page has room for.
func (db *DB) addMatching(ctx context.Context, l *deliveryLane, q query, day int64, limit int) (full bool, err error) {
	err = db.read(ctx, serviceTable, "list_deliveries", q, func(scan func(...any) error) (bool, error) {
		at := dayPlace{day: day}
		d, err := scanDelivery(func(into ...any) error { return scan(append([]any{&at.seq}, into...)...) })
		if err != nil {
			return false, err
		}
		if full = len(l.found) == limit; full {
			l.end = l.places[limit-1]
			return false, nil
		}
		l.found, l.places = append(l.found, d), append(l.places, at)
		return true, nil
	})
	return full, err
}

// head is the day and time of the next row of a lane from i on; without one, of where it stopped.
func (l *deliveryLane) head(i int) (day int64, at time.Time, there bool) {
	if i < len(l.found) {
		return l.places[i].day, l.found[i].Day, true
	}
	return l.end.day, time.Time{}, false
}

// behind is the place behind the first i rows of a lane, which began after a place.
func (l *deliveryLane) behind(i int, after dayPlace) dayPlace {
	switch {
	case i == len(l.found):
		return l.end
	case i > 0:
		return l.places[i-1]
	}
	return after
}

// merged takes up to limit rows of two lanes, the newest first, and says how many are of the first one. It ends where what is left
// is of an older day than the place at which the other lane stopped.
func merged(rows, completed *deliveryLane, limit int) (list []tables.Delivery, n int) {
	for len(list) < limit {
		i, j := n, len(list)-n
		day, at, there := rows.head(i)
		otherDay, otherAt, otherThere := completed.head(j)
		switch {
		case there && (day > otherDay || day == otherDay && !at.Before(otherAt)):
			list, n = append(list, rows.found[i]), n+1
		case otherThere && otherDay >= day:
			list = append(list, completed.found[j])
		default:
			return list, n
		}
	}
	return list, n
}

// Deliveries implements tables.History.
func (db *DB) Deliveries(ctx context.Context, f tables.DeliveryFilter, page tables.Page) ([]tables.Delivery, tables.Cursor, error) {
	if err := checkPage(page); err != nil {
		return nil, "", err
	}
	after, err := parseDeliveryCursor(page.After)
	if err != nil {
		return nil, "", err
	}
	rows, err := db.deliveryLane(ctx, deliveryRows, f, after.rows, page.Limit)
	var completed deliveryLane
	if err == nil && (f.State == "" || f.State == tables.Delivered) {
		completed, err = db.deliveryLane(ctx, completedRows, f, after.completed, page.Limit)
	}
	if err != nil {
		return nil, "", fmt.Errorf("list deliveries: %w", err)
	}
	list, n := merged(&rows, &completed, page.Limit)
	next := deliveryCursor{rows.behind(n, after.rows), completed.behind(len(list)-n, after.completed)}
	if next == (deliveryCursor{}) {
		return list, "", nil
	}
	return list, next.text(), nil
}
