package sqlite

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
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

// leasedQueue implements queue.Queue.
type leasedQueue struct {
	db   *DB
	name string
}

func (q *leasedQueue) Name() string { return q.name }

// write runs op with the row id of the queue, which has to be there.
func (q *leasedQueue) write(ctx context.Context, operation string, op func(tx *tx, id int64) error) error {
	err := q.db.write(ctx, serviceQueue, operation, func(tx *tx) error {
		var id int64
		err := tx.row("SELECT id FROM queues WHERE name = ?", []any{q.name}, &id)
		if errors.Is(err, sql.ErrNoRows) {
			return queue.ErrQueueNotFound
		}
		if err != nil {
			return err
		}
		return op(tx, id)
	})
	if err != nil {
		return fmt.Errorf("%s on queue %s: %w", operation, q.name, err)
	}
	return nil
}

const receiveSQL = `UPDATE messages SET visible_at = ?, hidden_at = ?, dequeue_count = dequeue_count + 1, receipt = ?
WHERE seq IN (SELECT seq FROM messages INDEXED BY messages_visible
  WHERE queue = ? AND visible_at <= ? AND (expires_at = 0 OR expires_at > ?) ORDER BY visible_at LIMIT ?)
RETURNING seq, id, text, dequeue_count, inserted_at, expires_at`

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
	err = q.write(ctx, "receive", func(tx *tx, id int64) error {
		now := q.db.clock.now()
		if _, err := tx.removeExpired(now); err != nil {
			return err
		}
		receipt := newReceipt()
		args := []any{q.db.clock.after(lease), now, receipt, id, now, now, max}
		return tx.rows(receiveSQL, args, func(scan func(...any) error) error {
			r, err := scanReceived(scan)
			if err != nil {
				return err
			}
			r.message.Lease = queue.NewLease(formatReceipt(r.seq, receipt), start, lease)
			received = append(received, r)
			tx.afterCommit(func() { q.db.clock.hold(r.seq, receipt, start, lease) })
			return nil
		})
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

func scanReceived(scan func(...any) error) (receivedRow, error) {
	r := receivedRow{message: &queue.Message{}}
	m := r.message
	err := scan(&r.seq, &m.ID, &m.Text, &m.DequeueCount, timeOf(&m.InsertedAt), timeOf(&m.ExpiresAt))
	return r, err
}

// oldestFirst orders what RETURNING gave in no order.
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

// heldSQL says which row a holder may change: the receipt is part of every WHERE.
const heldSQL = ` WHERE seq = ? AND receipt = ? AND queue = ? AND id = ? AND (expires_at = 0 OR expires_at > ?)`

// settle runs a statement on the row that m's newest receipt stands for.
func (q *leasedQueue) settle(ctx context.Context, operation string, m *queue.Message, run func(tx *tx, seq int64, held []any) (int64, error)) error {
	seq, receipt, ok := parseReceipt(m.Lease.Receipt())
	return q.write(ctx, operation, func(tx *tx, id int64) error {
		if !ok {
			return queue.ErrLeaseLost
		}
		n, err := run(tx, seq, []any{seq, receipt, id, m.ID, q.db.clock.now()})
		if err == nil && n == 0 {
			err = queue.ErrLeaseLost
		}
		return err
	})
}

// Renew implements queue.Queue.
func (q *leasedQueue) Renew(ctx context.Context, m *queue.Message, lease time.Duration) error {
	lease, err := leaseLength(lease)
	if err != nil {
		return err
	}
	start := time.Now()
	return q.settle(ctx, "renew", m, func(tx *tx, seq int64, held []any) (int64, error) {
		receipt := newReceipt()
		tx.afterCommit(func() {
			q.db.clock.hold(seq, receipt, start, lease)
			m.Lease.Renewed(formatReceipt(seq, receipt), start, lease)
		})
		return tx.exec("UPDATE messages SET visible_at = ?, hidden_at = ?, receipt = ?"+heldSQL,
			append([]any{q.db.clock.after(lease), q.db.clock.now(), receipt}, held...)...)
	})
}

// Complete implements queue.Queue.
func (q *leasedQueue) Complete(ctx context.Context, m *queue.Message) error {
	return q.settle(ctx, "complete", m, func(tx *tx, seq int64, held []any) (int64, error) {
		tx.afterCommit(func() { q.db.clock.release(seq) })
		return tx.exec("DELETE FROM messages"+heldSQL, held...)
	})
}

// Abandon implements queue.Queue.
func (q *leasedQueue) Abandon(ctx context.Context, m *queue.Message, delay time.Duration) error {
	delay, err := delayLength(delay)
	if err != nil {
		return err
	}
	return q.settle(ctx, "abandon", m, func(tx *tx, seq int64, held []any) (int64, error) {
		tx.afterCommit(func() { q.db.clock.release(seq) })
		visible := q.db.clock.now()
		if delay > 0 {
			visible = q.db.clock.after(delay)
		}
		return tx.exec("UPDATE messages SET visible_at = ?, hidden_at = ?, receipt = ?"+heldSQL,
			append([]any{visible, q.db.clock.now(), newReceipt()}, held...)...)
	})
}

// Send implements queue.Queue.
func (q *leasedQueue) Send(ctx context.Context, text []byte, opts queue.SendOptions) (queue.Sent, error) {
	if len(text) > queue.MaxTextBytes {
		return queue.Sent{}, fmt.Errorf("send %d bytes: %w: at most %d fit", len(text), queue.ErrTooLarge, queue.MaxTextBytes)
	}
	if !queue.XMLSafe(text) {
		return queue.Sent{}, fmt.Errorf("send: %w: it is no text that XML can carry: encode it", queue.ErrUnsendable)
	}
	delay, ttl, err := sendTimes(opts)
	if err != nil {
		return queue.Sent{}, err
	}
	if text == nil {
		text = []byte{}
	}
	sent := queue.Sent{ID: strings.ToLower(rand.Text())}
	err = q.db.write(ctx, serviceQueue, "send", func(tx *tx) error {
		if _, err := tx.exec("INSERT INTO queues (name) VALUES (?) ON CONFLICT DO NOTHING", q.name); err != nil {
			return err
		}
		now := q.db.clock.now()
		sent.InsertedAt = fromMillis(now)
		if ttl > 0 {
			sent.ExpiresAt = sent.InsertedAt.Add(ttl)
		}
		visible := now
		if delay > 0 {
			visible = q.db.clock.after(delay)
		}
		_, err := tx.exec(`INSERT INTO messages (queue, visible_at, hidden_at, receipt, dequeue_count, inserted_at, expires_at, id, text)
VALUES ((SELECT id FROM queues WHERE name = ?), ?, ?, ?, 0, ?, ?, ?, ?)`,
			q.name, visible, now, newReceipt(), now, millis(sent.ExpiresAt), sent.ID, text)
		return err
	})
	if err != nil {
		return queue.Sent{}, fmt.Errorf("send to queue %s: %w", q.name, err)
	}
	return sent, nil
}

// peekSQL gives one row without a message for a queue that is empty.
const peekSQL = `SELECT coalesce(m.id, ''), coalesce(m.inserted_at, 0), coalesce(m.expires_at, 0)
FROM queues q LEFT JOIN messages m INDEXED BY messages_visible
  ON m.queue = q.id AND m.visible_at <= ? AND (m.expires_at = 0 OR m.expires_at > ?)
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
	err := q.db.read(ctx, serviceQueue, "peek", query{peekSQL, []any{now, now, q.name, max}}, func(scan func(...any) error) (bool, error) {
		found = true
		var p queue.Peeked
		err := scan(&p.ID, timeOf(&p.InsertedAt), timeOf(&p.ExpiresAt))
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
	err := q.db.read(ctx, serviceQueue, "depth", query{depthSQL, []any{now, now, now, now, q.name}}, func(scan func(...any) error) (bool, error) {
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

// newReceipt returns a receipt that nobody can guess or meet again.
func newReceipt() int64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return int64(binary.BigEndian.Uint64(b[:]))
}

// A receipt names its row, so that settling needs no search.
func formatReceipt(seq, receipt int64) string {
	return fmt.Sprintf("%d.%016x", seq, uint64(receipt))
}

func parseReceipt(s string) (seq, receipt int64, ok bool) {
	head, tail, _ := strings.Cut(s, ".")
	seq, err := strconv.ParseInt(head, 10, 64)
	if err != nil {
		return 0, 0, false
	}
	r, err := strconv.ParseUint(tail, 16, 64)
	return seq, int64(r), err == nil
}

// leaseLength rounds a lease up to whole seconds and refuses what is out of bounds.
func leaseLength(lease time.Duration) (time.Duration, error) {
	if rounded := wholeSeconds(lease); lease > 0 && rounded <= queue.MaxLease {
		return rounded, nil
	}
	return 0, fmt.Errorf("a lease of %v is out of bounds: it lasts %v to %v", lease, queue.MinLease, queue.MaxLease)
}

func delayLength(delay time.Duration) (time.Duration, error) {
	if rounded := wholeSeconds(delay); delay >= 0 && rounded <= queue.MaxDelay {
		return rounded, nil
	}
	return 0, fmt.Errorf("a delay of %v is out of bounds: it lasts 0s to %v", delay, queue.MaxDelay)
}

// sendTimes checks opts and returns the delay and the life; a life of 0 has no end.
func sendTimes(opts queue.SendOptions) (delay, ttl time.Duration, err error) {
	if delay, err = delayLength(opts.Delay); err != nil {
		return 0, 0, err
	}
	switch {
	case opts.TTL == queue.NoExpiry:
		return delay, 0, nil
	case opts.TTL < 0:
		return 0, 0, fmt.Errorf("a time to live of %v is out of bounds: give whole seconds, or -1 for no end", opts.TTL)
	case opts.TTL == 0:
		ttl = queue.DefaultTTL
	default:
		ttl = wholeSeconds(opts.TTL)
	}
	if ttl <= delay {
		return 0, 0, fmt.Errorf("a time to live of %v must be longer than the delay of %v", ttl, delay)
	}
	return delay, ttl, nil
}

func wholeSeconds(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}
