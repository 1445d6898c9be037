package sqlite

import (
	"context"
	"time"

	"github.com/pushlease/pushlease/queue"
)

// houseInterval is how often what nobody asks for is put in order.
const houseInterval = time.Minute

// keepHouse tidies at intervals. An error needs no word: the same fault meets every
// caller, and the next round tries again.
func (db *DB) keepHouse() {
	tick := time.NewTicker(houseInterval)
	defer tick.Stop()
	for {
		select {
		case <-db.stop:
			return
		case <-tick.C:
		case <-db.tidyUp:
		}
		_ = db.tidy(context.Background())
		_ = db.inParts(context.Background(), "delete", expireAtOnce, (*tx).removeOwnerless)
	}
}

// tidy ends expired messages and brings back what a wrong clock has hidden.
func (db *DB) tidy(ctx context.Context) error {
	if err := db.endExpired(ctx); err != nil {
		return err
	}
	return db.write(ctx, serviceQueue, "housekeeping", (*tx).bringBack)
}

// tidyFirst is tidy before the file is in use, for some of the messages that expired while nobody ran: of 500,000
// the last would be ended minutes later, and until there is somebody to count them they would be kept in memory.
func (db *DB) tidyFirst(ctx context.Context) error {
	return db.write(ctx, serviceQueue, "housekeeping", func(tx *tx) error {
		if _, err := tx.removeExpired(&db.opts, db.clock.now()); err != nil {
			return err
		}
		return tx.bringBack()
	})
}

func (t *tx) bringBack() error {
	t.w.clock.forgetLapsed()
	return t.clamp(t.w.clock.now())
}

// endExpired ends all messages that have expired by now, which is when its first transaction begins.
func (db *DB) endExpired(ctx context.Context) error {
	var now int64
	return db.inParts(ctx, "housekeeping", endAtOnce, func(t *tx) (int64, error) {
		if now == 0 {
			now = db.clock.now()
		}
		return t.removeExpired(&db.opts, now)
	})
}

// inParts repeats a step, each time in a transaction of its own, until it did less than a part of the work.
func (db *DB) inParts(ctx context.Context, operation string, part int64, step func(*tx) (int64, error)) error {
	for {
		var done int64
		err := db.write(ctx, serviceQueue, operation, func(tx *tx) (err error) {
			done, err = step(tx)
			return err
		})
		if err != nil || done < part {
			return err
		}
	}
}

// clampSQL is for rows that were hidden by a clock that is not known any more: they
// begin to wait now, for as long as was asked for, and never longer than is allowed.
const clampSQL = `UPDATE messages SET visible_at = ? + max(0, min(visible_at - hidden_at, ?)), hidden_at = ?
WHERE seq IN (SELECT m.seq FROM queues q JOIN messages m INDEXED BY messages_visible ON m.queue = q.id
  WHERE m.visible_at > ? AND (m.hidden_at > ? OR m.visible_at > ?))`

// clamp brings back what a wrong clock has hidden for too long.
func (t *tx) clamp(now int64) error {
	longest := queue.MaxDelay.Milliseconds()
	slack := jumpTolerance.Milliseconds()
	_, err := t.exec(clampSQL, now, longest, now, now, now+slack, now+longest+slack)
	return err
}

// ownerlessSQL removes messages of queues that were deleted. It goes from one number of a queue to the next, and
// not over the messages.
const ownerlessSQL = `WITH RECURSIVE numbers (n) AS (
  SELECT min(queue) FROM messages UNION ALL SELECT (SELECT min(queue) FROM messages WHERE queue > n) FROM numbers WHERE n IS NOT NULL)
DELETE FROM messages WHERE seq IN (
  SELECT m.seq FROM numbers JOIN messages m INDEXED BY messages_visible ON m.queue = n
  WHERE n NOT IN (SELECT id FROM queues) LIMIT ?)`

// removeOwnerless removes some messages of queues that were deleted.
func (t *tx) removeOwnerless() (int64, error) {
	return t.exec(ownerlessSQL, expireAtOnce)
}
