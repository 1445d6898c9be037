package bubble_test

import (
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
)

func TestASuspendedMachineIsSeenByTheWallClockAlone(t *testing.T) {
	at := time.Now()
	before := bubble.Suspended(at, 600)
	if monotonic, wall := at.Sub(before), at.Round(0).Sub(before.Round(0)); monotonic != 0 || wall != 10*time.Minute {
		t.Errorf("the monotonic clock says %s and the wall clock %s, want 0s and 10m0s", monotonic, wall)
	}
}
