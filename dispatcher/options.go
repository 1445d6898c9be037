package dispatcher

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/pushlease/pushlease/dispatcher/internal/delivery"
	"github.com/pushlease/pushlease/dispatcher/internal/receive"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// Store is what the dispatcher remembers and looks up.
type Store interface {
	tables.Deliveries
	tables.Webhooks
	tables.DeadLetters
	tables.Claims
	tables.Healths
	tables.LeftQueues
	receive.Attempts
}

// Sender makes the POST.
type Sender = delivery.Sender

// Options configure a Dispatcher. Queues, Store and Sender are required; zero
// values of the others mean the default given.
type Options struct {
	Queues queue.Service
	Store  Store
	Sender Sender
	// RecordedCompletes completes and records in one step; nil where the store has no such
	// thing.
	RecordedCompletes RecordedCompletes

	// Encoding says how a queue's texts are read; default auto for all.
	Encoding func(queueName string) queue.Encoding
	// ByEvent says whether messages of a queue are told apart by the CloudEvents event
	// that they carry, and not by their message id alone; default no.
	ByEvent func(queueName string) bool
	// KeepUnmatched says whether messages of a queue that every filter refuses become
	// dead letters; default no: they are deleted and recorded as unmatched.
	KeepUnmatched func(queueName string) bool
	// Hosted says whether a host receives from the queue; nothing else here does then.
	// Default none.
	Hosted func(queueName string) bool
	// LookGap is the longest time between two looks at a queue that a host or a timer looks
	// at, and zero for one that is polled. What is given back is visible again so long before its expiry,
	// or for a quarter of its life if that is less. Default zero for all.
	LookGap func(queueName string) time.Duration
	// Lease is asked for at each receive and renewal, at least 2 s; zero means that
	// it follows the time that the queue's messages take, from 30 s to 7 days. It is
	// renewed at half of what storage granted.
	Lease time.Duration
	// Estimate says how long messages of a queue are expected to take, until
	// enough of them were measured; default nothing.
	Estimate func(queueName string) policy.Estimate
	// Concurrency is the most messages of one queue in this process whose POSTs are under
	// way or begin at once; default 64. Three times as many, whose POSTs were all answered,
	// may be waiting for storage to record and settle them; three quarters as many, 48 at most, may be in hand
	// for the next slots, a second at most. Leases of all but these are kept. A host has a bound of its own.
	Concurrency int
	// MaxInFlight is the most messages of all queues in flight in this process, those that
	// wait to be settled included, and those that a host brings; default
	// 1,024. What a guard looks at, at most Concurrency messages of a queue, is beside it. Half of it is divided among the queues in equal parts.
	MaxInFlight int
	// PollMin and PollMax are the shortest and the longest wait between receives of an
	// empty queue: it doubles from one to the other, give or take a quarter. Defaults
	// 100 ms and 5 s. While a queue has been polled for less than a lease the longest is
	// a fiftieth of the lease.
	PollMin time.Duration
	PollMax time.Duration
	// Pollers is how many processes poll the same queues now, this one included: each waits as many
	// times longer, up to 30 s, so that all of them together look as often as one. Default one.
	Pollers func() int
	// Drain is how long a stop waits for POSTs in flight before it cuts them
	// short; default 35 s.
	Drain time.Duration
	// RegistryRefresh is how often the registered webhooks are read again; default
	// 15 s. What changes through this process is seen at once.
	RegistryRefresh time.Duration
	// PoisonCopy copies each dead-lettered message to <queue>-poison, for PoisonCopyTTL; zero is for ever.
	PoisonCopy    bool
	PoisonCopyTTL time.Duration
	// Attempted is told of each attempt that is on record, and must not wait; default nobody.
	Attempted func(*tables.Attempt)
	// Instance names this process in records.
	Instance string

	Logger *slog.Logger
	Meter  metric.Meter
	Tracer trace.Tracer
	// Unrecorded says that nobody takes the spans: the Tracer is asked for no more than an id for each message.
	Unrecorded bool
}

func (o Options) withDefaults() Options {
	o.Encoding = orAlways(o.Encoding, queue.EncodingAuto)
	o.ByEvent = orAlways(o.ByEvent, false)
	o.KeepUnmatched = orAlways(o.KeepUnmatched, false)
	o.Hosted = orAlways(o.Hosted, false)
	o.LookGap = orAlways(o.LookGap, 0)
	o.Estimate = orAlways(o.Estimate, policy.Estimate{})
	o.Concurrency = cmp.Or(o.Concurrency, 64)
	o.MaxInFlight = cmp.Or(o.MaxInFlight, 1024)
	o.PollMin = cmp.Or(o.PollMin, 100*time.Millisecond)
	o.PollMax = cmp.Or(o.PollMax, 5*time.Second)
	o.Drain = cmp.Or(o.Drain, 35*time.Second)
	o.RegistryRefresh = cmp.Or(o.RegistryRefresh, 15*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Pollers == nil {
		o.Pollers = func() int { return 1 }
	}
	return o
}

// orAlways is what says something of each queue, or else always the same.
func orAlways[T any](of func(queueName string) T, always T) func(queueName string) T {
	if of != nil {
		return of
	}
	return func(string) T { return always }
}

func (o Options) validate() error {
	var errs []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("dispatcher: "+format, args...))
		}
	}
	need(o.Queues != nil, "Queues is required")
	need(o.Store != nil, "Store is required")
	need(o.Sender != nil, "Sender is required")
	need(o.Meter != nil, "Meter is required")
	need(o.Tracer != nil, "Tracer is required")
	need(o.Lease == 0 || o.Lease >= 2*time.Second && o.Lease <= queue.MaxLease, "Lease is %s: it must be 2s to 168h, so that it can be renewed at half, or zero", o.Lease)
	need(o.Concurrency >= 1, "Concurrency is %d: at least 1", o.Concurrency)
	need(o.MaxInFlight >= 1, "MaxInFlight is %d: at least 1", o.MaxInFlight)
	need(o.PollMin > 0 && o.PollMin <= o.PollMax, "PollMin is %s and PollMax %s: 0 < PollMin ≤ PollMax", o.PollMin, o.PollMax)
	need(o.Drain > 0, "Drain is %s: it must be positive", o.Drain)
	need(o.RegistryRefresh > 0, "RegistryRefresh is %s: it must be positive", o.RegistryRefresh)
	return errors.Join(errs...)
}
