package dispatcher

import (
	"testing"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/retry"
)

func TestPausesDoubleWithinTheirBounds(t *testing.T) {
	const first, limit = 100 * time.Millisecond, 30 * time.Second
	for n := 1; n < 100; n++ {
		longest := limit
		if n < 10 {
			longest = min(limit, first<<(n-1))
		}
		for range 100 {
			if got := retry.Backoff(n, first, limit); got < max(first, longest/2) || got > longest {
				t.Fatalf("pause %d is %s, want %s to %s", n, got, max(first, longest/2), longest)
			}
		}
	}
	if got := retry.Backoff(3, time.Second, 10*time.Millisecond); got > 10*time.Millisecond {
		t.Errorf("a pause of %s is over its limit", got)
	}
}

// The pauses of an empty queue are PollMax on average: each receive is paid.
func TestPausesOfAnEmptyQueueVaryAroundTheirLength(t *testing.T) {
	const first, limit = 100 * time.Millisecond, 30 * time.Second
	for n := 1; n < 40; n++ {
		length := limit
		if n < 10 {
			length = min(limit, first<<(n-1))
		}
		var sum time.Duration
		for range 1000 {
			got := pollPause(n, first, limit)
			if got < max(first, length*3/4) || got > length*5/4 {
				t.Fatalf("pause %d is %s, want %s give or take a quarter", n, got, length)
			}
			sum += got
		}
		if mean := sum / 1000; n > 1 && (mean < length*97/100 || mean > length*103/100) {
			t.Errorf("pause %d is %s on average, want %s", n, mean, length)
		}
	}
	if got := pollPause(40, time.Hour, time.Hour); got < time.Hour {
		t.Errorf("a pause of %s is below the shortest", got)
	}
}
