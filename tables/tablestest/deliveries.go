package tablestest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

var deliveryTests = []test{
	{"LoadOfNothingIsEmpty", loadNothing},
	{"EveryFieldIsKept", deliveryFields},
	{"ZeroTimesStayZero", deliveryZeroTimes},
	{"TimesAreCutToTheMillisecondInUTC", deliveryTimes},
	{"RecordReplacesWholeRows", recordReplaces},
	{"LateRecordReplacesNothingNewer", recordLate},
	{"ANoteCountsUntilSomethingIsNewer", noteCounts},
	{"ALateNoteUndoesNothing", lateNote},
	{"WhatIsOnlyDueUndoesNothing", onlyDue},
	{"WebhooksOfOneMessageInOrder", severalWebhooks},
	{"MessagesAreSeparate", messagesSeparate},
	{"RecordsAreFoundByUTCDay", foundByDay},
	{"HostileKeysAreKept", deliveryHostileKeys},
	{"RecordRefusesWhatItCannotDoAtomically", recordRefuses},
	{"HundredRowsInOneRecord", hundredRows},
	{"ConcurrentRecordsStayWhole", concurrentRecords},
	{"ExpireRemovesOldDays", expireDays},
	{"ExpireKeepsWhatWasWrittenLately", expireKeepsWhatWasWrittenLately},
}

func loadNothing(t *testing.T, s tables.Store) {
	wantLoaded(t, s, key("nothing"))
	mustRecord(t, s, tables.Record{})
	wantLoaded(t, s, key("nothing"))
}

func deliveryFields(t *testing.T, s tables.Store) {
	for i, state := range tables.States() {
		d := delivery(fmt.Sprint("m", i), "wh")
		d.State = state
		d.Instance = strings.Repeat("long ", 200)
		mustRecord(t, s, tables.Record{Deliveries: []tables.Delivery{d}})
		wantLoaded(t, s, d.MessageKey, d)
	}
}

func deliveryZeroTimes(t *testing.T, s tables.Store) {
	d := tables.Delivery{MessageKey: key("m"), WebhookID: "wh", State: tables.Held}
	mustRecord(t, s, tables.Record{Deliveries: []tables.Delivery{d}})
	wantLoaded(t, s, d.MessageKey, d)
	got := mustLoad(t, s, d.MessageKey)[0]
	if !got.FirstAt.IsZero() || !got.NextAt.IsZero() || !got.ExpiresAt.IsZero() || !got.UpdatedAt.IsZero() {
		t.Errorf("zero times came back as %v, %v, %v, %v", got.FirstAt, got.NextAt, got.ExpiresAt, got.UpdatedAt)
	}
}

func deliveryTimes(t *testing.T, s tables.Store) {
	zone := time.FixedZone("west", -5*60*60)
	at := day.Add(456789 * time.Nanosecond)
	d := delivery("m", "wh")
	d.Day, d.FirstAt, d.NextAt = at.In(zone), at.In(zone), at.Add(time.Hour).In(zone)
	mustRecord(t, s, tables.Record{Deliveries: []tables.Delivery{d}})
	want := d
	want.Day, want.FirstAt, want.NextAt = day, day, day.Add(time.Hour)
	wantLoaded(t, s, d.MessageKey, want)
}

func recordReplaces(t *testing.T, s tables.Store) {
	first := delivery("m", "wh")
	mustRecord(t, s, tables.Record{Deliveries: []tables.Delivery{first}})
	mustRecord(t, s, tables.Record{Deliveries: []tables.Delivery{first}})
	wantLoaded(t, s, first.MessageKey, first)

	// A new generation replaces the row too; nothing of the old one is left.
	second := tables.Delivery{MessageKey: first.MessageKey, WebhookID: "wh", Generation: 3, State: tables.Delivered, Reason: policy.Delivered}
	mustRecord(t, s, tables.Record{Deliveries: []tables.Delivery{second}})
	wantLoaded(t, s, first.MessageKey, second)

	// So does that of a replay on the same day, whose pointer was inserted later.
	third := second
	third.Generation, third.State, third.Day = 4, tables.Pending, third.Day.Add(time.Second)
	mustRecord(t, s, tables.Record{Deliveries: []tables.Delivery{third}})
	wantLoaded(t, s, first.MessageKey, third)
}

// A write may take effect after others that were begun later.
func recordLate(t *testing.T, s tables.Store) {
	for i, state := range tables.States() {
		for j, late := range tables.States() {
			id := fmt.Sprint("m", i, j)
			first, second := delivery(id, "wh"), delivery(id, "wh")
			first.State, second.State = state, late
			second.Attempts, second.Instance = 1, "late"
			mustRecord(t, s, tables.Record{Deliveries: []tables.Delivery{first}})
			mustRecord(t, s, tables.Record{Deliveries: []tables.Delivery{second}, Attempts: []tables.Attempt{attempt(id, "wh", 1)}})
			stands := second
			if state.Rank() > late.Rank() {
				stands = first
			}
			wantLoaded(t, s, key(id), stands)
			ds, as, err := s.Message(t.Context(), "orders", id)
			if err != nil || len(as) != 1 {
				t.Errorf("Message: %d attempts, %v, want the late one", len(as), err)
			}
			if d := diff([]tables.Delivery{stands}, ds); d != "" {
				t.Errorf("Message (-want +got):\n%s", d)
			}

			later := delivery(id, "wh") // a generation ends what was before it
			later.Generation++
			mustRecord(t, s, tables.Record{Deliveries: []tables.Delivery{later}})
			mustRecord(t, s, tables.Record{Deliveries: []tables.Delivery{first}})
			wantLoaded(t, s, key(id), later)
		}
	}
}

// noted is a delivery as a holder notes it: nothing was added, but when it is to be tried again.
func noted(d tables.Delivery, instance string, at time.Time) tables.Delivery {
	d.State, d.Reason, d.Instance, d.UpdatedAt, d.NextAt = tables.Pending, policy.LeaseLost, instance, at, at.Add(time.Minute)
	return d
}

func mustNote(t *testing.T, s tables.Store, ds ...tables.Delivery) {
	t.Helper()
	if err := s.Note(t.Context(), ds); err != nil {
		t.Fatalf("Note: %v", err)
	}
}

func noteCounts(t *testing.T, s tables.Store) {
	mustNote(t, s)
	fresh := tables.Delivery{MessageKey: key("m"), WebhookID: "new"} // nobody has recorded it
	known := delivery("m", "wh")
	mustRecord(t, s, tables.Record{Deliveries: []tables.Delivery{known}})
	one, other := noted(fresh, "a", day.Add(time.Minute)), noted(known, "a", day.Add(time.Minute))
	mustNote(t, s, one, other)
	wantLoaded(t, s, known.MessageKey, one, other)

	later := noted(known, "b", day.Add(2*time.Minute))
	mustNote(t, s, later)
	mustNote(t, s, other)
	wantLoaded(t, s, known.MessageKey, one, later)

	tried := known
	tried.Attempts++
	mustRecord(t, s, tables.Record{Deliveries: []tables.Delivery{tried}, Attempts: []tables.Attempt{attempt("m", "wh", tried.Attempts)}})
	wantLoaded(t, s, known.MessageKey, one, tried)
	ds, _, err := s.Message(t.Context(), "orders", "m")
	if d := diff([]tables.Delivery{one, tried}, ds); err != nil || d != "" {
		t.Errorf("Message: %v (-want +got):\n%s", err, d)
	}

	if err := s.Note(t.Context(), []tables.Delivery{noted(known, "a", day), noted(delivery("m2", "wh"), "a", day)}); err == nil {
		t.Error("Note about two messages succeeded, want an error")
	}
}

// A note may take effect when whoever came next has recorded something: that stands.
func lateNote(t *testing.T, s tables.Store) {
	at := day.Add(time.Minute)
	for i, state := range tables.States() {
		next := delivery(fmt.Sprint("m", i), "wh")
		note := noted(next, "a", at)
		if next.State = state; state == tables.Published {
			continue // it is about the message alone, and comes before all others
		}
		next.Instance, next.UpdatedAt = "b", at.Add(time.Second)
		mustRecord(t, s, tables.Record{Deliveries: []tables.Delivery{next}})
		mustNote(t, s, note)
		wantLoaded(t, s, next.MessageKey, next)

		tried := delivery(fmt.Sprint("tried", i), "wh")
		note = noted(tried, "a", at)
		tried.State, tried.Attempts = state, tried.Attempts+1 // by a clock that is behind
		tried.UpdatedAt = at.Add(-time.Hour)
		mustRecord(t, s, tables.Record{Deliveries: []tables.Delivery{tried}})
		mustNote(t, s, note)
		wantLoaded(t, s, tried.MessageKey, tried)
	}
}

// The first record of a message says whom else it is due to, and may take effect when more is known of those: that stands, whatever
// clock it was dated by.
func onlyDue(t *testing.T, s tables.Store) {
	first := func(id string) (tables.Record, tables.Delivery, tables.Delivery) {
		d, a := firstSuccess(id, "wh", "host-1")
		due := tables.Delivery{MessageKey: key(id), WebhookID: "wh2", State: tables.Pending, UpdatedAt: day, Size: 3, Instance: "host-1"}
		return tables.Record{Deliveries: []tables.Delivery{d, due}, Attempts: []tables.Attempt{a}}, d, due
	}
	for i, state := range tables.States() {
		if state == tables.Published {
			continue // it is about the message alone, and comes before all others
		}
		id := fmt.Sprint("m", i)
		r, d, due := first(id)
		mustRecord(t, s, r)
		wantLoaded(t, s, key(id), d, due)
		more := due
		more.State, more.Reason, more.UpdatedAt, more.Instance = state, policy.WebhookPaused, day.Add(-time.Minute), "host-2"
		mustRecord(t, s, tables.Record{Deliveries: []tables.Delivery{more}})
		wantLoaded(t, s, key(id), d, more)
		mustRecord(t, s, r) // late itself
		wantLoaded(t, s, key(id), d, more)
	}
	r, d, due := first("told")
	told := noted(due, "host-1", day.Add(-time.Minute))
	mustNote(t, s, told)
	mustRecord(t, s, r)
	wantLoaded(t, s, key("told"), d, told)
	told = noted(due, "host-1", day.Add(time.Minute))
	mustNote(t, s, told)
	mustRecord(t, s, r)
	wantLoaded(t, s, key("told"), d, told)

	r, d, due = first("taken")
	taken, a := firstSuccess("taken", "wh2", "host-1")
	mustRecord(t, s, r)
	mustRecord(t, s, record(taken, a))
	mustRecord(t, s, r)
	wantLoaded(t, s, key("taken"), d, taken)

	due.Generation = 3 // a replay on the same day
	mustRecord(t, s, tables.Record{Deliveries: []tables.Delivery{due}})
	wantLoaded(t, s, key("taken"), d, due)
}

func severalWebhooks(t *testing.T, s tables.Store) {
	all := []tables.Delivery{delivery("m", ""), delivery("m", "B"), delivery("m", "a"), delivery("m", "a1"), delivery("m", "b")}
	all[0].State = tables.Published
	shuffled := []tables.Delivery{all[3], all[0], all[4], all[1], all[2]}
	mustRecord(t, s, tables.Record{Deliveries: shuffled[:3]})
	mustRecord(t, s, tables.Record{Deliveries: shuffled[3:]})
	wantLoaded(t, s, key("m"), all...)

	all[2].State, all[2].Attempts = tables.Delivered, 6
	mustRecord(t, s, tables.Record{Deliveries: all[2:3]})
	wantLoaded(t, s, key("m"), all...)
}

func messagesSeparate(t *testing.T, s tables.Store) {
	a, b, c := delivery("m", "wh"), delivery("m2", "wh"), delivery("m", "wh")
	b.Attempts = 7
	c.Queue, c.Attempts = "orders-2", 8
	for _, d := range []tables.Delivery{a, b, c} {
		mustRecord(t, s, tables.Record{Deliveries: []tables.Delivery{d}})
	}
	for _, d := range []tables.Delivery{a, b, c} {
		wantLoaded(t, s, d.MessageKey, d)
	}
}

func foundByDay(t *testing.T, s tables.Store) {
	d := delivery("m", "wh")
	mustRecord(t, s, tables.Record{Deliveries: []tables.Delivery{d}})
	midnight := day.Truncate(24 * time.Hour)
	for _, same := range []time.Time{midnight, midnight.Add(24*time.Hour - 1), day.In(time.FixedZone("east", 14*60*60))} {
		k := d.MessageKey
		k.Day = same
		wantLoaded(t, s, k, d)
	}
	for _, other := range []time.Time{midnight.Add(-1), midnight.Add(24 * time.Hour)} {
		k := d.MessageKey
		k.Day = other
		wantLoaded(t, s, k)
	}
}

func deliveryHostileKeys(t *testing.T, s tables.Store) {
	ids := append(hostile(), "", longID("m"), longID("é"), longID("m")+"x")
	for i, id := range ids {
		d := delivery(id, "wh")
		d.Attempts = i
		mustRecord(t, s, tables.Record{Deliveries: []tables.Delivery{d}, Attempts: []tables.Attempt{attempt(id, "wh", 1)}})
	}
	for i, id := range ids {
		d := delivery(id, "wh")
		d.Attempts = i
		wantLoaded(t, s, d.MessageKey, d)
	}

	var want []tables.Delivery
	for _, id := range append(hostile(), "", longID("w")) {
		want = append(want, delivery("hostile webhooks", id))
	}
	slices.SortFunc(want, func(a, b tables.Delivery) int { return strings.Compare(a.WebhookID, b.WebhookID) })
	mustRecord(t, s, tables.Record{Deliveries: want})
	wantLoaded(t, s, key("hostile webhooks"), want...)
}

func recordRefuses(t *testing.T, s tables.Store) {
	mixed := []tables.Delivery{delivery("m1", "wh"), delivery("m2", "wh")}
	if err := s.Record(t.Context(), tables.Record{Deliveries: mixed}); err == nil {
		t.Error("Record of two messages succeeded, want an error")
	}
	if err := s.Record(t.Context(), tables.Record{Deliveries: mixed[:1], Attempts: []tables.Attempt{attempt("m2", "wh", 1)}}); err == nil {
		t.Error("Record of a delivery and another message's attempt succeeded, want an error")
	}
	var many []tables.Delivery
	for i := range 101 {
		many = append(many, delivery("m1", fmt.Sprint("wh", i)))
	}
	if err := s.Record(t.Context(), tables.Record{Deliveries: many}); err == nil {
		t.Error("Record of 101 rows succeeded, want an error")
	}
	wantLoaded(t, s, key("m1"))
	wantLoaded(t, s, key("m2"))
}

func hundredRows(t *testing.T, s tables.Store) {
	var r tables.Record
	for i := range 50 {
		wh := fmt.Sprintf("wh%02d", i)
		r.Deliveries = append(r.Deliveries, delivery("m", wh))
		r.Attempts = append(r.Attempts, attempt("m", wh, 1))
	}
	mustRecord(t, s, r)
	wantLoaded(t, s, key("m"), r.Deliveries...)
}

func concurrentRecords(t *testing.T, s tables.Store) {
	const writers = 8
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			d, a := delivery("m", "wh"), attempt("m", "wh", i+1)
			d.Attempts, d.Charged = i, i
			if err := s.Record(t.Context(), tables.Record{Deliveries: []tables.Delivery{d}, Attempts: []tables.Attempt{a}}); err != nil {
				t.Errorf("Record: %v", err)
			}
		})
	}
	wg.Wait()
	ds := mustLoad(t, s, key("m"))
	if len(ds) != 1 || ds[0].Attempts != ds[0].Charged {
		t.Errorf("Load = %+v, want one row that one writer wrote whole", ds)
	}
	eventually(t, "all attempts are there", func() bool {
		_, as, err := s.Message(t.Context(), "orders", "m")
		return err == nil && len(as) == writers
	})
}

func expireDays(t *testing.T, s tables.Store) {
	old, kept := delivery("m-old", "wh"), delivery("m-kept", "wh")
	old.Day = day.Add(-3 * 24 * time.Hour)
	old.UpdatedAt = old.Day.Add(-time.Millisecond)
	oldAttempt := attempt("m-old", "wh", 1)
	oldAttempt.Day, oldAttempt.StartedAt = old.Day, old.UpdatedAt
	mustRecord(t, s, tables.Record{Deliveries: []tables.Delivery{old}, Attempts: []tables.Attempt{oldAttempt}})
	mustRecord(t, s, tables.Record{Deliveries: []tables.Delivery{kept}, Attempts: []tables.Attempt{attempt("m-kept", "wh", 1)}})
	hook := mustPutWebhook(t, s, registration("wh1"))
	letter := mustPutDeadLetter(t, s, deadLetter("m-old", "wh", old.Day))
	eventually(t, "both attempts are listed", func() bool { return len(listAttempts(t, s, tables.AttemptFilter{}, 10, nil)) == 2 })

	if n, err := s.Expire(t.Context(), old.Day); err != nil || n != 0 {
		t.Errorf("Expire(the oldest day) = %d, %v, want nothing removed: that day is not before itself", n, err)
	}
	wantLoaded(t, s, old.MessageKey, old)
	n, err := s.Expire(t.Context(), day)
	if err != nil || (n != 0 && n != 2) {
		t.Errorf("Expire = %d, %v, want 2 rows (or 0 from a store that can't count)", n, err)
	}
	wantLoaded(t, s, old.MessageKey)
	wantLoaded(t, s, kept.MessageKey, kept)
	if _, _, err := s.Message(t.Context(), "", "m-old"); !errors.Is(err, tables.ErrNotFound) {
		t.Errorf("Message after Expire = %v, want ErrNotFound", err)
	}
	as := listAttempts(t, s, tables.AttemptFilter{}, 10, nil)
	if len(as) != 1 || as[0].MessageID != "m-kept" {
		t.Errorf("Attempts after Expire = %d rows, want the kept one", len(as))
	}
	if _, err := s.GetWebhook(t.Context(), hook.ID); err != nil {
		t.Errorf("the webhook is gone: %v", err)
	}
	if _, err := s.GetDeadLetter(t.Context(), letter.ID); err != nil {
		t.Errorf("the dead letter is gone: %v", err)
	}
	if _, err := s.Expire(t.Context(), day); err != nil {
		t.Errorf("second Expire: %v", err)
	}
}

// A message that is older than the retention is tried still. Without its record it would be POSTed again, to
// all, after each Expire.
func expireKeepsWhatWasWrittenLately(t *testing.T, s tables.Store) {
	taken, failed, tried := delivery("m-tried", "taken"), delivery("m-tried", "failed"), attempt("m-tried", "failed", 1)
	for _, k := range []*tables.MessageKey{&taken.MessageKey, &failed.MessageKey, &tried.MessageKey} {
		k.Day = day.Add(-30 * 24 * time.Hour)
	}
	taken.State, taken.UpdatedAt, failed.UpdatedAt, tried.StartedAt = tables.Delivered, day.Add(time.Hour), day.Add(2*time.Hour), day.Add(2*time.Hour)
	mustRecord(t, s, tables.Record{Deliveries: []tables.Delivery{taken, failed}, Attempts: []tables.Attempt{tried}})
	for _, before := range []time.Time{taken.UpdatedAt, failed.UpdatedAt} { // who has it stays known while another one is due
		if _, err := s.Expire(t.Context(), before); err != nil {
			t.Fatal(err)
		}
		wantLoaded(t, s, taken.MessageKey, failed, taken)
	}
	if _, as, err := s.Message(t.Context(), "orders", "m-tried"); err != nil || len(as) != 1 {
		t.Errorf("%d attempts, %v; want the one that was made lately", len(as), err)
	}
	if _, err := s.Expire(t.Context(), failed.UpdatedAt.Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	wantLoaded(t, s, taken.MessageKey)
}
