package receive

import (
	"testing"
	"time"
)

func TestDueTimesAreKeptInOrderAndBounded(t *testing.T) {
	var d due
	now := time.UnixMilli(1_000_000)
	want(t, "none", d.next(now).IsZero(), true)
	for _, after := range []time.Duration{time.Minute, 3 * time.Second, 3*time.Second + time.Millisecond} {
		d.note(now.Add(after))
	}
	want(t, "the first", d.next(now), time.UnixMilli(1_003_250))
	want(t, "the one after that has passed", d.next(now.Add(4*time.Second)), time.UnixMilli(1_060_250))
	for i := range 2 * maxDue {
		d.note(now.Add(time.Duration(i) * time.Hour))
	}
	want(t, "kept", len(d.steps), maxDue)
}
