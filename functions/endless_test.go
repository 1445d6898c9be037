package functions

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric/noop"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/pushlease/pushlease/dispatcher"
	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/internal/sqlite"
	"github.com/pushlease/pushlease/internal/sqlite/sqlitetest"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

// account are queues as an account has them, whose message has a GUID as its id. It refuses to delete
// while refuses is set.
type account struct {
	queue.Service
	refuses *atomic.Bool
	id      string // the message's in the store
}

func (s *account) Queue(name string) (queue.Queue, error) {
	q, err := s.Service.Queue(name)
	return accountQueue{q, s}, err
}

type accountQueue struct {
	queue.Queue
	s *account
}

func (q accountQueue) stored(m *queue.Message) *queue.Message {
	stored := *m
	stored.ID = q.s.id
	return &stored
}

func (q accountQueue) Renew(ctx context.Context, m *queue.Message, lease time.Duration) error {
	return q.Queue.Renew(ctx, q.stored(m), lease)
}

func (q accountQueue) Abandon(ctx context.Context, m *queue.Message, delay time.Duration) error {
	return q.Queue.Abandon(ctx, q.stored(m), delay)
}

func (q accountQueue) Complete(ctx context.Context, m *queue.Message) error {
	if q.s.refuses.Load() {
		return queue.ErrBusy
	}
	return q.Queue.Complete(ctx, q.stored(m))
}

// lasting is a receiver that takes so long for each POST, or as long as it is given.
type lasting struct {
	takes time.Duration
	posts atomic.Int64
}

func (s *lasting) Send(ctx context.Context, w *webhook.Webhook, _ webhook.Request) webhook.Result {
	s.posts.Add(1)
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, w.Timeout)
	defer cancel()
	select {
	case <-time.After(s.takes):
		return webhook.Result{Status: http.StatusOK, StartedAt: start, Duration: time.Since(start)}
	case <-ctx.Done():
		return webhook.Result{StartedAt: start, Duration: time.Since(start), ErrorClass: string(policy.ClassTimeout)}
	}
}

// Where the plan allows no end to an invocation (functionTimeout -1), a POST may take what its webhook
// allows. The answer comes when the message is settled; storage that refuses that holds the host's place
// for 30 s more, and no longer, and the message is deleted without a second POST when it can be.
func TestWithoutAFunctionTimeoutAPostTakesWhatItsWebhookAllows(t *testing.T) {
	const timeout = time.Hour // the webhook's
	for name, tt := range map[string]struct {
		takes    time.Duration
		refuses  bool
		status   int
		answered time.Duration
		state    tables.State
		left     int64 // on the queue, at the answer
	}{
		"long":                       {50 * time.Minute, false, http.StatusOK, 50 * time.Minute, tables.Delivered, 0},
		"longer than allowed":        {2 * time.Hour, false, http.StatusOK, timeout, tables.Pending, 1},
		"storage refuses the delete": {50 * time.Minute, true, http.StatusInternalServerError, 50*time.Minute + settleMargin, tables.Delivered, 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				db, err := sqlite.Open(t.Context(), sqlitetest.File(t), sqlite.Options{})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = db.Close() }()
				standard, err := policy.Preset("standard")
				if err != nil {
					t.Fatal(err)
				}
				if _, err := db.PutWebhook(t.Context(), tables.Registration{
					Webhook: webhook.Webhook{ID: "wh_a", Queue: "orders", URL: "https://example.com", Timeout: timeout},
					Policy:  standard, Flow: policy.DefaultFlow(), Enabled: true, CreatedAt: time.Now().UTC(), UpdatedAt: time.Now().UTC(),
				}); err != nil {
					t.Fatal(err)
				}
				refuses, receiver := &atomic.Bool{}, &lasting{takes: tt.takes}
				refuses.Store(tt.refuses)
				queues := &account{Service: db.Queues(), refuses: refuses}
				d, err := dispatcher.New(dispatcher.Options{
					Queues: queues, Store: db, Sender: receiver, Instance: "test", Logger: slog.New(slog.DiscardHandler),
					Hosted: func(string) bool { return true },
					Meter:  noop.NewMeterProvider().Meter(""), Tracer: tracenoop.NewTracerProvider().Tracer(""),
				})
				if err != nil {
					t.Fatal(err)
				}
				h := New("127.0.0.1:7071", Layout{Functions: map[string]Function{"dispatch-orders": dispatchOrders}})
				h.Start(Parts{Dispatcher: d, Queues: queues, Log: slog.New(slog.DiscardHandler)})
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() { d.RunHosted(ctx, h.Finish); close(ended) }()
				defer func() { stop(); <-ended }()
				time.Sleep(time.Second)

				q, err := db.Queues().Queue("orders")
				if err != nil {
					t.Fatal(err)
				}
				sent, err := q.Send(t.Context(), []byte(`{"order":1}`), queue.SendOptions{})
				if err != nil {
					t.Fatal(err)
				}
				left := func() int64 {
					depth, err := q.Depth(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					return depth.Total
				}
				queues.id = sent.ID
				start := time.Now()
				status := bring(t, h, q)
				del, err := db.Load(t.Context(), tables.MessageKey{Queue: "orders", MessageID: testID, Day: sent.InsertedAt})
				if err != nil || len(del) != 1 {
					t.Fatalf("answered %d: %+v, %v", status, del, err)
				}
				if took := time.Since(start).Round(time.Second); status != tt.status || took != tt.answered || del[0].State != tt.state || left() != tt.left {
					t.Errorf("answered %d after %s, %s, %d left; want %d after %s, %s, %d left", status, took, del[0].State, left(), tt.status, tt.answered, tt.state, tt.left)
				}
				if refuses.Store(false); tt.refuses {
					time.Sleep(time.Minute)
				}
				if posts := receiver.posts.Load(); posts != 1 || tt.state == tables.Delivered && left() != 0 {
					t.Errorf("%d POSTs, %d messages left", posts, left())
				}
			})
		})
	}
}

// bring receives a message as a host does, and calls for it.
func bring(t *testing.T, h *Handler, q queue.Queue) (status int) {
	t.Helper()
	messages, err := q.Receive(t.Context(), 1, 10*time.Minute)
	if err != nil || len(messages) != 1 {
		t.Fatalf("receive = %d messages, %v", len(messages), err)
	}
	m := messages[0]
	twice := func(s string) string { return strconv.Quote(strconv.Quote(s)) }
	stamp := func(at time.Time) string { return strconv.Quote(at.UTC().Format("2006-01-02T15:04:05+00:00")) }
	metadata := map[string]json.RawMessage{}
	for name, text := range map[string]string{
		"Id": twice(testID), "PopReceipt": twice(m.Lease.Receipt()), "DequeueCount": strconv.Quote(strconv.FormatInt(m.DequeueCount, 10)),
		"InsertionTime": stamp(m.InsertedAt), "ExpirationTime": stamp(m.ExpiresAt), "sys": `{"UtcNow":"` + time.Now().UTC().Format(time.RFC3339Nano) + `"}`,
	} {
		metadata[name] = json.RawMessage(text)
	}
	body, err := json.Marshal(map[string]any{"Data": map[string]string{"message": base64.StdEncoding.EncodeToString(m.Text)}, "Metadata": metadata})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:7071/dispatch-orders", strings.NewReader(string(body)))
	r.Header.Set(invocationID, testID)
	r.ContentLength = -1 // the host sends in chunks
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}
