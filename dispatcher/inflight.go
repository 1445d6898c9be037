package dispatcher

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"go.opentelemetry.io/otel/metric"
)

// inFlight counts the messages that this process is at work on, by queue, whoever
// received them: a poller, one that was stopped meanwhile, a guard, or a host. Safe for
// concurrent use.
type inFlight struct {
	mu      sync.Mutex
	byQueue map[string]int64 // a queue that was met once stays, with 0
}

// enter counts one message of a queue until left is called.
func (f *inFlight) enter(queueName string) (left func()) {
	f.add(queueName, 1)
	return func() { f.add(queueName, -1) }
}

func (f *inFlight) add(queueName string, n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.byQueue[queueName] += n
}

func (f *inFlight) of(queueName string) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.byQueue[queueName]
}

func (f *inFlight) all() map[string]int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.byQueue)
}

// measureInFlight makes the gauge of what this process is at work on. Storage can't tell
// it from what is merely delayed, and an autoscaler must not take a process away that
// is at work.
func (d *Dispatcher) measureInFlight(m metric.Meter) error {
	_, err := m.Int64ObservableGauge("messages.in_flight",
		metric.WithDescription("Messages that this process is at work on, by queue."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			counts := d.inFlight.all()
			d.mu.Lock()
			for name := range d.pollers {
				counts[name] += 0 // an idle queue has a value too
			}
			d.mu.Unlock()
			for name, n := range counts {
				o.Observe(n, metric.WithAttributes(queueAttr(name)))
			}
			return nil
		}))
	if err != nil {
		return fmt.Errorf("gauge of messages in flight: %w", err)
	}
	return nil
}
