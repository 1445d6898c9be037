package publish

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/queue"
)

// C59: what is known of a fault is told at once, and that nothing was published.
func TestAKnownFaultOfStorageIsNamed(t *testing.T) {
	for want, err := range map[string]error{
		"taken away":     queue.ErrTakenAway,
		"full":           queue.ErrFull,
		"locked":         queue.ErrLocked,
		"Storage refuse": queue.ErrBusy,
		"may or may not": errors.New("no answer"),
	} {
		p := sendProblem(fmt.Errorf("send: %w", err))
		if p.Status != http.StatusServiceUnavailable || !strings.Contains(p.Detail, want) {
			t.Errorf("%v: %d %q, want %q in it", err, p.Status, p.Detail, want)
		}
		if sure := !queue.Ambiguous(err); sure != strings.Contains(p.Detail, "not published") {
			t.Errorf("%v: %q, want that it was not published told: %t", err, p.Detail, sure)
		}
		if err == queue.ErrBusy || queue.Ambiguous(err) {
			continue
		}
		if p := web.StorageFault("list the webhooks", err); !strings.Contains(p.Detail, want) {
			t.Errorf("%v: %q, want %q in it", err, p.Detail, want)
		}
	}
}
