package app

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric/noop"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/pushlease/pushlease/dispatcher"
	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/internal/sqlite"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

type taker struct {
	mu   sync.Mutex
	took []string
}

func (s *taker) Send(_ context.Context, _ *webhook.Webhook, r webhook.Request) webhook.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.took = append(s.took, string(r.Body))
	return webhook.Result{Status: 200}
}

func TestPublishedMessagesAreHandedOver(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		db, err := sqlite.Open(t.Context(), filepath.Join(bubble.Folder(t), "test.db"), sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		sender := &taker{}
		d, err := dispatcher.New(dispatcher.Options{
			Queues: db.Queues(), Store: db, Sender: sender, PollMin: time.Hour, PollMax: time.Hour,
			Logger: slog.New(slog.DiscardHandler), Meter: noop.NewMeterProvider().Meter(""), Tracer: tracenoop.NewTracerProvider().Tracer(""),
		})
		if err != nil {
			t.Fatal(err)
		}
		register(t, db)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { d.Run(ctx); close(ended) }()
		time.Sleep(time.Second)

		sends := handOver(db.Queues(), d)
		publish := func(name, body string, opts queue.SendOptions) bool {
			t.Helper()
			_, handed, err := sends.SendRecorded(t.Context(), name, []byte(body), opts, func(queue.Sent) tables.Record { return tables.Record{} })
			if err != nil {
				t.Error(err)
			}
			return handed
		}
		if !publish("orders", "a", queue.SendOptions{}) {
			t.Error("not handed over")
		}
		if publish("orders", "b", queue.SendOptions{Delay: time.Second}) || publish("others", "c", queue.SendOptions{}) {
			t.Error("handed over although it is delayed, or nobody is there to take it")
		}
		time.Sleep(time.Second)
		sender.mu.Lock()
		defer sender.mu.Unlock()
		if len(sender.took) != 1 || sender.took[0] != "a" {
			t.Errorf("POSTed %q", sender.took)
		}
		stop()
		<-ended
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
}

func register(t *testing.T, db *sqlite.DB) {
	t.Helper()
	standard, err := policy.Preset(policy.DefaultPreset)
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.PutWebhook(t.Context(), tables.Registration{
		Webhook: webhook.Webhook{ID: "wh_a", Queue: "orders", URL: "https://example.com/hook", Timeout: 30 * time.Second},
		Policy:  standard, Flow: policy.DefaultFlow(), Enabled: true, CreatedAt: time.Now().UTC(), UpdatedAt: time.Now().UTC(),
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestThereIsNoHandoverWithoutAFile(t *testing.T) {
	if handOver(nil, nil) != nil {
		t.Error("sends that no store can make")
	}
}
