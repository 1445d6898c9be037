package policy

import (
	"testing"
	"time"
)

func TestLatelyLooksBackOneToTwoHours(t *testing.T) {
	var w Lately
	start := time.Now()
	w.Add(true, start)
	w.Add(false, start.Add(50*time.Minute))
	w.Add(false, start.Add(70*time.Minute))
	for _, tt := range []struct {
		after     time.Duration
		all, some int
	}{{70 * time.Minute, 3, 1}, {129 * time.Minute, 3, 1}, {131 * time.Minute, 1, 0}, {5 * time.Hour, 0, 0}} {
		if all, some := w.Sums(start.Add(tt.after)); all != tt.all || some != tt.some {
			t.Errorf("after %s: %d, %d of them; want %d, %d", tt.after, all, some, tt.all, tt.some)
		}
	}
}
