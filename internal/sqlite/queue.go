package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pushlease/pushlease/queue"
)

// Queues are the queues of one file. It implements queue.Service.
type Queues struct{ db *DB }

// Queues returns the queues of this file.
func (db *DB) Queues() *Queues { return &Queues{db: db} }

// Queue implements queue.Service.
func (qs *Queues) Queue(name string) (queue.Queue, error) {
	if err := queue.ValidateName(name); err != nil {
		return nil, fmt.Errorf("queue %q: %w", name, err)
	}
	return &leasedQueue{db: qs.db, name: name}, nil
}

// List implements queue.Service.
func (qs *Queues) List(ctx context.Context) ([]string, error) {
	var names []string
	q := query{text: "SELECT name FROM queues ORDER BY name"}
	err := qs.db.read(ctx, serviceQueue, "list", q, func(scan func(...any) error) (bool, error) {
		var name string
		err := scan(&name)
		names = append(names, name)
		return true, err
	})
	if err != nil {
		return nil, fmt.Errorf("list queues: %w", err)
	}
	return names, nil
}

// Delete implements queue.Service. What has expired by now is ended first, as a receive would. The queue is
// gone at once, and its messages belong to none: nothing finds them, and they are removed in the background.
func (qs *Queues) Delete(ctx context.Context, name string, onlyEmpty bool) error {
	if err := queue.ValidateName(name); err != nil {
		return fmt.Errorf("queue %q: %w", name, err)
	}
	if err := qs.db.endExpired(ctx); err != nil {
		return err
	}
	q := &leasedQueue{db: qs.db, name: name}
	err := q.write(ctx, &Call{Operation: "delete"}, func(tx *tx, id int64) error {
		if onlyEmpty {
			var some bool
			if err := tx.row("SELECT EXISTS (SELECT 1 FROM messages INDEXED BY messages_visible WHERE queue = ?)", []any{id}, &some); err != nil {
				return err
			}
			if some {
				return queue.ErrNotEmpty
			}
		}
		if _, err := tx.exec("DELETE FROM queues WHERE id = ?", id); err != nil {
			return err
		}
		tx.forgetQueue(name)
		return nil
	})
	if err == nil {
		select {
		case qs.db.tidyUp <- struct{}{}:
		default: // it was told before
		}
	}
	return err
}

// leasedQueue implements queue.Queue.
type leasedQueue struct {
	db   *DB
	name string
}

func (q *leasedQueue) Name() string { return q.name }

// write runs op with the row id of the queue, which has to be there.
func (q *leasedQueue) write(ctx context.Context, c *Call, op func(tx *tx, id int64) error) error {
	c.Service = serviceQueue
	err := q.db.writeBy(ctx, false, c, func(tx *tx) error {
		id, err := tx.queueID(q.name)
		if errors.Is(err, sql.ErrNoRows) {
			return queue.ErrQueueNotFound
		}
		if err != nil {
			return err
		}
		return op(tx, id)
	})
	if err != nil {
		return fmt.Errorf("%s on queue %s: %w", c.Operation, q.name, err)
	}
	return nil
}

// Send implements queue.Queue.
func (q *leasedQueue) Send(ctx context.Context, text []byte, opts queue.SendOptions) (queue.Sent, error) {
	return q.send(ctx, text, opts, func(*tx, queue.Sent) error { return nil })
}

// send stores the message and does what else belongs into the same transaction.
func (q *leasedQueue) send(ctx context.Context, text []byte, opts queue.SendOptions, then func(tx *tx, sent queue.Sent) error) (queue.Sent, error) {
	m, err := newOutgoing(q.name, text, opts)
	if err != nil {
		return queue.Sent{}, err
	}
	err = q.db.writeBy(ctx, false, m.call(), func(tx *tx) error {
		if err := tx.w.condition.accepts(q.name); err != nil {
			return err
		}
		if err := tx.insertMessage(m); err != nil {
			return err
		}
		return then(tx, m.sent)
	})
	if err != nil {
		return queue.Sent{}, fmt.Errorf("send to queue %s: %w", q.name, err)
	}
	return m.sent, nil
}

const (
	// visibleSQL adds nothing to the queue's number because SQLite plans a statement with
	// "= ?" and an order again whenever that argument becomes 1 or is no longer.
	visibleSQL = `SELECT m.seq, m.id, coalesce(t.text, m.short_text), m.dequeue_count, m.inserted_at, m.expires_at
FROM messages m INDEXED BY messages_visible LEFT JOIN texts t ON t.seq = m.seq
WHERE m.queue = 0 + ? AND m.visible_at <= ? AND (m.expires_at = 0 OR m.expires_at > ?) ORDER BY m.visible_at LIMIT ?`
	leaseSQL = "UPDATE messages SET visible_at = ?, hidden_at = ?, receipt = ?, dequeue_count = ? WHERE seq = ?"
)

// Receive implements queue.Queue.
func (q *leasedQueue) Receive(ctx context.Context, max int, lease time.Duration) ([]*queue.Message, error) {
	if max < 1 || max > queue.MaxReceive {
		return nil, fmt.Errorf("receive %d messages: a receive takes 1 to %d", max, queue.MaxReceive)
	}
	lease, err := leaseLength(lease)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	var received []receivedRow
	c := &Call{Operation: "receive", Hidden: lease}
	err = q.write(ctx, c, func(tx *tx, id int64) error {
		now := q.db.clock.now()
		c.Messages = nil // of an earlier run
		if _, err := tx.removeExpired(&q.db.opts, now); err != nil {
			return err
		}
		rows, err := tx.visible(id, now, max)
		if received = rows; err != nil || len(rows) == 0 {
			return err
		}
		if err := tx.ofOurSchema(); err != nil {
			return err
		}
		receipt, until, ids := newReceipt(), q.db.clock.after(lease), make([]string, 0, len(rows))
		update, err := tx.prepare(leaseSQL)
		if err != nil {
			return err
		}
		for _, r := range rows {
			r.message.Lease = queue.NewLease(formatReceipt(r.seq, receipt), start, lease)
			ids = append(ids, r.message.ID)
			if err := tx.noteChanges(update.number(until).number(now).number(receipt).number(r.message.DequeueCount).number(r.seq).exec()); err != nil {
				return err
			}
		}
		c.Messages = ids
		tx.afterCommit(func() {
			for _, r := range rows {
				q.db.clock.hold(r.seq, receipt, start, lease)
			}
		})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return oldestFirst(received), nil
}

type receivedRow struct {
	seq     int64
	message *queue.Message
}

// visible reads what can be received; each is counted as received once more.
func (t *tx) visible(queueID, now int64, max int) (rows []receivedRow, err error) {
	s, err := t.prepare(visibleSQL)
	if err != nil {
		return nil, err
	}
	err = s.number(queueID).number(now).number(now).number(int64(max)).query(func(s *statement) error {
		rows = append(rows, receivedRow{s.columnNumber(0), &queue.Message{
			ID: s.columnText(1), Text: s.columnBlob(2), DequeueCount: s.columnNumber(3) + 1,
			InsertedAt: fromMillis(s.columnNumber(4)), ExpiresAt: fromMillis(s.columnNumber(5)),
		}})
		return nil
	})
	return rows, err
}

// oldestFirst orders what was found in the order of visibility.
func oldestFirst(rows []receivedRow) []*queue.Message {
	slices.SortFunc(rows, func(a, b receivedRow) int {
		return cmp.Or(a.message.InsertedAt.Compare(b.message.InsertedAt), cmp.Compare(a.seq, b.seq))
	})
	messages := make([]*queue.Message, len(rows))
	for i, r := range rows {
		messages[i] = r.message
	}
	return messages
}

// heldSQL says which row a holder may change: the receipt is part of every WHERE. A message
// whose life ends under a lease is its holder's until the lease is over (see removeExpired).
const heldSQL = ` WHERE seq = ? AND receipt = ? AND queue = ? AND id = ?`

const (
	completeSQL = "DELETE FROM messages" + heldSQL
	hideSQL     = "UPDATE messages SET visible_at = ?, hidden_at = ?, receipt = ?" + heldSQL
)

// settle hides the row that m's newest receipt stands for; bind gives hideSQL the arguments that come
// before those of heldSQL.
func (q *leasedQueue) settle(ctx context.Context, operation string, m *queue.Message, hidden time.Duration, bind func(tx *tx, s *statement, seq int64)) error {
	receipt := m.Lease.Receipt()
	return q.write(ctx, &Call{Operation: operation, Messages: []string{m.ID}, Hidden: hidden}, func(tx *tx, id int64) error {
		_, err := tx.settle(id, m.ID, receipt, hideSQL, func(s *statement, seq int64) { bind(tx, s, seq) })
		return err
	})
}

// settle runs a statement on the row of the queue with this number that the receipt stands
// for, and returns which one that is.
func (t *tx) settle(queueID int64, messageID, receipt, text string, bind func(s *statement, seq int64)) (seq int64, err error) {
	seq, number, ok := parseReceipt(receipt)
	if !ok || number == nobodys {
		return 0, queue.ErrLeaseLost
	}
	s, err := t.prepare(text)
	if err != nil {
		return 0, err
	}
	bind(s, seq)
	n, err := s.number(seq).number(number).number(queueID).text(messageID).exec()
	if err == nil && n == 0 {
		err = queue.ErrLeaseLost
	}
	return seq, t.noteChanges(n, err)
}

// Renew implements queue.Queue.
func (q *leasedQueue) Renew(ctx context.Context, m *queue.Message, lease time.Duration) error {
	lease, err := leaseLength(lease)
	if err != nil {
		return err
	}
	start := time.Now()
	return q.settle(ctx, "renew", m, lease, func(tx *tx, s *statement, seq int64) {
		receipt := newReceipt()
		tx.afterCommit(func() {
			q.db.clock.hold(seq, receipt, start, lease)
			m.Lease.Renewed(formatReceipt(seq, receipt), start, lease)
		})
		s.number(q.db.clock.after(lease)).number(q.db.clock.now()).number(receipt)
	})
}

// Complete implements queue.Queue.
func (q *leasedQueue) Complete(ctx context.Context, m *queue.Message) error {
	receipt := m.Lease.Receipt()
	return q.write(ctx, &Call{Operation: "complete", Messages: []string{m.ID}}, func(tx *tx, id int64) error { return tx.complete(id, m.ID, receipt) })
}

// complete removes a row of the queue with this number.
func (t *tx) complete(queueID int64, messageID, receipt string) error {
	seq, err := t.settle(queueID, messageID, receipt, completeSQL, func(*statement, int64) {})
	if err == nil {
		t.afterCommit(func() { t.w.clock.release(seq) })
	}
	return err
}

// Abandon implements queue.Queue.
func (q *leasedQueue) Abandon(ctx context.Context, m *queue.Message, delay time.Duration) error {
	delay, err := delayLength(delay)
	if err != nil {
		return err
	}
	return q.settle(ctx, "abandon", m, delay, func(tx *tx, s *statement, seq int64) {
		tx.afterCommit(func() { q.db.clock.release(seq) })
		visible := q.db.clock.now()
		if delay > 0 {
			visible = q.db.clock.after(delay)
		}
		s.number(visible).number(q.db.clock.now()).number(nobodys)
	})
}

// Hide implements queue.Queue.
func (q *leasedQueue) Hide(ctx context.Context, m *queue.Message, delay time.Duration) error {
	delay, err := leaseLength(delay)
	if err != nil {
		return err
	}
	start := time.Now()
	return q.settle(ctx, "abandon", m, delay, func(tx *tx, s *statement, seq int64) {
		receipt := newHiddenReceipt()
		tx.afterCommit(func() {
			q.db.clock.release(seq)
			m.Lease.Renewed(formatReceipt(seq, receipt), start, delay)
		})
		s.number(q.db.clock.after(delay)).number(q.db.clock.now()).number(receipt)
	})
}

// peekSQL gives one row without a message for a queue that is empty.
const peekSQL = `SELECT coalesce(m.id, ''), coalesce(m.inserted_at, 0), coalesce(m.expires_at, 0), coalesce(t.text, m.short_text, x'')
FROM queues q LEFT JOIN messages m INDEXED BY messages_visible
  ON m.queue = q.id AND m.visible_at <= ? AND (m.expires_at = 0 OR m.expires_at > ?)
LEFT JOIN texts t ON t.seq = m.seq
WHERE q.name = ? ORDER BY m.seq LIMIT ?`

// Peek implements queue.Queue: exactly the oldest first. It takes time in proportion to
// the visible messages, because receiving goes by another order.
func (q *leasedQueue) Peek(ctx context.Context, max int) ([]queue.Peeked, error) {
	if max < 1 || max > queue.MaxReceive {
		return nil, fmt.Errorf("peek at %d messages: a peek takes 1 to %d", max, queue.MaxReceive)
	}
	now := q.db.clock.wall().UnixMilli()
	var peeked []queue.Peeked
	found := false
	err := q.db.read(ctx, serviceQueue, "peek", query{text: peekSQL, args: []any{now, now, q.name, max}}, func(scan func(...any) error) (bool, error) {
		found = true
		var p queue.Peeked
		err := scan(&p.ID, timeOf(&p.InsertedAt), timeOf(&p.ExpiresAt), &p.Text)
		if p.ID != "" {
			peeked = append(peeked, p)
		}
		return true, err
	})
	if err == nil && !found {
		err = queue.ErrQueueNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("peek at queue %s: %w", q.name, err)
	}
	return peeked, nil
}

// depthSQL counts in the index. What has expired and is not removed yet counts no
// more.
const depthSQL = `SELECT count(m.seq), coalesce(sum(m.visible_at <= ?), 0),
  (SELECT count(*) FROM messages e INDEXED BY messages_expiry
    WHERE e.expires_at > 0 AND e.expires_at <= ? AND e.queue = q.id),
  (SELECT count(*) FROM messages e INDEXED BY messages_expiry
    WHERE e.expires_at > 0 AND e.expires_at <= ? AND e.queue = q.id AND e.visible_at <= ?)
FROM queues q LEFT JOIN messages m INDEXED BY messages_visible ON m.queue = q.id
WHERE q.name = ? GROUP BY q.id`

// Depth implements queue.Queue. It takes time in proportion to the depth.
func (q *leasedQueue) Depth(ctx context.Context) (queue.Depth, error) {
	now := q.db.clock.wall().UnixMilli()
	var total, visible, expired, expiredVisible int64
	found := false
	err := q.db.read(ctx, serviceQueue, "depth", query{text: depthSQL, args: []any{now, now, now, now, q.name}}, func(scan func(...any) error) (bool, error) {
		found = true
		return false, scan(&total, &visible, &expired, &expiredVisible)
	})
	if err == nil && !found {
		err = queue.ErrQueueNotFound
	}
	if err != nil {
		return queue.Depth{}, fmt.Errorf("depth of queue %s: %w", q.name, err)
	}
	return queue.Depth{Total: total - expired, Visible: visible - expiredVisible, Exact: true}, nil
}
