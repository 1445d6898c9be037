package tables

import (
	"testing"
	"time"
)

// A message that is given up as a whole is so for all its webhooks, also one that was registered anew; a replay of it goes on.
func TestADeliveryWaitsForNothingWhereItsMessageIsGivenUpAsAWhole(t *testing.T) {
	day := time.Now().UTC()
	of := func(webhook string, state State, generation int, inserted time.Time) Delivery {
		return Delivery{MessageKey: MessageKey{Queue: "orders", MessageID: "m", Day: inserted}, WebhookID: webhook, State: state, Generation: generation}
	}
	whole := of("", DeadLettered, 0, day)
	for name, tt := range map[string]struct {
		d        Delivery
		overtook bool
	}{
		"its webhook":           {of("wh", Pending, 0, day), true},
		"a webhook anew":        {of("wh", Pending, 1, day), true},
		"its replay":            {of("wh", Pending, 1, day.Add(time.Hour)), false},
		"a webhook that had it": {of("wh", Delivered, 0, day), false},
	} {
		if got := tt.d.Overtaken([]Delivery{whole, tt.d}); got != tt.overtook {
			t.Errorf("%s: overtaken is %t, want %t", name, got, tt.overtook)
		}
	}
}
