package delivery

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// errStaleReplay: the pointer's dead letter is gone, or its replay was finished or
// asked for anew.
var errStaleReplay = errors.New("replay pointer without a replay")

// errAltered: another program has changed the pointer's dead letter since its replay was asked for.
var errAltered = errors.New("the dead letter is not what it was when its replay was asked for")

// openReplay loads what a replay pointer stands for: the original text under the
// original id, as a new generation, for the dead letter's webhook only.
func (o *Options) openReplay(ctx context.Context, p *parcel, r queue.Replay) error {
	owner, _, ok := tables.SplitDeadLetterID(r.DeadLetter)
	if !ok || owner != p.key.Queue {
		return errStaleReplay
	}
	row, err := retry.Get(ctx, retry.Call, func(ctx context.Context) (tables.DeadLetter, error) {
		return o.DeadLetters.GetDeadLetter(ctx, r.DeadLetter)
	})
	if errors.Is(err, tables.ErrNotFound) {
		return errStaleReplay
	}
	if err != nil {
		return fmt.Errorf("load dead letter %s: %w", r.DeadLetter, err)
	}
	if row.ReplayToken == "" || subtle.ConstantTimeCompare([]byte(row.ReplayToken), []byte(r.Token)) != 1 {
		return errStaleReplay
	}
	setting, err := queue.ParseEncoding(row.Encoding)
	if err != nil {
		setting = p.setting
	}
	setting = queue.SettingFor(setting, row.Text, row.Fits)
	if refused := unaltered(row, setting); refused != nil {
		if err := o.takeToken(ctx, row); err != nil {
			return fmt.Errorf("end the replay of %s, which is refused: %w", row.ID, err)
		}
		return refused
	}
	if row.Status == tables.Waiting {
		if row, err = o.showReplaying(ctx, row); err != nil {
			return err
		}
	}
	p.replay = &row
	p.key.MessageID = row.MessageID // Day stays the pointer's: the original's records may have expired
	p.generation = row.Generation + row.Replays
	p.text, p.insertedAt = row.Text, row.InsertedAt
	if row.Reason != policy.Undecodable {
		// The same bytes as before, whatever the queue is set to by now. What could
		// not be read is replayed because the setting was put right.
		p.setting = setting
	}
	if p.body, err = queue.Decode(p.setting, row.Text); err != nil {
		p.hash = tables.BodyHash(row.Text)
		return fmt.Errorf("decode: %w", err)
	}
	return nil
}

// unaltered refuses a dead letter that another program has changed. The API has looked when the
// replay was asked for, but what is held for a webhook may wait for days.
func unaltered(row tables.DeadLetter, setting queue.Encoding) error {
	body, err := queue.Decode(setting, row.Text)
	if err != nil {
		body.Bytes = nil
	}
	if columns := row.Altered(body.Bytes); columns != "" {
		return fmt.Errorf("%w: look at its columns %s", errAltered, columns)
	}
	if row.Damaged != nil {
		return fmt.Errorf("%w: %w", errAltered, row.Damaged)
	}
	if row.Misnamed() {
		return fmt.Errorf("%w: its id is not that of its columns", errAltered)
	}
	return nil
}

// replayDeleted reports whether the parcel is a replay whose dead letter was deleted since it was received. Where
// storage does not say, the replay goes on.
func (o *Options) replayDeleted(ctx context.Context, p *parcel) bool {
	if p.replay == nil {
		return false
	}
	_, err := retry.Get(o.writing(ctx), retry.Once, func(ctx context.Context) (tables.DeadLetter, error) {
		return o.DeadLetters.GetDeadLetter(ctx, p.replay.ID)
	})
	return errors.Is(err, tables.ErrNotFound)
}

// endReplay ends a delivery of a replay whose dead letter was deleted.
func (p *parcel) endReplay(del *tables.Delivery) {
	del.State, del.Reason, del.DeadLetterID, del.NextAt = tables.DeadLettered, policy.ReplayEnded, p.replay.ID, time.Time{}
}

// takeToken ends a replay that is refused: by its missing token, its dead letter waits again within
// the hour.
func (o *Options) takeToken(ctx context.Context, row tables.DeadLetter) error {
	if row.Damaged != nil {
		return nil //nolint:nilerr // a damaged row can't be written as it is
	}
	row.Status, row.ReplayToken = tables.Replaying, ""
	_, err := retry.Get(ctx, retry.Call, func(ctx context.Context) (tables.DeadLetter, error) {
		return o.DeadLetters.UpdateDeadLetter(ctx, row)
	})
	return err
}

// showReplaying says on a dead letter that its replay is under way, where who asked for it has not said so
// yet, or died before that. Until then another replay is let past this one when its reservation ends, and a purge
// takes the row away: nothing is POSTed before.
func (o *Options) showReplaying(ctx context.Context, row tables.DeadLetter) (tables.DeadLetter, error) {
	saved, err := retry.Get(ctx, retry.Call, func(ctx context.Context) (tables.DeadLetter, error) {
		next := row
		next.Status = tables.Replaying
		saved, err := o.DeadLetters.UpdateDeadLetter(ctx, next)
		if !errors.Is(err, tables.ErrConflict) {
			return saved, err //nolint:wrapcheck // wrapped below
		}
		now, err := o.DeadLetters.GetDeadLetter(ctx, row.ID)
		if err == nil && now.ReplayToken == row.ReplayToken && now.Status != tables.Replaying {
			row, err = now, tables.ErrConflict // the next try is about the row as it is
		}
		return now, err
	})
	switch {
	case errors.Is(err, tables.ErrNotFound), err == nil && saved.ReplayToken != row.ReplayToken:
		return saved, errStaleReplay
	case err != nil:
		return saved, fmt.Errorf("mark dead letter %s as being replayed: %w", row.ID, err)
	}
	return saved, nil
}
