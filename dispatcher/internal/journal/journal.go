// Package journal knows what was done about messages: it writes records, keeps those that
// the store does not take until it does, and remembers the newest state of each delivery.
package journal

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/meter"
	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/tables"
)

const (
	// MaxRows is what tables.Deliveries takes at once.
	MaxRows = 100
	// flushEvery is how often records that could not be written are tried again.
	flushEvery = 5 * time.Second
	// lossLogEvery is how often lost records are logged at most.
	lossLogEvery = 30 * time.Second
	// lateAfter is how long after its answer an attempt is written that says so, whether or not its lease has ended:
	// longer than a first try without an answer and the second one take.
	lateAfter = 12 * time.Second
)

// Journal writes and remembers records. Safe for concurrent use.
type Journal struct {
	store  tables.Deliveries
	meter  *meter.Instruments
	log    *slog.Logger
	memory *memory

	lost     atomic.Int64 // not logged so far
	loggedAt atomic.Int64 // Unix nanoseconds
}

// New makes a journal that knows nothing yet.
func New(store tables.Deliveries, m *meter.Instruments, log *slog.Logger) *Journal {
	return &Journal{store: store, meter: m, log: log, memory: newMemory()}
}

// Load asks the store about a message, and lays what is remembered over what it says. With an
// error, which means that it could not be asked by the policy, it returns what is remembered.
func (j *Journal) Load(ctx context.Context, by retry.Policy, key tables.MessageKey, webhooks []string) ([]tables.Delivery, error) {
	stored, err := retry.Get(ctx, by, func(ctx context.Context) ([]tables.Delivery, error) {
		return j.store.Load(ctx, key)
	})
	if err != nil {
		stored = nil
	}
	return j.memory.merge(key, stored, webhooks), err
}

// Record writes rec durably. When the store can't, the rows are kept in memory, and
// the store is tried again in the background: progress never depends on a record, and a
// fault of ours is never the webhook's (I3).
func (j *Journal) Record(ctx context.Context, rec tables.Record) {
	policy := retry.Record
	if slices.ContainsFunc(rec.Deliveries, hasEnded) {
		policy = retry.Ended
	}
	err := retry.Do(ctx, policy, func(ctx context.Context, try int) error {
		if try > 1 || isLate(rec) {
			return j.again(ctx, rec)
		}
		return j.write(ctx, rec)
	})
	if err == nil {
		j.Written(rec)
		return
	}
	first := rec.Deliveries[0]
	j.log.Error("record could not be written; it is kept in memory and written later",
		"queue", first.Queue, "message", first.MessageID, "webhook", first.WebhookID, "state", first.State, "error", err)
	j.meter.RecordsDeferred.Add(meter.Labels{Queue: first.Queue})
	rec.Deliveries = slices.Clone(rec.Deliveries) // the outcome keeps its own
	for i := range rec.Deliveries {
		rec.Deliveries[i].MissingRecords += attemptsOf(rec, rec.Deliveries[i].WebhookID)
	}
	j.lose(j.memory.remember(rec, false))
}

// hasEnded reports whether a delivery was delivered or dead-lettered: its message may be deleted once that is on record.
func hasEnded(del tables.Delivery) bool {
	return del.State == tables.Delivered || del.State == tables.DeadLettered
}

// again repeats a record whose first try failed, and may have taken effect. What was delivered stays so whatever
// others did meanwhile, and asks for nothing first; what is unfinished may have gone on elsewhere.
func (j *Journal) again(ctx context.Context, rec tables.Record) error {
	var done, rest tables.Record
	for _, del := range rec.Deliveries {
		of := &rest
		if del.State == tables.Delivered {
			of = &done
		}
		of.Deliveries = append(of.Deliveries, del)
		for _, a := range rec.Attempts {
			if a.WebhookID == del.WebhookID {
				of.Attempts = append(of.Attempts, a)
			}
		}
	}
	if len(done.Deliveries) > 0 {
		if err := j.write(ctx, done); err != nil {
			return fmt.Errorf("record: %w", err)
		}
	}
	if len(rest.Deliveries) == 0 {
		return nil
	}
	return j.writeLate(ctx, rest)
}

// Note tries to write notes on deliveries now and not later, and reports whether they were written.
// Each try asks for them anew. One that takes effect later all the same undoes nothing.
func (j *Journal) Note(ctx context.Context, deliveries func() []tables.Delivery) error {
	err := retry.Do(ctx, retry.Call, func(ctx context.Context, _ int) error {
		for some := range slices.Chunk(deliveries(), MaxRows) {
			if err := j.store.Note(ctx, some); err != nil {
				return err // as it is: it says what it is of
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("put on record what is under way: %w", err)
	}
	return nil
}

// Lacks reports whether a record of the message waits for the store.
func (j *Journal) Lacks(key tables.MessageKey) bool { return j.memory.waits(key) }

// Written notes that the store has rec, whoever wrote it.
func (j *Journal) Written(rec tables.Record) { j.lose(j.memory.remember(rec, true)) }

// lose counts records that had to make room, and says so.
func (j *Journal) lose(n int) {
	if n == 0 {
		return
	}
	j.meter.RecordsLost.AddN(n, meter.Labels{})
	lost, now, last := j.lost.Add(int64(n)), time.Now(), j.loggedAt.Load()
	if now.UnixNano()-last < int64(lossLogEvery) || !j.loggedAt.CompareAndSwap(last, now.UnixNano()) {
		return
	}
	j.lost.Add(-lost)
	j.log.Error("records are lost: more of them wait for the store than are kept", "records", lost, "kept", memorySize)
}

// Keep writes what could not be written before, until ctx ends.
func (j *Journal) Keep(ctx context.Context) {
	for retry.Sleep(ctx, flushEvery) {
		j.Flush(ctx)
	}
}

// TellLost comes when nothing is recorded any more. What the store did not take until now is
// missing from the records, which is told and counted.
func (j *Journal) TellLost() {
	if n := j.memory.count(); n > 0 {
		j.log.Error("records are lost: the store did not take them before the end; what they say was delivered is POSTed again where its message is still on the queue", "records", n)
		j.meter.RecordsLost.AddN(n, meter.Labels{})
	}
}

// Flush writes what is waiting, until the store fails several times in a row.
func (j *Journal) Flush(ctx context.Context) {
	write := func(ctx context.Context, rec tables.Record) error { return j.writeLate(ctx, noneMissing(rec)) }
	retry.Drain(ctx, j.memory.waiting(), write, func(rec tables.Record, err error) {
		if err != nil {
			j.memory.putOff(rec)
			return
		}
		j.memory.wrote(rec)
		j.log.Info("a record that could not be written before is written now",
			"queue", rec.Deliveries[0].Queue, "message", rec.Deliveries[0].MessageID, "webhook", rec.Deliveries[0].WebhookID)
	})
}

// noneMissing takes back that the attempts in rec are missing.
func noneMissing(rec tables.Record) tables.Record {
	rec.Deliveries = slices.Clone(rec.Deliveries)
	for i := range rec.Deliveries {
		del := &rec.Deliveries[i]
		del.MissingRecords = max(0, del.MissingRecords-attemptsOf(rec, del.WebhookID))
	}
	return rec
}

// writeLate writes an old record: its attempts, and its deliveries only where nobody
// went on meanwhile, since another process may have received the message again.
func (j *Journal) writeLate(ctx context.Context, rec tables.Record) error {
	stored, err := j.store.Load(ctx, rec.Deliveries[0].MessageKey)
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	late := tables.Record{Attempts: rec.Attempts}
	for _, del := range rec.Deliveries {
		superseded := slices.ContainsFunc(stored, func(s tables.Delivery) bool {
			return s.WebhookID == del.WebhookID && s.Newer(&del)
		})
		if !superseded {
			late.Deliveries = append(late.Deliveries, del)
		}
	}
	if len(late.Deliveries)+len(late.Attempts) == 0 {
		return nil
	}
	if err := j.write(ctx, late); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	return nil
}

// write gives rec to the store.
func (j *Journal) write(ctx context.Context, rec tables.Record) error {
	said := isLate(rec)
	err := j.store.Record(ctx, Late(rec))
	if err == nil && !said && isLate(rec) { // its lease ended while it was on the way: what is not over may have gone on elsewhere
		rec.Deliveries = slices.DeleteFunc(slices.Clone(rec.Deliveries), func(d tables.Delivery) bool { return d.State != tables.Delivered })
		err = j.store.Record(ctx, Late(rec))
	}
	return err
}

// isLate reports whether one of the attempts comes late.
func isLate(rec tables.Record) bool {
	return slices.ContainsFunc(rec.Attempts, func(a tables.Attempt) bool { return comesLate(&a) })
}

// comesLate reports whether an attempt that is written now is so long after its answer, or after the end of its lease.
func comesLate(a *tables.Attempt) bool {
	now, until := time.Now(), a.LeasedUntil
	over := !until.IsZero() && (!now.Before(until) || !now.Round(0).Before(until.Round(0))) // as queue.Lease says it
	return !a.AnsweredAt.IsZero() && (over || time.Since(a.AnsweredAt) >= lateAfter)
}

// Late is rec as it is written now: an attempt that comes late, or after the end of its lease, says so. An instance that
// received the message before that could not know of it, and may have made a second POST (C113).
func Late(rec tables.Record) tables.Record {
	own := false
	for i := range rec.Attempts {
		a := &rec.Attempts[i]
		if !comesLate(a) {
			continue
		}
		late := time.Since(a.AnsweredAt)
		if !own { // each try says it anew
			rec.Attempts, own = slices.Clone(rec.Attempts), true
		}
		rec.Attempts[i].Explanation += " Written late, " + late.Round(time.Second).String() +
			" after the answer by this machine's clock: who received the message before that, if anybody did, did not know of it."
	}
	return rec
}

// attemptsOf counts the attempts in rec that are about one webhook.
func attemptsOf(rec tables.Record, webhookID string) int {
	n := 0
	for _, a := range rec.Attempts {
		if a.WebhookID == webhookID {
			n++
		}
	}
	return n
}
