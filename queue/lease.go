package queue

import (
	"sync"
	"time"
)

// Lease is the right to settle one received message. It owns the current
// receipt: adapters read it at send time for every call and replace it after
// every one that storage answered, so that a receipt from before a renewal can
// never be used again. Safe for concurrent use.
type Lease struct {
	mu      sync.Mutex
	receipt string
	granted time.Duration
	until   time.Time
}

// NewLease is for adapters. start is the local time at which the request was
// begun: counted from there the lease can only be shorter than what storage
// granted, and the monotonic reading inside start makes it proof against
// changes of the wall clock.
func NewLease(receipt string, start time.Time, granted time.Duration) *Lease {
	return &Lease{receipt: receipt, granted: granted, until: start.Add(granted)}
}

// Receipt is the newest receipt, for adapters.
func (l *Lease) Receipt() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.receipt
}

// Renewed is called by adapters after storage granted a renewal that was begun
// at start.
func (l *Lease) Renewed(receipt string, start time.Time, granted time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.receipt, l.granted, l.until = receipt, granted, start.Add(granted)
}

// AtMost ends the lease by until: a renewal that storage did not answer may have made it as short as that.
func (l *Lease) AtMost(until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if until.Before(l.until) {
		l.until = until
	}
}

// Until is when the lease ends: until then it surely holds, unless Over says that a suspended machine slept past it.
func (l *Lease) Until() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until
}

// Over reports whether the lease has ended by either of the computer's clocks: the monotonic one stands still while the
// machine is suspended, and the wall clock may be set back.
func (l *Lease) Over(now time.Time) bool {
	until := l.Until()
	return !now.Before(until) || !now.Round(0).Before(until.Round(0))
}

// Granted is the length that storage granted last.
func (l *Lease) Granted() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.granted
}
