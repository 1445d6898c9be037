package azuretable_test

import (
	"maps"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/azurestandin"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/tables/azuretable"
)

// C54: with the records of a day goes the last that is known of messages that expired unseen. Who drops the table
// counts them, and a second one that drops it does not.
func TestWhoDropsARecordCountsWhatHadNoOutcome(t *testing.T) {
	account, err := azurestandin.Start(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = account.Close() })
	counted := map[string]int{}
	s := open(t, account.ConnectionString(), azuretable.Options{
		Partitions: 4, OnUnfinished: func(queue string, n int, whole bool) {
			counted[queue] += n
			if !whole {
				t.Errorf("not all of %s was counted", queue)
			}
		},
	})
	day := today.Add(-72 * time.Hour)
	write := func(queue, id, webhookID string, state tables.State, expires time.Time) {
		t.Helper()
		d := tables.Delivery{
			MessageKey: tables.MessageKey{Queue: queue, MessageID: id, Day: day}, WebhookID: webhookID, State: state,
			UpdatedAt: day.Add(time.Second), ExpiresAt: expires,
		}
		if err := s.Record(t.Context(), tables.Record{Deliveries: []tables.Delivery{d}}); err != nil {
			t.Fatal(err)
		}
	}
	over := day.Add(time.Hour)
	for _, id := range []string{"a", "b", "c"} {
		write("orders", id, "", tables.Published, over)
	}
	write("orders", "a", "w", tables.Delivered, over)
	write("orders", "half", "", tables.Published, over)
	write("orders", "half", "w1", tables.Delivered, over)
	write("orders", "half", "w2", tables.Pending, over)
	write("orders", "given-up", "w", tables.DeadLettered, over)
	write("orders", "lives-on", "w", tables.Held, time.Time{})
	write("orders", "lives-long", "w", tables.Held, time.Now().Add(time.Hour))
	write("bills", "a", "", tables.Held, over)
	for range 2 {
		if _, err := s.Expire(t.Context(), today); err != nil {
			t.Fatal(err)
		}
	}
	if want := (map[string]int{"orders": 3, "bills": 1}); !maps.Equal(counted, want) {
		t.Errorf("counted %v, want %v", counted, want)
	}
}
