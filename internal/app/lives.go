package app

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/pushlease/pushlease/tables"
)

const (
	// livesEvery is how often it is looked whose life has ended.
	livesEvery = time.Minute
	// maxLives bounds the messages that are watched; those that live for longer than shortLife leave half of
	// the room to the others.
	maxLives  = 20_000
	shortLife = time.Hour
	// livesInVain is how many messages in a row may have been ended by others before a round leaves the
	// rest alone: each costs a request, and where several instances share the work most are like that.
	livesInVain = 30
)

// lives watches the messages that this process has published or handled and not ended, on a store whose queues
// drop a message at the end of its life without a word. What expired unseen is counted by who wrote about it
// last. A nil one does nothing; safe for concurrent use.
type lives struct {
	tables.Store
	instance string
	log      *slog.Logger
	// expired counts messages that expired unseen.
	expired func(queue string, messages int)

	mu        sync.Mutex
	byMessage map[livingMessage]*life
}

type livingMessage struct{ queue, id string }

// life is one message, whose deliveries to these webhooks have no outcome here.
type life struct {
	key  tables.MessageKey
	ends time.Time
	open []string
}

// newLives returns the tables that tell it what is written. It is nil for a file, which ends what expires itself.
func newLives(s stores, instance string, log *slog.Logger, expired func(queue string, messages int)) (*lives, tables.Store) {
	if s.recorded != nil {
		return nil, s.tables
	}
	l := &lives{Store: s.tables, instance: instance, log: log, expired: expired, byMessage: map[livingMessage]*life{}}
	return l, l
}

// Record implements tables.Deliveries. What is about to be written is known here, whether storage takes it or not.
func (l *lives) Record(ctx context.Context, r tables.Record) error {
	now := time.Now()
	l.mu.Lock()
	for i := range r.Deliveries {
		l.note(&r.Deliveries[i], now)
	}
	l.mu.Unlock()
	return l.Store.Record(ctx, r)
}

// note takes in how far a delivery has come. l.mu is held.
func (l *lives) note(d *tables.Delivery, now time.Time) {
	name := livingMessage{d.Queue, d.MessageID}
	m := l.byMessage[name]
	switch {
	case d.ExpiresAt.IsZero():
		return
	case m == nil && d.State.Terminal():
		return
	case m == nil:
		if n := len(l.byMessage); n >= maxLives || n >= maxLives/2 && d.ExpiresAt.Sub(now) > shortLife {
			return
		}
		m = &life{key: d.MessageKey, ends: d.ExpiresAt}
		l.byMessage[name] = m
	}
	m.open = slices.DeleteFunc(m.open, func(id string) bool { return id == d.WebhookID || id == "" })
	switch {
	case !d.State.Terminal():
		m.open = append(m.open, d.WebhookID)
	case d.WebhookID == "" && d.State.EndsAll(true, true) || len(m.open) == 0:
		delete(l.byMessage, name)
	}
}

// run looks once in a while, until ctx ends.
func (l *lives) run(ctx context.Context) {
	if l == nil {
		return
	}
	t := time.NewTicker(livesEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			l.look(ctx, time.Now())
		}
	}
}

// look asks what became of the messages whose life is over.
func (l *lives) look(ctx context.Context, now time.Time) {
	lost, vain := map[string][]tables.Delivery{}, 0 // what was written of each last
	due := l.over(now)
	for i := 0; i < len(due) && vain < livesInVain; i++ {
		m := due[i]
		all, err := l.Load(ctx, m.key)
		switch {
		case err != nil && !errors.Is(err, tables.ErrDamaged): // the next round asks again
			l.putBack(due[i:])
			vain = livesInVain
		case tables.ExpiredUnseen(all, now) && l.isOurs(newest(all)):
			lost[m.key.Queue], vain = append(lost[m.key.Queue], newest(all)), 0
		default:
			vain++
		}
	}
	for queue, messages := range lost {
		first := slices.MinFunc(messages, func(a, b tables.Delivery) int { return a.UpdatedAt.Compare(b.UpdatedAt) })
		deletedAt := l.deletedAt(ctx, queue, first.UpdatedAt)
		messages = slices.DeleteFunc(messages, func(d tables.Delivery) bool { return d.UpdatedAt.Before(deletedAt) })
		if len(messages) == 0 {
			continue
		}
		l.expired(queue, len(messages))
		l.log.Warn("messages are gone without an outcome: they expired before anybody ended them, or another program took them; the timeline of each says so",
			"queue", queue, "messages", len(messages), "one_of_them", messages[0].MessageID)
	}
}

// deletedAt is when an operator deleted the queue last, with the messages on it (ADR 0086); the zero time where that is not known, or was
// before since: a busy audit of 90 days is many requests.
func (l *lives) deletedAt(ctx context.Context, queue string, since time.Time) time.Time {
	for page := (tables.Page{Limit: 1}); ; {
		audits, next, err := l.ListAudits(ctx, tables.AuditFilter{Queue: queue, Action: tables.QueueDeleted, From: since}, page)
		if err == nil && len(audits) > 0 {
			return audits[0].At
		}
		if page.After = next; err != nil || next == "" {
			return time.Time{}
		}
	}
}

// over takes out the messages whose life is over.
func (l *lives) over(now time.Time) (due []*life) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, m := range l.byMessage {
		if now.Sub(m.ends) > tables.LifeMargin {
			due = append(due, m)
			delete(l.byMessage, name)
		}
	}
	return due
}

func (l *lives) putBack(due []*life) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range due {
		l.byMessage[livingMessage{m.key.Queue, m.key.MessageID}] = m
	}
}

// newest is what was written of a message last. The record of a publish names nobody: it is dated by storage's
// clock, and is the last one only where no instance has written anything.
func newest(all []tables.Delivery) tables.Delivery {
	return slices.MaxFunc(all, func(a, b tables.Delivery) int {
		if (a.Instance == "") != (b.Instance == "") {
			return cmp.Compare(a.Instance, b.Instance)
		}
		return a.UpdatedAt.Compare(b.UpdatedAt)
	})
}

// isOurs reports whether this instance wrote about a message last.
func (l *lives) isOurs(last tables.Delivery) bool {
	return last.Instance == "" || last.Instance == l.instance
}
