package tables

import (
	"cmp"
	"iter"
	"slices"
	"time"
)

// Completed is the delivery of an attempt that was its first and completed it. Of about only
// what no attempt says counts: what is about the message, and when the state was reached.
func (a *Attempt) Completed(about *Delivery) Delivery {
	return Delivery{
		MessageKey: a.MessageKey, WebhookID: a.WebhookID, Generation: a.Generation, State: Delivered, Reason: a.Reason,
		Attempts: 1, Charged: 1, LastStatus: a.Status, LastErrorClass: a.ErrorClass, FirstAt: a.StartedAt, LastAt: a.StartedAt,
		UpdatedAt: about.UpdatedAt, ExpiresAt: about.ExpiresAt, Encoding: about.Encoding, Size: about.Size, BodyHash: about.BodyHash,
		Instance: a.Instance, Damage: about.Damage,
	}
}

// completes reports whether all that d says follows from a, by Completed.
func (a *Attempt) completes(d *Delivery) bool {
	return d.State == Delivered && d.Attempts == 1 && a.Number == 1 && a.Charged && *d == a.Completed(d)
}

// Rows are what a store keeps as one row each: a delivery, an attempt, or the two of a first
// success, which is most of all that is recorded. Who reads such a row makes the delivery by Completed.
func (r Record) Rows() iter.Seq2[*Delivery, *Attempt] {
	return func(yield func(*Delivery, *Attempt) bool) {
		for i := range r.Deliveries {
			d := &r.Deliveries[i]
			if !r.isCompleted(d) && !yield(d, nil) {
				return
			}
		}
		for i := range r.Attempts {
			if !yield(r.completedBy(&r.Attempts[i]), &r.Attempts[i]) {
				return
			}
		}
	}
}

// isCompleted reports whether d shares its row with an attempt.
func (r Record) isCompleted(d *Delivery) bool {
	for i := range r.Attempts {
		if r.Attempts[i].completes(d) {
			return true
		}
	}
	return false
}

// completedBy is the delivery that shares its row with a; nil when there is none.
func (r Record) completedBy(a *Attempt) *Delivery {
	for i := range r.Deliveries {
		if a.completes(&r.Deliveries[i]) {
			return &r.Deliveries[i]
		}
	}
	return nil
}

// Newest leaves one of several rows of each delivery: the newest, and of two that say the same the
// later one. One that leaves undecided how far the delivery has come is newer than all. Rows of different days are different deliveries. It returns them in ascending
// order of webhook id, then of queue and day; ds is changed.
func Newest(ds []Delivery) []Delivery {
	slices.SortStableFunc(ds, byDelivery)
	kept := ds[:0]
	for _, d := range ds {
		last := len(kept) - 1
		switch {
		case last < 0 || byDelivery(kept[last], d) != 0:
			kept = append(kept, d)
		case kept[last].Damage.Undecided:
		case d.Damage.Undecided:
			kept[last] = d
		case !kept[last].Newer(&d):
			kept[last] = d
		}
	}
	return kept
}

// byDelivery is 0 for rows of one delivery: a replay on the same day goes on with it.
func byDelivery(a, b Delivery) int {
	return cmp.Or(cmp.Compare(a.WebhookID, b.WebhookID), cmp.Compare(a.Queue, b.Queue), dayOf(a.Day).Compare(dayOf(b.Day)))
}

func dayOf(t time.Time) time.Time { return t.UTC().Truncate(24 * time.Hour) }
