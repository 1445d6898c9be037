package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
	"github.com/pushlease/pushlease/webhook/content"
)

// replayQuiet is how long ago a replay was asked for, at least, when its queue is asked whether its
// message is still there.
const replayQuiet = 10 * time.Minute

// lostReplays are replays whose message is gone without an outcome: it expired, or somebody took it
// from its queue, or cleared or deleted that. Their dead letters wait again, so that they are
// counted, and can be replayed by a filter.
type lostReplays struct {
	store  tables.Store
	queues queue.Service
	log    *slog.Logger
}

// run makes one round.
func (l *lostReplays) run(ctx context.Context, now time.Time) {
	ctx, cancel := context.WithTimeout(ctx, expiryBound)
	defer cancel()
	empty := make(map[string]bool) // queues in which there was no message when they were asked
	page, ended := tables.Page{Limit: expiryPage}, 0
	for {
		rows, next, err := l.store.ListDeadLetters(ctx, tables.DeadLetterFilter{Status: tables.Replaying}, page)
		for i := 0; err == nil && i < len(rows); i++ {
			if now.Sub(rows[i].ReplayedAt) < replayQuiet {
				continue
			}
			done, rowErr := l.heal(ctx, empty, &rows[i], now)
			switch {
			case ctx.Err() != nil:
				err = ctx.Err()
			case rowErr != nil: // the others don't wait for it
				l.log.Warn("whether the message of a replay is gone could not be told, or the replay could not be ended; trying again in an hour",
					"dead_letter", rows[i].ID, "error", rowErr)
			case done:
				ended++
			}
		}
		if err != nil && ctx.Err() == nil {
			l.log.Warn("replays whose message is gone could not be listed; trying again in an hour", "error", err)
		}
		if page.After = next; err != nil || next == "" {
			break
		}
	}
	if ended > 0 {
		l.log.Warn("the messages of replays are gone without an outcome, because they expired, or somebody took them from their queues; the dead letters wait again", "dead_letters", ended)
	}
}

// heal ends a replay whose message is surely gone.
func (l *lostReplays) heal(ctx context.Context, empty map[string]bool, d *tables.DeadLetter, now time.Time) (bool, error) {
	lost, err := l.lost(ctx, empty, d, now)
	if err != nil || !lost {
		return false, err
	}
	return l.end(ctx, d)
}

// lost reports whether the message of a replay is surely gone. A queue that could not be asked is not
// asked again in this round. The column Queue is not gone by: another program may have changed it.
func (l *lostReplays) lost(ctx context.Context, empty map[string]bool, d *tables.DeadLetter, now time.Time) (bool, error) {
	if now.Sub(d.ReplayedAt) > queue.ReplayLife || d.ReplayToken == "" { // its message was refused
		return true, nil
	}
	name, _, _ := tables.SplitDeadLetterID(d.ID)
	none, asked := empty[name]
	if asked {
		return none, nil
	}
	empty[name] = false
	q, err := l.queues.Queue(name)
	if err != nil {
		return false, err
	}
	depth, err := q.Depth(ctx) // never fewer than there are
	none = errors.Is(err, queue.ErrQueueNotFound) || err == nil && depth.Total == 0
	if errors.Is(err, queue.ErrQueueNotFound) {
		err = nil
	}
	empty[name] = none
	return none, err
}

// end makes a dead letter wait again, or what is left of it, and ends the records of its replay. A row that has changed
// since it was listed, before its queue was asked, is left alone: its replay has ended, or another
// one was asked for.
func (l *lostReplays) end(ctx context.Context, listed *tables.DeadLetter) (bool, error) {
	d, err := l.store.GetDeadLetter(ctx, listed.ID)
	if err != nil || d.ETag != listed.ETag || d.Damaged != nil {
		return false, unless(err, tables.ErrNotFound)
	}
	var replay []tables.Delivery
	reached := false
	if !d.Misnamed() { // then they may be another's
		if replay, reached, err = l.recordsOf(ctx, &d); err != nil {
			return false, err
		}
	}
	ended, parts := d.Lose(replay, reached, time.Now())
	for i := range parts { // the next round makes the same one where this one can't
		making := ended[slices.IndexFunc(ended, func(r tables.Delivery) bool { return r.DeadLetterID == parts[i].ID })]
		making.State = tables.DeadLettering
		if err := l.store.Record(ctx, tables.Record{Deliveries: []tables.Delivery{making}}); err != nil {
			return false, fmt.Errorf("record what is left of a replay: %w", err)
		}
		if _, err := l.store.PutDeadLetter(ctx, parts[i]); err != nil {
			return false, fmt.Errorf("write what is left of a replay: %w", err)
		}
	}
	for i := range ended {
		if err := l.store.Record(ctx, tables.Record{Deliveries: ended[i : i+1]}); err != nil {
			return false, fmt.Errorf("end the record of a replay: %w", err)
		}
	}
	_, err = l.store.UpdateDeadLetter(ctx, d)
	return err == nil && (d.Status == tables.Waiting || len(parts) > 0), unless(unless(err, tables.ErrConflict), tables.ErrNotFound)
}

// recordsOf are the records of a replay, and whether it has reached one webhook. Where it has, those are among them that it was due to and had not begun with.
func (l *lostReplays) recordsOf(ctx context.Context, d *tables.DeadLetter) (replay []tables.Delivery, reached bool, err error) {
	replay, later, err := tables.ReplayRecords(ctx, l.store, l.store, d, func(*tables.Delivery) bool { return true })
	if reached = d.Reached(replay, later); err != nil || d.WebhookID != "" || !reached {
		return replay, reached, err
	}
	all, bad, err := l.store.ListWebhooks(ctx)
	if err != nil {
		return nil, false, err
	}
	for _, row := range bad { // its filter is not known
		all = append(all, tables.Registration{Webhook: webhook.Webhook{ID: row.ID, Queue: cmp.Or(row.Queue, d.Queue)}})
	}
	all = slices.DeleteFunc(all, func(r tables.Registration) bool { return r.Queue != d.Queue })
	body, _ := queue.Decode(queue.SettingFor(queue.Encoding(d.Encoding), d.Text, d.Fits), d.Text)
	c := content.Read(body.Bytes, body.ContentType)
	known := slices.Concat(later, replay)
	key := known[len(known)-1].MessageKey
	return append(replay, tables.NotBegun(key, replay, all, tables.OnRecord(known), func(r *tables.Registration) bool {
		takes, _ := r.Filter.Match(c)
		return takes
	})...), true, nil
}

// unless is err, or nil where it is expected.
func unless(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}
