package tables

import (
	"context"
	"fmt"
	"time"

	"github.com/pushlease/pushlease/policy"
)

// EndReplay ends the records of a dead letter's replay, which nobody goes on with: its message is
// gone, or the dead letter was deleted. They are those of the day on which it was asked for. What
// was delivered stays so.
func EndReplay(ctx context.Context, s Deliveries, d *DeadLetter) error {
	all, err := s.Load(ctx, MessageKey{Queue: d.Queue, MessageID: d.MessageID, Day: d.ReplayedAt})
	if err != nil {
		return fmt.Errorf("load the records of a replay: %w", err)
	}
	asked := d.ReplayedAt.Truncate(time.Second) // storage may tell whole seconds only
	for _, r := range all {
		ofIt := r.Generation >= d.Generation+d.Replays && (d.WebhookID == "" || d.WebhookID == r.WebhookID) && !r.Day.Before(asked)
		if !ofIt || r.State.Terminal() && r.State != DeadLettering {
			continue
		}
		r.State, r.Reason, r.DeadLetterID, r.NextAt = DeadLettered, policy.ReplayEnded, d.ID, time.Time{}
		r.UpdatedAt = time.Now().UTC().Truncate(time.Millisecond)
		if err := s.Record(ctx, Record{Deliveries: []Delivery{r}}); err != nil {
			return fmt.Errorf("end the record of a replay: %w", err)
		}
	}
	return nil
}
