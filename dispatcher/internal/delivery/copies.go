package delivery

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

// copies tell the copies of dead letters, which a webhook on a poison queue gets, from what other
// programs put there (ADR 0034).
type copies struct {
	*Options
	events events
}

const (
	// copyWithin is how far apart a dead letter and its copy are made where no record says that they
	// belong together.
	copyWithin = time.Minute
	// copyWait is how long a copy waits at a time while its dead letter is replayed.
	copyWait = time.Minute
)

// recognise finds the dead letter of which the parcel is the copy. It is delivered then as a replay of it:
// under the id of the original. There is an outcome where the dead letter is done with, is being replayed, or
// storage can't be asked.
func (c copies) recognise(ctx context.Context, p *parcel, h history) *Outcome {
	if !strings.HasSuffix(p.key.Queue, tables.PoisonSuffix) || p.replay != nil {
		return nil
	}
	row, known, err := c.original(ctx, p, h)
	switch {
	case err != nil:
		c.Log.Error("whether the message is the copy of a dead letter is not known now", "queue", p.key.Queue, "message", p.m.ID, "error", err)
		return ownFault(p.m, policy.StorageFault)
	case !known:
		return nil
	}
	p.copyOf = &row
	switch {
	case row.Status == tables.Replayed:
		return c.remove(ctx, p, h)
	case row.ReplayToken != "":
		return c.events.wait(ctx, p, h, nil, row.MessageID, copyWait)
	}
	p.insertedAt = row.InsertedAt
	return nil
}

// original is the dead letter that the message's record names. One that is gone counts as replayed. Where
// there is no record of the message, since it is older than records are, or whoever made the copy died
// before the record, the dead letter is the only one that was made then of these bytes.
func (c copies) original(ctx context.Context, p *parcel, h history) (row tables.DeadLetter, known bool, err error) {
	for _, del := range h.deliveries {
		id := del.CopyOf()
		if id == "" {
			continue
		}
		row, err = retry.Get(ctx, retry.Call, func(ctx context.Context) (tables.DeadLetter, error) { return c.DeadLetters.GetDeadLetter(ctx, id) })
		if errors.Is(err, tables.ErrNotFound) {
			return tables.DeadLetter{ID: id, Status: tables.Replayed}, true, nil
		}
		if err != nil {
			return row, false, fmt.Errorf("load dead letter %s: %w", id, err)
		}
		return row, true, nil
	}
	if len(h.deliveries) > 0 {
		return row, false, nil
	}
	filter := tables.DeadLetterFilter{
		Queue: strings.TrimSuffix(p.key.Queue, tables.PoisonSuffix), From: p.m.InsertedAt.Add(-copyWithin), Until: p.m.InsertedAt.Add(copyWithin),
	}
	list, err := retry.Get(ctx, retry.Call, func(ctx context.Context) ([]tables.DeadLetter, error) {
		list, _, err := c.DeadLetters.ListDeadLetters(ctx, filter, tables.Page{Limit: tables.MaxPage})
		return list, err //nolint:wrapcheck // wrapped below
	})
	if err != nil {
		return row, false, fmt.Errorf("look for a dead letter: %w", err)
	}
	found := 0
	for _, d := range list {
		if d.CopiedToQueue == p.key.Queue && d.BodyHash == p.hash {
			row, found = d, found+1
		}
	}
	return row, found == 1, nil
}

// remove ends a copy whose dead letter was replayed, or deleted: nobody is to get it any more.
func (c copies) remove(ctx context.Context, p *parcel, h history) *Outcome {
	now := time.Now().UTC().Truncate(time.Millisecond)
	list := []tables.Delivery{p.whole(h)}
	for id, del := range h.deliveries {
		if id != "" && !del.State.Terminal() {
			list = append(list, del)
		}
	}
	for i := range list {
		del := &list[i]
		del.State, del.Reason, del.NextAt, del.UpdatedAt, del.SameEventAs = tables.Duplicate, policy.Duplicate, time.Time{}, now, p.copyOf.MessageID
	}
	c.events.end(ctx, p, list, "copy")
	c.Log.Info("the copy of a dead letter that was replayed or deleted is removed without a POST",
		"queue", p.key.Queue, "message", p.key.MessageID, "dead_letter", p.copyOf.ID)
	return &Outcome{Action: policy.Complete, Reason: policy.Duplicate}
}

// copyGivenUp is the record of a copy that is given up: no dead letter is made of it, since its own is there and
// goes on waiting.
func (p *parcel) copyGivenUp(del tables.Delivery) tables.Record {
	del.State, del.DeadLetterID = tables.DeadLettered, p.copyOf.ID
	return tables.Record{Deliveries: []tables.Delivery{del}}
}

// replayed is the dead letter whose replay ends with the message: with a replay whatever it came to, and
// with a copy where every webhook that it was due to took it.
func (p *parcel) replayed(delivered, givenUp bool) *tables.DeadLetter {
	if p.copyOf == nil {
		return p.replay
	}
	if !delivered || givenUp || p.copyOf.Damaged != nil {
		return nil
	}
	return p.copyOf
}
