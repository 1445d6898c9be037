package sqlite

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pushlease/pushlease/tables"
)

const attemptColumns = `message_id, queue, inserted_at, webhook_id, generation, number, started_at, duration_ns, status, error_class,
error, snippet, retry_after, redirect_host, redials, action, reason, charged, delay_ns, next_at, explanation, instance, dequeue_count`

// ofDelivery are the columns of the delivery that an attempt was the first of and completed.
const ofDelivery = "completed, updated_at, expires_at, encoding, size, body_hash"

// putAttempt writes one row, in the order of attemptColumns, ofDelivery and then its day. It is
// that of d too where d is not nil.
func (t *tx) putAttempt(a *tables.Attempt, d *tables.Delivery) error {
	s, err := t.prepare(putAttemptSQL)
	if err != nil {
		return err
	}
	s.text(a.MessageID).text(a.Queue).time(a.Day).text(a.WebhookID).number(int64(a.Generation)).number(int64(a.Number)).
		time(a.StartedAt).number(int64(a.Duration)).number(int64(a.Status)).text(string(a.ErrorClass)).
		text(a.Error).text(a.Snippet).text(a.RetryAfter).text(a.RedirectHost).number(int64(a.Redials)).
		text(string(a.Action)).text(string(a.Reason)).flag(a.Charged).number(int64(a.Delay)).time(a.NextAt).
		text(a.Explanation).text(a.Instance).number(a.DequeueCount).flag(d != nil)
	if d == nil {
		d = &tables.Delivery{}
	}
	s.time(d.UpdatedAt).time(d.ExpiresAt).text(d.Encoding).number(int64(d.Size)).text(d.BodyHash).
		number(dayOf(a.Day))
	return t.noteChanges(s.exec())
}

// scanAttempt reads placeColumns and attemptColumns.
func scanAttempt(scan func(...any) error) (at attemptPlace, a tables.Attempt, err error) {
	var wrong misread
	err = scan(&at.startedAt, &at.seq,
		&a.MessageID, &a.Queue, wrong.time("inserted_at", &a.Day), &a.WebhookID, &a.Generation, &a.Number, wrong.time("started_at", &a.StartedAt),
		&a.Duration, &a.Status, &a.ErrorClass,
		&a.Error, &a.Snippet, &a.RetryAfter, &a.RedirectHost, &a.Redials, &a.Action, &a.Reason, wrong.flag("charged", &a.Charged), &a.Delay,
		wrong.time("next_at", &a.NextAt), &a.Explanation, &a.Instance, &a.DequeueCount,
	)
	a.Damage = tables.NewDamage(wrong, nil)
	return at, a, err
}

// Message implements tables.History.
func (db *DB) Message(ctx context.Context, queue, messageID string) ([]tables.Delivery, []tables.Attempt, error) {
	where, args := " WHERE message_id = ?", []any{messageID}
	if queue != "" {
		where, args = where+" AND queue = ?", append(args, queue)
	}
	ds, err := db.readDeliveries(ctx, "message", query{text: deliveriesSQL(where), args: slices.Concat(args, args)})
	if err != nil {
		return nil, nil, fmt.Errorf("message's deliveries: %w", err)
	}
	var as []tables.Attempt
	q := query{text: "SELECT " + placeColumns + attemptColumns + " FROM attempts" + where + " ORDER BY started_at, seq", args: args}
	err = db.read(ctx, serviceTable, "message", q, func(scan func(...any) error) (bool, error) {
		_, a, err := scanAttempt(scan)
		as = append(as, a)
		return true, err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("message's attempts: %w", err)
	}
	if len(ds)+len(as) == 0 {
		return nil, nil, fmt.Errorf("message: %w", tables.ErrNotFound)
	}
	return ds, as, nil
}

// attemptPlace is a place in the list, newest first: within a millisecond rows are in
// the order in which they were recorded, the latest first.
type attemptPlace struct{ startedAt, seq int64 }

const placeColumns = "started_at, seq, "

func (p attemptPlace) cursor() tables.Cursor {
	return tables.Cursor(fmt.Sprintf("a.%d.%d", p.startedAt, p.seq))
}

func parseAttemptCursor(c tables.Cursor) (attemptPlace, error) {
	parts := strings.Split(string(c), ".")
	if len(parts) == 3 {
		var p attemptPlace
		var err1, err2 error
		p.startedAt, err1 = strconv.ParseInt(parts[1], 10, 64)
		p.seq, err2 = strconv.ParseInt(parts[2], 10, 64)
		if err1 == nil && err2 == nil && p.cursor() == c {
			return p, nil
		}
	}
	return attemptPlace{}, fmt.Errorf("list attempts: %w", tables.ErrBadCursor)
}

// attemptsQuery walks one index from the newest row on, or from after the place; the
// filter's other fields are left to Matches.
func attemptsQuery(f tables.AttemptFilter, after attemptPlace, hasAfter bool) query {
	index, where, args := "attempts_started", []string{}, []any{}
	add := func(condition string, values ...any) {
		where, args = append(where, condition), append(args, values...)
	}
	switch {
	case f.MessageID != "":
		index = "sqlite_autoindex_attempts_1" // of the UNIQUE constraint
		add("message_id = ?", f.MessageID)
	case f.WebhookID != "":
		index = "attempts_webhook"
		add("webhook_id = ?", f.WebhookID)
	}
	if hasAfter {
		add("(started_at, seq) < (?, ?)", after.startedAt, after.seq)
	}
	if !f.From.IsZero() {
		add("started_at >= ?", millis(f.From))
	}
	if !f.Until.IsZero() {
		add("started_at <= ?", millis(f.Until))
	}
	if len(where) == 0 {
		add("TRUE")
	}
	return query{
		text: "SELECT " + placeColumns + attemptColumns + " FROM attempts INDEXED BY " + index +
			" WHERE " + strings.Join(where, " AND ") + " ORDER BY started_at DESC, seq DESC LIMIT " + strconv.Itoa(scanBound+1),
		args: args, filtered: true,
	}
}

// Attempts implements tables.History.
func (db *DB) Attempts(ctx context.Context, f tables.AttemptFilter, page tables.Page) ([]tables.Attempt, tables.Cursor, error) {
	if err := checkPage(page); err != nil {
		return nil, "", err
	}
	var after attemptPlace
	if page.After != "" {
		var err error
		if after, err = parseAttemptCursor(page.After); err != nil {
			return nil, "", err
		}
	}
	var as []tables.Attempt
	var next tables.Cursor
	var last attemptPlace
	looked := 0
	err := db.read(ctx, serviceTable, "attempts", attemptsQuery(f, after, page.After != ""), func(scan func(...any) error) (bool, error) {
		if len(as) == page.Limit || looked == scanBound {
			next = last.cursor()
			return false, nil
		}
		at, a, err := scanAttempt(scan)
		if err != nil {
			return false, err
		}
		looked++
		last = at
		if f.Matches(a) {
			as = append(as, a)
		}
		return true, nil
	})
	if err != nil {
		return nil, "", fmt.Errorf("list attempts: %w", err)
	}
	return as, next, nil
}
