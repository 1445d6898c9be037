package tablestest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

var deliveryListTests = []test{
	{"DeliveriesAreListedAsTheyStand", deliveriesStand},
	{"DeliveriesAreListedByTheirDays", deliveriesByDays},
}

// deliveriesListed are the deliveries that a list has, as "message webhook state generation".
func deliveriesListed(t *testing.T, s tables.Store, f tables.DeliveryFilter, limit int) (list []string) {
	t.Helper()
	for _, d := range walk(t, limit, func(p tables.Page) ([]tables.Delivery, tables.Cursor, error) {
		return tables.ListDeliveries(t.Context(), s, s, f, p)
	}, nil) {
		list = append(list, fmt.Sprintf("%s %s %s %d", d.MessageID, d.WebhookID, d.State, d.Generation))
	}
	return list
}

// Each delivery is there once, in its last state: an earlier one, that of before a replay, and what was said of the message before its
// deliveries began are not.
func deliveriesStand(t *testing.T, s tables.Store) {
	if got := deliveriesListed(t, s, tables.DeliveryFilter{}, 10); len(got) != 0 {
		t.Errorf("%v in an empty store", got)
	}
	at := func(message string) tables.MessageKey {
		return tables.MessageKey{Queue: "orders", MessageID: message, Day: day}
	}
	put := func(ds ...tables.Delivery) {
		t.Helper()
		for _, d := range ds {
			if err := s.Record(t.Context(), tables.Record{Deliveries: []tables.Delivery{d}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	first := tables.Attempt{MessageKey: at("m-1"), WebhookID: "a", Number: 1, StartedAt: day.Add(time.Second), Status: 200, Charged: true, Action: policy.Complete, Instance: "i"}
	success := first.Completed(&tables.Delivery{UpdatedAt: day.Add(2 * time.Second), Encoding: "none", Size: 2, BodyHash: "x"})
	put(tables.Delivery{MessageKey: at("m-1"), State: tables.Published, UpdatedAt: day})
	if err := s.Record(t.Context(), tables.Record{Deliveries: []tables.Delivery{success}, Attempts: []tables.Attempt{first}}); err != nil {
		t.Fatal(err)
	}
	put(
		tables.Delivery{MessageKey: at("m-1"), WebhookID: "b", State: tables.Pending, Attempts: 1, Charged: 1, UpdatedAt: day.Add(time.Second)},
		tables.Delivery{MessageKey: at("m-1"), WebhookID: "b", State: tables.DeadLettered, Attempts: 2, Charged: 2, UpdatedAt: day.Add(2 * time.Second)},
		tables.Delivery{MessageKey: at("m-1"), WebhookID: "b", Generation: 1, State: tables.Pending, UpdatedAt: day.Add(3 * time.Second)},
		tables.Delivery{MessageKey: at("m-2"), WebhookID: "a", State: tables.Held, Reason: policy.WebhookDisabled, UpdatedAt: day.Add(time.Second)},
		tables.Delivery{MessageKey: at("m-3"), State: tables.Published, UpdatedAt: day},
	)
	all := []string{"m-1 a delivered 0", "m-1 b pending 1", "m-2 a held 0", "m-3  published 0"}
	for _, limit := range []int{1, 2, 100} {
		got := deliveriesListed(t, s, tables.DeliveryFilter{}, limit)
		slices.Sort(got)
		if !slices.Equal(got, all) {
			t.Errorf("%d a page: %v, want %v", limit, got, all)
		}
	}
	for _, c := range []struct {
		f    tables.DeliveryFilter
		want []string
	}{
		{tables.DeliveryFilter{State: tables.Pending}, all[1:2]},
		{tables.DeliveryFilter{State: tables.DeadLettered}, nil},
		{tables.DeliveryFilter{State: tables.Delivered, Queue: "orders"}, all[:1]},
		{tables.DeliveryFilter{WebhookID: "a", State: tables.Held}, all[2:3]},
		{tables.DeliveryFilter{Queue: "invoices"}, nil},
	} {
		if got := deliveriesListed(t, s, c.f, 1); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v, want %v", c.f, got, c.want)
		}
	}
	for _, bad := range []tables.Cursor{"x", "m.1", "d.1", "eyJyIjoiYSJ9"} {
		if _, _, err := s.Deliveries(t.Context(), tables.DeliveryFilter{}, tables.Page{Limit: 1, After: bad}); !errors.Is(err, tables.ErrBadCursor) {
			t.Errorf("after %q: %v, want ErrBadCursor", bad, err)
		}
	}
}

func deliveriesByDays(t *testing.T, s tables.Store) {
	older := day.AddDate(0, 0, -1)
	for i, key := range []tables.MessageKey{{Queue: "orders", MessageID: "old", Day: older}, {Queue: "orders", MessageID: "new", Day: day}, {Queue: "orders", MessageID: "early", Day: day.Add(-time.Hour)}, {Queue: "orders", MessageID: "late", Day: day.Add(time.Minute)}} {
		a := tables.Attempt{MessageKey: key, WebhookID: "w", Number: 1, StartedAt: day, Status: 200, Charged: true, Action: policy.Complete, Instance: "i"}
		d := tables.Delivery{MessageKey: key, WebhookID: "w", State: tables.Held, UpdatedAt: day}
		r := tables.Record{Deliveries: []tables.Delivery{d}}
		if i%2 == 0 { // which is in the other form
			r = tables.Record{Deliveries: []tables.Delivery{a.Completed(&tables.Delivery{UpdatedAt: day})}, Attempts: []tables.Attempt{a}}
		}
		if err := s.Record(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	for _, limit := range []int{1, 10} {
		if got := deliveriesListed(t, s, tables.DeliveryFilter{}, limit); len(got) != 4 || got[3] != "old w delivered 0" {
			t.Errorf("%d a page: %v, want the older day last", limit, got)
		}
	}
	for _, c := range []struct {
		from, until time.Time
		want        []string
	}{
		{day, day.Add(time.Second), []string{"new w held 0"}},
		{day.Add(time.Nanosecond), time.Time{}, []string{"late w held 0"}},
		{time.Time{}, day.Add(-time.Hour), []string{"old w delivered 0"}},
		{day.Add(-time.Hour), day, []string{"early w delivered 0"}},
		{older.Add(time.Millisecond), day.Add(-time.Hour), nil},
	} {
		if got := deliveriesListed(t, s, tables.DeliveryFilter{From: c.from, Until: c.until}, 1); !slices.Equal(got, c.want) {
			t.Errorf("from %s until %s: %v, want %v", c.from, c.until, got, c.want)
		}
	}
}
