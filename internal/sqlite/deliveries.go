package sqlite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pushlease/pushlease/tables"
)

// maxRecordRows is the contract's bound, that of one Azure entity group transaction.
const maxRecordRows = 100

const deliveryColumns = `message_id, queue, inserted_at, webhook_id, generation, state, reason, attempts, charged, waits, excused,
missing_records, last_status, last_error_class, first_at, last_at, next_at, updated_at, expires_at, encoding, size, body_hash,
dead_letter_id, instance, same_event_as`

// putDelivery writes one row by putDeliverySQL or noteSQL, in the order of deliveryColumns and then its day.
func (t *tx) putDelivery(by string, d *tables.Delivery) error {
	s, err := t.prepare(by)
	if err != nil {
		return err
	}
	s.text(d.MessageID).text(d.Queue).time(d.Day).text(d.WebhookID).number(int64(d.Generation)).text(string(d.State)).text(string(d.Reason)).
		number(int64(d.Attempts)).number(int64(d.Charged)).number(int64(d.Waits)).number(int64(d.Excused)).
		number(int64(d.MissingRecords)).number(int64(d.LastStatus)).text(string(d.LastErrorClass)).
		time(d.FirstAt).time(d.LastAt).time(d.NextAt).time(d.UpdatedAt).time(d.ExpiresAt).
		text(d.Encoding).number(int64(d.Size)).text(d.BodyHash).text(d.DeadLetterID).text(d.Instance).text(d.SameEventAs).
		number(dayOf(d.Day))
	return t.noteChanges(s.exec())
}

func scanDelivery(scan func(...any) error) (d tables.Delivery, err error) {
	var wrong misread
	err = scan(
		&d.MessageID, &d.Queue, wrong.time("inserted_at", &d.Day), &d.WebhookID, &d.Generation, &d.State, &d.Reason, &d.Attempts, &d.Charged, &d.Waits, &d.Excused,
		&d.MissingRecords, &d.LastStatus, &d.LastErrorClass, wrong.time("first_at", &d.FirstAt), wrong.time("last_at", &d.LastAt),
		wrong.time("next_at", &d.NextAt), wrong.time("updated_at", &d.UpdatedAt),
		wrong.time("expires_at", &d.ExpiresAt), &d.Encoding, &d.Size, &d.BodyHash, &d.DeadLetterID, &d.Instance,
		&d.SameEventAs,
	)
	if !slices.Contains(tables.States(), d.State) {
		wrong = append(wrong, "state")
	}
	d.Damage = tables.NewDamage(wrong, decisive)
	return d, err
}

// decisive are the columns by which it is decided what becomes of a message. A number and a text can only be others.
var decisive = []string{"state", "inserted_at", "next_at", "updated_at", "expires_at"}

const (
	// completedColumns are deliveryColumns of a delivery whose row is that of its one attempt.
	completedColumns = `message_id, queue, inserted_at, webhook_id, generation, 'delivered', reason, 1, 1, 0, 0,
0, status, error_class, started_at, started_at, 0, updated_at, expires_at, encoding, size, body_hash, '', instance, ''`
	loadWhere = " WHERE message_id = ? AND queue = ? AND day = ?"
)

// deliveriesSQL reads deliveries from both tables; each argument of where comes twice.
func deliveriesSQL(where string) string {
	return "SELECT " + deliveryColumns + " FROM deliveries" + where +
		" UNION ALL SELECT " + completedColumns + " FROM attempts" + where + " AND completed"
}

var loadSQL = deliveriesSQL(loadWhere)

func loadArgs(key tables.MessageKey) []any {
	return []any{key.MessageID, key.Queue, dayOf(key.Day), key.MessageID, key.Queue, dayOf(key.Day)}
}

// Load implements tables.Deliveries.
func (db *DB) Load(ctx context.Context, key tables.MessageKey) ([]tables.Delivery, error) {
	ds, err := db.readDeliveries(ctx, "load", query{text: loadSQL, args: loadArgs(key)})
	if err != nil {
		return nil, fmt.Errorf("load deliveries: %w", err)
	}
	for _, d := range ds {
		if err := d.Damage.Err(); err != nil { // what is decided by it would be wrong
			return nil, fmt.Errorf("load deliveries: webhook %s: %w", d.WebhookID, err)
		}
	}
	return ds, nil
}

func (db *DB) readDeliveries(ctx context.Context, operation string, q query) ([]tables.Delivery, error) {
	var ds []tables.Delivery
	err := db.read(ctx, serviceTable, operation, q, func(scan func(...any) error) (bool, error) {
		d, err := scanDelivery(scan)
		ds = append(ds, d)
		return true, err
	})
	return tables.Newest(ds), err
}

var (
	putDeliverySQL = upsert("deliveries", deliveryColumns+", day", "message_id, queue, day, webhook_id") + fmt.Sprintf(
		" WHERE (excluded.generation, %s) >= (deliveries.generation, %s)", rankOf("excluded"), rankOf("deliveries"))
	// noteSQL writes a row unless a newer one is there, as tables.Delivery.Newer says.
	noteSQL = upsert("deliveries", deliveryColumns+", day", "message_id, queue, day, webhook_id") + fmt.Sprintf(
		" WHERE (excluded.generation, %s, excluded.attempts, excluded.updated_at) >= (deliveries.generation, %s, deliveries.attempts, deliveries.updated_at)",
		rankOf("excluded"), rankOf("deliveries"))
	putAttemptSQL = upsert("attempts", attemptColumns+", "+ofDelivery+", day", "message_id, queue, day, webhook_id, generation, number, instance") +
		" WHERE excluded.completed >= attempts.completed"
)

// rankOf is tables.Delivery.Rank of a row: what a delivery came to is not undone by a write that is late.
func rankOf(row string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "CASE WHEN %[1]s.state = '%[2]s' AND %[1]s.reason = '' AND %[1]s.updated_at = %[1]s.inserted_at THEN 0", row, tables.Pending)
	for _, s := range tables.States() {
		fmt.Fprintf(&b, " WHEN %s.state = '%s' THEN %d", row, s, s.Rank())
	}
	fmt.Fprintf(&b, " ELSE %d END", tables.Pending.Rank())
	return b.String()
}

func columnNames(columns string) []string {
	return strings.FieldsFunc(columns, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' })
}

// insertOnce is the statement that inserts a row unless its key is taken.
func insertOnce(table, columns string) string {
	return fmt.Sprintf("INSERT INTO %s (%s) VALUES (?%s) ON CONFLICT DO NOTHING",
		table, columns, strings.Repeat(", ?", len(columnNames(columns))-1))
}

// upsert is the statement that inserts a row, or replaces the other columns of the one that
// has the same key. The key's columns are left alone: setting them writes their indexes anew.
func upsert(table, columns, key string) string {
	keys := columnNames(key)
	var sets []string
	for _, n := range columnNames(columns) {
		if !slices.Contains(keys, n) {
			sets = append(sets, n+" = excluded."+n)
		}
	}
	return strings.Replace(insertOnce(table, columns), "DO NOTHING", "DO UPDATE SET "+strings.Join(sets, ", "), 1)
}

// Record implements tables.Deliveries.
func (db *DB) Record(ctx context.Context, r tables.Record) error {
	if len(r.Deliveries)+len(r.Attempts) == 0 {
		return nil
	}
	if err := checkRecord(r); err != nil {
		return err
	}
	err := db.writeBy(ctx, false, &Call{Service: serviceTable, Operation: "record", Record: r}, func(tx *tx) error { return tx.putRecord(r) })
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	return nil
}

// Note implements tables.Deliveries.
func (db *DB) Note(ctx context.Context, ds []tables.Delivery) error {
	if len(ds) == 0 {
		return nil
	}
	if err := checkRecord(tables.Record{Deliveries: ds}); err != nil {
		return err
	}
	err := db.writeBy(ctx, false, &Call{Service: serviceTable, Operation: "record", Record: tables.Record{Deliveries: ds}}, func(tx *tx) error {
		for i := range ds {
			if err := tx.putDelivery(noteSQL, &ds[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("note: %w", err)
	}
	return nil
}

func (t *tx) putRecord(r tables.Record) error {
	for d, a := range r.Rows() {
		var err error
		if a == nil {
			err = t.putDelivery(putDeliverySQL, d)
		} else {
			err = t.putAttempt(a, d)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkRecord refuses what another store could not write at once.
func checkRecord(r tables.Record) error {
	if n := len(r.Deliveries) + len(r.Attempts); n > maxRecordRows {
		return fmt.Errorf("record of %d rows: at most %d are written at once", n, maxRecordRows)
	}
	var first *tables.MessageKey
	for i := range r.Deliveries {
		if !together(&first, &r.Deliveries[i].MessageKey) {
			return errMixedRecord
		}
	}
	for i := range r.Attempts {
		if !together(&first, &r.Attempts[i].MessageKey) {
			return errMixedRecord
		}
	}
	return nil
}

var errMixedRecord = errors.New("record: the rows belong to more than one message")

// together reports whether k finds the same message as the first key of a record, which it becomes where there
// is none.
func together(first **tables.MessageKey, k *tables.MessageKey) bool {
	if *first == nil {
		*first = k
	}
	return k.Queue == (*first).Queue && k.MessageID == (*first).MessageID && dayOf(k.Day) == dayOf((*first).Day)
}

// Expire implements tables.History. It removes rows in small operations, so that other
// writes go on in between.
func (db *DB) Expire(ctx context.Context, before time.Time) (int64, error) {
	var total int64
	for _, text := range []string{expireAttemptsSQL, expireDeliveriesSQL} {
		for {
			var n int64
			err := db.write(ctx, serviceTable, "expire", func(tx *tx) (err error) {
				n, err = tx.exec(text, dayOf(before), millis(before), millis(before), expireAtOnce)
				return err
			})
			if err != nil {
				return total, fmt.Errorf("expire records: %w", err)
			}
			total += n
			if n < expireAtOnce {
				break
			}
		}
	}
	return total, nil
}

// What another program has put in place of a time is older than any.
const (
	// notTriedLately: a message that one webhook is still due stays whole, or who has it would get it again.
	notTriedLately = `NOT EXISTS (SELECT 1 FROM deliveries AS d
    WHERE d.message_id = r.message_id AND d.queue = r.queue AND d.day = r.day AND CAST(d.updated_at AS INTEGER) >= ?)`
	expireAttemptsSQL = `DELETE FROM attempts WHERE seq IN (SELECT seq FROM attempts AS r INDEXED BY attempts_day
  WHERE day < ? AND max(CAST(started_at AS INTEGER), CAST(updated_at AS INTEGER)) < ? AND ` + notTriedLately + ` LIMIT ?)`
	expireDeliveriesSQL = `DELETE FROM deliveries WHERE seq IN (SELECT seq FROM deliveries AS r INDEXED BY deliveries_day
  WHERE day < ? AND CAST(updated_at AS INTEGER) < ? AND ` + notTriedLately + ` LIMIT ?)`
)
