package receive

import (
	"testing"
	"time"
)

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
