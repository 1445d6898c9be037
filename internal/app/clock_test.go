package app

import (
	"strings"
	"testing"
	"time"
)

func TestAClockThatDiffersFromStoragesIsTold(t *testing.T) {
	for _, tt := range []struct {
		ahead        time.Duration
		known        bool
		ready, found bool
		says         string
	}{
		{0, false, true, false, ""},
		{30 * time.Second, true, true, false, ""},
		{2 * time.Minute, true, true, true, "2m0s ahead of"},
		{6 * time.Minute, true, false, true, "6m0s ahead of"},
		{-6 * time.Minute, true, false, true, "6m0s behind"},
	} {
		c, p := clockCheck(tt.ahead, tt.known), clockProbe(tt.ahead, tt.known)
		if p.Unknown == tt.known {
			t.Errorf("%s: a clock that nobody told is a check that was made: %+v", tt.ahead, p)
		}
		if c.OK != tt.ready || p.OK == tt.found || !c.OK && !strings.Contains(c.Detail, tt.says) || tt.found && (!strings.Contains(p.Detail, tt.says) || p.Cure == "") {
			t.Errorf("%s: %+v, %+v", tt.ahead, c, p)
		}
	}
}
