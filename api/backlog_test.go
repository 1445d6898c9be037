package api

import (
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/tables"
)

func TestDocumentNamesTheFieldsOfBulkRequests(t *testing.T) {
	for name, want := range map[string][]string{"ReplayRequest": replayFields, "PurgeRequest": purgeFields, "DeadLetterFilter": filterFields} {
		got := slices.Sorted(maps.Keys(document(t).Components.Schemas[name].Value.Properties))
		if diff := cmp.Diff(slices.Sorted(slices.Values(want)), got); diff != "" {
			t.Errorf("%s (-code +document):\n%s", name, diff)
		}
	}
}

// gauge returns the value for a queue; -1 when there is none.
func gauge(t *testing.T, reader *metric.ManualReader, queueName string) int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			g, ok := m.Data.(metricdata.Gauge[int64])
			if m.Name != "pushlease.deadletters.waiting" || !ok {
				continue
			}
			for _, p := range g.DataPoints {
				if v, _ := p.Attributes.Value(attribute.Key("queue")); v.AsString() == queueName {
					return p.Value
				}
			}
		}
	}
	return -1
}

func TestWaitingDeadLettersAreMeasuredByQueue(t *testing.T) {
	reader := metric.NewManualReader()
	h := newHarness(t, func(o *Options) { o.Meter = metric.NewMeterProvider(metric.WithReader(reader)).Meter("") })
	h.register(hook)
	h.putMany("refunds", 3, func(i int, d *tables.DeadLetter) {
		if i == 0 {
			d.Status = tables.Replayed
		}
	})
	if n := gauge(t, reader, "orders"); n != -1 {
		t.Errorf("%d before anything was counted", n)
	}
	if err := h.api.countBacklog(t.Context()); err != nil {
		t.Fatal(err)
	}
	if orders, refunds := gauge(t, reader, "orders"), gauge(t, reader, "refunds"); orders != 0 || refunds != 2 {
		t.Errorf("orders %d, refunds %d, want 0 and 2", orders, refunds)
	}
}

// A gauge that is gone resolves the alert that fires: deletions and replays, and a round that fails, leave it there.
func TestTheGaugeOfWaitingDeadLettersStays(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		reader := metric.NewManualReader()
		h := newHarness(t, func(o *Options) { o.Meter = metric.NewMeterProvider(metric.WithReader(reader)).Meter("") })
		ids := h.putMany("refunds", 3, nil)
		if err := h.api.countBacklog(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.do(http.StatusNoContent, "DELETE", "/api/v1/dead-letters/"+ids[0], "")
		if n := gauge(t, reader, "refunds"); n != 3 {
			t.Errorf("%d after a deletion, want the 3 that were counted", n)
		}
		if w, err := h.api.waiting(t.Context(), "refunds"); err != nil || w.n != 2 {
			t.Errorf("a request is told %d, %v, want the 2 that are left", w.n, err)
		}
		time.Sleep(2*backlogEvery + time.Second) // the round between has failed, and this one goes on
		if n := gauge(t, reader, "refunds"); n != 2 {
			t.Errorf("%d while one round has failed, want 2", n)
		}
		time.Sleep(backlogTimeout)
		if n := gauge(t, reader, "refunds"); n != -1 {
			t.Errorf("%d when nothing was counted for so long", n)
		}
	})
}

func TestOldCountIsNotShown(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := &backlog{byQueue: map[string]waiting{}}
		b.put("orders", waiting{n: 5, exact: true, at: time.Now()})
		time.Sleep(backlogFresh - time.Second)
		if w, ok := b.get("orders"); !ok || w.n != 5 {
			t.Errorf("fresh: %+v, %t", w, ok)
		}
		time.Sleep(2 * time.Second)
		if _, ok := b.get("orders"); ok {
			t.Error("an old count is shown")
		}
	})
}
