package api

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// points are the values of a gauge by the value of one label.
func points(t *testing.T, reader *metric.ManualReader, name, label string) map[string]float64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != name {
				continue
			}
			switch g := m.Data.(type) {
			case metricdata.Gauge[int64]:
				for _, p := range g.DataPoints {
					v, _ := p.Attributes.Value(attribute.Key(label))
					values[v.AsString()] = float64(p.Value)
				}
			case metricdata.Gauge[float64]:
				for _, p := range g.DataPoints {
					v, _ := p.Attributes.Value(attribute.Key(label))
					values[v.AsString()] = p.Value
				}
			}
		}
	}
	return values
}

// What queues hold is counted while the metrics are read, once a minute, and never otherwise:
// storage charges for it.
func TestQueuesAreCountedOnlyWhileTheMetricsAreRead(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		reader := metric.NewManualReader()
		h := newHarness(t, func(o *Options) { o.Meter = metric.NewMeterProvider(metric.WithReader(reader)).Meter("") })
		h.register(hook)
		q, err := h.db.Queues().Queue("orders")
		if err != nil {
			t.Fatal(err)
		}
		for _, delay := range []time.Duration{0, 0, time.Hour} {
			if _, err := q.Send(t.Context(), []byte("{}"), queue.SendOptions{Delay: delay}); err != nil {
				t.Fatal(err)
			}
		}
		var counts atomic.Int64
		ctx, stop := context.WithCancel(t.Context())
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			h.api.depths.watch(ctx, false, func(ctx context.Context) { counts.Add(1); h.api.countDepths(ctx) })
		}()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := counts.Load(); n != 0 {
			t.Errorf("counted %d times although nobody reads the metrics", n)
		}
		if got := points(t, reader, "pushlease.queue.messages", "state"); len(got) != 0 {
			t.Errorf("messages %v before anything was counted", got)
		}
		synctest.Wait()
		for range 20 { // ten minutes of reading
			time.Sleep(30 * time.Second)
			messages, oldest := points(t, reader, "pushlease.queue.messages", "state"), points(t, reader, "pushlease.queue.oldest.age", "queue")
			if messages["visible"] != 2 || messages["hidden"] != 1 || oldest["orders"] < 600 {
				t.Fatalf("messages %v, oldest %v", messages, oldest)
			}
		}
		synctest.Wait() // the count that the last reading began
		if n := counts.Load(); n < 9 || n > 11 {
			t.Errorf("counted %d times in ten minutes, want once a minute", n)
		}
		if got := points(t, reader, "pushlease.webhook.info", "host"); got["example.com"] != 1 {
			t.Errorf("webhooks by host: %v", got)
		}
		stop()
		<-stopped
	})
}

// failingDepths is storage that does not count for a while.
type failingDepths struct {
	queue.Service
	fails *atomic.Bool
}

func (s failingDepths) Queue(name string) (queue.Queue, error) {
	q, err := s.Service.Queue(name)
	return failingDepth{q, s.fails}, err
}

type failingDepth struct {
	queue.Queue
	fails *atomic.Bool
}

func (q failingDepth) Depth(ctx context.Context) (queue.Depth, error) {
	if q.fails.Load() {
		return queue.Depth{}, context.DeadlineExceeded
	}
	return q.Queue.Depth(ctx)
}

// Who reads the metrics every five minutes is told what was counted after the reading before, and one count that fails takes no series away; one
// that fails for long does.
func TestDepthsAreThereForWhoReadsRarelyAndWhereACountFails(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		reader := metric.NewManualReader()
		var fails, unlisted atomic.Bool
		h := newHarness(t, func(o *Options) {
			o.Meter = metric.NewMeterProvider(metric.WithReader(reader)).Meter("")
			o.Queues, o.Webhooks = failingDepths{o.Queues, &fails}, unlistedWebhooks{o.Webhooks, &unlisted}
		})
		h.register(hook)
		read := func() int {
			n := len(points(t, reader, "pushlease.queue.messages", "state"))
			h.api.countDepths(t.Context()) // as watch does when the metrics are read
			return n
		}
		read()
		for range 3 {
			time.Sleep(5 * time.Minute)
			if read() == 0 {
				t.Error("nothing is told five minutes after the reading before")
			}
		}
		fails.Store(true)
		time.Sleep(time.Minute)
		read()
		time.Sleep(time.Minute)
		if read() == 0 {
			t.Error("one count that failed took the series away")
		}
		time.Sleep(time.Minute)
		if read() != 0 {
			t.Error("what could not be counted for three minutes is told as it was")
		}
		fails.Store(false)
		read()
		unlisted.Store(true)
		time.Sleep(time.Minute)
		read()
		time.Sleep(2 * time.Minute)
		if read() != 0 {
			t.Error("depths are told as they were three minutes ago while the webhooks can't be listed")
		}
	})
}

// unlistedWebhooks can't be listed while fails.
type unlistedWebhooks struct {
	tables.Webhooks
	fails *atomic.Bool
}

func (s unlistedWebhooks) ListWebhooks(ctx context.Context) ([]tables.Registration, []tables.RowError, error) {
	if s.fails.Load() {
		return nil, nil, errors.New("storage is away")
	}
	return s.Webhooks.ListWebhooks(ctx)
}

// approximate is storage that counts as Azure does.
type approximate struct {
	queue.Service
	depth queue.Depth
}

func (s approximate) Queue(name string) (queue.Queue, error) {
	q, err := s.Service.Queue(name)
	return approximateQueue{q, s.depth}, err
}

type approximateQueue struct {
	queue.Queue
	depth queue.Depth
}

func (q approximateQueue) Depth(context.Context) (queue.Depth, error) { return q.depth, nil }

// Storage counts visible messages up to 32 there: a backlog read 32, and the rest as if it waited for its time.
func TestABacklogOnAzureIsMoreThanStorageCounts(t *testing.T) {
	for name, tt := range map[string]struct {
		depth                   queue.Depth
		visible, delayed, while float64
	}{
		"backlog":          {queue.Depth{Total: 10_000, Visible: 32}, 9990, 0, 10_000},
		"few":              {queue.Depth{Total: 10_000, Visible: 31}, 31, 9959, 41},
		"just received":    {queue.Depth{Total: 33, Visible: 32}, 32, 0, 42},
		"counted in full":  {queue.Depth{Total: 10_000, Visible: 32, Exact: true}, 32, 9958, 42},
		"nothing to do":    {queue.Depth{}, 0, 0, 10},
		"all wait in time": {queue.Depth{Total: 50}, 0, 40, 10},
	} {
		h := newHarness(t)
		h.register(hook)
		h.do(http.StatusAccepted, "POST", publishTarget, "the oldest")
		h.view.queues["orders"] = status.Queue{Polling: true, InFlight: 10, Webhooks: 1}
		h.api.Queues = approximate{h.db.Queues(), tt.depth}
		a := h.do(http.StatusOK, "GET", "/api/v1/queues/orders", "")
		if got := []any{a.get("depth", "visible"), a.get("depth", "delayed"), a.get("depth", "work")}; !slices.Equal(got, []any{tt.visible, tt.delayed, tt.while}) {
			t.Errorf("%s: visible, delayed and work are %v, want %v, %v, %v", name, got, tt.visible, tt.delayed, tt.while)
		}
		h.api.countDepths(t.Context())
		if d := h.api.Depths()["orders"]; d.Visible != int64(tt.visible) || d.Hidden != max(tt.depth.Total-int64(tt.visible), 0) {
			t.Errorf("%s: the history has %+v", name, d)
		}
	}
}
