package azuretable

import (
	"context"
	"time"

	"github.com/pushlease/pushlease/tables"
)

// countingBound is for how long the messages of a day are counted before its table is dropped. A page of
// 1,000 rows is one request.
const countingBound = 30 * time.Second

// dropLog drops the records of a day. Who drops them tells how many messages of the day had no outcome: of several
// instances one does.
func (s *Store) dropLog(ctx context.Context, table string) error {
	var counts map[string]int
	if s.unfinished != nil {
		counts = s.countUnfinished(ctx, table)
	}
	dropped, err := s.deleteTable(ctx, table)
	for queue, n := range counts {
		if dropped {
			s.unfinished(queue, n)
		}
	}
	return err
}

// countUnfinished counts, by queue, the messages in a day's table whose life ended without an outcome: as many as
// storage lets it see in time.
func (s *Store) countUnfinished(ctx context.Context, table string) map[string]int {
	ctx, cancel := context.WithTimeout(ctx, countingBound)
	defer cancel()
	q := query{table: table, columns: []string{
		"Queue", "MessageID", "DayMs", "WebhookID", "Generation", "State", "Reason", "Attempts", "UpdatedAtMs", "ExpiresAtMs", "DeadLetterID",
	}}
	counts, now := map[string]int{}, time.Now()
	var of []tables.Delivery // those of one message: they stand together
	end := func() {
		if newest := tables.Newest(of); tables.ExpiredUnseen(newest, now) {
			counts[newest[0].Queue]++
		}
		of = nil
	}
	for from := (token{}); ; {
		rows, next, err := s.page(ctx, q, from)
		if err != nil {
			return counts
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
			return counts
		}
		from = next
	}
}
