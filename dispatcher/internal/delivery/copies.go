package delivery

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// copies tell the copies of dead letters, which a webhook on a poison queue gets, from what other
// programs put there (ADR 0034).
type copies struct {
	*Options
	events events
}

// copyWait is how long a copy waits at a time while its dead letter is replayed.
const copyWait = time.Minute

// recognise finds the dead letter of which the parcel is the copy, by the record that names it: without one
// the message is another program's. It is delivered then as a replay of it:
// under the id of the original. There is an outcome where the dead letter is done with, is being replayed, or
// storage can't be asked; near the end of the copy's life it is delivered all the same, under its own id. So it is at once where
// the dead letter was lost.
func (c copies) recognise(ctx context.Context, p *parcel, h history) *Outcome {
	id := h.copyOf()
	if !strings.HasSuffix(p.key.Queue, tables.PoisonSuffix) || p.replay != nil || id == "" {
		return nil
	}
	row, err := c.original(ctx, id, p.m.InsertedAt)
	if errors.Is(err, errLost) { // nobody deleted it: the copy is all that is left of the message
		c.Log.Warn("the dead letter of a copy was lost with its table: the copy is a message of its own from now on",
			"queue", p.key.Queue, "message", p.key.MessageID, "dead_letter", id)
		return nil
	}
	if err != nil {
		c.Log.Error("what became of the dead letter of a copy is not known now", "queue", p.key.Queue, "message", p.m.ID, "error", err)
		if outcome := untilAsked(p.m, p.slack); outcome != nil {
			c.PutOffs.Remember(p.key.Queue, p.m.ID, p.m.DequeueCount)
			return outcome
		}
		row = tables.DeadLetter{ID: id, MessageKey: p.key, InsertedAt: p.m.InsertedAt}
	}
	p.copyOf = &row
	switch {
	case row.Status == tables.Replayed:
		if list := ended(h); list != nil { // with this very copy, and its delete is missing
			c.reappeared(p)
			return fold(p, h, list)
		}
		return c.remove(p, h)
	case row.ReplayToCome(queue.ReplayLife):
		return c.events.wait(p, h, nil, row.MessageID, copyWait)
	}
	p.insertedAt = row.InsertedAt
	return nil
}

var errLost = fmt.Errorf("%w: it went with its table", tables.ErrNotFound)

// original is the dead letter with the id, which was there when it was copied. One that is gone counts as replayed, unless it is lost.
func (c copies) original(ctx context.Context, id string, copied time.Time) (row tables.DeadLetter, err error) {
	err = retry.Do(ctx, retry.Call, func(ctx context.Context, _ int) (err error) {
		if row, err = c.DeadLetters.GetDeadLetter(ctx, id); !errors.Is(err, tables.ErrNotFound) {
			return err
		}
		row = tables.DeadLetter{ID: id, Status: tables.Replayed}
		lost, err := c.DeadLetters.HasLostDeadLetters(ctx, copied)
		if lost {
			return errLost
		}
		return err
	})
	if err != nil {
		err = fmt.Errorf("load dead letter %s: %w", id, err)
	}
	return row, err
}

// remove ends a copy whose dead letter was replayed, or deleted: nobody is to get it any more.
func (c copies) remove(p *parcel, h history) *Outcome {
	list := []tables.Delivery{p.whole(h)}
	for id, del := range h.deliveries {
		if id != "" && !del.State.Terminal() {
			list = append(list, del)
		}
	}
	c.Log.Info("the copy of a dead letter that was replayed or deleted is removed without a POST",
		"queue", p.key.Queue, "message", p.key.MessageID, "dead_letter", p.copyOf.ID)
	return endAsDuplicate(list, "copy", p.copyOf.MessageID)
}
