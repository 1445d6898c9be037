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
			_ = db.tidy(context.Background())
		}
	}
}

// tidy ends expired messages and brings back what a wrong clock has hidden.
func (db *DB) tidy(ctx context.Context) error {
	for {
		var removed int64
		err := db.write(ctx, serviceQueue, "housekeeping", func(tx *tx) (err error) {
			now := db.clock.now()
			if removed, err = tx.removeExpired(now); err != nil {
				return err
			}
			db.clock.forgetLapsed()
			return tx.clamp(now)
		})
		if err != nil || removed < endAtOnce {
			return err
		}
	}
}
