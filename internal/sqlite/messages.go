package sqlite

import (
	"crypto/rand"
	"database/sql"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/pushlease/pushlease/queue"
)

// queueID finds the row of a queue; sql.ErrNoRows when it is not there.
func (t *tx) queueID(name string) (int64, error) {
	if id, ok := t.w.queues[name]; ok {
		return id, nil
	}
	var id int64
	err := t.row("SELECT id FROM queues WHERE name = ?", []any{name}, &id)
	if err == nil {
		t.afterCommit(func() { t.w.queues[name] = id })
	}
	return id, err
}

// newQueueSQL gives a queue a number that no queue had whose messages are still there.
const newQueueSQL = `INSERT INTO queues (id, name)
SELECT 1 + max((SELECT coalesce(max(id), 0) FROM queues), (SELECT coalesce(max(queue), 0) FROM messages)), ?`

// ensureQueue finds the row of a queue, or makes it.
func (t *tx) ensureQueue(name string) (int64, error) {
	id, err := t.queueID(name)
	if !errors.Is(err, sql.ErrNoRows) {
		return id, err
	}
	if _, err := t.exec(newQueueSQL, name); err != nil {
		return 0, err
	}
	return t.queueID(name)
}

// forgetQueue says that a queue has no row any more: neither for what comes after in this
// transaction, nor by what an earlier part of it notes at its commit.
func (t *tx) forgetQueue(name string) {
	delete(t.w.queues, name)
	t.afterCommit(func() { delete(t.w.queues, name) })
}

// outgoing is a message to store.
type outgoing struct {
	queue      string
	text       []byte
	delay, ttl time.Duration
	// sent is complete, and seq the row's id, once the message was inserted.
	sent queue.Sent
	seq  int64
}

// call is what stores it.
func (m *outgoing) call() *Call {
	return &Call{Service: serviceQueue, Operation: "send", Messages: []string{m.sent.ID}, Text: m.text}
}

// newOutgoing checks what is to be sent.
func newOutgoing(queueName string, text []byte, opts queue.SendOptions) (*outgoing, error) {
	if len(text) > queue.MaxTextBytes {
		return nil, fmt.Errorf("send %d bytes: %w: at most %d fit", len(text), queue.ErrTooLarge, queue.MaxTextBytes)
	}
	if !queue.XMLSafe(text) {
		return nil, fmt.Errorf("send: %w: it is no text that XML can carry: encode it", queue.ErrUnsendable)
	}
	delay, ttl, err := sendTimes(opts)
	if err != nil {
		return nil, err
	}
	return &outgoing{queue: queueName, text: text, delay: delay, ttl: ttl, sent: queue.Sent{ID: newMessageID(time.Now())}}, nil
}

const sendSQL = `INSERT INTO messages (queue, visible_at, hidden_at, receipt, dequeue_count, inserted_at, expires_at, id, short_text)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`

// longestShort is how many bytes of text are kept in the row of a message. A longer text has a
// row of its own, so that a lease, a renewal or a release writes no text anew; for shorter
// ones that would cost a send and a delete more than it spares a lease. A message whose text is
// apart has none in its row: the trigger messages_gone goes by that.
const longestShort = 1000

const sendTextSQL = "INSERT INTO texts (seq, text) VALUES (?, ?)"

// insertMessage stores a message that can be received after its delay.
func (t *tx) insertMessage(m *outgoing) error {
	id, err := t.ensureQueue(m.queue)
	if err != nil {
		return err
	}
	c := t.w.clock
	visible := c.now()
	if m.delay > 0 {
		visible = c.after(m.delay)
	}
	return t.insertRow(m, id, visible, newReceipt(), 0)
}

// insertRow stores a message that is hidden until visible, and was received so often.
func (t *tx) insertRow(m *outgoing, queueID, visible, receipt, received int64) error {
	now := t.w.clock.now()
	m.sent.InsertedAt = fromMillis(now)
	if m.ttl > 0 {
		m.sent.ExpiresAt = m.sent.InsertedAt.Add(m.ttl)
	}
	s, err := t.prepare(sendSQL)
	if err != nil {
		return err
	}
	short := m.text
	if len(short) > longestShort {
		short = nil
	}
	err = t.noteChanges(s.number(queueID).number(visible).number(now).number(receipt).number(received).number(now).
		time(m.sent.ExpiresAt).text(m.sent.ID).blob(short).exec())
	m.seq = t.w.conn.lastRow()
	if err != nil || len(m.text) <= longestShort {
		return err
	}
	if s, err = t.prepare(sendTextSQL); err != nil {
		return err
	}
	return t.noteChanges(s.number(m.seq).blob(m.text).exec())
}

// idAlphabet is base32hex in lower case: texts sort as what they stand for.
var idAlphabet = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// newMessageID returns an id that no other message has: the time in milliseconds, so that
// the rows of messages sent together lie together in every index, and 80 random bits.
func newMessageID(now time.Time) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(now.UnixMilli())<<16)
	_, _ = rand.Read(b[6:]) // never fails
	return idAlphabet.EncodeToString(b[:])
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
