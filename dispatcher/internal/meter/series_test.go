package meter

import (
	"fmt"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

func TestSeriesAreMadeOnceAndBounded(t *testing.T) {
	var c seriesCache
	l := Labels{Queue: "orders", Webhook: "wh_a", Reason: "Delivered"}
	if first := c.of(l); c.of(l) != first {
		t.Error("the same labels are made twice")
	}
	got := metric.NewAddConfig(c.of(l).add).Attributes()
	want := attribute.NewSet(attribute.String("queue", "orders"), attribute.String("webhook", "wh_a"), attribute.String("reason", "Delivered"))
	if got.Equivalent() != want.Equivalent() {
		t.Errorf("attributes %v, want %v", got.ToSlice(), want.ToSlice())
	}
	for i := range 2 * maxSeries {
		c.of(Labels{Reason: fmt.Sprint(i)})
	}
	if len(c.kept) != maxSeries {
		t.Errorf("%d series are kept, want %d", len(c.kept), maxSeries)
	}
}
