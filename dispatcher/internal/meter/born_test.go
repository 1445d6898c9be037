package meter

import (
	"fmt"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// sums are the values of a counter by the value of one label; "" stands for none.
func sums(t *testing.T, reader *metric.ManualReader, name, label string) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	values := map[string]int64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == name {
				for _, p := range sum.DataPoints {
					v, _ := p.Attributes.Value(attribute.Key(label))
					values[v.AsString()] += p.Value
				}
			}
		}
	}
	return values
}

// A counter that is there before its first event shows it: an alert sees the rise from 0.
func TestSeriesOfAKnownQueueAreBornAtZero(t *testing.T) {
	reader := metric.NewManualReader()
	ms, err := New(metric.NewMeterProvider(metric.WithReader(reader)).Meter(""))
	if err != nil {
		t.Fatal(err)
	}
	if got := sums(t, reader, "pushlease.records.lost", ""); len(got) != 1 {
		t.Errorf("records lost: %v at start", got)
	}
	ms.Known("orders", "wh_1")
	for name, by := range map[string]struct {
		label string
		want  []string
	}{
		"pushlease.messages.deadlettered":   {"reason", []string{"Expired", "Unmatched"}},
		"pushlease.messages.received":       {"queue", []string{"orders"}},
		"pushlease.messages.deleted":        {"result", []string{"deleted", "failed", "lease_lost", "unverified"}},
		"pushlease.messages.settled":        {"reason", []string{"Delivered", "InternalFault"}},
		"pushlease.messages.finished":       {"result", []string{"done", "dead_lettered"}},
		"pushlease.messages.expired":        {"queue", []string{"orders"}},
		"pushlease.records.unfinished":      {"queue", []string{"orders"}},
		"pushlease.deadletters.expired":     {"status", []string{"waiting", "replayed"}},
		"pushlease.webhook.blocked":         {"webhook", []string{"wh_1"}},
		"pushlease.messages.unmatched":      {"queue", []string{"orders"}},
		"pushlease.lease.at_risk":           {"queue", []string{"orders"}},
		"pushlease.webhook.attempts":        {"outcome", []string{"2xx", "5xx"}},
		"pushlease.webhook.postponed":       {"reason", []string{"WebhookBusy", "WebhookPaused", "WebhookFailing", "NoToken"}},
		"pushlease.webhook.breaker.changes": {"state", []string{"open", "closed"}},
	} {
		got := sums(t, reader, name, by.label)
		for _, value := range by.want {
			if n, ok := got[value]; !ok || n != 0 {
				t.Errorf("%s has %v, want a 0 for %s", name, got, value)
			}
		}
	}
	ms.deadLetters.Add(Labels{Queue: "orders", Reason: "Expired"})
	ms.Known("orders", "wh_1")
	want(t, "after an event", sums(t, reader, "pushlease.messages.deadlettered", "reason")["Expired"], 1)
}

func TestQueuesAndWebhooksWithoutASeriesOfTheirOwnShareOne(t *testing.T) {
	reader := metric.NewManualReader()
	ms, err := New(metric.NewMeterProvider(metric.WithReader(reader)).Meter(""))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 * maxLabels {
		ms.Known("orders", fmt.Sprint("wh_", i))
		ms.Known(fmt.Sprint("queue-", i), "wh_0")
	}
	want(t, "queues", len(sums(t, reader, "pushlease.messages.received", "queue")), maxLabels+1)
	want(t, "webhooks", len(sums(t, reader, "pushlease.webhook.attempts", "webhook")), maxLabels+1)
}
