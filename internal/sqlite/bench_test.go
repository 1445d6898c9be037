//go:build unix

package sqlite

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// BenchmarkDelivered is what one delivered message costs the store from its receive on:
// a share of a receive, and the record of a delivery with its attempt and the delete, of as
// many messages at a time as the name says. cpu-µs/message, the process's CPU time, is
// the figure that a busy machine changes least.
func BenchmarkDelivered(b *testing.B) {
	for _, atOnce := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("batch=%d", atOnce), func(b *testing.B) {
			db := openNew(b)
			q := mustQueue(b, db)
			fill(b, q, b.N)
			b.ReportAllocs()
			b.ResetTimer()
			before, pagesBefore := cpuTime(b), pagesWritten(b, db)
			for done := 0; done < b.N; {
				n, err := deliverSome(db, q, atOnce)
				if err != nil {
					b.Fatal(err)
				}
				done += n
			}
			b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/float64(b.N), "cpu-µs/message")
			b.ReportMetric(float64(pagesWritten(b, db)-pagesBefore)/float64(b.N), "pages/message")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}

// BenchmarkSend is what a publish costs: the message and its record.
func BenchmarkSend(b *testing.B) {
	for _, atOnce := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("batch=%d", atOnce), func(b *testing.B) {
			db := openNew(b)
			q := mustQueue(b, db)
			b.ReportAllocs()
			b.ResetTimer()
			before := cpuTime(b)
			for done := 0; done < b.N; done += atOnce {
				var wg sync.WaitGroup
				for range atOnce {
					wg.Go(func() {
						sent, err := q.Send(context.Background(), body(), queue.SendOptions{})
						if err == nil {
							key := tables.MessageKey{Queue: q.Name(), MessageID: sent.ID, Day: sent.InsertedAt}
							err = db.Record(context.Background(), tables.Record{Deliveries: []tables.Delivery{{MessageKey: key, State: tables.Published, UpdatedAt: sent.InsertedAt}}})
						}
						if err != nil {
							b.Error(err)
						}
					})
				}
				wg.Wait()
			}
			b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/float64(b.N), "cpu-µs/message")
		})
	}
}

// body is 1 KiB of text.
func body() []byte {
	text := make([]byte, 1024)
	for i := range text {
		text[i] = 'x'
	}
	return text
}

func fill(b *testing.B, q queue.Queue, n int) {
	b.Helper()
	var wg sync.WaitGroup
	const senders = 64
	for i := range senders {
		wg.Go(func() {
			for ; i < n; i += senders {
				mustSend(b, q, string(body()), queue.SendOptions{})
			}
		})
	}
	wg.Wait()
}

// deliverSome delivers up to atOnce messages, all at the same time.
func deliverSome(db *DB, q queue.Queue, atOnce int) (int, error) {
	var all []*queue.Message
	for len(all) < atOnce {
		ms, err := q.Receive(context.Background(), min(queue.MaxReceive, atOnce-len(all)), time.Minute)
		if err != nil {
			return 0, err
		}
		if len(ms) == 0 {
			break
		}
		all = append(all, ms...)
	}
	errs := make(chan error, len(all))
	for _, m := range all {
		go func() { errs <- deliverOne(db, q, m) }()
	}
	for range all {
		if err := <-errs; err != nil {
			return 0, err
		}
	}
	return len(all), nil
}

func deliverOne(db *DB, q queue.Queue, m *queue.Message) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	now := time.Now()
	key := tables.MessageKey{Queue: q.Name(), MessageID: m.ID, Day: m.InsertedAt}
	const webhook, instance = "wh_0123456789abcdef", "a-host-name-1234"
	return db.Queues().CompleteRecorded(ctx, q.Name(), m, tables.Record{
		Deliveries: []tables.Delivery{{
			MessageKey: key, WebhookID: webhook, State: tables.Delivered, Reason: "Delivered", Attempts: 1, Charged: 1, LastStatus: 200,
			FirstAt: now, LastAt: now, UpdatedAt: now, ExpiresAt: m.ExpiresAt, Encoding: "none", Size: len(m.Text), BodyHash: "0123456789abcdef", Instance: instance,
		}},
		Attempts: []tables.Attempt{{
			MessageKey: key, WebhookID: webhook, Number: 1, StartedAt: now, Duration: time.Millisecond, Status: 200, Action: "complete",
			Reason: "Delivered", Charged: true, Snippet: "ok", Explanation: "The webhook answered 200.", Instance: instance,
		}},
	})
}

// cpuTime is what this process has used, in user and kernel mode.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkListDeliveries reads a page of messages where there are a million attempts: one that is full at once, and two of which no
// row is shown, so that as many are looked at as may be.
func BenchmarkListDeliveries(b *testing.B) {
	db, err := Open(b.Context(), filepath.Join(b.TempDir(), "list.db"), Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	const many = 1_000_000
	now := time.Now().UTC()
	for n := 0; n < many; n += 50_000 {
		err := db.write(b.Context(), serviceTable, "test", func(tx *tx) error {
			for i := range 50_000 {
				a := tables.Attempt{MessageKey: tables.MessageKey{Queue: "orders", MessageID: strconv.Itoa(n + i), Day: now}, WebhookID: "w", Number: 1, StartedAt: now, Status: 200, Charged: true, Action: policy.Complete, Instance: "i"}
				d := a.Completed(&tables.Delivery{UpdatedAt: now})
				if (n+i)%10 == 0 { // one in ten is tried again
					d.State, d.Attempts, a.Action = tables.Pending, 2, policy.Abandon
				}
				if err := tx.putRecord(tables.Record{Deliveries: []tables.Delivery{d}, Attempts: []tables.Attempt{a}}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	for name, f := range map[string]tables.DeliveryFilter{"all": {}, "pending": {State: tables.Pending}, "held": {State: tables.Held}, "no such webhook": {WebhookID: "x"}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, _, err := tables.ListDeliveries(b.Context(), db, db, f, tables.Page{Limit: 50}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
