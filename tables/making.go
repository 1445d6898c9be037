package tables

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// InTheMaking are the deliveries whose dead letter d is not finished, since its copy on the poison queue is refused or its
// maker has died: whoever receives their message next writes its row again. None where d has its copy.
func InTheMaking(ctx context.Context, s Deliveries, d *DeadLetter) ([]Delivery, error) {
	if d.CopiedToQueue != "" {
		return nil, nil
	}
	all, err := s.Load(ctx, d.MessageKey)
	if err != nil {
		return nil, fmt.Errorf("load the records of a dead letter: %w", err)
	}
	return slices.DeleteFunc(all, func(r Delivery) bool { return r.State != DeadLettering || r.OwedLetter() != d.ID }), nil
}

// EndMaking ends the making of a dead letter that was deleted: its row is not written again.
func EndMaking(ctx context.Context, s Deliveries, d *DeadLetter) error {
	making, err := InTheMaking(ctx, s, d)
	for i := 0; err == nil && i < len(making); i++ {
		r := making[i]
		r.State, r.UpdatedAt = DeadLettered, time.Now().UTC().Truncate(time.Millisecond)
		if err = s.Record(ctx, Record{Deliveries: []Delivery{r}}); err != nil {
			err = fmt.Errorf("end the record of a dead letter: %w", err)
		}
	}
	return err
}
