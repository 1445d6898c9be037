package meter

import (
	"fmt"
	"testing"

	"github.com/pushlease/pushlease/internal/status"
)

func TestOnlyTheLastFailuresAreKept(t *testing.T) { // R2
	var qs Queues
	for i := range 3 * keptFailures {
		qs.deleted("orders", status.DeletionFailure{MessageID: fmt.Sprint(i), Error: "busy"})
	}
	of := func(name string) status.Deletions {
		var s status.Queue
		qs.Tell(&s, name)
		return s.Deletions
	}
	n := of("orders")
	want(t, "failed", n.Failed, 3*keptFailures)
	want(t, "kept", len(n.LastFailures), keptFailures)
	want(t, "newest first", n.LastFailures[0].MessageID, fmt.Sprint(3*keptFailures-1))
	n.LastFailures[0].MessageID = "changed by the caller"
	want(t, "still there", of("orders").LastFailures[0].MessageID, fmt.Sprint(3*keptFailures-1))
	want(t, "another queue", of("other").Failed, 0)
}

func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}
