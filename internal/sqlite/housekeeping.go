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

// tidy removes expired messages and brings back what a wrong clock has hidden.
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
		if err != nil || removed < expireAtOnce {
			return err
		}
	}
}

const expiredSQL = "SELECT seq FROM messages INDEXED BY messages_expiry WHERE expires_at > 0 AND expires_at <= ? LIMIT ?"

// removeExpired removes some messages whose time is over.
func (t *tx) removeExpired(now int64) (int64, error) {
	find, err := t.prepare(expiredSQL)
	if err != nil {
		return 0, err
	}
	var expired []int64
	err = find.number(now).number(expireAtOnce).query(func(s *statement) error {
		expired = append(expired, s.columnNumber(0))
		return nil
	})
	if err != nil {
		return 0, err
	}
	for _, seq := range expired {
		if _, err := t.exec("DELETE FROM messages WHERE seq = ?", seq); err != nil {
			return 0, err
		}
	}
	n := int64(len(expired))
	if n > 0 {
		t.afterCommit(func() { t.w.db.opts.OnExpired(n) })
	}
	return n, nil
}
