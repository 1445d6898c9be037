package settle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/pushlease/pushlease/dispatcher/internal/lease"
	"github.com/pushlease/pushlease/dispatcher/internal/meter"
	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// leaveOutEnded leaves out the dead letters of deliveries that another holder has ended meanwhile: near the end of a message's life a
// lease that is over counts as ours, since nobody may be there to receive it again. What storage can't tell
// leaves none out: nothing may be lost.
func (c *Completer) leaveOutEnded(ctx context.Context, l *lease.Lease, o *Outcome) {
	if len(o.DeadLetters) == 0 || !l.Message.Lease.Over(time.Now()) {
		return
	}
	known, _ := c.o.Journal.Load(ctx, retry.Call, o.DeadLetters[0].Delivery.MessageKey, nil)
	copied, left := false, o.DeadLetters
	o.DeadLetters = nil
	for _, dl := range left {
		ended := endedMeanwhile(&dl, known)
		if ended == nil && dl.Delivery.WebhookID == "" && endedForOne(&dl, known) {
			o.DeadLetters = append(o.DeadLetters, apart(&dl, known)...)
			o.Records = without(o.Records, "")
			if o.Claim != nil && slices.ContainsFunc(known, func(k tables.Delivery) bool { return k.State == tables.Delivered }) {
				o.Claim.Delivered = true // or another copy of its event would be
			}
			c.o.Log.Warn("no dead letter is made of the message as a whole: another instance has ended the delivery to one of its webhooks meanwhile",
				"queue", l.Queue.Name(), "message", l.Message.ID, "reason", dl.Row.Reason, "dead_letters", len(o.DeadLetters))
			continue
		}
		if ended == nil {
			o.DeadLetters = append(o.DeadLetters, dl)
			continue
		}
		c.o.Log.Warn("no dead letter is made: another instance has ended the delivery meanwhile", "queue", l.Queue.Name(),
			"message", l.Message.ID, "webhook", dl.Delivery.WebhookID, "reason", dl.Row.Reason, "state", ended.State)
		o.Records = without(o.Records, dl.Delivery.WebhookID)
		copied = copied || dl.Copy && ended.State != tables.DeadLettered
		if o.Claim != nil && ended.State == tables.Delivered {
			o.Claim.Delivered = true // or another copy of its event would be
		}
	}
	for i := range o.DeadLetters { // one copy for all of them, and none where another holder has made it
		dl := &o.DeadLetters[i]
		dl.Copy = (dl.Copy || copied && i == 0) && !hasCopy(known, dl.Delivery.Generation)
	}
}

// endedMeanwhile is what another holder has made of a delivery; nil where that is not over.
func endedMeanwhile(dl *DeadLetter, known []tables.Delivery) *tables.Delivery {
	for i := range known {
		k := &known[i]
		over := k.State == tables.Delivered || k.State == tables.Duplicate || k.State == tables.DeadLettered
		ofIt := k.WebhookID == dl.Delivery.WebhookID || k.WebhookID == "" && k.State == tables.Duplicate // which is said of the message
		if over && ofIt && k.Generation >= dl.Delivery.Generation {
			return k
		}
	}
	return nil
}

// endedForOne reports whether a message, of which dl is to be the dead letter as a whole, has ended for one of its webhooks. The
// replay of dl would go to all of them.
func endedForOne(dl *DeadLetter, known []tables.Delivery) bool {
	return slices.ContainsFunc(known, func(k tables.Delivery) bool {
		return k.WebhookID != "" && k.Generation >= dl.Delivery.Generation && k.State.Terminal() && k.State != tables.Withdrawn
	})
}

// hasCopy reports whether one of a message's webhooks has its dead letter of a generation, and with the first one the message has its copy.
func hasCopy(known []tables.Delivery, generation int) bool {
	return slices.ContainsFunc(known, func(k tables.Delivery) bool { return k.State == tables.DeadLettered && k.Generation >= generation })
}

// generationOf is that of the delivery to a webhook which dl is about, too: the one after that from which the message was withdrawn, where
// the webhook was registered anew since.
func generationOf(dl *DeadLetter, webhookID string, known []tables.Delivery) int {
	generation := dl.Delivery.Generation
	for _, k := range known {
		if k.WebhookID == webhookID && k.State == tables.Withdrawn {
			generation = max(generation, k.Generation+1)
		}
	}
	return generation
}

// apart are dead letters of their own, in place of dl, for the webhooks that are not done with the message, or whose dead letter may
// not be there yet. Of some that it was due to nothing may be on record.
func apart(dl *DeadLetter, known []tables.Delivery) (rest []DeadLetter) {
	for _, id := range dl.DueTo {
		generation := generationOf(dl, id, known)
		if !slices.ContainsFunc(known, func(k tables.Delivery) bool { return k.WebhookID == id && k.Generation == generation }) {
			one := dl.Delivery
			one.WebhookID, one.Generation, one.State, one.DeadLetterID = id, generation, tables.Pending, ""
			known = append(known, one)
		}
	}
	for _, del := range known {
		if del.WebhookID == "" || del.Generation != generationOf(dl, del.WebhookID, known) || del.State.Terminal() && del.State != tables.DeadLettering {
			continue
		}
		if del.State != tables.DeadLettering {
			del.State, del.Reason, del.NextAt, del.UpdatedAt = tables.DeadLettering, dl.Row.Reason, time.Time{}, dl.Row.DeadLetteredAt
		}
		del.DeadLetterID = del.OwedLetter()
		row := dl.Row
		row.ID, row.WebhookID, row.Reason, row.DeadLetteredAt = del.DeadLetterID, del.WebhookID, del.Reason, del.UpdatedAt
		row.Attempts, row.LastStatus, row.LastErrorClass, row.FirstAt, row.LastAt = del.Attempts, del.LastStatus, del.LastErrorClass, del.FirstAt, del.LastAt
		row.Description = del.Reason.Explain(policy.Tried{
			Attempts: del.Attempts, Charged: del.Charged, LastStatus: del.LastStatus, LastClass: del.LastErrorClass,
		})
		rest = append(rest, DeadLetter{Row: row, Delivery: del, Copy: dl.Copy && len(rest) == 0})
	}
	return rest
}

// without are the records without that a delivery was given up, of which no dead letter is made; but what tells of an attempt stays.
func without(records []tables.Record, webhookID string) (left []tables.Record) {
	for _, r := range records {
		if len(r.Attempts) == 0 {
			r.Deliveries = slices.DeleteFunc(slices.Clone(r.Deliveries), func(d tables.Delivery) bool {
				return d.WebhookID == webhookID && d.State == tables.DeadLettering
			})
		}
		if len(r.Deliveries) > 0 {
			left = append(left, r)
		}
	}
	return left
}

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
