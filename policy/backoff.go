package policy

import (
	"math"
	"time"
)

// MaxDelay bounds every delay: Azure Storage Queues hide a message for at most
// seven days.
const MaxDelay = 7 * 24 * time.Hour

// Delay is the time between the failed attempt n, counted from 0, and the next
// one; random is uniform in [0, 1). It is in whole seconds, since storage counts
// in them, rounded up, and within [1 s, MaxDelay] for any n and any setting.
// Jitter is added to the bounded delay, so it spreads a burst at Max too.
func (b Backoff) Delay(n int, random float64) time.Duration {
	return jittered(b.base(n), b.Jitter, random)
}

// base is the delay after attempt n before jitter, within [0, MaxDelay].
func (b Backoff) base(n int) time.Duration {
	n = max(n, 0)
	if len(b.Delays) > 0 {
		return clampDelay(time.Duration(b.Delays[min(n, len(b.Delays)-1)]))
	}
	limit := clampDelay(time.Duration(b.Max))
	if b.Max <= 0 {
		limit = MaxDelay
	}
	initial := min(clampDelay(time.Duration(b.Initial)), limit)
	if initial == 0 || !(b.Factor > 1) { // not greater also when it is NaN
		return initial
	}
	// Compared as floats: the power may be far beyond what an integer holds, or
	// infinite, and is converted only when it is known to be in range.
	grown := float64(initial) * math.Pow(b.Factor, float64(n))
	if grown >= float64(limit) {
		return limit
	}
	return time.Duration(math.Round(grown))
}

// jittered adds up to the share jitter to base, rounds up to whole seconds and
// keeps the result within [1 s, MaxDelay].
func jittered(base time.Duration, jitter, random float64) time.Duration {
	base = clampDelay(base)
	extra := float64(base) * share(jitter) * share(random) // at most base
	return min(max(ceilSecond(base+time.Duration(extra)), time.Second), MaxDelay)
}

// share bounds f to [0, 1]; NaN counts as 0.
func share(f float64) float64 {
	if !(f > 0) {
		return 0
	}
	return min(f, 1)
}

func clampDelay(d time.Duration) time.Duration { return min(max(d, 0), MaxDelay) }

// ceilSecond rounds up to whole seconds.
func ceilSecond(d time.Duration) time.Duration {
	whole := d.Truncate(time.Second)
	if whole < d && whole <= math.MaxInt64-time.Second {
		whole += time.Second
	}
	return whole
}
