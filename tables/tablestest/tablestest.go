// Package tablestest is the proof of the tables contract: every store's own test
// runs it.
package tablestest

import (
	"testing"

	"github.com/pushlease/pushlease/tables"
)

// Run checks the whole contract. open returns an empty store for every call.
func Run(t *testing.T, open func(t *testing.T) tables.Store) {
	for _, group := range []struct {
		name  string
		tests []test
	}{
		{"Deliveries", deliveryTests},
		{"Attempts", attemptTests},
		{"DeliveryLists", deliveryListTests},
		{"FirstSuccesses", firstSuccessTests},
		{"Webhooks", webhookTests},
		{"DeadLetters", deadLetterTests},
		{"Claims", claimTests},
		{"LeftQueues", leftQueueTests},
		{"Health", healthTests},
		{"Jobs", jobTests},
		{"Instances", instanceTests},
		{"Rollups", rollupTests},
		{"Audits", auditTests},
	} {
		t.Run(group.name, func(t *testing.T) {
			t.Parallel()
			for _, tt := range group.tests {
				t.Run(tt.name, func(t *testing.T) { tt.body(t, open(t)) })
			}
		})
	}
}
