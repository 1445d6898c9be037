package sqlite

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// BenchmarkMessage is what one message costs the store: send, receive, record of a
// delivery with one attempt, complete.
func BenchmarkMessage(b *testing.B) {
	for _, callers := range []int{1, 32} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			db := openNew(b)
			q := mustQueue(b, db)
			text := make([]byte, 1024)
			for i := range text {
				text[i] = 'x'
			}
			var left atomic.Int64
			left.Store(int64(b.N))
			b.ResetTimer()
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					for left.Add(-1) >= 0 {
						if err := oneMessage(db, q, text); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}

func oneMessage(db *DB, q queue.Queue, text []byte) error {
	ctx := context.Background()
	if _, err := q.Send(ctx, text, queue.SendOptions{}); err != nil {
		return err
	}
	ms, err := q.Receive(ctx, 1, time.Minute)
	if err != nil || len(ms) == 0 {
		return fmt.Errorf("received %d: %w", len(ms), err)
	}
	m := ms[0]
	key := tables.MessageKey{Queue: q.Name(), MessageID: m.ID, Day: m.InsertedAt}
	now := time.Now()
	err = db.Record(ctx, tables.Record{
		Deliveries: []tables.Delivery{{MessageKey: key, WebhookID: "wh1", State: tables.Delivered, Attempts: 1, LastStatus: 200, FirstAt: now, LastAt: now, UpdatedAt: now}},
		Attempts:   []tables.Attempt{{MessageKey: key, WebhookID: "wh1", Number: 1, StartedAt: now, Status: 200, Explanation: "The webhook answered 200."}},
	})
	if err != nil {
		return err
	}
	return q.Complete(ctx, m)
}
