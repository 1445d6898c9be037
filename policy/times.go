package policy

import (
	"slices"
	"time"
)

const (
	// measuredSamples bounds the times that Times keeps.
	measuredSamples = 256
	// MeasuredAge is how long a measured time counts.
	MeasuredAge = time.Hour
)

// Times keeps how long recent work took, in bounded memory. The zero Times is empty.
type Times struct {
	samples []measurement
	next    int // the oldest one, once there are measuredSamples
}

type measurement struct {
	at   time.Time
	took time.Duration
}

// Add notes a time that was measured now.
func (t *Times) Add(now time.Time, took time.Duration) {
	if len(t.samples) < measuredSamples {
		t.samples = append(t.samples, measurement{now, took})
		return
	}
	t.samples[t.next] = measurement{now, took}
	t.next = (t.next + 1) % measuredSamples
}

// Fresh returns the times that are not older than MeasuredAge, in ascending order.
func (t *Times) Fresh(now time.Time) []time.Duration {
	var times []time.Duration
	for _, m := range t.samples {
		if now.Sub(m.at) < MeasuredAge {
			times = append(times, m.took)
		}
	}
	slices.Sort(times)
	return times
}

// Measured sums up the fresh times.
func (t *Times) Measured(now time.Time) Measured {
	times := t.Fresh(now)
	if len(times) == 0 {
		return Measured{}
	}
	var sum time.Duration // 256 leases of 7 days are far below the limit
	for _, took := range times {
		sum += took
	}
	return Measured{Samples: len(times), Average: sum / time.Duration(len(times)), Slow: Percentile(times, .95)}
}

// Percentile is the smallest of the ascending times that a share p of them does not
// exceed; zero without any.
func Percentile(times []time.Duration, p float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	return times[max(int(float64(len(times))*p+.999999), 1)-1]
}
