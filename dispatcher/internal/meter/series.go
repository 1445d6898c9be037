package meter

import (
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// maxLabels bounds the webhook ids that get a series of their own; what comes later
// counts under "other".
const maxLabels = 500

// maxSeries bounds the label combinations that are kept ready. There are fewer, unless
// queues and webhooks come and go; what comes later is made anew each time.
const maxSeries = 4096

// Labels are the labels of one series; an empty one is absent. They are bounded: queue names,
// webhook ids up to maxLabels, and closed sets. Never a URL, an address or a message id.
type Labels struct {
	Queue, Webhook, Outcome, Decision, Action, Reason, Result, Kind, State string
}

// series is one label combination, as the instruments take it. Sorting and hashing the
// labels costs more than counting does, so it is done once.
type series struct {
	add    []metric.AddOption
	record []metric.RecordOption
}

func newSeries(l Labels) *series {
	var attrs []attribute.KeyValue
	for _, kv := range [...]attribute.KeyValue{
		attribute.String("queue", l.Queue), attribute.String("webhook", l.Webhook), attribute.String("outcome", l.Outcome),
		attribute.String("decision", l.Decision), attribute.String("action", l.Action), attribute.String("reason", l.Reason),
		attribute.String("result", l.Result), attribute.String("kind", l.Kind), attribute.String("state", l.State),
	} {
		if kv.Value.AsString() != "" {
			attrs = append(attrs, kv)
		}
	}
	option := metric.WithAttributeSet(attribute.NewSet(attrs...))
	return &series{add: []metric.AddOption{option}, record: []metric.RecordOption{option}}
}

// seriesCache keeps series. The zero value is empty; safe for concurrent use.
type seriesCache struct {
	mu       sync.RWMutex
	kept     map[Labels]*series
	webhooks map[string]bool // that have a label of their own
}

func (c *seriesCache) of(l Labels) *series {
	if l.Webhook != "" {
		l.Webhook = c.label(l.Webhook)
	}
	c.mu.RLock()
	s := c.kept[l]
	c.mu.RUnlock()
	if s != nil {
		return s
	}
	s = newSeries(l)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept == nil {
		c.kept = map[Labels]*series{}
	}
	if len(c.kept) < maxSeries {
		c.kept[l] = s
	}
	return s
}

// label is the webhook's id while there are at most maxLabels of them.
func (c *seriesCache) label(webhookID string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.webhooks[webhookID] {
		if len(c.webhooks) >= maxLabels {
			return "other"
		}
		if c.webhooks == nil {
			c.webhooks = map[string]bool{}
		}
		c.webhooks[webhookID] = true
	}
	return webhookID
}
