package tables

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pushlease/pushlease/policy"
)

const (
	// ReplayPatience is how long a replay may be under way before another one is let past it
	// without force.
	ReplayPatience = 10 * time.Minute
	// ReplayReserved is how long a row is kept for a replay that is being sent, which takes 20 s at most.
	ReplayReserved = ClocksApart + 30*time.Second
)

// ReplayEndsIn is for how long a replay that was asked for may still come; nothing above zero where none may. A
// row that waits was asked for lately when a replay is about to be sent.
func (d *DeadLetter) ReplayEndsIn() time.Duration {
	switch ago := time.Since(d.ReplayedAt); d.Status {
	case Replaying:
		return ReplayPatience - ago
	case Waiting:
		return ReplayReserved - ago
	default:
		return 0
	}
}

// ReplayToCome reports whether the message of a replay, which lives for life, may be on its queue still. It
// may wait for its next attempt for hours, and for its webhook for days, and ends with its dead letter.
func (d *DeadLetter) ReplayToCome(life time.Duration) bool {
	return d.ReplayEndsIn() > 0 || d.Status == Replaying && time.Since(d.ReplayedAt) < life
}

// EndReplay ends the records of a dead letter's replay, which nobody goes on with: its message is
// gone, or the dead letter was deleted. They are those of the day on which it was asked for, and
// before a replay of another dead letter of the same message was: what is of that one goes on.
// What was delivered stays so.
func EndReplay(ctx context.Context, s Deliveries, letters DeadLetters, d *DeadLetter) error {
	all, err := s.Load(ctx, MessageKey{Queue: d.Queue, MessageID: d.MessageID, Day: d.ReplayedAt})
	if err != nil {
		return fmt.Errorf("load the records of a replay: %w", err)
	}
	asked := d.ReplayedAt.Truncate(time.Second) // storage may tell whole seconds only
	all = slices.DeleteFunc(all, func(r Delivery) bool {
		ofIt := r.Generation >= d.Generation+d.Replays && (d.WebhookID == "" || d.WebhookID == r.WebhookID) && !r.Day.Before(asked)
		return !ofIt || r.State.Terminal() && r.State != DeadLettering
	})
	if len(all) == 0 { // most replays that are lost were never received; the list is dear
		return nil
	}
	until, err := nextReplay(ctx, letters, d)
	if err != nil {
		return err
	}
	for _, r := range all {
		if !until.IsZero() && !r.Day.Before(until) {
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

// nextReplay is when a replay of another dead letter of the message, for the same webhook, was asked for
// at the earliest, that of d or later; zero when none was.
func nextReplay(ctx context.Context, letters DeadLetters, d *DeadLetter) (next time.Time, err error) {
	for page := (Page{Limit: MaxPage}); ; {
		rows, after, err := letters.ListDeadLetters(ctx, DeadLetterFilter{Queue: d.Queue, MessageID: d.MessageID}, page)
		if err != nil {
			return time.Time{}, fmt.Errorf("list the dead letters of a message: %w", err)
		}
		for i := range rows {
			at := rows[i].ReplayedAt.Truncate(time.Second)
			same := rows[i].WebhookID == d.WebhookID || rows[i].WebhookID == "" || d.WebhookID == ""
			if rows[i].ID != d.ID && same && !rows[i].ReplayedAt.Before(d.ReplayedAt.Truncate(time.Second)) && (next.IsZero() || at.Before(next)) {
				next = at
			}
		}
		if page.After = after; after == "" {
			return next, nil
		}
	}
}
