package settle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/pushlease/pushlease/dispatcher/internal/lease"
	"github.com/pushlease/pushlease/dispatcher/internal/meter"
	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// deadLetters makes the outcome's dead letters durable. When one can't be, the message stays.
func (c *Completer) deadLetters(ctx context.Context, l *lease.Lease, o *Outcome) {
	for i := range o.DeadLetters {
		if err := c.DeadLetter(ctx, &o.DeadLetters[i]); err != nil {
			c.o.Log.Error("dead letter could not be written; the message stays and is tried again",
				"queue", l.Queue.Name(), "message", l.Message.ID, "error", err)
			excused := o.DeadLetters[i].Delivery
			excused.Excused++
			c.o.Journal.Record(ctx, tables.Record{Deliveries: []tables.Delivery{excused}})
			o.GiveBack(l.Message)
			return
		}
	}
}

// DeadLetter makes one dead letter durable: the row, then the copy in the poison
// queue, then the delivery's state. Every step may be repeated; after an error the
// queue message must not be completed, and the redelivery goes on from here.
func (c *Completer) DeadLetter(ctx context.Context, dl *DeadLetter) error {
	row := dl.Row
	ctx, span := c.o.Spans.Tracer.Start(ctx, "dead-letter "+row.Queue, trace.WithAttributes(
		attribute.String("message.id", row.MessageID), attribute.Int64("delivery.count", row.DequeueCount),
		attribute.String("queue.name", row.Queue), attribute.String("dlq.reason", string(row.Reason)),
		attribute.String("dlq.error_description", row.Description)))
	span.SetStatus(codes.Error, string(row.Reason)) // whoever searches for failed work finds it
	defer span.End()

	stored, err := retry.Get(ctx, retry.Call, func(ctx context.Context) (tables.DeadLetter, error) {
		return c.o.DeadLetters.PutDeadLetter(ctx, row)
	})
	if err != nil {
		return fmt.Errorf("write dead letter %s: %w", row.ID, err)
	}
	if dl.Copy && c.o.PoisonCopy && stored.CopiedToQueue == "" {
		if err := c.copyToPoison(ctx, stored, row.Text); err != nil {
			return err
		}
	}
	done := dl.Delivery
	done.State, done.UpdatedAt = tables.DeadLettered, time.Now().UTC()
	c.o.Journal.Record(ctx, tables.Record{Deliveries: []tables.Delivery{done}})
	c.o.Log.Warn("message dead-lettered", "queue", row.Queue, "message", row.MessageID, "webhook", row.WebhookID,
		"reason", row.Reason, "attempts", row.Attempts, "status", row.LastStatus, "error_class", row.LastErrorClass,
		"delivery_count", row.DequeueCount, "dead_letter", row.ID, "description", row.Description)
	c.o.Meter.DeadLettered(row.Queue, row.WebhookID, string(row.Reason))
	return nil
}

// copyHidden is for how long a copy is hidden at first: longer than the answer to its send and the record
// that says whose it is take with all of their tries. Whoever receives it before takes it for another program's.
const copyHidden = 30 * time.Second

// copyToPoison puts the unchanged text on <queue>-poison, and on record under the copy's id whose it
// is. A definitive refusal does not keep the message: its row is durable already.
func (c *Completer) copyToPoison(ctx context.Context, row tables.DeadLetter, text []byte) error {
	name := tables.PoisonQueue(row.Queue)
	if name == "" {
		return nil
	}
	q, err := c.o.Queues.Queue(name)
	if err != nil {
		return fmt.Errorf("open queue %s: %w", name, err)
	}
	sent, err := retry.Get(ctx, retry.Call, func(ctx context.Context) (queue.Sent, error) {
		return q.Send(ctx, text, queue.SendOptions{Delay: copyHidden, TTL: cmp.Or(c.o.PoisonCopyTTL, queue.NoExpiry)})
	})
	if errors.Is(err, queue.ErrDenied) || errors.Is(err, queue.ErrTooLarge) || errors.Is(err, queue.ErrUnsendable) {
		c.o.Log.Error("no copy in the poison queue; the dead letter itself is kept", "queue", name, "dead_letter", row.ID, "error", err)
		c.o.Meter.CopiesRefused.Add(meter.Labels{Queue: row.Queue})
		return nil
	}
	if err != nil {
		return fmt.Errorf("copy to %s: %w", name, err)
	}
	c.o.Journal.Record(ctx, tables.Record{Deliveries: []tables.Delivery{row.Copy(name, sent.ID, sent.InsertedAt, sent.ExpiresAt)}})
	c.o.GivenBack(name, &queue.Message{ID: sent.ID, InsertedAt: sent.InsertedAt, ExpiresAt: sent.ExpiresAt}, copyHidden, false)
	row.CopiedToQueue = name
	if row.Text == nil {
		row.Text = text
	}
	if _, err := c.o.DeadLetters.UpdateDeadLetter(ctx, row); err != nil {
		// The copy is there. Repeating the step could only add a second one.
		c.o.Log.Warn("the copy in the poison queue could not be noted on the dead letter", "dead_letter", row.ID, "error", err)
	}
	return nil
}

// finishReplay notes on a dead letter that its replay has ended.
func (c *Completer) finishReplay(ctx context.Context, row tables.DeadLetter) error {
	_, err := retry.Get(ctx, retry.Call, func(ctx context.Context) (tables.DeadLetter, error) {
		now, err := c.o.DeadLetters.GetDeadLetter(ctx, row.ID)
		if errors.Is(err, tables.ErrNotFound) {
			return now, nil // deleted by an operator meanwhile
		}
		if err != nil || now.ReplayToken != row.ReplayToken || now.Status == tables.Replayed {
			return now, err // a newer replay is under way, or this was done before
		}
		if now.ReplayToken == "" { // nobody had asked: its copy was delivered
			now.Replays, now.ReplayedAt = now.Replays+1, time.Now().UTC()
		}
		now.Status, now.ReplayToken = tables.Replayed, ""
		return c.o.DeadLetters.UpdateDeadLetter(ctx, now)
	})
	if err != nil {
		return fmt.Errorf("finish replay of %s: %w", row.ID, err)
	}
	return nil
}
