package flow

import (
	"time"

	"github.com/pushlease/pushlease/policy"
)

// waitsLong is for how long a webhook that takes nothing may say that it is sent too much before it is broken: as long as a limit may take none.
const waitsLong = 75 * time.Second

// waitsMany is how many such refusals, one after the other, at least tell so, and waitsFresh how many of them name a wait or are of another message than the one before:
// the quota of one customer is none of the webhook's. waitsApart is how long after the last one the next counts with it at most.
const (
	waitsMany  = 3
	waitsFresh = 2
	waitsApart = time.Hour
)

// countWait counts the refusals with 429, 503 or a wait, other failures between them or not. Those that were under way together count once.
func (f *Flow) countWait(a Answer, now time.Time) {
	too, fresh := a.Sign.Waits || a.Sign.TooMany, 0
	if a.Sign.Waits || a.Message != f.waitsOf {
		fresh = 1
	}
	if f.tooMany++; !too {
		f.tooMany = 0
	}
	switch too = too || a.Sign.Limited; {
	case !a.Sign.Failed:
		f.waits = 0
	case too && (f.waits == 0 || now.Sub(f.waitsLast) > waitsApart):
		f.waits, f.fresh, f.waitsSince, f.waitsLast, f.waitsOf = 1, 1, now, now, a.Message
	case too && !a.Began.Before(f.waitsLast):
		f.waits, f.fresh, f.waitsLast, f.waitsOf = f.waits+1, f.fresh+fresh, now, a.Message
	}
}

// onlyThrottles tells whether all failures by which the breaker may open now said that the webhook is sent too much.
func (f *Flow) onlyThrottles(closed bool, now time.Time) bool {
	least := 1
	if closed {
		least = max(waitsMany, f.breaker.State(now).Failures+1)
	}
	return f.tooMany >= least
}

// onlyWaits tells whether a webhook has answered nothing but 429, 503 and waits for long. One with a limit that was learned does, without a wait: the pacer knows.
func (f *Flow) onlyWaits(s policy.Sign, now time.Time) bool {
	return (s.Waits || s.Limited && !f.pacer.Limited()) && f.waits >= waitsMany && f.fresh >= waitsFresh && now.Sub(f.waitsSince) > waitsLong
}

// fewTaken is how many POSTs are taken at most between two pauses that a limit asks for which is met by a slower pace: waits have whole seconds.
const fewTaken = 2

// takesFew is called when a POST was refused with a wait, and tells whether the rate is to be learned from it.
func (f *Flow) takesFew(began, now time.Time) bool {
	if began.Before(f.waited) { // one of those that were under way together
		return f.pacer.Limited()
	}
	taken := f.delivered - f.waitedAt
	few := !f.waited.IsZero() && taken > 0 && taken <= fewTaken // one that takes none is away
	f.waited, f.waitedAt = now, f.delivered
	return few || f.pacer.Limited()
}
