package receive

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/pushlease/pushlease/dispatcher/internal/admission"
	"github.com/pushlease/pushlease/dispatcher/internal/delivery"
	"github.com/pushlease/pushlease/dispatcher/internal/meter"
	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/queue"
)

const (
	// receiveTimeout bounds one receive. A stop does not cut a receive short before
	// the drain bound: what it had taken would be hidden for a whole lease.
	receiveTimeout = 10 * time.Second
	// errorBackoffMin is the first wait after a failed receive.
	errorBackoffMin = 500 * time.Millisecond
	// errorLogEvery is how often the same receive error is logged at most.
	errorLogEvery = 30 * time.Second
	// maxGather is the longest wait for more slots than are free.
	maxGather = 100 * time.Millisecond
	// maxReceivers bounds the receives that are under way at a time from one queue.
	maxReceivers = 4
	// recoveryLooks is how often a young process looks within one lease, at least.
	recoveryLooks = 50
)

// poller receives from one queue and starts a handler per message.
type poller struct {
	*Options
	// handlers are those of all pollers.
	handlers *sync.WaitGroup
	q        queue.Queue
	work     context.Context
	stop     context.CancelFunc
	wake     chan struct{}
	seats    *admission.Seats
	due      due
	noted    chan struct{} // holds one when due has grown

	startedAt time.Time

	// next hands a message to a handler that has ended with another one.
	next chan *queue.Message
	// receivers counts those that receive, besides run itself; more waits for them.
	receivers atomic.Int64
	more      sync.WaitGroup
	// reserved are the places for messages that are being sent; handed holds one when such a
	// message has come.
	reserved sync.WaitGroup
	handed   chan struct{}

	mu        sync.Mutex
	open      context.Context // while places can be reserved; nil otherwise
	idlePause time.Duration   // after the last receive that was answered; 0 when it found messages
	poll      Poll
	pastTold  time.Time // when the log last said that the past of a missing queue can't be read
	// backlog is there while receives come back full, and closed when one does not.
	backlog chan struct{}
	// took is how long the last receive took, usual how long they take, but for late ones.
	took, usual time.Duration
}

// newPoller makes a poller that waits for patience at most until a webhook can be sent to; zero
// is for ever.
func newPoller(work context.Context, o *Options, handlers *sync.WaitGroup, q queue.Queue, patience time.Duration) *poller {
	p := &poller{
		Options: o, handlers: handlers, q: q, work: work, startedAt: time.Now(),
		wake:   make(chan struct{}, 1),
		noted:  make(chan struct{}, 1),
		handed: make(chan struct{}, 1),
		next:   make(chan *queue.Message),
	}
	p.seats = o.Admission.Join(admission.Wants{
		Queue: q.Name(), Gather: p.gather, Patience: patience, Ahead: patience == 0,
		Room: func(onTheWay, ahead, most int, now time.Time) (int, time.Time) {
			return o.Flows.Room(q.Name(), onTheWay, ahead, most, now)
		},
	})
	o.Flows.Listen(q.Name(), p.seats.Changed())
	return p
}

// close takes the poller's part back; what it has in flight may go on.
func (p *poller) close() {
	p.Flows.Forget(p.q.Name(), p.seats.Changed())
	p.seats.Leave()
}

func (p *poller) wakeUp() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// run receives until ctx ends. It never receives more than can start within a second.
func (p *poller) run(ctx context.Context) {
	defer p.more.Wait()
	defer p.openTo(ctx)()
	empty, faults := 0, 0
	for {
		n := p.seats.Acquire(ctx)
		if n == 0 {
			return
		}
		looked := time.Now()
		got, err := p.receiveAndStart(ctx, n)
		var wait time.Duration
		switch {
		case errors.Is(err, queue.ErrQueueNotFound): // its first publish makes it: until then it is an idle one
			faults = 0
			empty++
			wait = pollPause(empty, p.PollMin, p.longestPause())
			p.idles(0)
		case err != nil:
			faults++
			p.idledUntil(looked)
			wait = retry.Backoff(faults, errorBackoffMin, p.PollMax)
		case got == 0:
			faults = 0
			empty++
			wait = pollPause(empty, p.PollMin, p.longestPause())
			p.idles(wait)
		default:
			empty, faults = 0, 0
			p.idles(0)
			if got == n {
				p.startReceiver(func() { p.receiveMore(ctx) })
			}
			continue
		}
		if anew := p.sleep(ctx, wait, looked, err == nil); anew {
			empty = 0
		}
	}
}

// startReceiver has one more receiver work, up to maxReceivers of them.
func (p *poller) startReceiver(receiver func()) {
	if p.receivers.Add(1) >= maxReceivers {
		p.receivers.Add(-1)
		return
	}
	p.more.Go(func() {
		defer p.receivers.Add(-1)
		receiver()
	})
}

// receiveMore is one more receiver: it waits for storage while another one's messages are handled.
// It ends when the backlog does.
func (p *poller) receiveMore(ctx context.Context) {
	for {
		n := p.seats.Acquire(ctx)
		if n == 0 {
			return
		}
		if p.backlogged() == nil {
			p.seats.Return(n)
			return
		}
		if got, err := p.receiveAndStart(ctx, n); err != nil || got < n {
			return
		}
	}
}

// receiveAndStart makes one receive for which n seats were taken. What it brings waits, without
// a handler, until there is a slot for it, and is given back where none comes.
func (p *poller) receiveAndStart(ctx context.Context, n int) (got int, err error) {
	answered := p.unlessLate(ctx)
	messages, err := p.receive(n)
	answered()
	p.seats.Return(n - len(messages))
	p.observe(err, p.lookBack(ctx, err))
	until := time.Now().Add(admission.AheadTime)
	for _, m := range messages {
		if p.seats.Start(ctx, until) {
			p.start(ctx, m)
			continue
		}
		p.handlers.Go(func() {
			defer p.seats.Return(1)
			p.Refuse(p.q, m)
		})
	}
	return len(messages), err
}

func (p *poller) receive(n int) ([]*queue.Message, error) {
	callCtx, cancel := context.WithTimeout(p.work, receiveTimeout)
	defer cancel()
	callCtx, span := p.Tracer.Start(callCtx, "receive "+p.q.Name(), trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(attribute.String("queue.name", p.q.Name())))
	defer span.End()
	lease := p.Measure.Length(p.q.Name())
	p.Meter.LeaseAsked(p.q.Name(), lease)
	start := time.Now()
	messages, err := p.q.Receive(callCtx, n, lease)
	if span.IsRecording() {
		span.SetAttributes(attribute.Int("messaging.batch.message_count", len(messages)))
	}
	p.noteBacklog(err == nil && len(messages) == n, time.Since(start))
	return messages, err
}

// noteBacklog notes whether a receive brought as many messages as were asked for.
func (p *poller) noteBacklog(full bool, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.took = took
	if p.usual == 0 {
		p.usual = max(took, 1)
	} else {
		p.usual += (min(took, lateTimes*p.usual) - p.usual) / tookWeight
	}
	switch {
	case full && p.backlog == nil:
		p.backlog = make(chan struct{})
	case !full && p.backlog != nil:
		close(p.backlog)
		p.backlog = nil
	}
}

// backlogged returns what is closed when the backlog ends, nil while there is none.
func (p *poller) backlogged() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.backlog
}

// gather is how long it is worth waiting for more slots than are free: twice as long as a
// receive takes, while there is a backlog.
func (p *poller) gather() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.backlog == nil {
		return 0
	}
	return min(2*p.took, maxGather)
}

// observe keeps what the API shows of this poller, and logs the same error at a
// limited rate. before is what is on record of a queue that is missing.
func (p *poller) observe(err error, before past) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if err == nil {
		if p.poll.Err != nil && !p.poll.loggedAt.IsZero() {
			p.Log.Info("receiving again", "queue", p.q.Name())
		}
		p.poll = Poll{At: now, ErrAt: p.poll.ErrAt}
		return
	}
	p.Meter.ReceiveErrors.Add(meter.Labels{Queue: p.q.Name()})
	poll := &p.poll
	same := poll.Err != nil && poll.Err.Error() == err.Error()
	missing := errors.Is(err, queue.ErrQueueNotFound)
	if missing && poll.past.known && !before.known { // another receiver has looked to the end
		before = poll.past
	}
	switch {
	case missing && poll.GoneAt.IsZero() && (!poll.At.IsZero() || !before.usedAt.IsZero()):
		poll.GoneAt, poll.loggedAt = now, now
		p.Log.Error("the queue was there and is gone: somebody deleted it, with all that was on it; the first publish creates it anew",
			"queue", p.q.Name(), "last_there", slices.MaxFunc([]time.Time{poll.At, before.usedAt}, time.Time.Compare), "pending", before.count())
	case missing && !poll.GoneAt.IsZero():
		if before.known && !poll.past.known {
			p.Log.Error("what waited on the queue that is gone is known now", "queue", p.q.Name(), "pending", before.count())
		}
	case missing && before.known && (!same || !poll.past.known):
		poll.loggedAt = now
		p.Log.Info("the queue does not exist yet; the first publish creates it", "queue", p.q.Name())
	case !missing && (!same || now.Sub(poll.loggedAt) >= errorLogEvery):
		poll.loggedAt = now
		p.Log.Error("receive failed; trying again with backoff", "queue", p.q.Name(), "error", err)
	}
	poll.Err, poll.ErrAt, poll.past = err, now, before
}

// start hands the message to a handler. One that has ended with another message is used
// again while there is a backlog: its stack has grown already.
func (p *poller) start(ctx context.Context, m *queue.Message) {
	select {
	case p.next <- m:
	default:
		p.handlers.Go(func() { p.handleAll(ctx, m) })
	}
}

// handleAll handles m, and then what comes as long as the backlog lasts.
func (p *poller) handleAll(ctx context.Context, m *queue.Message) {
	for m != nil {
		if ctx.Err() != nil {
			p.refuse(m)
		} else {
			p.handle(m)
		}
		m = nil
		backlog := p.backlogged()
		if backlog == nil {
			return
		}
		select {
		case m = <-p.next:
		case <-backlog:
		case <-ctx.Done():
		}
	}
}

// refuse gives back a message that was received while the poller was stopped.
func (p *poller) refuse(m *queue.Message) {
	defer p.seats.Grant().Close()
	p.Refuse(p.q, m)
}

// handle handles a message for which a seat was taken.
func (p *poller) handle(m *queue.Message) {
	g := p.seats.Grant()
	defer g.Close()
	p.Handle(p.work, p.q, m, delivery.Usual(m, p.LookGap(p.q.Name())), g)
}

// sleep waits for d, or less when woken or stopped, and with early when a message that was
// given back is visible again, or has become so since the look that began at looked. It reports whether pauses begin anew: it was woken, or a message
// has come without a receive, which also makes this pause the first one.
func (p *poller) sleep(ctx context.Context, d time.Duration, looked time.Time, early bool) (anew bool) {
	for end := time.Now().Add(d); ; {
		until := end
		if next := p.due.next(looked); early && !next.IsZero() && next.Before(end) {
			until = next
		}
		t := time.NewTimer(time.Until(until))
		select {
		case <-ctx.Done():
			t.Stop()
			return false
		case <-t.C:
			return anew
		case <-p.wake:
			t.Stop()
			return true
		case <-p.handed:
			t.Stop()
			anew = true
			if first := time.Now().Add(pollPause(1, p.PollMin, p.longestPause())); first.Before(end) {
				end = first
			}
		case <-p.noted: // it may be visible before the end
			t.Stop()
		}
	}
}

// willBeVisible notes that a message was given back for so long, as it was delivered then. Storage hides it for whole seconds
// (queue.Queue): who looks before that finds nothing, and next looks when its pause is over.
func (p *poller) willBeVisible(m *queue.Message, delay time.Duration) {
	hidden := (delay + time.Second - 1).Truncate(time.Second)
	p.due.note(m.ID, m.DequeueCount, time.Now().Add(hidden))
	select {
	case p.noted <- struct{}{}:
	default:
	}
}

// longestPause is PollMax on average, times the number of processes that poll: together they look as
// often as one. It is no longer than mostPause by that: who is left when the others are killed counts them for
// a while, and a message that is about to expire has to be seen. While this process is younger than a lease it is
// shorter: what a process before it held, and was killed with, comes back in that time.
func (p *poller) longestPause() time.Duration {
	lease := p.Measure.Length(p.q.Name())
	if time.Since(p.startedAt) > lease+lease/recoveryLooks {
		return min(p.PollMax*time.Duration(max(p.Pollers(), 1)), max(p.PollMax, mostPause))
	}
	return min(p.PollMax, max(p.PollMin, lease/recoveryLooks))
}

// mostPause is how long one of many processes pauses at most.
const mostPause = 30 * time.Second

// pollPause doubles from first to limit with n = 1, 2, …, and varies by a quarter around
// that, so that instances do not move in step; never less than first.
func pollPause(n int, first, limit time.Duration) time.Duration {
	d := retry.Doubled(n, first, limit)
	return max(d-d/4+time.Duration(rand.Int64N(int64(d/2)+1)), min(first, limit))
}

// age is how long storage has not answered this poller.
func (p *poller) age(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.poll.Err == nil && p.seats.Wait():
		return 0
	case p.poll.At.IsZero() && p.poll.GoneAt.IsZero() && errors.Is(p.poll.Err, queue.ErrQueueNotFound):
		return 0 // the first publish makes it
	case p.poll.At.IsZero():
		return now.Sub(p.startedAt)
	}
	return now.Sub(p.poll.At)
}

// idles notes the pause that follows a receive.
func (p *poller) idles(pause time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idlePause = pause
}

// idledUntil ends the pause with the look that followed it: the poller may have been woken long before it was over.
func (p *poller) idledUntil(looked time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idlePause = min(p.idlePause, max(looked.Sub(p.poll.At), 0))
}

// expectedPause is the age that is no sign of trouble.
func (p *poller) expectedPause() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.idlePause
}

// status tells how polling goes.
func (p *poller) status() Poll {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.poll
}

// Poll is how polling one queue goes. A run of Pump goes on from that of the one before: what is as it was is
// not told again.
type Poll struct {
	// At is the last receive that storage answered.
	At time.Time
	// Err is the last error while it lasts; nil when receiving works.
	Err   error
	ErrAt time.Time
	// GoneAt is when the queue, which had been there, was missed first; zero while it is there.
	GoneAt   time.Time
	past     past      // of a queue that is missed
	loggedAt time.Time // when the log last told of Err
}

// Gone says what is known of a queue that somebody deleted; nil while it is there, or not there yet.
func (p Poll) Gone() error {
	if p.GoneAt.IsZero() {
		return nil
	}
	return fmt.Errorf("%w: it was in use and was missed first at %s: somebody deleted it, with all that was on it: "+
		"%s may have waited for another attempt. The next publish creates it anew; if it is to stay away, disable its webhooks",
		queue.ErrQueueNotFound, p.GoneAt.UTC().Format(time.RFC3339), p.past.count())
}
