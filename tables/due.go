package tables

import (
	"iter"
	"slices"
	"time"
)

// DueUntil is when a webhook had to be registered at the latest to get a message that was received before, where nothing is on record of
// it. Storage may tell whole seconds only, so the second in which the message was inserted counts in full. Of those that were
// registered later, and were there at the first receive, the first record of the message tells (ADR 0091); whoever made the first attempt had all
// webhooks that were registered by then to deliver to. Webhooks that the message was withdrawn from do not count: it was
// handed on later.
func DueUntil(inserted time.Time, all iter.Seq[Delivery]) time.Time {
	until, first := inserted.Truncate(time.Second).Add(time.Second), time.Time{}
	for d := range all {
		counted := d.Attempts == d.Charged+d.Waits && d.Excused == 0 // else others may have been made before FirstAt, or it was held
		if counted && d.State != Withdrawn && !d.FirstAt.IsZero() && (first.IsZero() || d.FirstAt.Before(first)) {
			first = d.FirstAt
		}
	}
	if first.After(until) {
		return first
	}
	return until
}

// NotBegun are deliveries to the webhooks that a message was due to, of which nothing is known: those that were registered in
// time, or anew since it was withdrawn from them, and whose filters, as takes says, take it.
func NotBegun(key MessageKey, records []Delivery, webhooks []Registration, known map[string]bool, takes func(r *Registration) bool) (list []Delivery) {
	until := DueUntil(key.Day, func(yield func(Delivery) bool) {
		for _, d := range records {
			if d.Day.Equal(key.Day) && !yield(d) {
				return
			}
		}
	})
	for i := range webhooks {
		r := &webhooks[i]
		d := Delivery{MessageKey: key, WebhookID: r.ID}
		anew := slices.IndexFunc(records, func(d Delivery) bool { return d.WebhookID == r.ID && d.State == Withdrawn })
		if anew >= 0 {
			d.Generation = records[anew].Generation + 1
		}
		if !known[r.ID] && (anew >= 0 || !r.CreatedAt.After(until)) && takes(r) {
			list = append(list, d)
		}
	}
	return list
}

// OnRecord are the webhooks of which something is, and from which the message was not withdrawn.
func OnRecord(records []Delivery) map[string]bool {
	known := make(map[string]bool)
	for _, d := range records {
		if d.WebhookID != "" && d.State != Withdrawn {
			known[d.WebhookID] = true
		}
	}
	return known
}
