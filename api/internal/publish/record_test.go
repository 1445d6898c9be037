package publish

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// oneQueue takes every message at once.
type oneQueue struct{ queue.Queue }

func (oneQueue) Send(context.Context, []byte, queue.SendOptions) (queue.Sent, error) {
	return queue.Sent{ID: "m", InsertedAt: time.Now()}, nil
}

type queues struct{ queue.Service }

func (queues) Queue(string) (queue.Queue, error) { return oneQueue{}, nil }

// slowRecords takes its time for a record.
type slowRecords struct {
	tables.Deliveries
	takes   time.Duration
	written atomic.Int64
}

func (s *slowRecords) Record(ctx context.Context, _ tables.Record) error {
	select {
	case <-time.After(s.takes):
		s.written.Add(1)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A publish is answered when its message is stored. Its record is waited for while storage is quick,
// and written all the same when it is slow (C68).
func TestAPublishDoesNotWaitForASlowRecord(t *testing.T) {
	for name, tt := range map[string]struct {
		takes, answered time.Duration
		written         int64
	}{
		"quick":    {10 * time.Millisecond, 10 * time.Millisecond, 1},
		"slow":     {1500 * time.Millisecond, 200 * time.Millisecond, 1},
		"given up": {time.Minute, 200 * time.Millisecond, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				records := &slowRecords{takes: tt.takes}
				p, err := New(Options{
					Queues: queues{}, Deliveries: records, Wake: func(string) {}, Meter: noop.Meter{}, Logger: slog.New(slog.DiscardHandler),
					Encoding: func(string) queue.Encoding { return queue.EncodingAuto }, Warnings: func(context.Context, string) []string { return nil },
				})
				if err != nil {
					t.Fatal(err)
				}
				router := chi.NewRouter()
				router.Post("/api/v1/queues/{queue}/messages", func(w http.ResponseWriter, r *http.Request) {
					if err := p.Publish(w, r.WithContext(context.WithValue(r.Context(), web.NoteKey{}, &web.Note{}))); err != nil {
						t.Error(err)
					}
				})
				began, w := time.Now(), httptest.NewRecorder()
				router.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/api/v1/queues/orders/messages", strings.NewReader("text")))
				if answered := time.Since(began); w.Code != http.StatusAccepted || answered != tt.answered {
					t.Errorf("answered %d after %s, want 202 after %s", w.Code, answered, tt.answered)
				}
				p.Flush()
				if written := records.written.Load(); written != tt.written || time.Since(began) > recordTimeout {
					t.Errorf("%d records are written %s after the request, want %d", written, time.Since(began), tt.written)
				}
			})
		})
	}
}

// brokenRecords has a fault that nobody has foreseen.
type brokenRecords struct{ tables.Deliveries }

func (brokenRecords) Record(context.Context, tables.Record) error { panic("broken") }

// A record is a convenience: a fault in it, a store that takes none, and the end of the process are
// told and counted, and nothing more comes of them.
func TestRecordsOfPublishesAreBoundedAndEnd(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log := &lockedBuffer{}
		reader := metric.NewManualReader()
		slow := &slowRecords{takes: time.Minute}
		p, err := New(Options{
			Deliveries: slow, Meter: metric.NewMeterProvider(metric.WithReader(reader)).Meter(""), Logger: slog.New(slog.NewTextHandler(log, nil)),
			Encoding: func(string) queue.Encoding { return queue.EncodingAuto },
		})
		if err != nil {
			t.Fatal(err)
		}
		record := func() (took time.Duration) {
			began := time.Now()
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			p.recordPublished(r.WithContext(context.WithValue(r.Context(), web.NoteKey{}, &web.Note{})), publication{queue: "orders"}, queue.Sent{ID: "m"})
			return time.Since(began)
		}
		var publishes sync.WaitGroup
		for range maxRecording {
			publishes.Go(func() { record() })
		}
		publishes.Wait()
		if took := record(); took != 0 || !strings.Contains(log.String(), "too many records") {
			t.Errorf("one too many took %s, want nothing, and that it is told: %.200s", took, log.String())
		}
		time.Sleep(recordTimeout)
		p.Deliveries = brokenRecords{}
		record()
		if !strings.Contains(log.String(), "panic while recording") {
			t.Error("a panic is not told")
		}
		p.Deliveries, slow.takes = slow, time.Second
		record()
		p.Flush()
		if took := record(); took != 0 || slow.written.Load() != 1 {
			t.Errorf("after the end a record took %s and %d are written, want nothing and one", took, slow.written.Load())
		}
		var data metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &data); err != nil {
			t.Fatal(err)
		}
		for _, m := range data.ScopeMetrics[0].Metrics {
			if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == "pushlease.publish.records.failed" {
				if got := sum.DataPoints[0].Value; got != maxRecording+3 {
					t.Errorf("%d are counted as not recorded, want %d", got, maxRecording+3)
				}
			}
		}
	})
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
