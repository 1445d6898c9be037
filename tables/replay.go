package tables

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pushlease/pushlease/policy"
)

const (
	// ReplayPatience is how long a replay may be under way before another one is let past it
	// without force.
	ReplayPatience = 10 * time.Minute
	// ReplayReserved is how long a row is kept for a replay that is being sent, which takes 20 s at most.
	ReplayReserved = ClocksApart + 30*time.Second
)

// ReplayEndsIn is for how long a replay that was asked for may still come; nothing above zero where none may. A
// row that waits was asked for lately when a replay is about to be sent.
func (d *DeadLetter) ReplayEndsIn() time.Duration {
	switch ago := time.Since(d.ReplayedAt); d.Status {
	case Replaying:
		return ReplayPatience - ago
	case Waiting:
		return ReplayReserved - ago
	default:
		return 0
	}
}

// ReplayToCome reports whether the message of a replay, which lives for life, may be on its queue still. It
// may wait for its next attempt for hours, and for its webhook for days, and ends with its dead letter.
func (d *DeadLetter) ReplayToCome(life time.Duration) bool {
	return d.ReplayEndsIn() > 0 || d.Status == Replaying && time.Since(d.ReplayedAt) < life
}

// EndReplay ends the records of a dead letter's replay, which nobody goes on with: the dead letter was deleted. What was delivered stays so.
func EndReplay(ctx context.Context, s Deliveries, letters DeadLetters, d *DeadLetter) error {
	all, _, err := ReplayRecords(ctx, s, letters, d, func(r *Delivery) bool { return !r.State.Terminal() || r.State == DeadLettering })
	if err != nil {
		return err
	}
	now := time.Now()
	for i := range all {
		all[i].giveUpTo(d.ID, policy.ReplayEnded, now)
		if err := s.Record(ctx, Record{Deliveries: all[i : i+1]}); err != nil {
			return fmt.Errorf("end the record of a replay: %w", err)
		}
	}
	return nil
}

// giveUpTo ends a delivery with a dead letter that is there.
func (d *Delivery) giveUpTo(letterID string, reason policy.Reason, now time.Time) {
	d.State, d.Reason, d.DeadLetterID, d.NextAt, d.UpdatedAt = DeadLettered, reason, letterID, time.Time{}, now.UTC().Truncate(time.Millisecond)
}

// ReplayRecords are those of the deliveries of a dead letter's last replay that are wanted. They are of the day on which it was asked for, between
// replays of other dead letters of the same message: what is of one of these goes on. Those of later ones stand for what this replay came to for
// their webhooks, of which they have the record.
func ReplayRecords(ctx context.Context, s Deliveries, letters DeadLetters, d *DeadLetter, wanted func(r *Delivery) bool) (replay, later []Delivery, err error) {
	all, err := replayed(ctx, s, d, wanted)
	if err != nil || len(all) == 0 { // most replays that are lost were never received; the list is dear
		return nil, nil, err
	}
	from, until, err := otherReplays(ctx, letters, d)
	for _, r := range all {
		switch {
		case !until.IsZero() && !r.Day.Before(until):
			later = append(later, r)
		case !r.Day.Before(from):
			replay = append(replay, r)
		}
	}
	return replay, later, err
}

// replayed are the deliveries of the last replay of d, and of later ones of its message. Their day is by storage's clock, from which
// that of who asked for it may differ.
func replayed(ctx context.Context, s Deliveries, d *DeadLetter, wanted func(r *Delivery) bool) (all []Delivery, err error) {
	for _, apart := range [...]time.Duration{0, -ClocksApart, ReplayReserved} { // it may be sent later than it was asked for
		at := d.ReplayedAt.Add(apart)
		if apart != 0 && dayOf(at).Equal(dayOf(d.ReplayedAt)) {
			continue
		}
		some, err := s.Load(ctx, MessageKey{Queue: d.Queue, MessageID: d.MessageID, Day: at})
		if err != nil {
			return nil, fmt.Errorf("load the records of a replay: %w", err)
		}
		all = append(all, some...)
	}
	return slices.DeleteFunc(all, func(r Delivery) bool {
		ofIt := r.Generation >= d.Generation+d.Replays && (d.WebhookID == "" || d.WebhookID == r.WebhookID)
		return !ofIt || !wanted(&r)
	}), nil
}

// Reached reports whether a webhook has the message of d's replay by what is on record of that, or a dead letter of its own of it, which
// a later replay may be of.
func (d *DeadLetter) Reached(replay, later []Delivery) bool {
	return d.WebhookID == "" && len(OnRecord(later)) > 0 || slices.ContainsFunc(replay, func(r Delivery) bool {
		return r.State == Delivered || r.State == DeadLettered && r.DeadLetterID != "" && r.DeadLetterID != d.ID
	})
}

// Lose ends d's replay, whose message is gone: d waits again, and the records that are not over end with that. Where the replay has reached a webhook
// d is replayed: another replay would go there, too. Each other webhook that it was for has a part of d then, a dead letter of its own.
func (d *DeadLetter) Lose(replay []Delivery, reached bool, now time.Time) (ended []Delivery, parts []DeadLetter) {
	d.Status, d.ReplayToken = Waiting, ""
	if reached {
		d.Status = Replayed
	}
	for _, r := range replay {
		switch {
		case r.State.Terminal() && r.State != DeadLettering:
			continue
		case !reached || r.WebhookID == "":
			r.giveUpTo(d.ID, policy.ReplayEnded, now)
		default:
			r.Generation = max(r.Generation, d.Generation+d.Replays)
			id := DeadLetterID(r.MessageKey, r.WebhookID, r.Generation, now)
			if r.State == DeadLettering {
				id = r.OwedLetter()
			}
			r.giveUpTo(id, policy.Expired, now)
			parts = append(parts, d.part(&r))
		}
		ended = append(ended, r)
	}
	return ended, parts
}

// part is d for the one webhook of a delivery of its replay.
func (d *DeadLetter) part(r *Delivery) DeadLetter {
	return DeadLetter{
		ID: r.DeadLetterID, MessageKey: r.MessageKey, WebhookID: r.WebhookID, Generation: r.Generation, Status: Waiting, Reason: r.Reason,
		Description: "Its replay went to several webhooks, and the message was gone before this one had taken it: its life had ended, or somebody took it from its queue.",
		Attempts:    r.Attempts, LastStatus: r.LastStatus, LastErrorClass: r.LastErrorClass, FirstAt: r.FirstAt, LastAt: r.LastAt,
		DeadLetteredAt: r.UpdatedAt, Text: d.Text, Encoding: d.Encoding, Size: d.Size, BodyHash: d.BodyHash, InsertedAt: d.InsertedAt, Instance: d.Instance,
	}
}

// otherReplays are between when the messages of d's replay were inserted at the most, so that they are of no replay of another dead letter of
// the message for the same webhook: from when d's was asked for, where one of these came before, and until the next one was, if any was.
// Storage may tell whole seconds only.
func otherReplays(ctx context.Context, letters DeadLetters, d *DeadLetter) (from, until time.Time, err error) {
	asked := d.ReplayedAt.Truncate(time.Second)
	for page := (Page{Limit: MaxPage}); ; {
		rows, after, err := letters.ListDeadLetters(ctx, DeadLetterFilter{Queue: d.Queue, MessageID: d.MessageID}, page)
		if err != nil {
			return from, until, fmt.Errorf("list the dead letters of a message: %w", err)
		}
		for i := range rows {
			at := rows[i].ReplayedAt.Truncate(time.Second)
			same := rows[i].WebhookID == d.WebhookID || rows[i].WebhookID == "" || d.WebhookID == ""
			switch {
			case rows[i].ID == d.ID || !same || at.IsZero():
			case at.Before(asked):
				from = asked
			case until.IsZero() || at.Before(until):
				until = at
			}
		}
		if page.After = after; after == "" {
			return from, until, nil
		}
	}
}
