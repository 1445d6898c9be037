package tables

import (
	"testing"
	"time"
)

// A message that is given up as a whole is so for all its webhooks, also one that was registered anew; a replay of it goes on. So does
// a message that another holder had found a webhook for: where its life ends on a queue that drops it without a word, that is told.
func TestADeliveryWaitsForNothingWhereItsMessageIsGivenUpAsAWhole(t *testing.T) {
	day := time.Now().UTC().Add(-time.Hour)
	of := func(webhook string, state State, generation int, inserted time.Time) Delivery {
		return Delivery{
			MessageKey: MessageKey{Queue: "orders", MessageID: "m", Day: inserted}, WebhookID: webhook, State: state, Generation: generation,
			ExpiresAt: day.Add(time.Minute),
		}
	}
	whole := func(state State) Delivery { return of("", state, 0, day) }
	tried := of("wh", Pending, 0, day)
	for name, tt := range map[string]struct {
		d        Delivery
		beside   []Delivery
		overtook bool
	}{
		"its webhook":                           {tried, []Delivery{whole(DeadLettered)}, true},
		"a webhook anew":                        {of("wh", Pending, 1, day), []Delivery{whole(DeadLettered)}, true},
		"its replay":                            {of("wh", Pending, 1, day.Add(time.Hour)), []Delivery{whole(DeadLettered)}, false},
		"a webhook that had it":                 {of("wh", Delivered, 0, day), []Delivery{whole(DeadLettered)}, false},
		"given up":                              {tried, []Delivery{whole(DeadLettering)}, true},
		"given up, and another one waits":       {tried, []Delivery{whole(DeadLettering), of("wh_2", Held, 0, day)}, true},
		"given up, and another one had it":      {tried, []Delivery{whole(DeadLettering), of("wh_2", Delivered, 0, day)}, false},
		"given up, and withdrawn from another":  {tried, []Delivery{whole(DeadLettering), of("wh_2", Withdrawn, 0, day)}, true},
		"given up, and replayed to another":     {tried, []Delivery{whole(DeadLettering), of("wh_2", Pending, 1, day.Add(time.Hour))}, false},
		"of another queue":                      {tried, []Delivery{{MessageKey: MessageKey{Queue: "other", Day: day}, State: DeadLettered}}, false},
		"no filter took it before":              {tried, []Delivery{whole(Unmatched)}, false},
		"its event was delivered":               {tried, []Delivery{whole(Duplicate)}, true},
		"what no filter took":                   {whole(Unmatched), nil, false},
		"what no filter took before":            {whole(Unmatched), []Delivery{tried}, true},
		"what no filter took, and is withdrawn": {whole(Unmatched), []Delivery{of("wh", Withdrawn, 0, day)}, false},
	} {
		all := append(tt.beside, tt.d)
		if got := tt.d.Overtaken(all); got != tt.overtook {
			t.Errorf("%s: overtaken is %t, want %t", name, got, tt.overtook)
		}
		if unseen := ExpiredUnseen(all, time.Now()); tt.d == tried && unseen == tt.overtook {
			t.Errorf("%s: it expired unseen: %t", name, unseen)
		}
	}
}
