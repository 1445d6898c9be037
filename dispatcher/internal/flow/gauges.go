package flow

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/pushlease/pushlease/internal/status"
)

// Measure makes the gauges of the webhooks' states: how many are in each, and which
// ones are not sent to. The latter are few as a rule, so that the series are. label is a
// webhook's id as it stands in labels.
func (fs *Flows) Measure(m metric.Meter, label func(webhookID string) string) error {
	states, err := m.Int64ObservableGauge("pushlease.webhook.states",
		metric.WithDescription("Webhooks that this process knows, by state."))
	if err != nil {
		return fmt.Errorf("gauge of the states of webhooks: %w", err)
	}
	stopped, err := m.Int64ObservableGauge("pushlease.webhook.stopped",
		metric.WithDescription("1 for a webhook that nothing is sent to, by queue, webhook, state (disabled, paused, failing, probing) and why it is disabled."))
	if err != nil {
		return fmt.Errorf("gauge of webhooks that are not sent to: %w", err)
	}
	learned, err := m.Float64ObservableGauge("pushlease.webhook.learned_rate",
		metric.WithDescription("POSTs a second that a limited webhook is sent, as learned from its refusals, by queue and webhook."))
	if err != nil {
		return fmt.Errorf("gauge of learned rates: %w", err)
	}
	_, err = m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		counts := map[status.FlowState]int64{}
		others := map[stoppedAs]int64{}
		for id, s := range fs.states() {
			counts[s.state]++
			if s.state == status.Limited {
				o.ObserveFloat64(learned, s.rate, metric.WithAttributes(attribute.String("queue", s.queue), attribute.String("webhook", label(id))))
			}
			if s.state != status.Healthy && s.state != status.Busy && s.state != status.Limited {
				s.webhook = label(id)
				others[s]++
			}
		}
		for _, s := range status.FlowStates() {
			o.ObserveInt64(states, counts[s], metric.WithAttributes(attribute.String("state", string(s))))
		}
		for s, n := range others {
			o.ObserveInt64(stopped, n, metric.WithAttributes(attribute.String("queue", s.queue), attribute.String("webhook", s.webhook),
				attribute.String("state", string(s.state)), attribute.String("why", s.why)))
		}
		return nil
	}, states, stopped, learned)
	if err != nil {
		return fmt.Errorf("observe the states of webhooks: %w", err)
	}
	return nil
}

// states tells the state of each webhook by its id.
func (fs *Flows) states() map[string]stoppedAs {
	now := time.Now()
	states := map[string]stoppedAs{}
	for _, f := range fs.All() {
		fares := f.Status(now)
		s := stoppedAs{queue: f.queue, state: fares.State}
		if s.state == status.Limited {
			s.rate = fares.Pace.Rate
		}
		if s.state == status.Disabled {
			f.mu.Lock()
			s.why = f.why
			f.mu.Unlock()
		}
		states[f.id] = s
	}
	return states
}

// stoppedAs are the labels of webhooks that nothing is sent to.
type stoppedAs struct {
	queue, webhook string
	state          status.FlowState
	why            string
	rate           float64 // of limited ones, which do not count as stopped
}
