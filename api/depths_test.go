package api

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/queue"
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
