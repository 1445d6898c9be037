package dispatcher

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/pushlease/pushlease/policy"
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
	// roomWait is the longest wait before a poller looks again whether a webhook has
	// room; it hears of room that is made before.
	roomWait = 30 * time.Second
)

// poller receives from one queue and starts a handler per message.
type poller struct {
	d     *Dispatcher
	q     queue.Queue
	work  context.Context
	stop  context.CancelFunc
	wake  chan struct{}
	slots chan struct{} // one element per message in flight or being received
	due   due
	noted chan struct{} // holds one when due has grown
	room  chan struct{} // holds one when a webhook may take more than before
	// patience is how long the poller waits for room at most; zero is for ever.
	patience time.Duration

	startedAt time.Time

	// noRoom: the poller waits until a webhook can be sent to, or the process can take more.
	noRoom atomic.Bool
	// onTheWay counts those messages that have not asked their webhooks yet.
	onTheWay atomic.Int64

	mu         sync.Mutex
	lastPollAt time.Time // last receive that storage answered
	lastErr    error
	lastErrAt  time.Time
	loggedAt   time.Time
}

func newPoller(work context.Context, d *Dispatcher, q queue.Queue) *poller {
	p := &poller{
		d: d, q: q, work: work, startedAt: time.Now(),
		wake:  make(chan struct{}, 1),
		noted: make(chan struct{}, 1),
		slots: make(chan struct{}, d.o.Concurrency),
		room:  make(chan struct{}, 1),
	}
	d.shares.join(q.Name())
	d.flows.listen(q.Name(), p.room)
	return p
}

// close takes the poller's part back; what it has in flight may go on.
func (p *poller) close() {
	p.d.flows.forget(p.q.Name(), p.room)
	p.d.shares.leave(p.q.Name())
}

func (p *poller) wakeUp() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// run receives until ctx ends. It never receives more than can start now.
func (p *poller) run(ctx context.Context) {
	empty, faults := 0, 0
	for {
		n := p.takeSlots(ctx)
		if n == 0 {
			return
		}
		messages, err := p.receive(n)
		p.giveSlots(n - len(messages))
		for _, m := range messages {
			p.start(ctx, m)
		}
		var wait time.Duration
		switch {
		case err != nil:
			faults++
			wait = backoff(faults, errorBackoffMin, p.d.o.PollMax)
		case len(messages) == 0:
			faults = 0
			empty++
			wait = backoff(empty, p.d.o.PollMin, p.d.o.PollMax)
		default:
			empty, faults = 0, 0
			continue
		}
		if woken := p.sleep(ctx, wait, err == nil); woken {
			empty = 0
		}
	}
}

// takeSlots waits until a message could start at once, and takes slots for as many as
// one receive can bring: where a webhook has room for them, in the queue's own bounds and
// in the process's. It returns 0 when ctx has ended, or patience.
func (p *poller) takeSlots(ctx context.Context) int {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return 0
		case p.slots <- struct{}{}:
		}
		room, next := p.d.flows.room(p.q.Name(), int(p.onTheWay.Load()), queue.MaxReceive, time.Now())
		if room > 0 {
			return p.fillSlots(ctx, room)
		}
		<-p.slots
		if !p.waitForRoom(ctx, next) {
			return 0
		}
	}
	return 0
}

// fillSlots takes up to n slots, of which one is taken already.
func (p *poller) fillSlots(ctx context.Context, n int) int {
	taken := 1
fill:
	for taken < n {
		select {
		case p.slots <- struct{}{}:
			taken++
		default:
			break fill
		}
	}
	p.noRoom.Store(true)
	granted := p.d.shares.take(ctx, p.q.Name(), taken)
	p.noRoom.Store(false)
	for range taken - granted {
		<-p.slots
	}
	p.onTheWay.Add(int64(granted))
	return granted
}

// giveSlots gives back n slots that no message was received for.
func (p *poller) giveSlots(n int) {
	p.onTheWay.Add(int64(-n))
	for range n {
		p.giveSlot()
	}
}

// giveSlot gives back the slot of one message.
func (p *poller) giveSlot() {
	<-p.slots
	p.d.shares.give(p.q.Name(), 1)
}

// giveSlotOf gives back the slot of a message that has come to its end.
func (p *poller) giveSlotOf(a *arrival) {
	if a.slotGiven.Swap(true) {
		p.d.lingering.end()
	} else {
		<-p.slots
	}
	p.d.shares.give(p.q.Name(), 1)
}

// waitForRoom waits until a webhook may take more than before: until next if that is
// known, and otherwise for roomWait at most; false when ctx or patience has ended.
func (p *poller) waitForRoom(ctx context.Context, next time.Time) bool {
	wait := roomWait
	if !next.IsZero() {
		wait = time.Until(next)
	}
	last := p.patience > 0 && wait > p.patience
	if last && !next.IsZero() {
		return false
	}
	if last {
		wait = p.patience
	}
	p.noRoom.Store(true)
	defer p.noRoom.Store(false)
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return !last
	case <-p.room:
		return true
	}
}

func (p *poller) receive(n int) ([]*queue.Message, error) {
	callCtx, cancel := context.WithTimeout(p.work, receiveTimeout)
	defer cancel()
	callCtx, span := p.d.o.Tracer.Start(callCtx, "receive "+p.q.Name(), trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(attribute.String("queue.name", p.q.Name())))
	defer span.End()
	lease := p.d.measure.lease(p.q.Name())
	p.d.metrics.leaseAsked(p.q.Name(), lease)
	messages, err := p.q.Receive(callCtx, n, lease)
	span.SetAttributes(attribute.Int("messaging.batch.message_count", len(messages)))
	p.observe(err)
	return messages, err
}

// observe keeps what the API shows of this poller, and logs the same error at a
// limited rate.
func (p *poller) observe(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if err == nil {
		if p.lastErr != nil && !p.loggedAt.IsZero() {
			p.d.log.Info("receiving again", "queue", p.q.Name())
		}
		p.lastPollAt, p.lastErr, p.loggedAt = now, nil, time.Time{}
		return
	}
	p.d.metrics.receiveError(p.q.Name())
	same := p.lastErr != nil && p.lastErr.Error() == err.Error()
	if !same || now.Sub(p.loggedAt) >= errorLogEvery {
		p.loggedAt = now
		if errors.Is(err, queue.ErrQueueNotFound) {
			p.d.log.Warn("the queue does not exist yet; the first publish creates it", "queue", p.q.Name())
		} else {
			p.d.log.Error("receive failed; trying again with backoff", "queue", p.q.Name(), "error", err)
		}
	}
	p.lastErr, p.lastErrAt = err, now
}

// start hands the message to a handler, or gives it back when the poller was
// stopped while it was being received.
func (p *poller) start(ctx context.Context, m *queue.Message) {
	p.d.handlers.Go(func() {
		if ctx.Err() != nil {
			defer p.giveSlots(1)
			p.d.giveBack(p.q, m)
			return
		}
		p.handle(m)
	})
}

// handle handles a message for which a slot was taken.
func (p *poller) handle(m *queue.Message) {
	a := &arrival{p: p}
	defer p.giveSlotOf(a)
	defer a.done() // also when it never came as far as its webhooks
	p.d.handle(p.work, p.q, m, a)
}

// sleep waits for d, or less when woken or stopped, and with early when a message that was
// given back is visible again; it reports a wake-up.
func (p *poller) sleep(ctx context.Context, d time.Duration, early bool) bool {
	for end := time.Now().Add(d); ; {
		until := end
		if next := p.due.next(time.Now()); early && !next.IsZero() && next.Before(end) {
			until = next
		}
		t := time.NewTimer(time.Until(until))
		select {
		case <-ctx.Done():
			t.Stop()
			return false
		case <-t.C:
			return false
		case <-p.wake:
			t.Stop()
			return true
		case <-p.noted: // it may be visible before the end
			t.Stop()
		}
	}
}

// willBeVisible notes that a message was given back for so long.
func (p *poller) willBeVisible(delay time.Duration) {
	p.due.note(time.Now().Add(delay))
	select {
	case p.noted <- struct{}{}:
	default:
	}
}

// backoff doubles from first to limit with n = 1, 2, …, and takes a random value
// in the upper half, so that instances do not move in step; never less than first.
func backoff(n int, first, limit time.Duration) time.Duration {
	d := limit
	if n < 32 {
		if shifted := first << (n - 1); shifted>>(n-1) == first && shifted > 0 {
			d = min(limit, shifted)
		}
	}
	return max(d/2+time.Duration(rand.Int64N(int64(d/2)+1)), min(first, limit))
}

// QueueStatus is what is known about the polling of one queue.
type QueueStatus struct {
	Polling bool
	// InFlight counts the messages that this process is at work on, whoever received
	// them.
	InFlight int
	// Lease is what the next receive asks for: fixed, or by measured time.
	Lease      time.Duration
	LeaseFixed bool
	// Recommended is the lease that measured time, or the estimate, asks for.
	Recommended policy.Recommendation
	Processing  Processing
	Deletions   Deletions
	// Handled and DeadLettered count the messages that this process finished with in
	// the last one to two hours, and those of them that became dead letters.
	Handled, DeadLettered int
	// LastPollAt is the last receive that storage answered.
	LastPollAt time.Time
	// LastError is the last receive error while it lasts; nil when receiving works.
	LastError   error
	LastErrorAt time.Time
	// Webhooks counts the registrations on the queue, Enabled those enabled.
	Webhooks int
	Enabled  int
	// LeftAt is when the queue's last webhook was deleted, while what was on the queue
	// then is watched over; zero otherwise.
	LeftAt time.Time
}

// Queue returns the status of one queue; all but Lease zero for one without
// webhooks.
func (d *Dispatcher) Queue(name string) QueueStatus {
	s := QueueStatus{LeaseFixed: d.o.Lease > 0, Deletions: d.deleted.of(name)}
	s.Lease, s.Recommended, s.Processing = d.measure.status(name)
	s.Handled, s.DeadLettered = d.metrics.tally.recent(name)
	s.InFlight = int(d.inFlight.of(name))
	for _, r := range d.registry.of(name) {
		s.Webhooks++
		if r.Enabled {
			s.Enabled++
		}
	}
	if l, left := d.registry.leftQueue(name); left {
		s.LeftAt = l.At
	}
	d.mu.Lock()
	p := d.pollers[name]
	d.mu.Unlock()
	if p == nil {
		return s
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s.Polling = true
	s.LastPollAt, s.LastError, s.LastErrorAt = p.lastPollAt, p.lastErr, p.lastErrAt
	return s
}

// Health says whether the dispatcher can do its job: nil, or what is wrong, for
// the registry and for each queue that is polled.
func (d *Dispatcher) Health() map[string]error {
	health := map[string]error{}
	readAt, err := d.registry.status()
	if err == nil && readAt.IsZero() {
		err = errors.New("the registered webhooks have not been read yet")
	}
	health["webhooks"] = err
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, p := range d.pollers {
		p.mu.Lock()
		err := p.lastErr
		p.mu.Unlock()
		if errors.Is(err, queue.ErrQueueNotFound) {
			err = nil // the first publish creates it
		}
		health["queue "+name] = err
	}
	return health
}
