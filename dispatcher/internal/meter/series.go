package meter

import (
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// maxLabels bounds the webhook ids, and the queues, that get a series of their own; what comes
// later counts under "other". An instrument with as many has room for all that it counts of each.
const maxLabels = 500

// maxSeries bounds the label combinations that are kept ready. There are fewer, unless
// queues and webhooks come and go; what comes later is made anew each time.
const maxSeries = 4096

// Labels are the labels of one series; an empty one is absent. They are bounded: queue names and
// webhook ids up to maxLabels of each, and closed sets. Never a URL, an address or a message id.
type Labels struct {
	Queue, Webhook, Outcome, Decision, Action, Reason, Result, Kind, State, Status string
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
		attribute.String("result", l.Result), attribute.String("kind", l.Kind), attribute.String("state", l.State), attribute.String("status", l.Status),
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
	mu               sync.RWMutex
	kept             map[Labels]*series
	queues, webhooks names
}

func (c *seriesCache) of(l Labels) *series {
	if s := c.get(l); s != nil {
		return s
	}
	l.Queue, l.Webhook = c.queue(l.Queue), c.webhook(l.Webhook)
	if s := c.get(l); s != nil {
		return s
	}
	s := newSeries(l)
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

func (c *seriesCache) get(l Labels) *series {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.kept[l]
}

// queue is the label of a queue.
func (c *seriesCache) queue(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queues.label(name)
}

// webhook is the label of a webhook.
func (c *seriesCache) webhook(id string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.webhooks.label(id)
}

// names are those that are their own labels, maxLabels of them.
type names map[string]bool

// label is the name itself, or "other" where it came later than the others.
func (n *names) label(name string) string {
	if name == "" || (*n)[name] {
		return name
	}
	if len(*n) >= maxLabels {
		return "other"
	}
	if *n == nil {
		*n = names{}
	}
	(*n)[name] = true
	return name
}
