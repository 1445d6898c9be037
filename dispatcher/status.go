package dispatcher

import (
	"errors"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/flow"
	"github.com/pushlease/pushlease/dispatcher/internal/lease"
	"github.com/pushlease/pushlease/dispatcher/internal/meter"
	"github.com/pushlease/pushlease/dispatcher/internal/receive"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
)

// Processing is how long recent messages of a queue took.
type Processing = lease.Processing

// Deletions counts what became of the deletes of one queue's messages.
type Deletions = meter.Deletions

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
	s := QueueStatus{LeaseFixed: d.o.Lease > 0, Deletions: d.deletes.Of(name)}
	s.Lease, s.Recommended, s.Processing = d.measure.Status(name)
	s.Handled, s.DeadLettered = d.metrics.Lately.Recent(name)
	s.InFlight = int(d.inFlight.Of(name))
	for _, r := range d.registry.Of(name) {
		s.Webhooks++
		if r.Enabled {
			s.Enabled++
		}
	}
	if l, left := d.registry.LeftQueue(name); left {
		s.LeftAt = l.At
	}
	var p receive.Poll
	p, s.Polling = d.receiver.Poll(name)
	s.LastPollAt, s.LastError, s.LastErrorAt = p.At, p.Err, p.ErrAt
	return s
}

// FlowState says whether a webhook is sent to by this process.
type FlowState = flow.State

// WebhookStatus is how a webhook fares in this process.
type WebhookStatus = flow.Status

// FlowStates lists every FlowState.
func FlowStates() []FlowState { return flow.States() }

// Webhook returns the status of a webhook; false when it is not known here.
func (d *Dispatcher) Webhook(id string) (WebhookStatus, bool) {
	f := d.flows.Get(id)
	if f == nil {
		return WebhookStatus{}, false
	}
	return f.Status(time.Now()), true
}

// Health says whether the dispatcher can do its job: nil, or what is wrong, for
// the registry and for each queue that is polled.
func (d *Dispatcher) Health() map[string]error {
	health := map[string]error{}
	readAt, err := d.registry.Status()
	if err == nil && readAt.IsZero() {
		err = errors.New("the registered webhooks have not been read yet")
	}
	health["webhooks"] = err
	for _, name := range d.receiver.Polled() {
		p, _ := d.receiver.Poll(name)
		if errors.Is(p.Err, queue.ErrQueueNotFound) {
			p.Err = nil // the first publish creates it
		}
		health["queue "+name] = p.Err
	}
	return health
}
