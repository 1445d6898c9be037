package azuretable

import (
	"context"
	"errors"
	"time"

	"github.com/pushlease/pushlease/tables"
)

// countingBound is for how long the messages of days are counted, all of one round together, before their tables are
// dropped: the round has its time for that too. A page of 1,000 rows is one request.
const countingBound = 30 * time.Second

// lookingBound is for how long the days of one round, all together, are searched for what was written lately.
const lookingBound = 20 * time.Second

// Expire implements tables.History by dropping whole tables. It does not count rows. A day of which it can't be
// told in time whether something was written lately is kept until it is twice as old.
func (s *Store) Expire(ctx context.Context, before time.Time) (int64, error) {
	existing, err := s.listing.existing(ctx, 0)
	if err != nil {
		return 0, err
	}
	limit, oldest := day(before), day(before.Add(-time.Since(before)))
	looking, cancelLooking := context.WithTimeout(ctx, lookingBound)
	defer cancelLooking()
	counting, cancel := context.WithTimeout(ctx, countingBound)
	defer cancel()
	var errs []error
	for _, d := range existing.log {
		if d >= limit {
			continue
		}
		written, err := s.writtenSince(looking, s.logTable(d), before)
		switch {
		case err == nil && !written, err != nil && d < oldest:
			errs = append(errs, s.dropLog(ctx, counting, s.logTable(d)))
		case err != nil && looking.Err() == nil:
			errs = append(errs, err)
		}
	}
	for _, d := range existing.recent {
		if d < limit {
			_, err := s.client.deleteTable(ctx, s.recentTable(d))
			errs = append(errs, err)
		}
	}
	s.listing.forget()
	return 0, errors.Join(errs...)
}

// writtenSince reports whether a day's table has a delivery that was written then or later: its message may come again.
func (s *Store) writtenSince(ctx context.Context, table string, since time.Time) (bool, error) {
	q := query{table: table, filter: filter{}.whereTime("UpdatedAtMs", "ge", since), columns: []string{"UpdatedAtMs"}, top: 1}
	for from := (token{}); ; {
		rows, next, err := s.client.page(ctx, q, from)
		if err != nil || len(rows) > 0 || next == (token{}) {
			return len(rows) > 0, err
		}
		from = next
	}
}

// dropLog drops the records of a day. Who drops them tells how many messages of the day had no outcome: of several
// instances one does.
func (s *Store) dropLog(ctx, counting context.Context, table string) error {
	var counts map[string]int
	whole := false
	if s.unfinished != nil {
		counts, whole = s.countUnfinished(counting, table)
	}
	dropped, err := s.client.deleteTable(ctx, table)
	for queue, n := range counts {
		if dropped {
			s.unfinished(queue, n, whole)
		}
	}
	return err
}

// countUnfinished counts, by queue, the messages in a day's table whose life ended without an outcome: as many as
// storage lets it see in time; whole says whether that was all.
func (s *Store) countUnfinished(ctx context.Context, table string) (counts map[string]int, whole bool) {
	q := query{table: table, columns: []string{
		"Queue", "MessageID", "DayMs", "WebhookID", "Generation", "State", "Reason", "Attempts", "UpdatedAtMs", "ExpiresAtMs", "DeadLetterID",
	}}
	counts = map[string]int{}
	now := time.Now()
	var of []tables.Delivery // those of one message: they stand together
	end := func() {
		if newest := tables.Newest(of); tables.ExpiredUnseen(newest, now) {
			counts[newest[0].Queue]++
		}
		of = nil
	}
	for from := (token{}); ; {
		rows, next, err := s.client.page(ctx, q, from)
		if err != nil {
			return counts, false
		}
		for _, e := range rows {
			if !isDelivery(e.rk) {
				continue
			}
			d := e.delivery()
			if len(of) > 0 && (d.MessageID != of[0].MessageID || d.Queue != of[0].Queue) {
				end()
			}
			of = append(of, d)
		}
		if next == (token{}) {
			end()
			return counts, true
		}
		from = next
	}
}
