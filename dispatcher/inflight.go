package dispatcher

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/metric"
)

// measureInFlight makes the gauge of what this process is at work on. Storage can't tell
// it from what is merely delayed, and an autoscaler must not take a process away that
// is at work.
func (d *Dispatcher) measureInFlight(m metric.Meter) error {
	_, err := m.Int64ObservableGauge("messages.in_flight",
		metric.WithDescription("Messages that this process is at work on, by queue."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			d.mu.Lock()
			defer d.mu.Unlock()
			for name, p := range d.pollers {
				o.Observe(p.inFlight.Load(), metric.WithAttributes(queueAttr(name)))
			}
			return nil
		}))
	if err != nil {
		return fmt.Errorf("gauge of messages in flight: %w", err)
	}
	return nil
}
