package meter

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

func newInstruments(t *testing.T) *Instruments {
	t.Helper()
	ms, err := New(noop.Meter{})
	if err != nil {
		t.Fatal(err)
	}
	return ms
}

func TestTalliesCountWhatTheMetricsCount(t *testing.T) {
	ms := newInstruments(t)
	put := time.Now()
	for _, a := range []tables.Attempt{
		{MessageKey: tables.MessageKey{Day: put}, Status: 204, Action: "complete", StartedAt: put.Add(900 * time.Millisecond)},
		{MessageKey: tables.MessageKey{Day: put}, Status: 503, Action: "abandon", StartedAt: put},
		{ErrorClass: "timeout", Action: "abandon"},
	} {
		a.Queue, a.WebhookID, a.Duration = "orders", "wh_1", 100*time.Millisecond
		ms.Attempted(t.Context(), &a, false)
	}
	ms.Held("orders", "wh_1", "WebhookFailing")
	ms.DeadLettered("orders", "wh_1", "NonRetryableError")
	ms.DeadLettered("orders", "", "Unmatched")
	got := map[string]tables.Tally{}
	for _, tally := range ms.Tallies.Take() {
		got[tally.WebhookID] = tally
	}
	var took, delay policy.Spread
	for range 3 {
		took.Add(100 * time.Millisecond)
	}
	delay.Add(time.Second)
	want := map[string]tables.Tally{
		"wh_1": {Queue: "orders", WebhookID: "wh_1", Attempts: map[string]int64{"2xx": 1, "5xx": 1, "timeout": 1}, Delivered: 1, Held: 1, DeadLetters: 1, Took: took, Delay: delay},
		"":     {Queue: "orders", DeadLetters: 1},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if again := ms.Tallies.Take(); len(again) != 0 {
		t.Errorf("what was taken is there again: %v", again)
	}
}

// A row of a store has to hold them, however many webhooks and queues there are: none is left out
// of the sum.
func TestTalliesOfManyWebhooksAndQueuesAreBoundedAndComplete(t *testing.T) {
	for name, of := range map[string]func(i int) (queueName, webhookID string){
		"webhooks": func(i int) (string, string) { return fmt.Sprintf("q%d", i%3), fmt.Sprintf("wh_%d", i) },
		"queues":   func(i int) (string, string) { return fmt.Sprintf("q%d", i), "wh_1" },
	} {
		ms := newInstruments(t)
		for i := range 2000 {
			queueName, webhookID := of(i)
			ms.Held(queueName, webhookID, "WebhookFailing")
		}
		var sum int64
		taken := ms.Tallies.Take()
		for _, tally := range taken {
			sum += tally.Held
		}
		if sum != 2000 || len(taken) > maxTallies+1 {
			t.Errorf("2000 %s: %d tallies with %d in all, want at most %d with 2000", name, len(taken), sum, maxTallies+1)
		}
	}
}
