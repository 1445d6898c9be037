package journal

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/tables"
)

// took is how many bytes of the heap are in use.
func took() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A busy process remembers as much as it may, for an hour.
func TestWhatIsRememberedIsCompact(t *testing.T) {
	m, now := newMemory(), time.Now()
	before := took()
	for i := range memorySize {
		a := tables.Attempt{
			MessageKey: tables.MessageKey{Queue: "orders", MessageID: fmt.Sprintf("0f1e2d3c-0000-4000-8000-%012d", i), Day: now},
			WebhookID:  "wh_1", Number: 1, StartedAt: now, Reason: "Delivered", Status: 200, Charged: true, Instance: "a",
		}
		d := a.Completed(&tables.Delivery{UpdatedAt: now, ExpiresAt: now, Encoding: "none", Size: 1024, BodyHash: strings.Repeat("0", 8) + fmt.Sprintf("%08x", i)})
		m.remember(tables.Record{Deliveries: []tables.Delivery{d}, Attempts: []tables.Attempt{a}}, true)
	}
	bytes := (took() - before) / memorySize
	t.Logf("%d bytes for each delivery", bytes)
	if bytes > 500 {
		t.Errorf("%d bytes for each delivery, want 500 at most", bytes)
	}
	runtime.KeepAlive(m)
}
