package tables

import (
	"slices"
	"testing"
	"time"

	"github.com/pushlease/pushlease/webhook"
)

// Who made the first attempt had the webhooks of then to deliver to. An attempt for which no request could be made is no first one, so that
// others may have been made long before the first that counts.
func TestAMessageIsDueToWhomWasThereAtItsFirstAttempt(t *testing.T) {
	inserted := time.Now().UTC().Truncate(time.Second)
	at := func(d time.Duration) time.Time { return inserted.Add(d) }
	end := at(time.Second)
	for name, tt := range map[string]struct {
		of   []Delivery
		want time.Time
	}{
		"nothing is on record":            {nil, end},
		"nothing was tried":               {[]Delivery{{WebhookID: "w", State: Held}}, end},
		"a first attempt":                 {[]Delivery{{WebhookID: "w", Attempts: 2, Charged: 1, Waits: 1, FirstAt: at(time.Minute)}}, at(time.Minute)},
		"the earlier of two":              {[]Delivery{{WebhookID: "w", FirstAt: at(time.Hour)}, {WebhookID: "w2", FirstAt: at(time.Minute)}}, at(time.Minute)},
		"one within the second":           {[]Delivery{{WebhookID: "w", FirstAt: at(time.Millisecond)}}, end},
		"others were made before":         {[]Delivery{{WebhookID: "w", Attempts: 2, Charged: 1, FirstAt: at(time.Minute)}}, end},
		"of a webhook that was withdrawn": {[]Delivery{{WebhookID: "w", State: Withdrawn, FirstAt: at(time.Minute)}}, end},
	} {
		if got := DueUntil(inserted, slices.Values(tt.of)); !got.Equal(tt.want) {
			t.Errorf("%s: until %s, want %s", name, got, tt.want)
		}
	}
}

// What is due to a webhook of which nothing is on record goes by the attempts of this message, and of none of its replays.
func TestAWebhookOfWhichNothingIsOnRecordIsDueAMessage(t *testing.T) {
	key := MessageKey{Queue: "orders", MessageID: "m", Day: time.Now().UTC()}
	on := func(day time.Time, id string, state State, generation int, first time.Duration) Delivery {
		return Delivery{MessageKey: MessageKey{Queue: "orders", MessageID: "m", Day: day}, WebhookID: id, State: state, Generation: generation, FirstAt: key.Day.Add(first)}
	}
	records := []Delivery{
		on(key.Day, "has", Delivered, 0, time.Minute), on(key.Day, "again", Withdrawn, 2, time.Second), on(key.Day.Add(time.Hour), "replayed", Pending, 1, 0),
	}
	var webhooks []Registration
	for id, after := range map[string]time.Duration{"has": 0, "again": time.Hour, "replayed": 0, "missing": 30 * time.Second, "late": 2 * time.Minute, "picky": 0} {
		r := Registration{Webhook: webhook.Webhook{ID: id, Queue: "orders"}, CreatedAt: key.Day.Add(after)}
		if id == "picky" {
			r.Filter.Types = []string{"something.else"}
		}
		webhooks = append(webhooks, r)
	}
	got := map[string]int{}
	for _, d := range NotBegun(key, records, webhooks, map[string]bool{"has": true, "replayed": true}, func(r *Registration) bool { return len(r.Filter.Types) == 0 }) {
		got[d.WebhookID] = d.Generation
	}
	if again, ok := got["again"]; len(got) != 2 || !ok || again != 3 || got["missing"] != 0 {
		t.Errorf("due are %v, want missing and, anew, again", got)
	}
}
