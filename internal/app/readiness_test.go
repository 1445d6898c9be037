package app

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/pushlease/pushlease/api"
)

// C83: what /readyz and doctor name, with its cure, stands in the log too, once.
func TestTheLogTellsAFailingCheckOnceAndItsEnd(t *testing.T) {
	var log bytes.Buffer
	told := map[string]bool{}
	look := func(clock, queue bool) string {
		log.Reset()
		tellChecks(slog.New(slog.NewJSONHandler(&log, nil)), []api.Check{
			{Name: "clock", OK: clock, Detail: "the clock is 5m ahead: set it by NTP"}, {Name: "queue orders", OK: queue, Detail: "denied", Degrades: true},
		}, told)
		return log.String()
	}
	if got := look(true, true); got != "" {
		t.Errorf("all is well: %s", got)
	}
	if got := look(false, true); strings.Count(got, "\n") != 1 || !strings.Contains(got, `"WARN"`) || !strings.Contains(got, "set it by NTP") {
		t.Errorf("the clock: %s", got)
	}
	if got := look(false, false); strings.Count(got, "\n") != 1 || !strings.Contains(got, "queue orders") || !strings.Contains(got, `"degraded_only":true`) {
		t.Errorf("a queue beside it: %s", got)
	}
	if got := look(false, false); got != "" {
		t.Errorf("the same again: %s", got)
	}
	if got := look(true, false); strings.Count(got, "\n") != 1 || !strings.Contains(got, "passes again") || !strings.Contains(got, "clock") {
		t.Errorf("the clock is right: %s", got)
	}
	if got := look(false, true); strings.Count(got, "\n") != 2 {
		t.Errorf("the clock is off again, and the queue is well: %s", got)
	}
}
