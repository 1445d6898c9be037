package app

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric/noop"
	tracing "go.opentelemetry.io/otel/trace/noop"

	"github.com/pushlease/pushlease/dispatcher"
	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/internal/sqlite"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

// C54, C48: what expires on a file, before anybody counts and later, is in the history, in the level of
// its queue, and told like other dead letters.
func TestWhatExpiresOnAFileIsCountedAndTold(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		ends := &expiries{log: log}
		db, err := sqlite.Open(t.Context(), filepath.Join(bubble.Folder(t), "e.db"), sqlite.Options{OnExpired: ends.ended})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		sender, err := webhook.NewSender(webhook.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer sender.Close()
		told := newEvents("told", "one", db.Queues(), func(string) queue.Encoding { return queue.EncodingAuto }, log)
		d, err := dispatcher.New(dispatcher.Options{
			Queues: db.Queues(), Store: db, Sender: sender, Logger: log, Meter: noop.Meter{}, Tracer: tracing.Tracer{}, Unrecorded: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		q, err := db.Queues().Queue("orders")
		if err != nil {
			t.Fatal(err)
		}
		expire := func(n int) {
			for range n {
				if _, err := q.Send(context.WithoutCancel(t.Context()), []byte(`{"n":1}`), queue.SendOptions{TTL: time.Second}); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(2 * time.Minute)
		}
		expire(2)
		var followed atomic.Int64
		ends.start(d, told, func(tables.DeadLetter) { followed.Add(1) })
		expire(3)
		if n := followed.Load(); n != 5 {
			t.Errorf("the stream was told of %d dead letters, want 5", n)
		}

		letters := int64(0)
		for _, tally := range d.TakeTallies() {
			letters += tally.DeadLetters
		}
		if letters != 5 {
			t.Errorf("%d dead letters in the history, want 5", letters)
		}
		if s, _ := d.Queue("orders"); s.Handled != 5 || s.DeadLettered != 5 || s.Expired != 5 {
			t.Errorf("%d of %d messages became dead letters, %d expired, want 5 of 5, 5", s.DeadLettered, s.Handled, s.Expired)
		}
		x := &teller{T: t, db: db, events: told}
		x.run(eventEvery)
		if list := x.all(); len(list) != 1 || list[0].Type != eventDeadLetter || list[0].Data.Count != 5 || list[0].Data.Reason != "Expired" || list[0].Data.DeadLetterID == "" {
			t.Errorf("told %+v", list)
		}
	})
}
