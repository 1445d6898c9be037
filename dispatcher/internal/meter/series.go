package meter

import (
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// maxSeries bounds the label combinations that are kept ready. There are fewer, unless
// queues and webhooks come and go; what comes later is made anew each time.
const maxSeries = 4096

// labels are the labels of one series; an empty one is absent.
type labels struct {
	queue, webhook, outcome, decision, action, reason, result, kind, state string
}

// series is one label combination, as the instruments take it. Sorting and hashing the
// labels costs more than counting does, so it is done once.
type series struct {
	add    []metric.AddOption
	record []metric.RecordOption
}

func newSeries(l labels) *series {
	var attrs []attribute.KeyValue
	for _, kv := range [...]attribute.KeyValue{
		attribute.String("queue", l.queue), attribute.String("webhook", l.webhook), attribute.String("outcome", l.outcome),
		attribute.String("decision", l.decision), attribute.String("action", l.action), attribute.String("reason", l.reason),
		attribute.String("result", l.result), attribute.String("kind", l.kind), attribute.String("state", l.state),
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
	mu   sync.RWMutex
	kept map[labels]*series
}

func (c *seriesCache) of(l labels) *series {
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
		c.kept = map[labels]*series{}
	}
	if len(c.kept) < maxSeries {
		c.kept[l] = s
	}
	return s
}
