package receive

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric/noop"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/pushlease/pushlease/dispatcher/internal/admission"
	"github.com/pushlease/pushlease/dispatcher/internal/delivery"
	"github.com/pushlease/pushlease/dispatcher/internal/flow"
	"github.com/pushlease/pushlease/dispatcher/internal/journal"
	"github.com/pushlease/pushlease/dispatcher/internal/lease"
	"github.com/pushlease/pushlease/dispatcher/internal/meter"
	"github.com/pushlease/pushlease/dispatcher/internal/registry"
	"github.com/pushlease/pushlease/dispatcher/internal/settle"
	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/internal/sqlite"
	"github.com/pushlease/pushlease/internal/sqlite/sqlitetest"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

const testQueue = "orders"

func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

// bench is a Receiver over a real store, alone: what it receives is deleted, or what answer says.
type bench struct {
	*Receiver
	t      *testing.T
	db     *sqlite.DB
	answer func(m *queue.Message, terms delivery.Terms)

	mu      sync.Mutex
	handled []delivery.Terms
	refused int
}

func inBubble(t *testing.T, change func(*Options), f func(b *bench)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		db, err := sqlite.Open(t.Context(), sqlitetest.File(t), sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		}()
		m, err := meter.New(noop.NewMeterProvider().Meter(""))
		if err != nil {
			t.Fatal(err)
		}
		log := slog.New(slog.DiscardHandler)
		flows := flow.New(flow.Options{
			Store: db, Instance: "test", Log: log, Turned: func(string, policy.BreakerPhase) {}, Shown: func(string, string) {},
			Fresh:   func(context.Context, time.Time) bool { return true },
			Disable: func(context.Context, string, time.Time) {},
		})
		b := &bench{t: t, db: db, answer: func(*queue.Message, delivery.Terms) {}}
		o := Options{
			Queues: db.Queues(), Registry: registry.New(db, log, flows.Sync), Flows: flows, Journal: journal.New(db, m, log), Attempts: db,
			Measure:   lease.NewMeasure(time.Minute, func(string) policy.Estimate { return policy.Estimate{} }, func(string) bool { return false }),
			Admission: admission.New(admission.Bounds{Slots: 4, Total: 16}), Meter: m,
			Tracer: tracenoop.NewTracerProvider().Tracer(""), Log: log, Hosted: func(string) bool { return false }, LookGap: func(string) time.Duration { return 0 },
			Concurrency: 4, PollMin: 100 * time.Millisecond, PollMax: 30 * time.Second, Pollers: func() int { return 1 }, RegistryRefresh: 5 * time.Second,
			Instance: "test", Write: context.WithoutCancel(t.Context()), Handle: b.handle,
			Refuse: func(queue.Queue, *queue.Message) { b.mu.Lock(); b.refused++; b.mu.Unlock() },
		}
		if change != nil {
			change(&o)
		}
		b.Receiver = New(o)
		f(b)
	})
}

func (b *bench) handle(ctx context.Context, q queue.Queue, m *queue.Message, terms delivery.Terms, _ *admission.Grant) settle.Result {
	b.mu.Lock()
	b.handled = append(b.handled, terms)
	b.mu.Unlock()
	b.answer(m, terms)
	if err := q.Complete(context.WithoutCancel(ctx), m); err != nil {
		b.t.Error(err)
	}
	return settle.Deleted
}

func (b *bench) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.handled)
}

// start runs it; stop ends that and waits.
func (b *bench) start() (stop func()) {
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan struct{})
	go func() { b.Run(ctx, context.WithoutCancel(ctx)); b.Wait(); close(done) }()
	return func() { cancel(); <-done }
}

func (b *bench) register(enabled bool) tables.Registration {
	b.t.Helper()
	p, err := policy.Preset("standard")
	if err != nil {
		b.t.Fatal(err)
	}
	r, err := b.db.PutWebhook(b.t.Context(), tables.Registration{
		Webhook: webhook.Webhook{ID: "wh_a", Queue: testQueue, URL: "https://example.com/a", Timeout: time.Second},
		Policy:  p, Flow: policy.DefaultFlow(), Enabled: enabled, CreatedAt: time.Now().UTC(), UpdatedAt: time.Now().UTC(),
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

func (b *bench) send(n int, o queue.SendOptions) {
	b.t.Helper()
	q, err := b.db.Queues().Queue(testQueue)
	if err != nil {
		b.t.Fatal(err)
	}
	for range n {
		if _, err := q.Send(b.t.Context(), []byte("x"), o); err != nil {
			b.t.Fatal(err)
		}
	}
}

func TestNeverMoreIsReceivedThanMayBeInHand(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.register(true)
		b.send(20, queue.SendOptions{})
		goOn := make(chan struct{})
		b.answer = func(*queue.Message, delivery.Terms) { <-goOn }
		stop := b.start()
		time.Sleep(10 * time.Second)
		want(t, "in work", b.count(), 4)
		inHand, _ := b.Admission.Counts()
		want(t, "in hand", inHand, 4)
		close(goOn)
		time.Sleep(10 * time.Second)
		want(t, "handled", b.count(), 20)
		stop()
		inHand, _ = b.Admission.Counts()
		want(t, "in hand at rest", inHand, 0)
	})
}

func TestAPublishWakesThePollerAndAPlaceNeedsNoReceive(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.register(true)
		stop := b.start()
		defer stop()
		time.Sleep(20 * time.Minute)
		b.send(1, queue.SendOptions{})
		b.Wake(testQueue)
		time.Sleep(10 * time.Millisecond)
		want(t, "handled", b.count(), 1)
		place := b.Reserve(testQueue)
		if place == nil {
			t.Fatal("no place")
		}
		place.Leave()
		inHand, _ := b.Admission.Counts()
		want(t, "in hand after the place was left", inHand, 0)
	})
}

func TestNoPlaceUnderABacklog(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.register(true)
		stop := b.start()
		defer stop()
		time.Sleep(time.Second)
		b.Receiver.mu.Lock()
		p := b.pollers[testQueue]
		b.Receiver.mu.Unlock()
		p.noteBacklog(true, 0)
		want(t, "a place while receives come back full", b.Reserve(testQueue) != nil, false)
		p.noteBacklog(false, 0)
		place := b.Reserve(testQueue)
		want(t, "a place after the backlog", place != nil, true)
		place.Leave()
	})
}

func TestMoreSlotsAreWaitedForUnderABacklogAloneAndNotLong(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		p := &poller{Options: b.Options}
		want(t, "without a backlog", p.gather(), 0)
		p.noteBacklog(true, 20*time.Millisecond)
		want(t, "twice as long as a receive takes", p.gather(), 40*time.Millisecond)
		p.noteBacklog(true, 10*time.Second)
		want(t, "at most", p.gather(), maxGather)
		p.noteBacklog(false, 0)
		want(t, "after it", p.gather(), 0)
	})
}

// A queue whose webhooks are disabled is not polled: its messages wait until shortly before their
// end, and are handled then as what nobody takes.
func TestAGuardedQueueIsLeftAloneUntilItsMessagesAreNearTheirEnd(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.register(false)
		b.send(3, queue.SendOptions{TTL: 3 * time.Hour})
		stop := b.start()
		defer stop()
		time.Sleep(3*time.Hour - guardMargin - time.Minute)
		want(t, "handled", b.count(), 0)
		want(t, "polled", len(b.Polled()), 0)
		time.Sleep(2 * time.Minute)
		want(t, "handled near the end", b.count(), 3)
		for _, terms := range b.handled {
			want(t, "terms", terms, delivery.Terms{Held: guardMargin, Postponed: guardMargin})
		}
	})
}

func TestPumpHandlesWhatIsThereAndReturns(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.register(true)
		b.send(9, queue.SendOptions{})
		n, err := b.Pump(b.t.Context(), b.t.Context())
		want(t, "handled", n, 9)
		want(t, "error", err, nil)
		want(t, "polled afterwards", len(b.Polled()), 0)
	})
}

func TestWhatComesWhileStoppingIsRefusedAndPollingEnds(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.register(true)
		stop := b.start()
		time.Sleep(time.Second)
		b.Receiver.mu.Lock()
		p := b.pollers[testQueue]
		b.Receiver.mu.Unlock()
		ended, cancel := context.WithCancel(b.t.Context())
		cancel()
		want(t, "seats", p.seats.TryAcquire(), true)
		p.start(ended, &queue.Message{ID: "late"})
		stop()
		want(t, "refused", b.refused, 1)
		want(t, "handled", b.count(), 0)
	})
}

// lateService makes one receive answer late: it brings what is there when it is made.
type lateService struct {
	queue.Service
	by *atomic.Int64
}

func (l lateService) Queue(name string) (queue.Queue, error) {
	q, err := l.Service.Queue(name)
	return lateQueue{q, l.by}, err
}

type lateQueue struct {
	queue.Queue
	by *atomic.Int64
}

func (q lateQueue) Receive(ctx context.Context, n int, lease time.Duration) ([]*queue.Message, error) {
	got, err := q.Queue.Receive(ctx, n, lease)
	time.Sleep(time.Duration(q.by.Swap(0)))
	return got, err
}

// A receive that storage answers after seconds holds up nothing but what it brings (C68), and costs few
// receives more. While storage does not answer at all it is asked by one.
func TestALateReceiveHoldsUpNothingElse(t *testing.T) {
	var by atomic.Int64
	inBubble(t, func(o *Options) {
		o.Queues, o.Concurrency = lateService{o.Queues, &by}, 64
		o.Admission = admission.New(admission.Bounds{Slots: 64, Total: 1024}) // twice as many as a receive brings
	}, func(b *bench) {
		r := b.register(true)
		r.Flow.Adaptive = false // it takes many at a time
		if _, err := b.db.PutWebhook(b.t.Context(), r); err != nil {
			t.Fatal(err)
		}
		b.send(1, queue.SendOptions{}) // the queue is there
		stop := b.start()
		time.Sleep(5 * time.Minute) // pauses are long by now
		by.Store(int64(8 * time.Second))
		b.Wake(testQueue)
		time.Sleep(100 * time.Millisecond)
		want(t, "the receive is under way", by.Load(), 0)
		time.Sleep(400 * time.Millisecond)
		for range 10 {
			b.send(1, queue.SendOptions{})
			time.Sleep(500 * time.Millisecond)
		}
		if n := b.count(); n < 1+8 {
			t.Errorf("%d of 10 messages were handled while a receive was late", n-1)
		}
		time.Sleep(time.Minute)
		want(t, "handled", b.count(), 1+10)
		stop()
		inHand, _ := b.Admission.Counts()
		want(t, "in hand at rest", inHand, 0)
	})
}
