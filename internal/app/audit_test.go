package app

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/pushlease/pushlease/tables"
)

// noted is a store of webhooks that notes what it is asked, in order.
type noted struct {
	tables.Store
	steps []string
}

func (n *noted) PutWebhook(_ context.Context, r tables.Registration) (tables.Registration, error) {
	n.steps = append(n.steps, "webhook")
	return r, nil
}

func (n *noted) PutAudit(_ context.Context, a tables.Audit) error {
	n.steps = append(n.steps, "audit "+a.Reason)
	return nil
}

// A webhook that pushlease disables is sent nothing more, also where the audit hangs.
func TestADisabledWebhookIsToldBeforeTheAudit(t *testing.T) {
	n, now := &noted{}, time.Now()
	s := audited{n, "test", nil, func() { n.steps = append(n.steps, "told") }}
	for _, reason := range []string{"gone", "operator"} {
		if _, err := s.PutWebhook(t.Context(), tables.Registration{DisabledReason: reason, DisabledAt: now, UpdatedAt: now}); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"webhook", "told", "audit gone", "webhook"}; !slices.Equal(n.steps, want) {
		t.Errorf("steps %v, want %v", n.steps, want)
	}
}
