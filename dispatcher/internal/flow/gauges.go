package flow

import (
	"context"
	"errors"
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
	states, err1 := m.Int64ObservableGauge("pushlease.webhook.states",
		metric.WithDescription("Webhooks that this process knows, by state."))
	notSentTo, err2 := m.Int64ObservableGauge("pushlease.webhook.stopped",
		metric.WithDescription("1 for a webhook that nothing is sent to, by queue, webhook, state (disabled, no_token, paused, failing, probing) and why it is disabled."))
	learned, err3 := m.Float64ObservableGauge("pushlease.webhook.learned_rate",
		metric.WithDescription("POSTs a second that a limited webhook is sent by all instances together, as learned from its refusals, by queue and webhook."))
	withoutToken, err4 := m.Int64ObservableGauge("pushlease.webhook.without_token",
		metric.WithDescription("1 for a webhook for which this process can have no token to show, so that nothing is sent to it, by queue and webhook."))
	_, err5 := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		counts := map[status.FlowState]int64{}
		others := map[stopped]int64{}
		for id, s := range fs.States() {
			counts[s.State]++
			switch s.State {
			case status.Healthy, status.Busy:
			case status.Limited:
				o.ObserveFloat64(learned, s.Rate, metric.WithAttributes(attribute.String("queue", s.Queue), attribute.String("webhook", label(id))))
			default:
				others[stopped{label(id), s}]++
			}
		}
		for _, s := range status.FlowStates() {
			o.ObserveInt64(states, counts[s], metric.WithAttributes(attribute.String("state", string(s))))
		}
		for s, n := range others {
			which := []attribute.KeyValue{attribute.String("queue", s.Queue), attribute.String("webhook", s.webhook)}
			if s.State == status.NoToken {
				o.ObserveInt64(withoutToken, n, metric.WithAttributes(which...))
			}
			o.ObserveInt64(notSentTo, n, metric.WithAttributes(append(which, attribute.String("state", string(s.State)), attribute.String("why", s.Why))...))
		}
		return nil
	}, states, notSentTo, learned, withoutToken)
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return fmt.Errorf("gauges of webhooks: %w", err)
	}
	return nil
}

// States tells which state each webhook is in, by its id.
func (fs *Flows) States() map[string]status.Standing {
	now := time.Now()
	states := map[string]status.Standing{}
	for _, f := range fs.All() {
		fares := f.Status(now)
		s := status.Standing{Queue: f.queue, State: fares.State}
		if s.State == status.Limited {
			s.Rate = fares.PaceOfAll
		}
		if s.State == status.Disabled { // what else a state says of why is no label
			s.Why = fares.Why
		}
		states[f.id] = s
	}
	return states
}

// stopped are the labels of webhooks that nothing is sent to.
type stopped struct {
	webhook string
	status.Standing
}
