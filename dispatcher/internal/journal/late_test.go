package journal

import (
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/tables"
)

// C113: an attempt says that it was written late when its lease had ended, however soon after the answer, and
// in any case when storage took long.
func TestAnAttemptSaysThatItIsWrittenLate(t *testing.T) {
	for name, tt := range map[string]struct {
		ago, leased time.Duration // since the answer, and until the lease ends
		late        bool
	}{
		"in time":                                {time.Second, 20 * time.Second, false},
		"in time, of a slow storage":             {8 * time.Second, 20 * time.Second, false},
		"after a short lease":                    {2 * time.Second, -time.Second, true},
		"long after, under a lease that goes on": {20 * time.Second, 20 * time.Second, true},
	} {
		answered := time.Now().Add(-tt.ago)
		a := tables.Attempt{StartedAt: answered.Add(-time.Second), Duration: time.Second, LeasedUntil: time.Now().Add(tt.leased), Explanation: "It was taken."}
		rec := tables.Record{Attempts: []tables.Attempt{a}}
		if got := Late(rec).Attempts[0].Explanation; strings.Contains(got, "Written late") != tt.late {
			t.Errorf("%s: %q", name, got)
		}
		if rec.Attempts[0].Explanation != a.Explanation {
			t.Errorf("%s: what is tried again has been changed: %q", name, rec.Attempts[0].Explanation)
		}
	}
}
