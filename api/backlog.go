package api

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/tables"
)

// The alert levels of waiting dead letters (docs/alerts.md has the same as rules).
const (
	warningWaiting  = 100
	criticalWaiting = 1000
	// criticalShare is the share of the messages handled lately that were
	// dead-lettered; fewer than minHandled say nothing.
	criticalShare = 0.10
	minHandled    = 20
)

const (
	// backlogEvery is how often dead letters are counted, and backlogFresh how long
	// a count is shown before it is made anew for a request.
	backlogEvery = time.Minute
	backlogFresh = 2 * time.Minute
	// backlogShown is how long the gauge shows a count: one round may fail.
	backlogShown = 2*backlogEvery + backlogTimeout
	// recountEvery is how often requests have a queue counted whose dead letters become
	// more in this process.
	recountEvery = time.Second
	// backlogMost is where counting stops: beyond it the level can't get worse.
	backlogMost = criticalWaiting + 1
	// backlogCalls bounds the pages that one count asks for.
	backlogCalls = 4
	// backlogTimeout bounds one round.
	backlogTimeout = 30 * time.Second
)

// backlog knows how many dead letters wait in each queue.
type backlog struct {
	mu      sync.Mutex
	byQueue map[string]waiting
	// allAt is when every dead letter was last counted: a queue without a count had none
	// then. It is zero while the last round did not get so far.
	allAt time.Time
}

// waiting is one count; n is a lower bound unless exact.
type waiting struct {
	n     int
	exact bool
	at    time.Time
	// dead is how many dead letters this process had made of the queue's messages by then.
	dead int
	// stale says that something was done about them here since.
	stale bool
}

// forget makes the next request count anew, after what was done here. The gauge keeps what it has until then: one that comes and goes
// resolves alerts.
func (b *backlog) forget(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.byQueue[name]
	w.stale = true
	b.byQueue[name] = w
}

// get returns a count that is fresh enough to be shown.
func (b *backlog) get(name string) (waiting, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w, ok := b.byQueue[name]
	if !ok {
		w = waiting{exact: true, at: b.allAt}
	}
	return w, !w.stale && time.Since(w.at) < backlogFresh
}

// last is a queue's last count, however old.
func (b *backlog) last(name string) waiting {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.byQueue[name]
}

func (b *backlog) put(name string, w waiting) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.byQueue[name] = w
}

// replace puts the counts of a whole round, and when every dead letter was counted.
func (b *backlog) replace(all map[string]waiting, allAt time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.byQueue, b.allAt = all, allAt
}

// measure makes the gauge. A queue whose count is old is left out rather than shown as
// it once was.
func (b *backlog) measure(m metric.Meter) error {
	_, err := m.Int64ObservableGauge("pushlease.deadletters.waiting",
		metric.WithDescription("Dead letters that wait, by queue, counted once a minute up to 1001."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			for name, w := range b.byQueue {
				if time.Since(w.at) < backlogShown {
					o.Observe(int64(w.n), metric.WithAttributes(attribute.String("queue", name)))
				}
			}
			return nil
		}))
	return err
}

// Flush comes when nothing is served any more: it waits for the records of what was published, 2 s
// at most.
func (a *API) Flush() { a.publisher.Flush() }

// Run does what no request asks for, until ctx ends: once a minute it counts the dead letters
// and goes on with replay jobs whose process is gone, and it counts the queues as often while somebody
// reads the metrics, or where that costs nothing. It tells those who follow the stream which webhooks fare otherwise. Then
// it sends them home, ends the jobs here and waits for them.
func (a *API) Run(ctx context.Context) {
	defer a.replays.stop()
	defer a.stream.stop()
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { a.watchTurns(ctx) })
	watching.Go(func() { a.replays.watch(ctx, a) })
	watching.Go(func() { a.depths.watch(ctx, a.CountAlways, a.countDepths) })
	tick := time.NewTicker(backlogEvery)
	defer tick.Stop()
	failing := false
	for {
		err := a.countBacklog(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			a.Logger.Warn("the dead letters can't be counted; trying again every minute", "error", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// countBacklog counts all queues in one pass, and only where that ends too soon each
// by itself.
func (a *API) countBacklog(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, backlogTimeout)
	defer cancel()
	registered, err := a.webhooksByQueue(ctx)
	if err != nil {
		return err
	}
	now, all := time.Now(), map[string]waiting{}
	allAt := now
	dead := func(name string) int { s, _ := a.Dispatcher.Queue(name); return s.DeadLettered }
	for name := range registered {
		all[name] = waiting{exact: true, at: now, dead: dead(name)}
	}
	_, exact, err := tables.CountDeadLetters(ctx, a.DeadLetters, tables.DeadLetterFilter{Status: tables.Waiting}, backlogMost, backlogCalls,
		func(d tables.DeadLetter) {
			w := all[d.Queue]
			if w.n == 0 {
				w.dead = dead(d.Queue)
			}
			all[d.Queue] = waiting{n: w.n + 1, exact: true, at: now, dead: w.dead}
		})
	if err != nil {
		return web.StorageFault("count the dead letters", err)
	}
	if !exact {
		allAt = time.Time{}
		for name := range all {
			before := dead(name)
			w, countErr := a.countWaiting(ctx, name)
			if w.dead = before; countErr != nil {
				w, err = a.backlog.last(name), countErr
			}
			all[name] = w
		}
	}
	a.backlog.replace(all, allAt)
	return err
}

// waiting is how many dead letters wait in a queue, counted now where that was not done
// lately.
func (a *API) waiting(ctx context.Context, name string) (waiting, error) {
	w, fresh := a.backlog.get(name)
	s, _ := a.Dispatcher.Queue(name)
	if fresh && (s.DeadLettered == w.dead || time.Since(w.at) < recountEvery) {
		return w, nil
	}
	w, err := a.countWaiting(ctx, name)
	if w.dead = s.DeadLettered; err == nil {
		a.backlog.put(name, w)
	}
	return w, err
}

func (a *API) countWaiting(ctx context.Context, name string) (waiting, error) {
	if name == "" { // a row in storage may name none, and a filter without a queue matches all
		return waiting{exact: true, at: time.Now()}, nil
	}
	f := tables.DeadLetterFilter{Queue: name, Status: tables.Waiting}
	n, exact, err := tables.CountDeadLetters(ctx, a.DeadLetters, f, backlogMost, backlogCalls, nil)
	if err != nil {
		return waiting{}, web.StorageFault("count the dead letters of a queue", err)
	}
	return waiting{n: n, exact: exact, at: time.Now()}, nil
}

// alertReason is why a level is not ok.
type alertReason string

const (
	alertWaiting alertReason = "waiting" // as many wait
	alertShare   alertReason = "share"   // as large a share was dead-lettered lately
)

// backlogView is what waits in a queue, and how bad that is.
type backlogView struct {
	Waiting int `json:"waiting"`
	// Exact is false when there are more than Waiting.
	Exact bool `json:"exact"`
	// Level is ok, warning or critical; Reason and Text say why, and are empty when it is ok.
	Level  string      `json:"level"`
	Reason alertReason `json:"reason,omitempty"`
	Text   string      `json:"text,omitempty"`
	// Handled and DeadLettered are those of status.Queue.
	Handled      int       `json:"handled"`
	DeadLettered int       `json:"dead_lettered"`
	CountedAt    time.Time `json:"counted_at"`
}

func newBacklogView(w waiting, s status.Queue) *backlogView {
	view := &backlogView{Waiting: w.n, Exact: w.exact, Level: "ok", Handled: s.Handled, DeadLettered: s.DeadLettered, CountedAt: web.UTC(w.at)}
	switch {
	case w.n > criticalWaiting:
		view.Level, view.Reason, view.Text = "critical", alertWaiting, fmt.Sprintf("More than %d dead letters wait.", criticalWaiting)
	case s.Handled >= minHandled && float64(s.DeadLettered) > criticalShare*float64(s.Handled):
		view.Level, view.Reason = "critical", alertShare
		view.Text = fmt.Sprintf("%d of the %d messages that this process finished with in the last one to two hours were dead-lettered, which is more than %v %%, whatever has become of them since.",
			s.DeadLettered, s.Handled, 100*criticalShare)
	case w.n > warningWaiting:
		view.Level, view.Reason, view.Text = "warning", alertWaiting, fmt.Sprintf("More than %d dead letters wait.", warningWaiting)
	}
	return view
}
