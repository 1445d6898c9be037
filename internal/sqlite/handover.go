package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// SendLeased is SendRecorded for one who can take the message at once. Where no other message
// of the queue is visible, it is stored as received for the first time, with a lease of this
// length (see queue.Queue), and start is called with it once that is durable. Otherwise it is
// stored as any other, so that it does not come before what waits.
//
// start must not wait, since all other writes do. When SendLeased returns it was called, or
// never will be: so what has begun is waited for although ctx has ended. text must not be
// changed afterwards.
func (qs *Queues) SendLeased(ctx context.Context, name string, text []byte, opts queue.SendOptions,
	record func(queue.Sent) tables.Record, lease time.Duration, start func(*queue.Message)) (queue.Sent, error) {
	if err := queue.ValidateName(name); err != nil {
		return queue.Sent{}, fmt.Errorf("queue %q: %w", name, err)
	}
	lease, err := leaseLength(lease)
	if err != nil {
		return queue.Sent{}, err
	}
	m, err := newOutgoing(name, text, opts)
	if err != nil {
		return queue.Sent{}, err
	}
	begun := time.Now()
	c := m.call()
	err = qs.db.writeBy(ctx, true, c, func(tx *tx) error {
		var err error
		if c.Hidden, err = tx.insertLeased(m, begun, lease, start); err != nil {
			return err
		}
		r := record(m.sent)
		if err := checkRecord(r); err != nil {
			return err
		}
		c.Record = r
		return tx.putRecord(r)
	})
	if err != nil {
		return queue.Sent{}, fmt.Errorf("send to queue %s: %w", name, err)
	}
	return m.sent, nil
}

// insertLeased stores m under a lease, or as any other message where it is not its turn, which is none.
func (t *tx) insertLeased(m *outgoing, begun time.Time, lease time.Duration, start func(*queue.Message)) (time.Duration, error) {
	id, err := t.ensureQueue(m.queue)
	if err != nil {
		return 0, err
	}
	waiting, err := t.anyVisible(id)
	if err != nil {
		return 0, err
	}
	if waiting || m.delay > 0 {
		return 0, t.insertMessage(m)
	}
	c, receipt := t.w.clock, newReceipt()
	if err := t.insertRow(m, id, c.after(lease), receipt, 1); err != nil {
		return 0, err
	}
	t.afterCommit(func() {
		c.hold(m.seq, receipt, begun, lease)
		start(&queue.Message{
			ID: m.sent.ID, Text: m.text, DequeueCount: 1, InsertedAt: m.sent.InsertedAt, ExpiresAt: m.sent.ExpiresAt,
			Lease: queue.NewLease(formatReceipt(m.seq, receipt), begun, lease),
		})
	})
	return lease, nil
}

// anyVisibleSQL takes an expired message for one that waits: the next receive removes it.
const anyVisibleSQL = "SELECT 1 FROM messages INDEXED BY messages_visible WHERE queue = 0 + ? AND visible_at <= ? LIMIT 1"

// anyVisible reports whether a message of the queue waits to be received.
func (t *tx) anyVisible(queueID int64) (found bool, err error) {
	s, err := t.prepare(anyVisibleSQL)
	if err != nil {
		return false, err
	}
	err = s.number(queueID).number(t.w.clock.now()).query(func(*statement) error {
		found = true
		return nil
	})
	return found, err
}
