package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/pushlease/pushlease/tables"
)

const claimColumns = "key, owner, state, until, at, message_id, body_hash"

// claimSQL takes the claim in one statement, or changes no row: when it is somebody
// else's, and when the owner has finished it. Its last two arguments are now and the
// beginning of the window.
const claimSQL = `INSERT INTO claims (` + claimColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET owner = excluded.owner, state = excluded.state, until = excluded.until, at = excluded.at,
  message_id = excluded.message_id, body_hash = excluded.body_hash
WHERE CASE owner WHEN excluded.owner THEN state = 'claimed' ELSE (state = 'claimed' AND until < ?) OR at < ? END`

const getClaimSQL = "SELECT " + claimColumns + " FROM claims WHERE key = ?"

// Claim implements tables.Claims.
func (db *DB) Claim(ctx context.Context, c tables.Claim, now time.Time) (current tables.Claim, won bool, err error) {
	c.State = tables.Claimed
	err = db.write(ctx, serviceTable, "claim", func(tx *tx) error {
		n, err := tx.exec(claimSQL, c.Key, c.Owner, c.State, millis(c.Until), millis(c.At), c.MessageID, c.BodyHash,
			now.UnixMilli(), now.Add(-tables.ClaimWindow).UnixMilli())
		if err != nil {
			return err
		}
		if n == 1 {
			current, won = c, true
			current.Until, current.At = fromMillis(millis(c.Until)), fromMillis(millis(c.At))
			return nil
		}
		current = tables.Claim{}
		err = tx.row(getClaimSQL, []any{c.Key}, &current.Key, &current.Owner, &current.State, timeOf(&current.Until), timeOf(&current.At),
			&current.MessageID, &current.BodyHash)
		won = current.Owner == c.Owner
		return err
	})
	if err != nil {
		return tables.Claim{}, false, fmt.Errorf("claim: %w", err)
	}
	return current, won, nil
}

// finishClaimSQL counts a row that is Done already, and leaves it as it is.
const finishClaimSQL = `UPDATE claims SET state = ?1,
  until = CASE state WHEN ?1 THEN until ELSE ?2 END,
  message_id = CASE state WHEN ?1 THEN message_id ELSE ?3 END,
  body_hash = CASE state WHEN ?1 THEN body_hash ELSE ?4 END
WHERE key = ?5 AND owner = ?6`

// FinishClaim implements tables.Claims.
func (db *DB) FinishClaim(ctx context.Context, c tables.Claim) error {
	err := db.write(ctx, serviceTable, "finish_claim", func(tx *tx) error {
		n, err := tx.exec(finishClaimSQL, tables.Done, millis(c.Until), c.MessageID, c.BodyHash, c.Key, c.Owner)
		if err == nil && n == 0 {
			err = tx.whyUnchanged("SELECT 1 FROM claims WHERE key = ?", c.Key)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("finish claim: %w", err)
	}
	return nil
}

// ReleaseClaim implements tables.Claims.
func (db *DB) ReleaseClaim(ctx context.Context, c tables.Claim) error {
	err := db.write(ctx, serviceTable, "release_claim", func(tx *tx) error {
		_, err := tx.exec("DELETE FROM claims WHERE key = ? AND owner = ? AND state <> ?", c.Key, c.Owner, tables.Done)
		return err
	})
	if err != nil {
		return fmt.Errorf("release claim: %w", err)
	}
	return nil
}

const expireClaimsSQL = `DELETE FROM claims WHERE key IN (
  SELECT key FROM claims INDEXED BY claims_at WHERE at < ? LIMIT ?)`

// ExpireClaims implements tables.Claims. It removes a bounded number in each
// transaction, so that other writes go on in between.
func (db *DB) ExpireClaims(ctx context.Context, now time.Time) (int64, error) {
	var total int64
	for {
		var n int64
		err := db.write(ctx, serviceTable, "expire_claims", func(tx *tx) (err error) {
			n, err = tx.exec(expireClaimsSQL, now.Add(-tables.ClaimWindow).UnixMilli(), expireAtOnce)
			return err
		})
		if err != nil {
			return total, fmt.Errorf("expire claims: %w", err)
		}
		if total += n; n < expireAtOnce {
			return total, nil
		}
	}
}
