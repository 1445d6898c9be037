package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// What this file does is two calls on other stores, which keep queues and records apart.

// SendRecorded sends a message to the queue of this name, and records what record makes of
// the answer, in one transaction. record may be called more than once.
func (qs *Queues) SendRecorded(ctx context.Context, name string, text []byte, opts queue.SendOptions, record func(queue.Sent) tables.Record) (queue.Sent, error) {
	if err := queue.ValidateName(name); err != nil {
		return queue.Sent{}, fmt.Errorf("queue %q: %w", name, err)
	}
	q := &leasedQueue{db: qs.db, name: name}
	return q.send(ctx, text, opts, func(tx *tx, sent queue.Sent) error {
		r := record(sent)
		if err := checkRecord(r); err != nil {
			return err
		}
		return tx.putRecord(r)
	})
}

// completing is the call where nobody is told of more.
var completing = Call{Service: serviceQueue, Operation: "complete"}

// CompleteRecorded removes the message from the queue of this name, as Complete does, and
// records r, in one transaction. A record does not depend on the lease: with
// queue.ErrLeaseLost and queue.ErrQueueNotFound it is as durable as with nil. After any other
// error both or neither may have been done, and both may be done again.
func (qs *Queues) CompleteRecorded(ctx context.Context, name string, m *queue.Message, r tables.Record) error {
	if err := checkRecord(r); err != nil {
		return err
	}
	receipt := m.Lease.Receipt()
	var gone error // why there was nothing to remove
	c := &completing
	if qs.db.opts.Around != nil {
		c = &Call{Service: serviceQueue, Operation: "complete", Messages: []string{m.ID}, Record: r}
	}
	err := qs.db.writeBy(ctx, false, c, func(tx *tx) error {
		id, err := tx.queueID(name)
		if err == nil {
			err = tx.complete(id, m.ID, receipt)
		}
		switch {
		case errors.Is(err, sql.ErrNoRows):
			gone = queue.ErrQueueNotFound
		case err == nil, errors.Is(err, queue.ErrLeaseLost):
			gone = err
		default:
			return err
		}
		return tx.putRecord(r)
	})
	if err == nil {
		err = gone
	}
	if err != nil {
		return fmt.Errorf("complete on queue %s: %w", name, err)
	}
	return nil
}

// SendReplay replaces the dead letter's row, as UpdateDeadLetter does, and sends text, which
// points to it, to its queue, in one transaction: a replay is asked for and under way, or
// neither.
func (qs *Queues) SendReplay(ctx context.Context, d tables.DeadLetter, text []byte) (tables.DeadLetter, error) {
	name, place, ok := tables.SplitDeadLetterID(d.ID)
	if !ok {
		return tables.DeadLetter{}, fmt.Errorf("send replay: %w", tables.ErrNotFound)
	}
	m, err := newOutgoing(name, text, queue.SendOptions{})
	if err != nil {
		return tables.DeadLetter{}, fmt.Errorf("send replay: %w", err)
	}
	expected := d.ETag
	d.ETag = newETag()
	err = qs.db.writeBy(ctx, false, m.call(), func(tx *tx) error {
		if err := tx.updateDeadLetter(d, name, place, expected); err != nil {
			return err
		}
		return tx.insertMessage(m)
	})
	if err != nil {
		return tables.DeadLetter{}, fmt.Errorf("send replay: %w", err)
	}
	return d, nil
}
