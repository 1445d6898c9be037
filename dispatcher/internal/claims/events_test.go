package claims

import (
	"fmt"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/tables"
)

func TestMemoryOfEventsIsBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		e := newEvents()
		for i := range 3 * memorySize / 2 {
			e.begin(tables.Claim{Key: fmt.Sprint(i), Owner: "m", Until: time.Now().Add(time.Minute)}, time.Now())
		}
		want(t, "events", e.oldest.Len(), memorySize)
		want(t, "keys", len(e.byKey), memorySize)
		time.Sleep(memoryAge)
		e.begin(tables.Claim{Key: "late", Owner: "m"}, time.Now())
		want(t, "events after their age", e.oldest.Len(), 1)
	})
}

func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}
