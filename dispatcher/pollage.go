package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/pushlease/pushlease/queue"
)

// measurePollAge makes the gauge that tells a poller that storage does not answer from an
// idle one: how long ago it last did. A poller that works but has no free slot, or whose
// webhooks can't be sent to, or whose process is full, does not ask, and counts as answered.
// So does one whose queue does not exist yet; one that is gone counts as silent.
func (d *Dispatcher) measurePollAge(m metric.Meter) error {
	_, err := m.Float64ObservableGauge("poll.age", metric.WithUnit("s"),
		metric.WithDescription("Time since the last receive that storage answered, by queue; 0 while every slot is taken, no webhook can be sent to, or the queue does not exist yet."),
		metric.WithFloat64Callback(func(_ context.Context, o metric.Float64Observer) error {
			d.mu.Lock()
			ages := make(map[string]time.Duration, len(d.pollers))
			for name, p := range d.pollers {
				ages[name] = p.age(time.Now())
			}
			d.mu.Unlock()
			for name, age := range ages {
				o.Observe(age.Seconds(), metric.WithAttributes(attribute.String("queue", name)))
			}
			return nil
		}))
	if err != nil {
		return fmt.Errorf("gauge of the last poll: %w", err)
	}
	return nil
}

// age is how long storage has not answered this poller.
func (p *poller) age(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.lastErr == nil && p.seats.Wait():
		return 0
	case p.lastPollAt.IsZero() && errors.Is(p.lastErr, queue.ErrQueueNotFound):
		return 0 // the first publish makes it
	case p.lastPollAt.IsZero():
		return now.Sub(p.startedAt)
	}
	return now.Sub(p.lastPollAt)
}
