package sqlite

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pushlease/pushlease/tables"
)

// deadLetterColumns are all that lists show; text is read apart.
const deadLetterColumns = `queue, place, etag, message_id, message_at, webhook_id, generation, status, reason, description, attempts,
last_status, last_error_class, first_at, last_at, dead_lettered_at, encoding, size, body_hash, dequeue_count, inserted_at,
copied_to_queue, replay_token, replays, replayed_at, instance`

func deadLetterArgs(d tables.DeadLetter) []any {
	queue, place, _ := tables.SplitDeadLetterID(d.ID)
	text := d.Text
	if text == nil {
		text = []byte{}
	}
	return []any{
		queue, place, d.ETag, d.MessageID, millis(d.Day), d.WebhookID, d.Generation, d.Status, d.Reason, d.Description, d.Attempts,
		d.LastStatus, d.LastErrorClass, millis(d.FirstAt), millis(d.LastAt), millis(d.DeadLetteredAt), d.Encoding, d.Size, d.BodyHash,
		d.DequeueCount, millis(d.InsertedAt), d.CopiedToQueue, d.ReplayToken, d.Replays, millis(d.ReplayedAt), d.Instance, text,
	}
}

// scanDeadLetter reads deadLetterColumns, and then what more names.
func scanDeadLetter(scan func(...any) error, more func(*tables.DeadLetter) []any) (tables.DeadLetter, error) {
	var d tables.DeadLetter
	var place string
	var wrong misread
	into := []any{
		&d.Queue, &place, &d.ETag, &d.MessageID, wrong.time("message_at", &d.Day), &d.WebhookID, &d.Generation, &d.Status, &d.Reason, &d.Description, &d.Attempts,
		&d.LastStatus, &d.LastErrorClass, wrong.time("first_at", &d.FirstAt), wrong.time("last_at", &d.LastAt), wrong.time("dead_lettered_at", &d.DeadLetteredAt), &d.Encoding, &d.Size, &d.BodyHash,
		&d.DequeueCount, wrong.time("inserted_at", &d.InsertedAt), &d.CopiedToQueue, &d.ReplayToken, &d.Replays, wrong.time("replayed_at", &d.ReplayedAt), &d.Instance,
	}
	if more != nil {
		into = append(into, more(&d)...)
	}
	err := scan(into...)
	d.ID = d.Queue + "." + place
	if !d.MendStatus() {
		wrong = append(wrong, "status")
	}
	if d.Status == tables.Replaying && d.ReplayedAt.IsZero() {
		wrong = append(wrong, "replayed_at")
	}
	d.Damaged = tables.NewDamage(wrong, wrong).Err()
	return d, err
}

func withText(d *tables.DeadLetter) []any { return []any{&d.Text} }

const (
	whereDeadLetter  = " WHERE queue = ? AND place = ?"
	getDeadLetterSQL = "SELECT " + deadLetterColumns + ", text FROM dead_letters" + whereDeadLetter
)

var (
	putDeadLetterSQL = insertOnce("dead_letters", deadLetterColumns+", text")
	// updateDeadLetterSQL sets all columns but the two of the key. The text of a row that a list returned is none.
	updateDeadLetterSQL = "UPDATE dead_letters SET " + strings.Join(columnNames(deadLetterColumns)[2:], " = ?, ") +
		" = ?, text = coalesce(nullif(?, x''), text)" + whereDeadLetter + " AND etag = ?"
)

// PutDeadLetter implements tables.DeadLetters.
func (db *DB) PutDeadLetter(ctx context.Context, d tables.DeadLetter) (tables.DeadLetter, error) {
	queue, place, ok := tables.SplitDeadLetterID(d.ID)
	if !ok || queue != d.Queue {
		return tables.DeadLetter{}, errors.New("put dead letter: its id is not one that DeadLetterID made for its queue")
	}
	d.ETag = newETag()
	var stored tables.DeadLetter
	err := db.write(ctx, serviceTable, "put_dead_letter", func(tx *tx) (err error) {
		if _, err := tx.exec(putDeadLetterSQL, deadLetterArgs(d)...); err != nil {
			return err
		}
		stored, err = scanDeadLetter(func(into ...any) error { return tx.row(getDeadLetterSQL, []any{queue, place}, into...) }, withText)
		return err
	})
	if err != nil {
		return tables.DeadLetter{}, fmt.Errorf("put dead letter: %w", err)
	}
	return stored, nil
}

// UpdateDeadLetter implements tables.DeadLetters.
func (db *DB) UpdateDeadLetter(ctx context.Context, d tables.DeadLetter) (tables.DeadLetter, error) {
	queue, place, ok := tables.SplitDeadLetterID(d.ID)
	if !ok {
		return tables.DeadLetter{}, fmt.Errorf("update dead letter: %w", tables.ErrNotFound)
	}
	expected := d.ETag
	d.ETag = newETag()
	err := db.write(ctx, serviceTable, "update_dead_letter", func(tx *tx) error {
		return tx.updateDeadLetter(d, queue, place, expected)
	})
	if err != nil {
		return tables.DeadLetter{}, fmt.Errorf("update dead letter: %w", err)
	}
	return d, nil
}

// updateDeadLetter replaces the row while its ETag is expected.
func (t *tx) updateDeadLetter(d tables.DeadLetter, queue, place, expected string) error {
	n, err := t.exec(updateDeadLetterSQL, append(deadLetterArgs(d)[2:], queue, place, expected)...)
	if err == nil && n == 0 {
		err = t.whyUnchanged("SELECT 1 FROM dead_letters"+whereDeadLetter, queue, place)
	}
	return err
}

// GetDeadLetter implements tables.DeadLetters.
func (db *DB) GetDeadLetter(ctx context.Context, id string) (tables.DeadLetter, error) {
	queue, place, ok := tables.SplitDeadLetterID(id)
	var d tables.DeadLetter
	err := tables.ErrNotFound
	if ok {
		found := false
		err = db.read(ctx, serviceTable, "get_dead_letter", query{text: getDeadLetterSQL, args: []any{queue, place}}, func(scan func(...any) error) (_ bool, err error) {
			found = true
			d, err = scanDeadLetter(scan, withText)
			return false, err
		})
		if err == nil && !found {
			err = tables.ErrNotFound
		}
	}
	if err != nil {
		return tables.DeadLetter{}, fmt.Errorf("get dead letter: %w", err)
	}
	return d, nil
}

// DeleteDeadLetter implements tables.DeadLetters.
func (db *DB) DeleteDeadLetter(ctx context.Context, id, etag string) error {
	queue, place, ok := tables.SplitDeadLetterID(id)
	if !ok {
		return fmt.Errorf("delete dead letter: %w", tables.ErrNotFound)
	}
	err := db.write(ctx, serviceTable, "delete_dead_letter", func(tx *tx) error {
		n, err := tx.exec("DELETE FROM dead_letters"+whereDeadLetter+" AND (? = '' OR etag = ?)", queue, place, etag, etag)
		if err == nil && n == 0 {
			err = tx.whyUnchanged("SELECT 1 FROM dead_letters"+whereDeadLetter, queue, place)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("delete dead letter: %w", err)
	}
	return nil
}

const deadLetterCursor = "d."

// placeOf is where a dead letter of this time begins in the list, but for its hash.
func placeOf(t time.Time) string {
	_, place, _ := tables.SplitDeadLetterID(tables.DeadLetterID(tables.MessageKey{Queue: "any"}, "", 0, t))
	place, _, _ = strings.Cut(place, "-")
	return place
}

// deadLettersQuery walks one index from the newest row on, or from after the cursor; the
// filter's other fields are left to Matches.
func deadLettersQuery(f tables.DeadLetterFilter, after tables.Cursor) (query, error) {
	index, where, args := "dead_letters_place", []string{"TRUE"}, []any{}
	add := func(condition string, values ...any) {
		where, args = append(where, condition), append(args, values...)
	}
	if f.Queue != "" {
		index = "sqlite_autoindex_dead_letters_1" // of the UNIQUE constraint
		add("queue = ?", f.Queue)
	}
	if after != "" {
		id, ours := strings.CutPrefix(string(after), deadLetterCursor)
		queue, place, ok := tables.SplitDeadLetterID(id)
		if !ours || !ok {
			return query{}, tables.ErrBadCursor
		}
		add("(place, queue) > (?, ?)", place, queue)
	}
	if !f.Until.IsZero() {
		add("place >= ?", placeOf(f.Until)+"-")
	}
	if !f.From.IsZero() {
		add("place < ?", placeOf(f.From)+".") // '.' sorts after '-'
	}
	return query{
		text: "SELECT " + deadLetterColumns + " FROM dead_letters INDEXED BY " + index +
			" WHERE " + strings.Join(where, " AND ") + " ORDER BY place, queue LIMIT " + strconv.Itoa(scanBound+1),
		args: args, filtered: true,
	}, nil
}

// HasLostDeadLetters implements tables.DeadLetters. Nothing tells a row that another program has deleted from a file from one that pushlease has.
func (db *DB) HasLostDeadLetters(context.Context, time.Time) (bool, error) { return false, nil }

// ListDeadLetters implements tables.DeadLetters.
func (db *DB) ListDeadLetters(ctx context.Context, f tables.DeadLetterFilter, page tables.Page) ([]tables.DeadLetter, tables.Cursor, error) {
	if err := checkPage(page); err != nil {
		return nil, "", err
	}
	q, err := deadLettersQuery(f, page.After)
	if err != nil {
		return nil, "", fmt.Errorf("list dead letters: %w", err)
	}
	var ds []tables.DeadLetter
	var next tables.Cursor
	var last string
	looked := 0
	err = db.read(ctx, serviceTable, "list_dead_letters", q, func(scan func(...any) error) (bool, error) {
		if len(ds) == page.Limit || looked == scanBound {
			next = tables.Cursor(deadLetterCursor + last)
			return false, nil
		}
		d, err := scanDeadLetter(scan, nil)
		if err != nil {
			return false, err
		}
		looked++
		last = d.ID
		if f.Matches(d) {
			ds = append(ds, d)
		}
		return true, nil
	})
	if err != nil {
		return nil, "", fmt.Errorf("list dead letters: %w", err)
	}
	return ds, next, nil
}
