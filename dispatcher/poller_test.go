package dispatcher

import (
	"testing"
	"time"
)

func TestPausesDoubleWithinTheirBounds(t *testing.T) {
	const first, limit = 100 * time.Millisecond, 30 * time.Second
	for n := 1; n < 100; n++ {
		longest := limit
		if n < 10 {
			longest = min(limit, first<<(n-1))
		}
		for range 100 {
			if got := backoff(n, first, limit); got < max(first, longest/2) || got > longest {
				t.Fatalf("pause %d is %s, want %s to %s", n, got, max(first, longest/2), longest)
			}
		}
	}
	if got := backoff(3, time.Second, 10*time.Millisecond); got > 10*time.Millisecond {
		t.Errorf("a pause of %s is over its limit", got)
	}
}
