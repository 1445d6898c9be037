// Package retry says how long to wait before something is tried again, and tries it.
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff doubles from first to limit with n = 1, 2, …, and takes a random value
// in the upper half, so that instances do not move in step; never less than first.
func Backoff(n int, first, limit time.Duration) time.Duration {
	d := Doubled(n, first, limit)
	return max(d/2+time.Duration(rand.Int64N(int64(d/2)+1)), min(first, limit))
}

// Doubled is first doubled n-1 times, and limit at most.
func Doubled(n int, first, limit time.Duration) time.Duration {
	if n < 32 {
		if shifted := first << (n - 1); shifted>>(n-1) == first && shifted > 0 {
			return min(limit, shifted)
		}
	}
	return limit
}

// Sleep waits; false when ctx ended first.
func Sleep(ctx context.Context, wait time.Duration) bool {
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Await waits for done, at most for bound, and reports whether it came.
func Await(done <-chan struct{}, bound time.Duration) bool {
	t := time.NewTimer(bound)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}
