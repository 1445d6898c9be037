package policy

import (
	"math"
	"testing"
	"time"
)

func TestASpreadTellsQuantilesToWithinATenth(t *testing.T) {
	var s Spread
	if q := s.Quantile(0.5); q != 0 {
		t.Errorf("the median of nothing = %s", q)
	}
	for ms := 1; ms <= 1000; ms++ {
		s.Add(time.Duration(ms) * time.Millisecond)
	}
	for _, tt := range []struct {
		share float64
		want  time.Duration
	}{{0, time.Millisecond}, {0.5, 500 * time.Millisecond}, {0.95, 950 * time.Millisecond}, {0.99, 990 * time.Millisecond}, {1, time.Second}} {
		if got := s.Quantile(tt.share); math.Abs(float64(got)/float64(tt.want)-1) > 0.1 {
			t.Errorf("Quantile(%v) = %s, want %s to within a tenth", tt.share, got, tt.want)
		}
	}
}

func TestSpreadsAddUp(t *testing.T) {
	var fast, slow, all Spread
	for range 90 {
		fast.Add(10 * time.Millisecond)
	}
	for range 10 {
		slow.Add(time.Minute)
	}
	all.AddAll(fast)
	all.AddAll(slow)
	all.AddAll(nil)
	if p50, p95 := all.Quantile(0.5), all.Quantile(0.95); p50 > 11*time.Millisecond || p95 < 54*time.Second {
		t.Errorf("median %s, p95 %s; want about 10ms and a minute", p50, p95)
	}
	if n := fast[spreadClass(10*time.Millisecond)]; n != 90 {
		t.Errorf("what is added to another changed: %d", n)
	}
}

func TestASpreadTakesAnyDuration(t *testing.T) {
	for _, d := range []time.Duration{math.MinInt64, -1, 0, 1, time.Millisecond, time.Hour, 7 * 24 * time.Hour, math.MaxInt64} {
		var s Spread
		s.Add(d)
		if q := s.Quantile(0.5); q <= 0 || d > time.Millisecond && d < 10*24*time.Hour && math.Abs(float64(q)/float64(d)-1) > 0.1 {
			t.Errorf("%s comes back as %s", d, q)
		}
	}
}
