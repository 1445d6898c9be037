package dispatcher

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/admission"
	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

// distant is storage that is some time away, and what was asked of it.
type distant struct {
	queue.Service
	Store
	away time.Duration

	mu              sync.Mutex
	receives, most  int // most at a time
	underWay, empty int
	recording, peak int // records under way, and the most of them
}

func (s *distant) Queue(name string) (queue.Queue, error) {
	q, err := s.Service.Queue(name)
	return distantQueue{q, s}, err
}

func (s *distant) Record(ctx context.Context, r tables.Record) error {
	s.mu.Lock()
	s.recording++
	s.peak = max(s.peak, s.recording)
	s.mu.Unlock()
	time.Sleep(s.away)
	s.mu.Lock()
	s.recording--
	s.mu.Unlock()
	return s.Store.Record(ctx, r)
}

type distantQueue struct {
	queue.Queue
	s *distant
}

func (q distantQueue) Receive(ctx context.Context, n int, lease time.Duration) ([]*queue.Message, error) {
	q.s.mu.Lock()
	q.s.receives++
	q.s.underWay++
	q.s.most = max(q.s.most, q.s.underWay)
	q.s.mu.Unlock()
	time.Sleep(q.s.away)
	got, err := q.Queue.Receive(ctx, n, lease)
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	q.s.underWay--
	if len(got) == 0 {
		q.s.empty++
	}
	return got, err
}

func (q distantQueue) Complete(ctx context.Context, m *queue.Message) error {
	time.Sleep(q.s.away)
	return q.Queue.Complete(ctx, m)
}

// started is what was asked for since then.
func (s *distant) counts() (receives, empty, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.receives, s.empty, s.most
}

// crowd is a receiver that knows how many POSTs it has at a time.
type crowd struct {
	takes func(n int) time.Duration

	mu                 sync.Mutex
	posts, now, atOnce int
	last               time.Time
}

func (w *crowd) Send(ctx context.Context, _ *webhook.Webhook, _ webhook.Request) webhook.Result {
	start := time.Now()
	w.mu.Lock()
	w.posts++
	w.now++
	w.atOnce, w.last = max(w.atOnce, w.now), start
	takes := w.takes(w.posts)
	w.mu.Unlock()
	ended := retry.Sleep(ctx, takes)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now--
	if !ended {
		return webhook.Result{StartedAt: start, ErrorClass: "canceled"}
	}
	return webhook.Result{Status: 200, StartedAt: start, Duration: time.Since(start)}
}

func (w *crowd) count() (posts, atOnce int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.posts, w.atOnce
}

func (b *bench) distant(away time.Duration) *distant {
	return &distant{Service: b.queues, Store: b.store, away: away}
}

// Under a backlog several receives are under way at a time, nearly full each; when it ends
// one receiver is left.
func TestReceivesUnderABacklogAreFullAndSeveralAtATime(t *testing.T) {
	inBubble(t, func(b *bench) {
		const messages = 1600
		s := b.distant(10 * time.Millisecond)
		w := &crowd{takes: func(n int) time.Duration { return time.Duration(1+n%5) * time.Millisecond }}
		b.sendMany(messages, queue.SendOptions{})
		start := time.Now()
		_, stop := b.start(func(o *Options) { o.Queues, o.Store, o.Sender, o.PollMin, o.PollMax = s, s, w, time.Hour, time.Hour })
		time.Sleep(5 * time.Second)
		receives, empty, most := s.counts()
		posts, atOnce := w.count()
		want(t, "POSTs", posts, messages)
		want(t, "messages left", b.total(testQueue), 0)
		if full := receives - empty; full > messages/queue.MaxReceive*5/4 {
			t.Errorf("%d receives for %d messages, want nearly full ones", full, messages)
		}
		if most < 2 || most > maxReceivers {
			t.Errorf("%d receives at a time, want 2 to %d", most, maxReceivers)
		}
		if empty > maxReceivers {
			t.Errorf("%d empty receives at the end, want %d at most", empty, maxReceivers)
		}
		if atOnce > 64 {
			t.Errorf("%d POSTs at a time, want 64 at most", atOnce)
		}
		if took := w.last.Sub(start); took > time.Second {
			t.Errorf("the last of %d messages was POSTed after %s", messages, took)
		}
		if n := strings.Count(stacks(), "handleAll"); n > 0 {
			t.Errorf("%d handlers wait for nothing", n)
		}
		s.mu.Lock()
		s.most, s.receives = 0, 0
		s.mu.Unlock()
		stop()
	})
}

// What hangs keeps nobody waiting but itself: receives wait for more slots, but not for long.
func TestMessagesThatHangKeepNoOthersWaiting(t *testing.T) {
	inBubble(t, func(b *bench) {
		s := b.distant(10 * time.Millisecond)
		w := &crowd{takes: func(n int) time.Duration {
			if n <= 60 {
				return 20 * time.Second
			}
			return 2 * time.Millisecond
		}}
		b.sendMany(60+400, queue.SendOptions{})
		_, stop := b.start(func(o *Options) { o.Queues, o.Store, o.Sender = s, s, w })
		time.Sleep(10 * time.Second) // 4 slots are left: each receive waits 20 ms for more, and takes 10 ms
		if posts, _ := w.count(); posts != 460 {
			t.Errorf("%d POSTs while 60 messages hang, want 460", posts)
		}
		stop()
	})
}

// A slot is a message's until its POSTs were answered; what then waits for storage is
// bounded on its own.
func TestWhatWaitsForStorageHoldsUpNoPost(t *testing.T) {
	inBubble(t, func(b *bench) {
		const slots = 8
		settling := admission.Bounds{Slots: slots}.Settling()
		s := b.distant(time.Second)
		w := &crowd{takes: func(int) time.Duration { return time.Second }}
		b.sendMany(100, queue.SendOptions{})
		start := time.Now()
		d, stop := b.start(func(o *Options) { o.Queues, o.Store, o.Sender, o.Concurrency = s, s, w, slots })
		for range 300 {
			time.Sleep(100 * time.Millisecond)
			if n, most := statusOf(d, testQueue).InFlight, slots+settling; n > most {
				t.Fatalf("%d messages in work, want %d at most", n, most)
			}
		}
		time.Sleep(time.Minute)
		posts, atOnce := w.count()
		want(t, "POSTs", posts, 100)
		want(t, "POSTs at a time", atOnce, slots)
		if took := w.last.Sub(start); took > 30*time.Second { // 37 s when a slot is a message's until it is settled
			t.Errorf("the last POST began after %s", took)
		}
		if s.peak < slots/2 || s.peak > 2*slots {
			t.Errorf("%d records at a time", s.peak)
		}
		want(t, "messages left", b.total(testQueue), 0)
		stop()
	})
}

// Records and deletes take several requests' time, a receive takes one: where POSTs are quick,
// the next receive does not wait for what is settling.
func TestWhatIsSettlingHoldsUpNoReceive(t *testing.T) {
	inBubble(t, func(b *bench) {
		const slots, messages = 8, 400
		s := b.distant(time.Second)
		w := &crowd{takes: func(int) time.Duration { return 10 * time.Millisecond }}
		b.sendMany(messages, queue.SendOptions{})
		start := time.Now()
		_, stop := b.start(func(o *Options) { o.Queues, o.Store, o.Sender, o.Concurrency = s, s, w, slots })
		time.Sleep(5 * time.Minute)
		posts, _ := w.count()
		want(t, "POSTs", posts, messages)
		// A second for each 8 of them; twice that when no more may be settling than have slots.
		if took := w.last.Sub(start); took > messages/slots*time.Second*5/4 {
			t.Errorf("the last POST began after %s", took)
		}
		stop()
	})
}

// While storage takes nothing, no more is received than may be settling.
func TestStorageThatTakesNothingIsNotSwamped(t *testing.T) {
	inBubble(t, func(b *bench) {
		const slots = 8
		settling := admission.Bounds{Slots: slots}.Settling()
		s := b.distant(0)
		w := &crowd{takes: func(int) time.Duration { return time.Millisecond }}
		b.sendMany(100, queue.SendOptions{})
		b.store.on("record", always(failBefore))
		b.queues.on("complete", always(failBefore))
		_, stop := b.start(func(o *Options) { o.Queues, o.Store, o.Sender, o.Concurrency = s, s, w, slots })
		time.Sleep(10 * time.Second) // records are tried for 20 s
		if posts, _ := w.count(); posts != slots+settling {
			t.Errorf("%d POSTs, want %d", posts, slots+settling)
		}
		b.store.on("record", nil)
		b.queues.on("complete", nil)
		time.Sleep(2 * time.Minute)
		want(t, "messages left", b.total(testQueue), 0)
		stop()
	})
}

// What a process held that was killed comes back when its lease ends; whoever starts then
// looks at that time, and returns to the longest pause afterwards.
func TestMessagesOfAKilledProcessAreDeliveredWithinALease(t *testing.T) {
	for _, lease := range []time.Duration{2 * time.Second, 30 * time.Second, 5 * time.Minute} {
		inBubble(t, func(b *bench) {
			b.sendMany(40, queue.SendOptions{})
			killed := time.Now()
			for range 2 {
				if _, err := b.queue(testQueue).Receive(b.t.Context(), 20, lease); err != nil {
					t.Fatal(err)
				}
			}
			s := b.distant(0)
			w := &crowd{takes: func(int) time.Duration { return 0 }}
			_, stop := b.start(func(o *Options) { o.Queues, o.Store, o.Sender, o.Lease, o.PollMax = s, s, w, lease, 30*time.Second })
			time.Sleep(lease + lease/10)
			posts, _ := w.count()
			want(t, "POSTs", posts, 40)
			if late := w.last.Sub(killed) - lease; late > max(lease/30, 150*time.Millisecond) {
				t.Errorf("lease %s: the last message was POSTed %s after it", lease, late)
			}
			before, _, _ := s.counts()
			if before > 120 {
				t.Errorf("lease %s: %d receives in one lease", lease, before)
			}
			time.Sleep(3 * time.Minute) // until pauses are the longest
			from, _, _ := s.counts()
			time.Sleep(time.Hour)
			until, _, _ := s.counts()
			if n := until - from; n < 110 || n > 130 {
				t.Errorf("lease %s: %d receives of an empty queue in an hour, want about 120", lease, n)
			}
			stop()
		})
	}
}
