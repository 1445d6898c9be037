package api

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

// A dead letter whose copy is refused for a while is written again with the next receive of its message:
// what an operator has deleted would come back. Also where another program has changed its id in the record.
// One whose queue nobody receives from, since its webhook is disabled, is still being made days later.
func TestADeadLetterThatIsStillBeingMadeDoesNotComeBack(t *testing.T) {
	for damaged, ago := range map[string]time.Duration{"": 0, "none": 12 * time.Hour, "x": 0} {
		h := newHarness(t)
		d := dead("m1", "wh_1", "payload")
		d.DeadLetteredAt = time.Now().Add(-ago).UTC().Truncate(time.Millisecond)
		d.ID = tables.DeadLetterID(d.MessageKey, d.WebhookID, d.Generation, d.DeadLetteredAt)
		d = h.putDeadLetter(d)
		named := d.ID
		if damaged != "" {
			named = strings.TrimPrefix(damaged, "none")
		}
		h.record(tables.Record{Deliveries: []tables.Delivery{{
			MessageKey: d.MessageKey, WebhookID: "wh_1", State: tables.DeadLettering, Reason: policy.NonRetryableError, DeadLetterID: named, UpdatedAt: d.DeadLetteredAt,
		}}})
		if a := h.do(http.StatusOK, "POST", purgePath, `{"queue":"orders"}`); a.get("kept") != 1.0 || a.get("purged") != 0.0 {
			t.Errorf("a purge of what is being made: %s", a.body)
		}
		h.do(http.StatusNoContent, "DELETE", "/api/v1/dead-letters/"+d.ID, "")
		stored, err := h.db.Load(t.Context(), d.MessageKey)
		if err != nil || len(stored) != 1 || stored[0].State != tables.DeadLettered {
			t.Errorf("%q: its record is %+v, %v; the next receive must not make it anew", named, stored, err)
		}
	}
}
