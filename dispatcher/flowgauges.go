package dispatcher

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// measureFlows makes the gauges of the webhooks' states: how many are in each, and which
// ones are not sent to. The latter are few as a rule, so that the series are.
func (d *Dispatcher) measureFlows(m metric.Meter) error {
	states, err := m.Int64ObservableGauge("webhook.states",
		metric.WithDescription("Webhooks that this process knows, by state."))
	if err != nil {
		return fmt.Errorf("gauge of the states of webhooks: %w", err)
	}
	stopped, err := m.Int64ObservableGauge("webhook.stopped",
		metric.WithDescription("1 for a webhook that nothing is sent to, by queue, webhook, state (disabled, paused, failing, probing) and why it is disabled."))
	if err != nil {
		return fmt.Errorf("gauge of webhooks that are not sent to: %w", err)
	}
	_, err = m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		counts := map[FlowState]int64{}
		others := map[stoppedAs]int64{}
		for id, s := range d.flows.states() {
			counts[s.state]++
			if s.state != FlowOpen && s.state != FlowBusy {
				s.webhook = d.metrics.label(id)
				others[s]++
			}
		}
		for _, s := range FlowStates() {
			o.ObserveInt64(states, counts[s], metric.WithAttributes(attribute.String("state", string(s))))
		}
		for s, n := range others {
			o.ObserveInt64(stopped, n, metric.WithAttributes(queueAttr(s.queue), attribute.String("webhook", s.webhook),
				attribute.String("state", string(s.state)), attribute.String("why", s.why)))
		}
		return nil
	}, states, stopped)
	if err != nil {
		return fmt.Errorf("observe the states of webhooks: %w", err)
	}
	return nil
}

// states tells the state of each webhook by its id.
func (fs *flows) states() map[string]stoppedAs {
	now := time.Now()
	states := map[string]stoppedAs{}
	for _, f := range fs.all() {
		s := stoppedAs{queue: f.queue, state: f.status(now).State}
		if s.state == FlowDisabled {
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
	state          FlowState
	why            string
}
