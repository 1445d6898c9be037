package queue

import (
	"testing"
	"time"
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
