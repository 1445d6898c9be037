package meter

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// InFlight counts the messages that this process is at work on, by queue, whoever
// received them: a poller, one that was stopped meanwhile, a guard, or a host. Safe for
// concurrent use.
type InFlight struct {
	mu      sync.Mutex
	byQueue map[string]int64 // a queue that was met once stays, with 0
}

// Enter counts one message of a queue until left is called.
func (f *InFlight) Enter(queueName string) (left func()) {
	f.add(queueName, 1)
	return func() { f.add(queueName, -1) }
}

func (f *InFlight) add(queueName string, n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byQueue == nil {
		f.byQueue = map[string]int64{}
	}
	f.byQueue[queueName] += n
}

// Of is how many messages of the queue are in flight.
func (f *InFlight) Of(queueName string) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.byQueue[queueName]
}

func (f *InFlight) all() map[string]int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	counts := maps.Clone(f.byQueue)
	if counts == nil {
		counts = map[string]int64{}
	}
	return counts
}

// Measure makes the gauge of what this process is at work on. Storage can't tell
// it from what is merely delayed, and an autoscaler must not take a process away that
// is at work. idle names queues that have a value too when nothing of them is in flight.
func (f *InFlight) Measure(m metric.Meter, idle func() []string) error {
	_, err := m.Int64ObservableGauge("pushlease.messages.in_flight",
		metric.WithDescription("Messages that this process is at work on, by queue."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			counts := f.all()
			for _, name := range idle() {
				counts[name] += 0
			}
			for name, n := range counts {
				o.Observe(n, metric.WithAttributes(attribute.String("queue", name)))
			}
			return nil
		}))
	if err != nil {
		return fmt.Errorf("gauge of messages in flight: %w", err)
	}
	return nil
}
