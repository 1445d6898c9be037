package sqlite

import (
	"cmp"
	"crypto/subtle"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
	"github.com/pushlease/pushlease/webhook/content"
)

// expiredSQL leaves out what is hidden: a message whose life ends while it is in work is its
// holder's until the lease is over.
const expiredSQL = `SELECT m.seq, q.name, m.id, coalesce(t.text, m.short_text), m.dequeue_count, m.inserted_at, m.expires_at
FROM messages m INDEXED BY messages_expiry JOIN queues q ON q.id = m.queue LEFT JOIN texts t ON t.seq = m.seq
WHERE m.expires_at > 0 AND m.expires_at <= ? AND m.visible_at <= ? LIMIT ?`

// expiredMessage is one whose life has ended unsettled.
type expiredMessage struct {
	seq, received int64
	key           tables.MessageKey
	text          []byte
	expiresAt     time.Time
}

// removeExpired removes some messages whose life is over. What becomes of one that a webhook
// was still due is decided with it: its record ends, and it is a dead letter.
func (t *tx) removeExpired(opts *Options, now int64) (int64, error) {
	expired, err := t.findExpired(now)
	if err != nil || len(expired) == 0 {
		return 0, err
	}
	if newer, err := t.newerSchema(); err != nil || newer > 0 {
		return 0, err // this process does not know all of its records any more, and would end what they say was delivered
	}
	due := make(map[string][]tables.Registration)
	byQueue := make(map[string]*Expired)
	for i := range expired {
		m := &expired[i]
		webhooks, known := due[m.key.Queue]
		if !known {
			if webhooks, err = t.webhooksOf(m.key.Queue); err != nil {
				return 0, err
			}
			due[m.key.Queue] = webhooks
		}
		letters, isCopy, err := t.endExpired(opts, m, webhooks, fromMillis(now))
		if err != nil {
			return 0, err
		}
		if _, err := t.exec("DELETE FROM messages WHERE seq = ?", m.seq); err != nil {
			return 0, err
		}
		if isCopy {
			continue
		}
		if byQueue[m.key.Queue] == nil {
			byQueue[m.key.Queue] = &Expired{Queue: m.key.Queue}
		}
		byQueue[m.key.Queue].add(letters)
	}
	t.afterCommit(func() {
		for _, ended := range byQueue {
			opts.OnExpired(*ended)
		}
	})
	return int64(len(expired)), nil
}

func (t *tx) findExpired(now int64) (expired []expiredMessage, err error) {
	find, err := t.prepare(expiredSQL)
	if err != nil {
		return nil, err
	}
	err = find.number(now).number(now).number(endAtOnce).query(func(s *statement) error {
		expired = append(expired, expiredMessage{
			seq: s.columnNumber(0), received: s.columnNumber(4), text: s.columnBlob(3), expiresAt: fromMillis(s.columnNumber(6)),
			key: tables.MessageKey{Queue: s.columnText(1), MessageID: s.columnText(2), Day: fromMillis(s.columnNumber(5))},
		})
		return nil
	})
	return expired, err
}

// webhooksSQL leaves out those of other queues as their registrations are written here: to decode each of ten thousand would
// hold up whatever is written. Where the name of the queue does not end like one the row names none.
const webhooksSQL = `SELECT id, registration FROM webhooks WHERE instr(registration, ?) OR NOT instr(registration, '"queue":"')
  OR ltrim(substr(registration, instr(registration, '"queue":"') + 9, 64), 'abcdefghijklmnopqrstuvwxyz0123456789-') NOT LIKE '"%'`

// webhooksOf are the registered webhooks of a queue. One that can't be read takes every message: its filter, and since
// when it is registered, are not known. Where its row does not even name its queue it may be of any.
func (t *tx) webhooksOf(queueName string) (list []tables.Registration, err error) {
	err = t.w.conn.rows(webhooksSQL, []any{`"queue":"` + queueName + `"`}, func(s *statement) error {
		id, stored := s.columnText(0), s.columnRaw(1)
		var r tables.Registration
		unread := json.Unmarshal(stored, &r) != nil || r.ID != id
		if unread {
			r = tables.Registration{Webhook: webhook.Webhook{ID: id, Queue: tables.QueueNamed(stored)}}
		}
		if r.Queue == queueName || unread && r.Queue == "" {
			list = append(list, r)
		}
		return nil
	})
	return list, err
}

// endExpired ends the records of a message, and keeps it as a dead letter for whom it was
// still due; but not the copy of a dead letter, of which it tells.
func (t *tx) endExpired(opts *Options, m *expiredMessage, webhooks []tables.Registration, now time.Time) (letters []tables.DeadLetter, isCopy bool, err error) {
	body, decodeErr := queue.Decode(opts.Encoding(m.key.Queue), m.text)
	if decodeErr == nil && body.Replay != nil {
		letters, err = t.endReplay(m, body.Replay, now)
		return letters, false, err
	}
	records, err := t.deliveriesOf(m.key)
	if err != nil {
		return nil, false, err
	}
	for i := range records {
		if id := records[i].CopyOf(); id != "" {
			return nil, true, t.endCopy(m.key, records, id, now)
		}
	}
	copied := slices.ContainsFunc(records, func(d tables.Delivery) bool { return d.State == tables.DeadLettered }) // and has its copy
	owed := m.owed(records, webhooks, taking(body))
	slices.SortFunc(owed, func(a, b tables.Delivery) int { // who was given up first may have the copy
		return cmp.Or(cmp.Compare(b.Rank(), a.Rank()), a.UpdatedAt.Compare(b.UpdatedAt), cmp.Compare(a.WebhookID, b.WebhookID))
	})
	for _, d := range owed {
		if d.State != tables.DeadLettering { // which is decided already
			d.Reason, d.DeadLetterID, d.UpdatedAt = policy.Expired, "", now
		}
		was := d.State
		d.DeadLetterID = d.OwedLetter()
		d.State, d.UpdatedAt, d.NextAt, d.ExpiresAt = tables.DeadLettered, now, time.Time{}, m.expiresAt
		if decodeErr == nil { // whatever it was read by before
			d.Size, d.BodyHash, d.Encoding = len(body.Bytes), tables.BodyHash(body.Bytes), string(body.Encoding)
		} else {
			d.Size, d.BodyHash = len(m.text), tables.BodyHash(m.text)
		}
		if err := t.putDelivery(putDeliverySQL, &d); err != nil {
			return nil, false, err
		}
		letter := expiredLetter(opts, m, d, was)
		if copied, err = t.keep(opts, letter, copied); err != nil {
			return nil, false, err
		}
		letter.Text = nil
		letters = append(letters, letter)
	}
	return letters, false, nil
}

// endCopy ends the records of the copy of a dead letter, which goes on waiting.
func (t *tx) endCopy(key tables.MessageKey, records []tables.Delivery, of string, now time.Time) error {
	for _, d := range records {
		if d.Damage.Undecided {
			d.MessageKey = key // its row, and none of another day
		}
		if d.State.Terminal() && d.State != tables.DeadLettering {
			continue
		}
		d.State, d.Reason, d.DeadLetterID, d.UpdatedAt, d.NextAt = tables.DeadLettered, policy.Expired, of, now, time.Time{}
		if err := t.putDelivery(putDeliverySQL, &d); err != nil {
			return err
		}
	}
	return nil
}

// keep stores a dead letter with its copy. One that its holder stored before the process
// died is what it was, and gets the copy only where it has none.
func (t *tx) keep(opts *Options, letter tables.DeadLetter, copied bool) (bool, error) {
	if _, err := t.exec(putDeadLetterSQL, deadLetterArgs(letter)...); err != nil {
		return copied, err
	}
	queueName, place, _ := tables.SplitDeadLetterID(letter.ID)
	stored, err := scanDeadLetter(func(into ...any) error { return t.row(getDeadLetterSQL, []any{queueName, place}, into...) }, withText)
	if err != nil || copied || stored.CopiedToQueue != "" {
		return true, err
	}
	name, err := t.copyToPoison(opts, stored)
	if err != nil || name == "" {
		return false, err
	}
	_, err = t.exec("UPDATE dead_letters SET copied_to_queue = ?"+whereDeadLetter, name, queueName, place)
	return true, err
}

// deliveriesOf reads the records of a message.
func (t *tx) deliveriesOf(key tables.MessageKey) (ds []tables.Delivery, err error) {
	err = t.w.conn.rows(loadSQL, loadArgs(key), func(s *statement) error {
		d, err := scanDelivery(s.scan)
		ds = append(ds, d)
		return err
	})
	return tables.Newest(ds), err
}

// owed are the deliveries that a message was not settled for; one of no webhook stands for
// the message as a whole. It stands where no webhook was done with the message, and not
// every one is on record. A webhook that was deleted before it got the message ends nothing, and
// what a replay of the message is at is the replay's; but it says that the webhook's part of the
// message ended with a dead letter. Where a webhook was done with it, those that are not on record
// had it before them too: the process ended while it POSTed to them, or before their turn.
// A record that another program has changed decides nothing: its webhook counts as not done with the message.
func (m *expiredMessage) owed(records []tables.Delivery, webhooks []tables.Registration, takes func(r *tables.Registration) bool) (list []tables.Delivery) {
	whole := tables.Delivery{MessageKey: m.key}
	known := make(map[string]bool)
	ended := false
	for _, d := range records {
		if d.Damage.Undecided {
			d.MessageKey = m.key
			if d.State != tables.DeadLettering {
				d.State = tables.Pending
			}
		}
		ofReplay := !d.Day.Equal(m.key.Day)
		switch {
		case d.State == tables.Withdrawn, ofReplay && d.WebhookID == "":
		case ofReplay:
			known[d.WebhookID], ended = true, true
		case d.WebhookID == "":
			whole = d
		case d.State.Terminal() && d.State != tables.DeadLettering:
			known[d.WebhookID], ended = true, true
		default:
			known[d.WebhookID] = true
			list = append(list, d)
		}
	}
	switch {
	case !whole.State.EndsAll(len(known) > 0, ended):
	case whole.State == tables.DeadLettering:
		return []tables.Delivery{whole}
	default:
		return nil
	}
	complete := len(known) > 0
	for i := range webhooks {
		complete = complete && known[webhooks[i].ID]
	}
	switch {
	case complete:
		return list
	case ended:
		return append(list, tables.NotBegun(m.key, records, webhooks, known, takes)...)
	}
	if len(list) == 1 { // what was tried is told all the same
		whole.Attempts, whole.Charged, whole.LastStatus, whole.LastErrorClass = list[0].Attempts, list[0].Charged, list[0].LastStatus, list[0].LastErrorClass
		whole.FirstAt, whole.LastAt = list[0].FirstAt, list[0].LastAt
	}
	return []tables.Delivery{whole}
}

// taking says which webhooks' filters take a body.
func taking(body queue.Body) func(r *tables.Registration) bool {
	c := content.Read(body.Bytes, body.ContentType)
	return func(r *tables.Registration) bool {
		takes, _ := r.Filter.Match(c)
		return takes
	}
}

func expiredLetter(opts *Options, m *expiredMessage, d tables.Delivery, was tables.State) tables.DeadLetter {
	description := fmt.Sprintf("The message's life ended at %s before a webhook had taken it; it was received %d times.",
		m.expiresAt.Format(time.RFC3339), m.received)
	switch {
	case was == tables.DeadLettering:
		description = "The message was being dead-lettered when its life ended."
	case m.received == 0:
		description = fmt.Sprintf("The message's life ended at %s, and nobody had received it: no webhook of the queue was enabled, or none could be sent to.",
			m.expiresAt.Format(time.RFC3339))
	}
	return tables.DeadLetter{
		ID: d.DeadLetterID, MessageKey: m.key, WebhookID: d.WebhookID, Generation: d.Generation, Status: tables.Waiting,
		Reason: d.Reason, Description: description, Attempts: d.Attempts, LastStatus: d.LastStatus, LastErrorClass: d.LastErrorClass,
		FirstAt: d.FirstAt, LastAt: d.LastAt, DeadLetteredAt: d.UpdatedAt, Text: m.text,
		Encoding: string(opts.Encoding(m.key.Queue)), Size: d.Size, BodyHash: d.BodyHash,
		DequeueCount: m.received, InsertedAt: m.key.Day, Instance: opts.Instance, ETag: newETag(),
	}
}

// copyToPoison puts the text of a dead letter on <queue>-poison, and on record whose it is, as the
// dispatcher does; name is empty where there is to be no copy.
func (t *tx) copyToPoison(opts *Options, letter tables.DeadLetter) (name string, err error) {
	name = tables.PoisonQueue(letter.Queue)
	if !opts.PoisonCopy || name == "" {
		return "", nil
	}
	out, err := newOutgoing(name, letter.Text, queue.SendOptions{TTL: cmp.Or(opts.PoisonCopyTTL, queue.NoExpiry)})
	if errors.Is(err, queue.ErrUnsendable) || errors.Is(err, queue.ErrTooLarge) {
		return "", nil // another program has changed the text; its dead letter is kept, and may not hold up every receive
	}
	if err != nil {
		return "", err
	}
	if err := t.insertMessage(out); err != nil {
		return "", err
	}
	of := letter.Copy(name, out.sent.ID, out.sent.InsertedAt, out.sent.ExpiresAt)
	return name, t.putDelivery(putDeliverySQL, &of)
}

// endReplay makes the dead letter of a replay that nobody received wait again, or what is left of it.
func (t *tx) endReplay(m *expiredMessage, r *queue.Replay, now time.Time) ([]tables.DeadLetter, error) {
	name, place, ok := tables.SplitDeadLetterID(r.DeadLetter)
	if !ok || name != m.key.Queue {
		return nil, nil
	}
	letter, err := scanDeadLetter(func(into ...any) error { return t.row(getDeadLetterSQL, []any{name, place}, into...) }, withText)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil || letter.ReplayToken == "" || subtle.ConstantTimeCompare([]byte(letter.ReplayToken), []byte(r.Token)) != 1 {
		return nil, err
	}
	key := tables.MessageKey{Queue: name, MessageID: letter.MessageID, Day: m.key.Day}
	replay, err := t.deliveriesOf(key)
	if err != nil {
		return nil, err
	}
	later := slices.DeleteFunc(slices.Clone(replay), func(d tables.Delivery) bool { return !d.Day.After(m.key.Day) })
	replay = slices.DeleteFunc(replay, func(d tables.Delivery) bool {
		return !d.Day.Equal(m.key.Day) || letter.WebhookID != "" && letter.WebhookID != d.WebhookID
	})
	reached := letter.Reached(replay, later)
	if letter.WebhookID == "" && reached {
		webhooks, err := t.webhooksOf(name)
		if err != nil {
			return nil, err
		}
		body, _ := queue.Decode(queue.SettingFor(queue.Encoding(letter.Encoding), letter.Text, letter.Fits), letter.Text)
		replay = append(replay, tables.NotBegun(key, replay, webhooks, tables.OnRecord(slices.Concat(later, replay)), taking(body))...)
	}
	ended, parts := letter.Lose(replay, reached, now)
	for i := range ended {
		if err := t.putDelivery(putDeliverySQL, &ended[i]); err != nil {
			return nil, err
		}
	}
	for i := range parts {
		parts[i].ETag = newETag()
		if _, err := t.exec(putDeadLetterSQL, deadLetterArgs(parts[i])...); err != nil {
			return nil, err
		}
		parts[i].Text = nil
	}
	_, err = t.exec("UPDATE dead_letters SET status = ?, replay_token = '', etag = ?"+whereDeadLetter, string(letter.Status), newETag(), name, place)
	return parts, err
}
