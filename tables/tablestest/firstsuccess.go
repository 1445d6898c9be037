package tablestest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

// A delivery that its first attempt completed may be one row with it. Nobody sees that.
var firstSuccessTests = []test{
	{"FirstSuccessIsADeliveryAndAnAttempt", firstSuccessTold},
	{"FirstSuccessWrittenAgainIsOne", firstSuccessAgain},
	{"FirstSuccessOfTwoInstances", firstSuccessOfTwo},
	{"FirstSuccessIsNotUndone", firstSuccessNotUndone},
	{"FirstSuccessEndsWhatWasBefore", firstSuccessAfterOthers},
	{"FirstSuccessesOfAllWebhooks", firstSuccessesOfAll},
	{"FirstSuccessesAreListed", firstSuccessesListed},
}

// firstSuccess is what is recorded of a message that a webhook took at once.
func firstSuccess(id, webhookID, instance string) (tables.Delivery, tables.Attempt) {
	at := day.Add(time.Second)
	a := tables.Attempt{
		MessageKey: key(id), WebhookID: webhookID, Number: 1, StartedAt: at, Duration: 1500 * time.Microsecond, Status: 202,
		Action: policy.Complete, Reason: policy.Delivered, Charged: true, Snippet: "ok", Explanation: "taken", Redials: 1,
		Instance: instance, DequeueCount: 1,
	}
	d := tables.Delivery{
		MessageKey: key(id), WebhookID: webhookID, State: tables.Delivered, Reason: policy.Delivered, Attempts: 1, Charged: 1,
		LastStatus: 202, FirstAt: at, LastAt: at, UpdatedAt: at.Add(2 * time.Millisecond), ExpiresAt: day.Add(time.Hour),
		Encoding: "none", Size: 3, BodyHash: "0123456789abcdef", Instance: instance,
	}
	return d, a
}

func record(d tables.Delivery, as ...tables.Attempt) tables.Record {
	return tables.Record{Deliveries: []tables.Delivery{d}, Attempts: as}
}

func wantEverywhere(t *testing.T, s tables.Store, id string, ds []tables.Delivery, as ...tables.Attempt) {
	t.Helper()
	wantLoaded(t, s, key(id), ds...)
	for _, queue := range []string{"", "orders"} {
		wantMessage(t, s, queue, id, ds, as)
	}
}

func firstSuccessTold(t *testing.T, s tables.Store) {
	d, a := firstSuccess("m", "wh", "host-1")
	bare := tables.Attempt{MessageKey: key("bare"), WebhookID: "wh", Number: 1, StartedAt: day, Charged: true}
	published := tables.Delivery{MessageKey: key("m"), State: tables.Published, UpdatedAt: day}
	mustRecord(t, s, record(published))
	mustRecord(t, s, record(d, a))
	wantEverywhere(t, s, "m", []tables.Delivery{published, d}, a)
	least := bare.Completed(&tables.Delivery{})
	mustRecord(t, s, record(least, bare))
	wantEverywhere(t, s, "bare", []tables.Delivery{least}, bare)
	other := key("m")
	other.Day = day.Add(24 * time.Hour)
	wantLoaded(t, s, other)
}

func firstSuccessAgain(t *testing.T, s tables.Store) {
	d, a := firstSuccess("m", "wh", "host-1")
	for range 2 { // no answer had come
		mustRecord(t, s, record(d, a))
	}
	wantEverywhere(t, s, "m", []tables.Delivery{d}, a)

	alone := a
	alone.Snippet = "another"
	mustRecord(t, s, tables.Record{Attempts: []tables.Attempt{alone}})
	wantEverywhere(t, s, "m", []tables.Delivery{d}, a)

	a.Snippet, d.Size = "replaced", 4
	mustRecord(t, s, record(d, a))
	wantEverywhere(t, s, "m", []tables.Delivery{d}, a)
}

// firstSuccessOfTwo: the lease of one had ended while its POST was under way.
func firstSuccessOfTwo(t *testing.T, s tables.Store) {
	d1, a1 := firstSuccess("m", "wh", "host-1")
	d2, a2 := firstSuccess("m", "wh", "host-2")
	a2.StartedAt, d2.FirstAt, d2.LastAt, d2.UpdatedAt = day.Add(time.Minute), day.Add(time.Minute), day.Add(time.Minute), day.Add(61*time.Second)
	mustRecord(t, s, record(d2, a2))
	mustRecord(t, s, record(d1, a1))
	ds, as, err := s.Message(t.Context(), "orders", "m")
	if err != nil || len(ds) != 1 || ds[0].State != tables.Delivered {
		t.Errorf("Message: %+v, %v, want one delivery", ds, err)
	}
	if d := diff([]tables.Attempt{a1, a2}, as); d != "" {
		t.Errorf("attempts (-want +got):\n%s", d)
	}

	// Whoever learns that it was too late says so with an attempt of its own.
	late, again := d1, a1
	late.Attempts, again.Number, again.Instance, again.StartedAt = 2, 2, "host-3", day.Add(time.Hour)
	mustRecord(t, s, record(late, again))
	wantEverywhere(t, s, "m", []tables.Delivery{late}, a1, a2, again)
}

func firstSuccessNotUndone(t *testing.T, s tables.Store) {
	for i, state := range tables.States() {
		if state == tables.Delivered {
			continue
		}
		id := fmt.Sprint("m", i)
		d, a := firstSuccess(id, "wh", "host-1")
		mustRecord(t, s, record(d, a))
		late, failed := delivery(id, "wh"), attempt(id, "wh", 2)
		late.Generation, late.State = 0, state
		mustRecord(t, s, record(late, failed))
		wantEverywhere(t, s, id, []tables.Delivery{d}, a, failed)

		late.Generation = 1 // a replay on the same day
		mustRecord(t, s, record(late))
		wantEverywhere(t, s, id, []tables.Delivery{late}, a, failed)
		mustRecord(t, s, record(d, a)) // late itself
		wantEverywhere(t, s, id, []tables.Delivery{late}, a, failed)
	}
}

func firstSuccessAfterOthers(t *testing.T, s tables.Store) {
	for i, state := range tables.States() {
		id := fmt.Sprint("m", i)
		before, failed := delivery(id, "wh"), attempt(id, "wh", 5)
		before.Generation, before.State = 0, state
		mustRecord(t, s, record(before, failed))
		d, a := firstSuccess(id, "wh", "host-2")
		if state != tables.Delivered {
			mustRecord(t, s, record(d, a))
			wantEverywhere(t, s, id, []tables.Delivery{d}, a, failed)
		}
		d.Generation, a.Generation, a.StartedAt, d.FirstAt, d.LastAt = 1, 1, day.Add(time.Hour), day.Add(time.Hour), day.Add(time.Hour)
		mustRecord(t, s, record(d, a))
		wantLoaded(t, s, key(id), d)
	}
}

func firstSuccessesOfAll(t *testing.T, s tables.Store) {
	var r tables.Record
	for i := range 50 {
		d, a := firstSuccess("m", fmt.Sprintf("wh%02d", i), "host-1")
		a.StartedAt = a.StartedAt.Add(time.Duration(i) * time.Millisecond)
		d.FirstAt, d.LastAt = a.StartedAt, a.StartedAt
		r.Deliveries, r.Attempts = append(r.Deliveries, d), append(r.Attempts, a)
	}
	held := delivery("m", "wh50")
	held.State = tables.Held
	all := append(slices.Clone(r.Deliveries), held)
	slices.Reverse(r.Attempts)
	half := tables.Record{Deliveries: append(slices.Clone(r.Deliveries[:25]), held), Attempts: r.Attempts[25:]}
	mustRecord(t, s, half)
	mustRecord(t, s, tables.Record{Deliveries: r.Deliveries[25:], Attempts: r.Attempts[:25]})
	slices.Reverse(r.Attempts)
	wantEverywhere(t, s, "m", all, r.Attempts...)
}

func firstSuccessesListed(t *testing.T, s tables.Store) {
	var want []tables.Attempt
	for i := range 6 {
		d, a := firstSuccess(fmt.Sprint("m", i), fmt.Sprint("wh", i%2), "host-1")
		a.StartedAt = day.Add(-time.Duration(i) * time.Minute)
		d.FirstAt, d.LastAt = a.StartedAt, a.StartedAt
		mustRecord(t, s, record(d, a))
		want = append(want, a)
	}
	for name, f := range map[string]tables.AttemptFilter{
		"all": {}, "webhook": {WebhookID: "wh1"}, "message": {MessageID: "m3"}, "status": {StatusClass: 2, Action: policy.Complete},
	} {
		want := slices.DeleteFunc(slices.Clone(want), func(a tables.Attempt) bool { return !f.Matches(a) })
		eventually(t, "first successes are listed by "+name, func() bool {
			return diff(want, listAttempts(t, s, f, 2, nil)) == ""
		})
	}
}
