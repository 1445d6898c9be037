package receive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/admission"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// slowPages is a history of so many pages, each of which takes so long; the attempts are on the last one, or on each with everywhere.
type slowPages struct {
	takes         time.Duration
	n             int
	everywhere    bool
	failsAt       atomic.Int64 // the page that can't be read; negative: none
	asked         atomic.Int64
	now, together atomic.Int64 // looks at a time, and the most of them
}

func (s *slowPages) Attempts(ctx context.Context, _ tables.AttemptFilter, page tables.Page) ([]tables.Attempt, tables.Cursor, error) {
	s.together.Store(max(s.together.Load(), s.now.Add(1)))
	defer s.now.Add(-1)
	s.asked.Add(1)
	select {
	case <-ctx.Done():
		return nil, "", ctx.Err()
	case <-time.After(s.takes):
	}
	at, _ := strconv.Atoi(string(page.After))
	if at == int(s.failsAt.Load()) {
		return nil, "", errors.New("storage is busy")
	}
	var found []tables.Attempt
	for i := 0; (s.everywhere || at == s.n-1) && i < 100; i++ {
		found = append(found, tables.Attempt{MessageKey: tables.MessageKey{MessageID: fmt.Sprint(at, i)}, WebhookID: "w", StartedAt: time.Now(), Action: policy.Abandon})
	}
	if at == s.n-1 {
		return found, "", nil
	}
	return found, tables.Cursor(strconv.Itoa(at + 1)), nil
}

// missing is a service whose queues are not there while gone is set.
type missing struct {
	queue.Service
	gone *atomic.Bool
}

func (m missing) Queue(name string) (queue.Queue, error) {
	q, err := m.Service.Queue(name)
	return missingQueue{q, m.gone}, err
}

type missingQueue struct {
	queue.Queue
	gone *atomic.Bool
}

func (q missingQueue) Receive(ctx context.Context, n int, lease time.Duration) ([]*queue.Message, error) {
	if q.gone.Load() {
		return nil, queue.ErrQueueNotFound
	}
	time.Sleep(5 * time.Millisecond)
	return q.Queue.Receive(ctx, n, lease)
}

// goneBench polls a queue whose history is h; log is what was said.
func goneBench(t *testing.T, h *slowPages, gone *atomic.Bool, f func(b *bench, log *bytes.Buffer)) {
	t.Helper()
	var log bytes.Buffer
	inBubble(t, func(o *Options) {
		o.Queues, o.Attempts, o.PollMax = missing{o.Queues, gone}, h, 5*time.Second
		o.Log, o.Concurrency = slog.New(slog.NewTextHandler(&log, nil)), 64
		o.Admission = admission.New(admission.Bounds{Slots: 64, Total: 1024}) // there are seats for another receive
	}, func(b *bench) {
		r := b.register(true)
		r.Flow.Adaptive = false
		if _, err := b.db.PutWebhook(b.t.Context(), r); err != nil {
			t.Fatal(err)
		}
		b.send(1, queue.SendOptions{})
		f(b, &log)
	})
}

// C94: a look at a long past goes on where the one before ended, whatever ended that one.
func TestALookAtALongPastGoesOn(t *testing.T) {
	var gone atomic.Bool
	gone.Store(true)
	h := &slowPages{takes: 3 * time.Second, n: 30}
	h.failsAt.Store(20)
	goneBench(t, h, &gone, func(b *bench, log *bytes.Buffer) {
		defer b.start()()
		time.Sleep(10 * time.Minute)
		poll, _ := b.Poll(testQueue)
		want(t, "gone while a page can't be read", poll.Gone() != nil, false)
		want(t, "a queue that is not there yet", strings.Contains(log.String(), "does not exist yet"), false)
		asked := h.asked.Load()
		h.failsAt.Store(-1)
		time.Sleep(5 * time.Minute)
		poll, _ = b.Poll(testQueue)
		if err := poll.Gone(); err == nil || !strings.Contains(err.Error(), "up to 100 messages may have waited") {
			t.Errorf("gone: %v", err)
		}
		if n := h.asked.Load() - asked; n > 10+5 { // a page that the bound cut is read again
			t.Errorf("%d pages were asked for, of 10 that were left", n)
		}
	})
}

// What was read before an error is judged, and where nothing could be read that is said.
func TestThePastOfAMissingQueueSaysWhatItDoesNotKnow(t *testing.T) {
	for _, c := range []struct {
		failsAt     int64
		first, then string
	}{
		{0, "an unknown number of messages may have waited", "up to 500 messages may have waited"},
		{2, "200 messages or more may have waited", "200 messages or more may have waited"},
	} {
		var gone atomic.Bool
		h := &slowPages{takes: time.Millisecond, n: 5, everywhere: true}
		h.failsAt.Store(c.failsAt)
		goneBench(t, h, &gone, func(b *bench, log *bytes.Buffer) {
			stop := b.start()
			time.Sleep(time.Minute)
			gone.Store(true)
			time.Sleep(time.Minute)
			poll, _ := b.Poll(testQueue)
			if err := poll.Gone(); err == nil || !strings.Contains(err.Error(), c.first) {
				t.Errorf("page %d can't be read: %v", c.failsAt, err)
			}
			h.failsAt.Store(-1)
			time.Sleep(time.Minute)
			poll, _ = b.Poll(testQueue)
			if err := poll.Gone(); err == nil || !strings.Contains(err.Error(), c.then) {
				t.Errorf("page %d can be read: %v", c.failsAt, err)
			}
			stop()
			said := log.String()
			want(t, "lines about a queue that is gone", strings.Count(said, "somebody deleted it"), 1)
			want(t, "lines about a queue that is not there yet", strings.Count(said, "does not exist yet"), 0)
			want(t, "lines with the number that came later", strings.Count(said, "is known now"), map[bool]int{true: 1}[c.first != c.then])
		})
	}
}

// A look at the past is no late receive: nobody stands in for it, and it tells nothing of how long receives take.
func TestALookAtThePastIsNoReceive(t *testing.T) {
	var gone atomic.Bool
	h := &slowPages{takes: 900 * time.Millisecond, n: 30, everywhere: true}
	h.failsAt.Store(-1)
	goneBench(t, h, &gone, func(b *bench, _ *bytes.Buffer) {
		defer b.start()()
		time.Sleep(time.Minute)
		b.Receiver.mu.Lock()
		p := b.pollers[testQueue]
		b.Receiver.mu.Unlock()
		usual := func() time.Duration { p.mu.Lock(); defer p.mu.Unlock(); return p.usual }
		want(t, "as a rule", usual(), 5*time.Millisecond)
		gone.Store(true)
		time.Sleep(time.Minute)
		poll, _ := b.Poll(testQueue)
		want(t, "gone", poll.Gone() != nil, true)
		want(t, "looks at a time", h.together.Load(), 1)
		if usual() > 5*time.Millisecond {
			t.Errorf("a receive takes %s as a rule", usual())
		}
	})
}
