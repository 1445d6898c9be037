package sqlite

import (
	"context"
	"time"
)

const (
	// houseInterval is how often what nobody asks for is put in order.
	houseInterval = time.Minute
	// expireAtOnce bounds how many rows one operation removes, so that its
	// neighbours in the transaction do not wait long.
	expireAtOnce = 500
	// endAtOnce bounds how many messages one operation ends, for the same reason.
	endAtOnce = 100
)

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
	return db.write(ctx, serviceQueue, "housekeeping", func(tx *tx) error {
		db.clock.forgetLapsed()
		return tx.clamp(db.clock.now())
	})
}

// endExpired ends all messages that have expired by now, which is when its first transaction begins.
func (db *DB) endExpired(ctx context.Context) error {
	var now int64
	return db.inParts(ctx, "housekeeping", endAtOnce, func(t *tx) (int64, error) {
		if now == 0 {
			now = db.clock.now()
		}
		return t.removeExpired(now)
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
