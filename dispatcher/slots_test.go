package dispatcher

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/admission"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

// gauge measures how many POSTs are in flight on average.
type gauge struct {
	takes time.Duration

	mu       sync.Mutex
	inFlight int
	most     int
	since    time.Time
	taken    float64 // POSTs times seconds
	count    int
	from, to int // of POSTs, that are counted
	began    time.Time
	ended    time.Time
}

func (g *gauge) add(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if !g.began.IsZero() && g.ended.IsZero() {
		g.taken += float64(g.inFlight) * now.Sub(g.since).Seconds()
	}
	g.since = now
	g.inFlight += n
	g.most = max(g.most, g.inFlight)
	if n < 0 {
		switch g.count++; g.count {
		case g.from:
			g.began = now
		case g.to:
			g.ended = now
		}
	}
}

func (g *gauge) Send(context.Context, *webhook.Webhook, webhook.Request) webhook.Result {
	g.add(1)
	time.Sleep(g.takes)
	g.add(-1)
	return webhook.Result{Status: 200}
}

func (g *gauge) average() float64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.taken / g.ended.Sub(g.began).Seconds()
}

// farQueues answers after some time.
type farQueues struct {
	queue.Service
	away time.Duration
}

func (s farQueues) Queue(name string) (queue.Queue, error) {
	q, err := s.Service.Queue(name)
	return farQueue{q, s.away}, err
}

type farQueue struct {
	queue.Queue
	away time.Duration
}

func (q farQueue) Receive(ctx context.Context, n int, lease time.Duration) ([]*queue.Message, error) {
	time.Sleep(q.away)
	return q.Queue.Receive(ctx, n, lease)
}

func (q farQueue) Complete(ctx context.Context, m *queue.Message) error {
	time.Sleep(q.away)
	return q.Queue.Complete(ctx, m)
}

type farStore struct {
	Store
	away time.Duration
}

func (s farStore) Record(ctx context.Context, r tables.Record) error {
	time.Sleep(s.away)
	return s.Store.Record(ctx, r)
}

// A receiver that takes 50 ms is sent as many POSTs at a time as may be while there is a backlog,
// though a receive takes 10 ms: the next messages are there before they can start.
func TestSlotsAreFullWhileThereIsABacklog(t *testing.T) {
	const away = 10 * time.Millisecond
	const messages = 1536
	for slots, share := range map[int]float64{64: 0.97, 256: 0.9} {
		inBubble(t, func(b *bench) {
			g := &gauge{takes: 50 * time.Millisecond, from: messages / 3, to: messages * 5 / 6}
			b.webhook.Flow.Adaptive, b.webhook.Flow.Concurrency = true, slots
			b.update(b.webhook)
			b.sendNumbered(messages)
			_, stop := b.start(func(o *Options) {
				o.Sender, o.Concurrency = g, slots
				o.Queues, o.Store = farQueues{b.queues, away}, farStore{b.store, away}
			})
			for b.total(testQueue) > 0 {
				time.Sleep(time.Second)
			}
			stop()
			taken := g.average() / float64(slots)
			t.Logf("%.3f of %d slots are taken; %d receives for %d messages", taken, slots, b.queues.count("receive"), messages)
			if taken < share {
				t.Errorf("%.3f of %d slots are taken on average, want %v", taken, slots, share)
			}
			want(t, "POSTs at a time", g.most, slots)
		})
	}
}

// When POSTs hang, what was in hand for the next slots is visible to others again after a second,
// once, and is delivered later as any other.
func TestWhatIsInHandIsGivenBackWhenSlotsStandStill(t *testing.T) {
	inBubble(t, func(b *bench) {
		const slots, messages, until = 8, 400, 60
		var posts atomic.Int64
		hanging := make(chan struct{})
		b.sender.answer = func(webhook.Request, int) webhook.Result {
			if posts.Add(1) > until {
				<-hanging
			}
			time.Sleep(50 * time.Millisecond)
			return webhook.Result{Status: 200}
		}
		b.sendNumbered(messages)
		_, stop := b.start(func(o *Options) {
			o.Concurrency, o.Queues = slots, farQueues{b.queues, 10 * time.Millisecond}
		})
		for posts.Load() < until+slots {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(admission.AheadTime + 50*time.Millisecond)
		depth, err := b.queue(testQueue).Depth(b.t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want(t, "messages that nobody else can receive", depth.Total-depth.Visible, int64(slots))
		given := b.queues.count("abandon")
		if given < 1 || given > slots*3/4 {
			t.Errorf("%d messages were given back, want 1 to %d", given, slots*3/4)
		}
		time.Sleep(10 * time.Second)
		want(t, "given back later", b.queues.count("abandon"), given)
		close(hanging)
		for b.total(testQueue) > 0 {
			time.Sleep(time.Second)
		}
		stop()
		want(t, "POSTs", posts.Load(), messages)
	})
}
