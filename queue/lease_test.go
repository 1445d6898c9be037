package queue

import (
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
)

func TestALeaseIsWhatStorageGrantedLast(t *testing.T) {
	start := time.Now()
	l := NewLease("first", start, time.Minute)
	check := func(receipt string, granted time.Duration, until time.Time) {
		t.Helper()
		if l.Receipt() != receipt || l.Granted() != granted || !l.Until().Equal(until) {
			t.Errorf("receipt %q, granted %s, until %s; want %q, %s, %s", l.Receipt(), l.Granted(), l.Until(), receipt, granted, until)
		}
	}
	check("first", time.Minute, start.Add(time.Minute))
	l.Renewed("second", start.Add(30*time.Second), 2*time.Minute)
	check("second", 2*time.Minute, start.Add(150*time.Second))
	l.Renewed("third", start.Add(time.Minute), time.Second) // shorter is as true as longer
	check("third", time.Second, start.Add(61*time.Second))
}

// The monotonic clock stands still while a machine is suspended, and the wall clock may be set back: what either says is over is.
func TestALeaseIsOverByEitherClock(t *testing.T) {
	start := time.Now()
	for name, tt := range map[string]struct {
		start time.Time
		after time.Duration
		over  bool
	}{
		"it lasts":                        {start, 59 * time.Second, false},
		"its time has passed":             {start, time.Minute, true},
		"the machine was suspended":       {bubble.Suspended(start, 600), time.Second, true},
		"the wall clock was set back":     {bubble.Suspended(start, -600), time.Minute, true},
		"so it was, and the lease lasts":  {bubble.Suspended(start, -600), 59 * time.Second, false},
		"a suspension shorter than it is": {bubble.Suspended(start, 30), time.Second, false},
	} {
		if got := NewLease("r", tt.start, time.Minute).Over(start.Add(tt.after)); got != tt.over {
			t.Errorf("%s: over is %t, want %t", name, got, tt.over)
		}
	}
}
