// Package bubble runs tests in simulated time, see docs/adr/0023-simulated-time-on-one-processor.md.
// Only tests and the simulation import it.
package bubble

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
)

// Test runs f in a synctest bubble. Under the race detector the process has one
// processor (GOMAXPROCS) while any bubble is open, as two of them can break the
// detector itself.
func Test(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if raceDetector {
		defer oneProcessor()()
	}
	synctest.Test(t, f)
}

// open counts the bubbles that need the process to have one processor.
var open struct {
	sync.Mutex
	bubbles int
	before  int // GOMAXPROCS before the first of them
}

// oneProcessor leaves the process one processor until what it returns was called
// as often as oneProcessor was.
func oneProcessor() (release func()) {
	open.Lock()
	defer open.Unlock()
	if open.bubbles++; open.bubbles == 1 {
		open.before = runtime.GOMAXPROCS(1)
	}
	return func() {
		open.Lock()
		defer open.Unlock()
		if open.bubbles--; open.bubbles == 0 {
			runtime.GOMAXPROCS(open.before)
		}
	}
}
