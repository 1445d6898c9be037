package policy

import (
	"math"
	"time"
)

// SlotHorizon is how far ahead a postponed message may be put: when the webhook
// recovers before, it is back after that time at the latest.
const SlotHorizon = 10 * time.Minute

// Slots says when postponed messages of one webhook come back, so that they come at
// about the rate that it takes. Each Reserve takes the next place on a line that moves
// on by 1/rate. The zero Slots is ready.
type Slots struct{ next time.Time }

// Reserve returns when a message that is postponed now is to come back: later than now,
// not before earliest unless that is beyond SlotHorizon, and at most SlotHorizon ahead.
// When the line is longer than that, the time is anywhere in the second half of it:
// random is uniform in [0, 1). rate is POSTs per second, bounded to what a Flow can
// have; 0 where nothing is known counts as 1.
func (s *Slots) Reserve(rate float64, earliest, now time.Time, random float64) time.Time {
	if !(rate > 0) { // not so when it is NaN
		rate = 1
	}
	step := time.Duration(math.Ceil(float64(time.Second) / min(max(rate, MinRate), MaxRate)))
	horizon := now.Add(SlotHorizon)
	s.next = earlier(s.next, horizon.Add(step)) // the clock was set back
	at := later(s.next, later(earliest, now.Add(step)))
	if at.After(horizon) {
		return horizon.Add(-time.Duration(share(random) * float64(SlotHorizon/2)))
	}
	s.next = at.Add(step)
	return at
}

// Reset empties the line: the webhook has recovered, or was enabled.
func (s *Slots) Reset() { *s = Slots{} }
