package policy

import (
	"testing"
	"time"
)

func TestMeasurementIsBoundedAndCountsTheNewest(t *testing.T) {
	var times Times
	start := time.Now()
	for i := range 10 * measuredSamples {
		times.Add(start, time.Duration(i))
	}
	fresh := times.Fresh(start)
	if len(fresh) != measuredSamples || fresh[0] != 9*measuredSamples || fresh[measuredSamples-1] != 10*measuredSamples-1 {
		t.Errorf("%d samples from %d to %d", len(fresh), fresh[0], fresh[len(fresh)-1])
	}
	if m := times.Measured(start); m.Samples != measuredSamples || m.Average != 9*measuredSamples+measuredSamples/2-1 {
		t.Errorf("measured %+v", m)
	}
	if m := times.Measured(start.Add(MeasuredAge)); m != (Measured{}) {
		t.Errorf("what is too old counts: %+v", m)
	}
}

func TestPercentiles(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	for _, tt := range []struct {
		times []time.Duration
		p     float64
		want  time.Duration
	}{
		{nil, .5, 0}, {hundred[:1], .5, 1}, {hundred[:1], .99, 1}, {hundred[:2], .5, 1}, {hundred[:3], .5, 2},
		{hundred, .5, 50}, {hundred, .95, 95}, {hundred, .99, 99}, {hundred[:20], .95, 19},
	} {
		if got := Percentile(tt.times, tt.p); got != tt.want {
			t.Errorf("percentile %v of %d = %v, want %v", tt.p, len(tt.times), got, tt.want)
		}
	}
}
