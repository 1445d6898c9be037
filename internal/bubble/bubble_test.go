package bubble_test

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
)

// Timers that fall due together, some of them received from only after their time, are
// what breaks the race detector on several processors: without bubble.Test this test
// ends with "ThreadSanitizer: CHECK failed" within a second.
func TestTimersThatFallDueTogetherDoNotBreakTheRaceDetector(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	bubble.Test(t, func(*testing.T) {
		never := make(chan struct{})
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() {
				for range 200 {
					timer := time.NewTimer(time.Millisecond)
					time.Sleep(time.Millisecond)
					select {
					case <-timer.C:
					case <-never:
					}
				}
			})
		}
		all.Wait()
	})
	if after := runtime.GOMAXPROCS(0); after != before {
		t.Errorf("the process has %d processors after the bubble and had %d before", after, before)
	}
}
