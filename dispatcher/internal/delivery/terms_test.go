package delivery

import (
	"testing"
	"time"
)

// Many held messages are looked at more rarely than few: all together cost the same.
func TestHeldMessagesAreLookedAtMoreRarelyTheMoreThereAre(t *testing.T) {
	for _, c := range []struct {
		held   int
		hosted bool
		want   time.Duration
	}{
		{0, false, time.Minute}, {200, false, time.Minute}, {1000, false, 5 * time.Minute},
		{50_000, false, 10 * time.Minute}, {0, true, 10 * time.Minute},
	} {
		if got := holdFor(c.held, c.hosted); got != c.want {
			t.Errorf("holdFor(%d, %t) = %s, want %s", c.held, c.hosted, got, c.want)
		}
	}
}
