package azuretable

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pushlease/pushlease/tables"
)

// claimTries bounds how often a row is read again that changed meanwhile.
const claimTries = 4

// claimPartitions is fixed: no two claims share a transaction, whatever it is.
const claimPartitions = 4

func claimPartition(key string) string { return shard(key, claimPartitions) }

// claimRow is a claim and the place of its row.
type claimRow struct {
	tables.Claim
	bucket bucket
	etag   string
}

// Claim implements tables.Claims. A claimant writes the row of its own bucket first,
// which excludes all others of that bucket, and then looks at the other bucket, so
// that of two that ask at once at least one sees the other. See neighbour for who of
// them gives way.
//
// A claim that is itself older than the window is won unless somebody else has the
// key, and is not stored: its table may be gone.
func (s *Store) Claim(ctx context.Context, c tables.Claim, now time.Time) (current tables.Claim, won bool, err error) {
	c = stored(c)
	if aged(c, now) {
		current, won, err = s.claimOutside(ctx, c, now)
	} else {
		current, won, err = s.claim(ctx, c, now)
	}
	if err != nil {
		return tables.Claim{}, false, fmt.Errorf("claim: %w", err)
	}
	return current, won, nil
}

// stored is a new claim as it comes back from a row.
func stored(c tables.Claim) tables.Claim {
	c.State = tables.Claimed
	for _, t := range []*time.Time{&c.Until, &c.At} {
		if !t.IsZero() {
			*t = time.UnixMilli(t.UnixMilli()).UTC()
		}
	}
	return c
}

// aged reports whether c is older than the window.
func aged(c tables.Claim, now time.Time) bool {
	return c.At.UnixMilli() < now.Add(-tables.ClaimWindow).UnixMilli()
}

// lapsed reports whether the owner of c did not finish in time.
func lapsed(c tables.Claim, now time.Time) bool {
	return c.State != tables.Done && c.Until.UnixMilli() < now.UnixMilli()
}

// bucketsNow are the buckets that may hold a claim that has not ended.
func bucketsNow(now time.Time) []bucket {
	return slices.Compact([]bucket{bucketOf(now.Add(-tables.ClaimWindow)), bucketOf(now), bucketOf(now.Add(claimSkew))})
}

// claimOutside claims without a row.
func (s *Store) claimOutside(ctx context.Context, c tables.Claim, now time.Time) (tables.Claim, bool, error) {
	buckets := append(bucketsNow(now), bucketOf(c.At))
	slices.Sort(buckets)
	current := c
	for _, b := range slices.Compact(buckets) {
		r, found, err := s.getClaim(ctx, b, c.Key)
		switch {
		case err != nil:
			return tables.Claim{}, false, err
		case found && r.Owner == c.Owner && r.State == tables.Done:
			return r.Claim, true, nil
		case found && r.Owner == c.Owner:
			current = r.Claim
		case found && !aged(r.Claim, now) && !lapsed(r.Claim, now):
			return r.Claim, false, nil
		}
	}
	return current, true, nil
}

func (s *Store) claim(ctx context.Context, c tables.Claim, now time.Time) (tables.Claim, bool, error) {
	mine, again, err := s.takeRow(ctx, c, now)
	if err != nil || mine.Owner != c.Owner || mine.State == tables.Done {
		return mine.Claim, mine.Owner == c.Owner, err
	}
	for _, b := range bucketsNow(now) {
		if b == mine.bucket {
			continue
		}
		other, holds, err := s.neighbour(ctx, mine, again, b, now)
		if err != nil {
			return tables.Claim{}, false, err
		}
		if holds {
			// If the row stays it ends by itself, and nobody takes it for a win: who
			// asks again looks at the other bucket again.
			_ = s.client.remove(ctx, s.claimsTable(mine.bucket), claimPartition(c.Key), encodeID(c.Key), mine.etag)
			return other.Claim, false, nil
		}
	}
	return mine.Claim, true, nil
}

// takeRow makes the row of c's own bucket c's, unless somebody else holds it; it
// returns the row as it is now. again is true when it was c's owner's already.
func (s *Store) takeRow(ctx context.Context, c tables.Claim, now time.Time) (r claimRow, again bool, err error) {
	b := bucketOf(c.At)
	for range claimTries {
		etag, err := s.client.insert(ctx, s.claimsTable(b), claimPartition(c.Key), encodeID(c.Key), claimColumns(c))
		if !errors.Is(err, tables.ErrExists) {
			return claimRow{Claim: c, bucket: b, etag: etag}, false, err
		}
		there, found, getErr := s.getOwnClaim(ctx, b, c)
		switch {
		case getErr != nil:
			return claimRow{}, false, getErr
		case !found: // removed just now
			continue
		case there.Owner == c.Owner && there.State == tables.Done:
			return there, true, nil
		case there.Owner != c.Owner && !aged(there.Claim, now) && !lapsed(there.Claim, now):
			return there, false, nil
		}
		again = there.Owner == c.Owner
		etag, err = s.replaceClaim(ctx, there, c)
		if !movedOn(err) {
			return claimRow{Claim: c, bucket: b, etag: etag}, again, err
		}
	}
	return claimRow{}, false, errClaimBusy
}

// The pauses while a claimant waits for another to give way. One that asks again may
// have won before, so it waits for longer than one that asks for the first time.
const (
	firstGiveWayPause = 50 * time.Millisecond
	giveWayPauses     = 4
	giveWayAgain      = 5
)

// neighbour looks whether another claim holds mine's key in bucket b, after mine was
// written; one that has lapsed is removed. When both are there, the one in the later
// bucket gives way. But the other may have won before mine was written, and then it
// never looks here: so the one in the earlier bucket has not won until the other's
// row is gone, and gives way itself when that takes too long. Then it may happen that
// neither wins; never that both do.
func (s *Store) neighbour(ctx context.Context, mine claimRow, again bool, b bucket, now time.Time) (other claimRow, holds bool, err error) {
	pauses := giveWayPauses
	switch {
	case again:
		pauses = giveWayAgain
	case b < mine.bucket:
		pauses = 0
	}
	first, seen := "", false
	for pause := firstGiveWayPause; ; pause *= 2 {
		other, found, err := s.takeOver(ctx, b, mine.Claim, now)
		switch {
		case err != nil:
			return claimRow{}, false, err
		case !found:
			return claimRow{}, false, nil
		case other.State == tables.Done:
			return other, true, nil
		case seen && other.Owner != first:
			// It came after mine, so it sees mine and gives way.
			return claimRow{}, false, nil
		}
		first, seen = other.Owner, true
		if pauses--; pauses < 0 {
			return other, true, nil
		}
		if !sleep(ctx, pause) {
			return claimRow{}, false, ctx.Err()
		}
	}
}

// takeOver returns the claim that keeps mine's owner from the key in bucket b, and
// removes one that has lapsed.
func (s *Store) takeOver(ctx context.Context, b bucket, mine tables.Claim, now time.Time) (r claimRow, holds bool, err error) {
	for range claimTries {
		r, found, err := s.getClaim(ctx, b, mine.Key)
		switch {
		case err != nil || !found || r.Owner == mine.Owner || aged(r.Claim, now):
			return claimRow{}, false, err
		case !lapsed(r.Claim, now):
			return r, true, nil
		}
		err = s.client.remove(ctx, s.claimsTable(b), claimPartition(mine.Key), encodeID(mine.Key), r.etag)
		switch {
		case err == nil || errors.Is(err, tables.ErrNotFound):
			return claimRow{}, false, nil
		case !errors.Is(err, tables.ErrConflict):
			return claimRow{}, false, err
		}
	}
	return claimRow{}, false, errClaimBusy
}

var errClaimBusy = errors.New("the claim keeps changing")

// FinishClaim implements tables.Claims.
func (s *Store) FinishClaim(ctx context.Context, c tables.Claim) error {
	if err := s.finish(ctx, c); err != nil {
		return fmt.Errorf("finish claim: %w", err)
	}
	return nil
}

func (s *Store) finish(ctx context.Context, c tables.Claim) error {
	for range claimTries {
		r, found, err := s.getOwnClaim(ctx, bucketOf(c.At), c)
		switch {
		case err != nil:
			return err
		case !found:
			return s.whoHas(ctx, c)
		case r.Owner != c.Owner:
			return tables.ErrConflict
		case r.State == tables.Done:
			return nil
		}
		done := r.Claim
		done.State, done.Until, done.MessageID, done.BodyHash = tables.Done, c.Until, c.MessageID, c.BodyHash
		if _, err = s.replaceClaim(ctx, r, done); !movedOn(err) {
			return err
		}
	}
	return errClaimBusy
}

// whoHas tells why c is gone: ErrConflict when it was taken over from another bucket.
func (s *Store) whoHas(ctx context.Context, c tables.Claim) error {
	own := bucketOf(c.At)
	for _, b := range []bucket{max(own-1, 0), min(own+1, lastBucket)} {
		r, found, err := s.getClaim(ctx, b, c.Key)
		if err != nil {
			return err
		}
		if found && r.At.Sub(c.At).Abs() <= tables.ClaimWindow {
			return tables.ErrConflict
		}
	}
	return tables.ErrNotFound
}

// ReleaseClaim implements tables.Claims.
func (s *Store) ReleaseClaim(ctx context.Context, c tables.Claim) error {
	b := bucketOf(c.At)
	err := errClaimBusy
	for range claimTries {
		r, found, getErr := s.getOwnClaim(ctx, b, c)
		if getErr != nil {
			err = getErr
			break
		}
		if !found || r.Owner != c.Owner || r.State == tables.Done {
			return nil
		}
		err = s.client.remove(ctx, s.claimsTable(b), claimPartition(c.Key), encodeID(c.Key), r.etag)
		if err == nil || errors.Is(err, tables.ErrNotFound) {
			return nil
		}
		if !errors.Is(err, tables.ErrConflict) {
			break
		}
	}
	return fmt.Errorf("release claim: %w", err)
}

// ExpireClaims implements tables.Claims by dropping whole tables. It does not count
// rows.
func (s *Store) ExpireClaims(ctx context.Context, now time.Time) (int64, error) {
	prefix := s.prefix + claimsName
	names, err := s.client.tableNames(ctx, prefix, prefix+"a")
	if err != nil {
		return 0, fmt.Errorf("expire claims: %w", err)
	}
	oldest := oldestClaims(now)
	var errs []error
	for _, name := range names {
		if b, ok := cutBucket(name, prefix); ok && b < oldest {
			_, err := s.client.deleteTable(ctx, s.claimsTable(b))
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return 0, fmt.Errorf("expire claims: %w", err)
	}
	return 0, nil
}

// getClaim reads the claim of a key in one bucket.
func (s *Store) getClaim(ctx context.Context, b bucket, key string) (r claimRow, found bool, err error) {
	e, err := s.client.get(ctx, s.claimsTable(b), claimPartition(key), encodeID(key))
	if errors.Is(err, tables.ErrNotFound) {
		return claimRow{}, false, nil
	}
	if err != nil {
		return claimRow{}, false, err
	}
	c, err := e.claim(key)
	if err != nil {
		err = fmt.Errorf("row %s of the partition %s of the table %s: %w; delete that row", encodeID(key), claimPartition(key), s.claimsTable(b), err)
	}
	return claimRow{Claim: c, bucket: b, etag: e.etag}, err == nil, err
}

// getOwnClaim is getClaim for a claimant: a row that is its own, as far as it can be read, is its to
// mend. What is not done is written whole by the caller.
func (s *Store) getOwnClaim(ctx context.Context, b bucket, c tables.Claim) (r claimRow, found bool, err error) {
	r, found, err = s.getClaim(ctx, b, c.Key)
	if !errors.Is(err, tables.ErrDamaged) || r.Owner != c.Owner {
		return r, found, err
	}
	r.At = c.At
	if r.State == tables.Done {
		etag, writeErr := s.replaceClaim(ctx, r, r.Claim)
		if writeErr != nil {
			return r, false, fmt.Errorf("%w; it could not be mended: %v", err, writeErr) //nolint:errorlint // its kind is not that of the claim
		}
		r.etag = etag
	}
	return r, true, nil
}

// replaceClaim lays c over a row while nobody has changed it.
func (s *Store) replaceClaim(ctx context.Context, r claimRow, c tables.Claim) (etag string, err error) {
	return s.client.replace(ctx, s.claimsTable(r.bucket), claimPartition(c.Key), encodeID(c.Key), claimColumns(c), r.etag)
}

func claimColumns(c tables.Claim) columns {
	row := columns{}
	row.exact("Owner", c.Owner)
	row.exact("State", string(c.State))
	row.time("UntilMs", c.Until)
	row.time("AtMs", c.At)
	row.exact("MessageID", c.MessageID)
	row.exact("BodyHash", c.BodyHash)
	return row
}

// claim refuses what does not say whether the event was delivered: taken for a claim that has
// lapsed, it would let the event be delivered twice.
func (e entity) claim(key string) (tables.Claim, error) {
	c := tables.Claim{
		Key: key, Owner: e.text("Owner"), State: tables.ClaimState(e.text("State")), Until: e.time("UntilMs"), At: e.time("AtMs"),
		MessageID: e.text("MessageID"), BodyHash: e.text("BodyHash"),
	}
	known := c.State == tables.Done || c.State == tables.Claimed && !c.Until.IsZero()
	if err := e.damage(); err != nil || known && !c.At.IsZero() {
		return c, err
	}
	return c, fmt.Errorf("%w: of a claim, State, UntilMs or AtMs is missing or unknown", tables.ErrDamaged)
}
