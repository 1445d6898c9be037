package api

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

const (
	// depthsEvery is how often queues are counted while somebody reads the metrics, and
	// depthsFresh how long a count is shown.
	depthsEvery = time.Minute
	depthsFresh = 2*depthsEvery + depthsTimeout
	// depthsUnread is how long one is shown that nobody has asked to be made anew since: whoever reads the metrics
	// more rarely than depthsFresh sees what was counted after the reading before.
	depthsUnread = 10 * time.Minute
	// depthsTimeout bounds one round.
	depthsTimeout = 30 * time.Second
	// maxInfos bounds the webhooks that have a series with their name and host.
	maxInfos = 500
)

// depths knows how many messages each queue has and how old the oldest is. Storage charges for each
// count, so that they are made only while somebody reads the metrics. Safe for concurrent use.
type depths struct {
	asked chan struct{} // holds one when somebody wants to know

	mu      sync.Mutex
	byQueue map[string]depthCount
	infos   []tables.Registration
	// roundAt is when the last round of counting began.
	roundAt time.Time
}

// depthCount is one count of a queue.
type depthCount struct {
	visible, hidden int64
	oldest          time.Duration // 0 where none is visible
	at              time.Time
}

func newDepths() *depths {
	return &depths{asked: make(chan struct{}, 1), byQueue: map[string]depthCount{}}
}

// measure makes the gauges. A count that is old is left out rather than shown as it once was.
func (d *depths) measure(m metric.Meter) error {
	messages, err := m.Int64ObservableGauge("pushlease.queue.messages",
		metric.WithDescription("Messages in a queue, by queue and state: visible ones wait for a receive (on Azure, where there are 32 of them, all that the process is not at work on), hidden ones are in flight somewhere or wait for their time. Counted once a minute while the metrics are read."))
	if err != nil {
		return fmt.Errorf("gauge of messages: %w", err)
	}
	oldest, err := m.Float64ObservableGauge("pushlease.queue.oldest.age", metric.WithUnit("s"),
		metric.WithDescription("Age of the oldest visible message, by queue; 0 where none is visible. Looked at once a minute while the metrics are read."))
	if err != nil {
		return fmt.Errorf("gauge of the oldest message: %w", err)
	}
	info, err := m.Int64ObservableGauge("pushlease.webhook.info",
		metric.WithDescription("1 for each webhook, by webhook, queue, name and host, to join names to its other metrics; of the first 500."))
	if err != nil {
		return fmt.Errorf("gauge of the webhooks' names: %w", err)
	}
	certificate, err := m.Float64ObservableGauge("pushlease.webhook.certificate.left", metric.WithUnit("s"),
		metric.WithDescription("Time until the client certificate of a webhook that has one ends, below 0 after that, by webhook and queue; of the first 500 webhooks."))
	if err != nil {
		return fmt.Errorf("gauge of client certificates: %w", err)
	}
	_, err = m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		d.ask()
		d.mu.Lock()
		defer d.mu.Unlock()
		for name, c := range d.byQueue {
			if age := time.Since(c.at); age > depthsFresh && (age > depthsUnread || !c.at.Equal(d.roundAt)) {
				continue
			}
			of := attribute.String("queue", name)
			o.ObserveInt64(messages, c.visible, metric.WithAttributes(of, attribute.String("state", "visible")))
			o.ObserveInt64(messages, c.hidden, metric.WithAttributes(of, attribute.String("state", "hidden")))
			o.ObserveFloat64(oldest, c.oldest.Seconds(), metric.WithAttributes(of))
		}
		for _, r := range d.infos {
			o.ObserveInt64(info, 1, metric.WithAttributes(attribute.String("webhook", r.ID), attribute.String("queue", r.Queue),
				attribute.String("name", r.Name), attribute.String("host", hostOf(r.URL))))
			if end := certificateEnd(r); !end.IsZero() {
				o.ObserveFloat64(certificate, time.Until(end).Seconds(), metric.WithAttributes(attribute.String("webhook", r.ID), attribute.String("queue", r.Queue)))
			}
		}
		return nil
	}, messages, oldest, info, certificate)
	if err != nil {
		return fmt.Errorf("observe the queues: %w", err)
	}
	return nil
}

// ask has the queues counted, unless they were within depthsEvery.
func (d *depths) ask() {
	select {
	case d.asked <- struct{}{}:
	default:
	}
}

// Depths are the counts of the last minute, by queue.
func (a *API) Depths() map[string]tables.Depth {
	a.depths.mu.Lock()
	defer a.depths.mu.Unlock()
	lately := map[string]tables.Depth{}
	for name, c := range a.depths.byQueue {
		if time.Since(c.at) < depthsEvery+depthsTimeout {
			lately[name] = tables.Depth{Visible: c.visible, Hidden: c.hidden, Oldest: c.oldest}
		}
	}
	return lately
}

// hostOf is the host and port of a webhook's URL, without anything that may be secret.
func hostOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return u.Host
}

// watch counts when the gauges are read, or always, at most once in depthsEvery, until ctx ends.
func (d *depths) watch(ctx context.Context, always bool, count func(context.Context)) {
	for {
		if !always {
			select {
			case <-ctx.Done():
				return
			case <-d.asked:
			}
		}
		round, cancel := context.WithTimeout(ctx, depthsTimeout)
		count(round)
		cancel()
		pause := time.NewTimer(depthsEvery)
		if !waitOn(ctx, pause.C) {
			pause.Stop()
			return
		}
	}
}

// countDepths counts the queues that have webhooks. One that can't be counted is shown as it was for as long as others are.
func (a *API) countDepths(ctx context.Context) {
	all, _, err := a.Webhooks.ListWebhooks(ctx)
	if err != nil { // the dispatcher's own reading says so
		a.depths.mu.Lock()
		defer a.depths.mu.Unlock()
		a.depths.roundAt = time.Now() // nothing was counted in it
		return
	}
	names := map[string]bool{}
	for _, r := range all {
		names[r.Queue] = true
	}
	now, found := time.Now(), map[string]depthCount{}
	var mu sync.Mutex
	var counting sync.WaitGroup
	slots := make(chan struct{}, depthsAtOnce)
	for name := range names {
		counting.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if c, ok := a.countDepth(ctx, name, now); ok {
				mu.Lock()
				found[name] = c
				mu.Unlock()
			}
		})
	}
	counting.Wait()
	for name, c := range found {
		a.stream.tell(streamEvent{kind: streamDepth, queue: name, data: depthTold{
			Queue: name, Visible: c.visible, Hidden: c.hidden, Oldest: policy.Duration(c.oldest), At: web.UTC(c.at),
		}})
	}
	a.depths.mu.Lock()
	defer a.depths.mu.Unlock()
	for name := range names {
		if _, counted := found[name]; !counted {
			found[name] = a.depths.byQueue[name]
		}
	}
	a.depths.roundAt = now
	a.depths.byQueue, a.depths.infos = found, all[:min(len(all), maxInfos)]
}

func (a *API) countDepth(ctx context.Context, name string, now time.Time) (depthCount, bool) {
	q, err := a.Queues.Queue(name)
	if err != nil {
		return depthCount{}, false
	}
	depth, err := q.Depth(ctx)
	if errors.Is(err, queue.ErrQueueNotFound) { // the first message makes it
		return depthCount{at: now}, true
	}
	if err != nil {
		return depthCount{}, false
	}
	fares, _ := a.Dispatcher.Queue(name)
	c := depthCount{visible: visibleOf(depth, fares), at: now}
	c.hidden = max(depth.Total-c.visible, 0)
	if depth.Visible == 0 {
		return c, true
	}
	front, err := q.Peek(ctx, 1)
	if err == nil && len(front) > 0 {
		c.oldest = max(now.Sub(front[0].InsertedAt), 0)
	}
	return c, err == nil
}
