package dispatcher

import (
	"errors"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/meter"
	"github.com/pushlease/pushlease/dispatcher/internal/receive"
	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// Queue returns how one queue fares; false where nothing is known of it but its lease.
func (d *Dispatcher) Queue(name string) (s status.Queue, known bool) {
	s = status.Queue{LeaseFixed: d.o.Lease > 0}
	s.Lease, s.Recommended, s.Processing = d.measure.Status(name)
	d.metrics.Queues.Tell(&s, name)
	registered := d.registry.Of(name)
	for i := range registered {
		if registered[i].Enabled {
			s.Webhooks++
		}
	}
	if l, left := d.registry.LeftQueue(name); left {
		s.LeftAt = l.At
	}
	var p receive.Poll
	p, s.Polling = d.receiver.Poll(name)
	s.LastPollAt, s.LastErrorAt, s.GoneAt = p.At, p.ErrAt, p.GoneAt
	if gone := p.Gone(); gone != nil {
		s.GoneText = gone.Error()
	}
	if p.Err != nil {
		s.LastError = p.Err.Error()
	}
	return s, len(registered) > 0 || s.Polling || !s.LeftAt.IsZero()
}

// Webhook returns how a webhook fares; false when it is not known here.
func (d *Dispatcher) Webhook(id string) (status.Webhook, bool) {
	f := d.flows.Get(id)
	if f == nil {
		return status.Webhook{}, false
	}
	return f.Status(time.Now()), true
}

// States returns which state each webhook is in that is known here, by id.
func (d *Dispatcher) States() map[string]status.Standing { return d.flows.States() }

// AtWork says what this process is at work on.
func (d *Dispatcher) AtWork() status.Work {
	return status.Work{InFlight: d.metrics.Queues.InFlight(), Leases: d.leases.InWork(), Polled: d.receiver.Polled()}
}

// placesTaken is what is taken of each bound on the work.
func (d *Dispatcher) placesTaken() map[string]int {
	messages, lingering := d.admission.Counts()
	slots, settling := d.admission.Seated()
	return map[string]int{
		"messages": messages, "slots": slots, "lingering": lingering, "settling": settling, "leases": d.leases.InWork(), "posts": d.deliverer.PlacesTaken(),
	}
}

// TakeTallies returns what was counted of queues and webhooks since the last call, for the history.
func (d *Dispatcher) TakeTallies() []tables.Tally { return d.metrics.Tallies.Take() }

// Expired counts messages that storage ended because their life was over, and the dead letters that it
// made of them.
func (d *Dispatcher) Expired(queueName string, messages, asDeadLetters int, letters []tables.DeadLetter) {
	d.metrics.Expired(queueName, messages, asDeadLetters)
	for i := range letters {
		d.metrics.DeadLettered(queueName, letters[i].WebhookID, string(letters[i].Reason))
	}
}

// RecordsUnfinished counts messages without an outcome whose records were removed because of their age.
func (d *Dispatcher) RecordsUnfinished(queueName string, messages int) {
	d.metrics.RecordsUnfinished.AddN(messages, meter.Labels{Queue: queueName})
}

// ExpiredUnseen counts messages that storage dropped at the end of their life, and of which nothing is left.
func (d *Dispatcher) ExpiredUnseen(queueName string, messages int) {
	d.metrics.ExpiredUnseen(queueName, messages)
}

// DeadLettersExpired counts dead letters that were removed because of their age.
func (d *Dispatcher) DeadLettersExpired(queueName, status string, n int) {
	d.metrics.DeadLettersExpired.AddN(n, meter.Labels{Queue: queueName, Status: status})
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
	if err := d.registry.Unreadable(); err != nil {
		health["registrations"] = err
	}
	for _, name := range d.receiver.Polled() {
		p, _ := d.receiver.Poll(name)
		if errors.Is(p.Err, queue.ErrQueueNotFound) {
			p.Err = p.Gone() // one that is not there yet is created by the first publish
		}
		health["queue "+name] = p.Err
	}
	return health
}
