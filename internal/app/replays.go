package app

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// replayQuiet is how long ago a replay was asked for, at least, when its queue is asked whether its
// message is still there.
const replayQuiet = 10 * time.Minute

// lostReplays are replays whose message is gone without an outcome: it expired, or somebody took it
// from its queue, or cleared or deleted that. Their dead letters wait again, so that they are
// counted, and can be replayed by a filter.
type lostReplays struct {
	letters tables.DeadLetters
	records tables.Deliveries
	queues  queue.Service
	log     *slog.Logger
}

// run makes one round.
func (l *lostReplays) run(ctx context.Context, now time.Time) {
	ctx, cancel := context.WithTimeout(ctx, expiryBound)
	defer cancel()
	empty := make(map[string]bool) // queues in which there was no message when they were asked
	page, ended := tables.Page{Limit: expiryPage}, 0
	for {
		rows, next, err := l.letters.ListDeadLetters(ctx, tables.DeadLetterFilter{Status: tables.Replaying}, page)
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

// end makes a dead letter wait again, and ends the records of its replay. A row that has changed
// since it was listed, before its queue was asked, is left alone: its replay has ended, or another
// one was asked for.
func (l *lostReplays) end(ctx context.Context, listed *tables.DeadLetter) (bool, error) {
	d, err := l.letters.GetDeadLetter(ctx, listed.ID)
	if err != nil || d.ETag != listed.ETag || d.Damaged != nil {
		return false, unless(err, tables.ErrNotFound)
	}
	if !d.Misnamed() { // then they may be another's
		if err := tables.EndReplay(ctx, l.records, l.letters, &d); err != nil {
			return false, err
		}
	}
	d.Status, d.ReplayToken = tables.Waiting, ""
	_, err = l.letters.UpdateDeadLetter(ctx, d)
	return err == nil, unless(unless(err, tables.ErrConflict), tables.ErrNotFound)
}

// unless is err, or nil where it is expected.
func unless(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}
