package policy

import "time"

// Round is the POSTs that are under way when a webhook that has taken nothing lately refuses one over a
// limit. A refusal comes at once and what is taken takes its time, so what becomes of the others is not known then: while it is one of several, none of
// them is the fault of its message. The zero Round is ready; what is taken ends it.
type Round struct {
	at   time.Time // of the first refusal
	many bool      // others were under way
}

// Refused takes in a refusal of a POST that began then, while so many others are under way, and tells whether it is
// one of the first of several.
func (r *Round) Refused(began, now time.Time, others int) bool {
	if r.at.IsZero() {
		r.at, r.many = now, others > 0
	}
	return r.many && !began.After(r.at)
}
