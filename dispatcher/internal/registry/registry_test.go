package registry

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

// store is what the registry reads, as a test sets it.
type store struct {
	tables.Webhooks
	tables.LeftQueues

	mu    sync.Mutex
	list  []tables.Registration
	bad   []tables.RowError
	left  []tables.LeftQueue
	err   error
	takes time.Duration
	reads int
	// forgotten are webhooks whose health is, unless that fails.
	forgotten []string
	keeps     error
}

func (s *store) DeleteHealth(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := cmp.Or(s.err, s.keeps)
	if err == nil {
		s.forgotten = append(s.forgotten, id)
	}
	return err
}

func (s *store) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *store) ListWebhooks(ctx context.Context) ([]tables.Registration, []tables.RowError, error) {
	s.mu.Lock()
	s.reads++
	list, bad, err, takes := slices.Clone(s.list), s.bad, s.err, s.takes
	s.mu.Unlock()
	select {
	case <-time.After(takes):
		return list, bad, err
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}

func (s *store) ListLeftQueues(context.Context) ([]tables.LeftQueue, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left, s.err
}

func (s *store) PutLeftQueue(_ context.Context, l tables.LeftQueue) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.left = append(slices.Clone(s.left), l)
	}
	return s.err
}

func (s *store) DropLeftQueue(_ context.Context, l tables.LeftQueue) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = slices.DeleteFunc(slices.Clone(s.left), func(one tables.LeftQueue) bool { return one == l })
	return s.err
}

func on(queueName, id string, enabled bool) tables.Registration {
	return tables.Registration{
		Webhook: webhook.Webhook{ID: id, Queue: queueName, Timeout: time.Second},
		Policy:  policy.Policy{MaxAttempts: 1, MaxAge: policy.Duration(time.Hour)}, Enabled: enabled,
	}
}

func inBubble(t *testing.T, f func(t *testing.T, s *store, r *Registry, log *bytes.Buffer)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		s, log := &store{}, &bytes.Buffer{}
		f(t, s, New(s, slog.New(slog.NewTextHandler(log, nil)), func(context.Context, []tables.Registration) {}), log)
	})
}

func read(t *testing.T, r *Registry) {
	t.Helper()
	if !r.Refresh(t.Context()) {
		t.Fatal("the webhooks can't be read")
	}
}

func names(m map[string]bool) string { return strings.Join(slices.Sorted(maps.Keys(m)), " ") }

func TestAQueueIsPolledForAnEnabledWebhookAndGuardedForOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, s *store, r *Registry, _ *bytes.Buffer) {
		s.list = []tables.Registration{on("a", "1", true), on("a", "2", false), on("b", "3", false)}
		read(t, r)
		want(t, "polled", names(r.ToPoll()), "a")
		want(t, "guarded", names(r.ToGuard()), "b")
		want(t, "webhooks of a", len(r.Of("a")), 2)
		want(t, "webhooks of c", len(r.Of("c")), 0)
	})
}

func TestAStoreThatCannotBeAskedLeavesWhatIsKnownAndIsLoggedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, s *store, r *Registry, log *bytes.Buffer) {
		s.list = []tables.Registration{on("a", "1", true)}
		read(t, r)
		readAt, _ := r.Status()
		s.set(func() { s.list, s.err = nil, errors.New("busy") })
		for range 3 {
			time.Sleep(time.Second)
			if r.Refresh(t.Context()) {
				t.Error("it could be read")
			}
		}
		at, err := r.Status()
		want(t, "polled", names(r.ToPoll()), "a")
		want(t, "read at the same time", at.Equal(readAt), true)
		want(t, "tells the error", err != nil, true)
		want(t, "lines", strings.Count(log.String(), "can't be read"), 1)
		s.set(func() { s.err = nil })
		read(t, r)
		want(t, "polled afterwards", names(r.ToPoll()), "")
		want(t, "lines that it is well", strings.Count(log.String(), "can be read again"), 1)
	})
}

func TestOneReadingServesAllThatWaitForOne(t *testing.T) {
	inBubble(t, func(t *testing.T, s *store, r *Registry, _ *bytes.Buffer) {
		s.takes = time.Second
		var waiting sync.WaitGroup
		for range 20 {
			waiting.Go(func() {
				since := time.Now().Add(-time.Millisecond)
				if !r.Fresh(t.Context(), since) {
					t.Error("not fresh")
				}
			})
		}
		waiting.Wait()
		want(t, "readings", s.reads, 1)
		want(t, "is fresh without another one", r.Fresh(t.Context(), time.Now().Add(-2*time.Second)) && s.reads == 1, true)
		time.Sleep(time.Second)
		want(t, "fresh for what is newer", r.Fresh(t.Context(), time.Now()), true)
		want(t, "readings for that", s.reads, 2)
		ended, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		want(t, "fresh although nobody answers in time", r.Fresh(ended, time.Now().Add(time.Second)), false)
	})
}

// Who is content with what was read waits for no reading that storage holds up.
func TestWhatIsFreshEnoughWaitsForNoReading(t *testing.T) {
	inBubble(t, func(t *testing.T, s *store, r *Registry, _ *bytes.Buffer) {
		r.Tell()
		time.Sleep(time.Second)
		read(t, r)
		time.Sleep(time.Second)
		s.takes = 10 * time.Second
		var slow sync.WaitGroup
		slow.Go(func() { r.Refresh(t.Context()) })
		synctest.Wait()
		start := time.Now()
		want(t, "fresh", r.Fresh(t.Context(), start.Add(-2*time.Second)), true)
		want(t, "caught up with what was told of", r.CatchUp(t.Context()), true)
		want(t, "waited", time.Since(start), 0)
		slow.Wait()
	})
}

// A reading that began earlier never brings back what was known before a later one.
func TestReadingThatEndsLateDoesNotBringBackWhatWasKnownBefore(t *testing.T) {
	inBubble(t, func(t *testing.T, s *store, r *Registry, _ *bytes.Buffer) {
		s.list, s.takes = []tables.Registration{on("a", "1", true)}, 5*time.Second
		done := make(chan struct{})
		go func() { r.Refresh(t.Context()); close(done) }()
		synctest.Wait()
		s.set(func() { s.list, s.takes = []tables.Registration{on("b", "2", true)}, 0 })
		read(t, r)
		<-done
		want(t, "polled", names(r.ToPoll()), "b")
	})
}

func TestWhatWasToldOfIsReadBeforeTheNextMessageAndNotAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, s *store, r *Registry, _ *bytes.Buffer) {
		read(t, r)
		r.CatchUp(t.Context())
		want(t, "readings with nothing told", s.reads, 1)
		time.Sleep(time.Millisecond)
		r.Tell()
		want(t, "who waits is told", len(r.Changed), 1)
		time.Sleep(time.Millisecond)
		s.set(func() { s.list = []tables.Registration{on("a", "1", true)} })
		r.CatchUp(t.Context())
		want(t, "webhooks", len(r.Of("a")), 1)
		r.CatchUp(t.Context())
		want(t, "readings", s.reads, 2)
		s.set(func() { s.takes = time.Hour })
		time.Sleep(time.Millisecond)
		r.Tell()
		time.Sleep(time.Millisecond)
		start := time.Now()
		r.CatchUp(t.Context())
		want(t, "a store that is away delays for 5s", time.Since(start), 5*time.Second)
	})
}

// A list that was begun after the telling shows it, also within one reading of the clock, and those who waited for one
// reading go by it.
func TestAListThatIsReadInTheInstantOfTheTellingIsCaughtUpWith(t *testing.T) {
	inBubble(t, func(t *testing.T, s *store, r *Registry, _ *bytes.Buffer) {
		s.list = []tables.Registration{on("a", "1", true)}
		read(t, r)
		time.Sleep(time.Millisecond)
		for _, err := range []error{nil, &tables.VanishedError{Missed: []tables.RowError{{ID: "1", Queue: "a"}}}} {
			s.set(func() { s.err = err })
			r.Tell()
			want(t, "caught up", r.CatchUp(t.Context()), true)
		}
		s.set(func() { s.takes = time.Second })
		time.Sleep(time.Millisecond)
		r.Tell()
		time.Sleep(time.Millisecond)
		before := s.reads
		var waiting sync.WaitGroup
		for range 20 {
			waiting.Go(func() { want(t, "caught up with one that others read", r.CatchUp(t.Context()), true) })
		}
		waiting.Wait()
		want(t, "readings for all who waited", s.reads-before, 1)
	})
}

// C85: where all webhooks are missed by a list that was read, no message waits for a better one.
func TestAListInWhichAllAreMissedIsCaughtUpWith(t *testing.T) {
	inBubble(t, func(t *testing.T, s *store, r *Registry, _ *bytes.Buffer) {
		s.list = []tables.Registration{on("a", "1", true)}
		read(t, r)
		time.Sleep(time.Millisecond)
		s.set(func() { s.list, s.err = nil, &tables.VanishedError{Missed: []tables.RowError{{ID: "1", Queue: "a"}}} })
		r.Tell()
		time.Sleep(time.Millisecond)
		want(t, "caught up", r.CatchUp(t.Context()), true)
		want(t, "caught up again", r.CatchUp(t.Context()), true)
		want(t, "readings", s.reads, 2)
		s.set(func() { s.err = errors.New("away") })
		time.Sleep(time.Millisecond)
		r.Tell()
		time.Sleep(time.Millisecond)
		want(t, "caught up with one that was not read", r.CatchUp(t.Context()), false)
	})
}

func TestARowThatCannotBeReadIsLoggedOnceAndTheOthersGoOn(t *testing.T) {
	inBubble(t, func(t *testing.T, s *store, r *Registry, log *bytes.Buffer) {
		s.list, s.bad = []tables.Registration{on("a", "1", true)}, []tables.RowError{{ID: "2", Err: errors.New("bad row")}}
		read(t, r)
		read(t, r)
		want(t, "unknown", len(r.Unknown("a")), 1)
		want(t, "polled", names(r.ToPoll()), "a")
		want(t, "lines", strings.Count(log.String(), "bad row"), 1)
		s.set(func() { s.bad = nil })
		read(t, r)
		want(t, "unknown afterwards", len(r.Unknown("a")), 0)
	})
}

func TestWhoGoesByAReadingIsToldOfItFirst(t *testing.T) {
	s, told := &store{list: []tables.Registration{on("a", "1", true)}}, 0
	var r *Registry
	r = New(s, slog.New(slog.DiscardHandler), func(_ context.Context, all []tables.Registration) {
		told = len(all)
		want(t, "known before", len(r.Of("a")), 0)
	})
	read(t, r)
	want(t, "told of", told, 1)
	want(t, "known afterwards", len(r.Of("a")), 1)
}

// C85: a registration that went while no process ran: its queue is guarded, unless another webhook is there, and no later start
// misses it again.
func TestARegistrationThatWentBeforeTheStartIsADeletion(t *testing.T) {
	inBubble(t, func(t *testing.T, s *store, r *Registry, log *bytes.Buffer) {
		s.list = []tables.Registration{on("a", "1", true)}
		s.left = []tables.LeftQueue{{Queue: "b", At: time.Now().Add(-time.Hour)}} // of an earlier one
		r.Removed("2", "a")
		r.Removed("3", "b")
		r.Removed("4", "")
		r.RefreshLeft(t.Context()) // before anything is read
		s.set(func() { s.err = errors.New("injected") })
		want(t, "read", r.Refresh(t.Context()), false)
		r.RefreshLeft(t.Context())
		s.set(func() { s.err = nil })
		read(t, r)
		for range 2 {
			r.RefreshLeft(t.Context())
		}
		want(t, "guarded", names(r.ToGuard()), "b")
		want(t, "what was there is ours", r.LeftWith("b", time.Now().Add(-time.Minute)), true)
		slices.Sort(s.forgotten)
		want(t, "forgotten", strings.Join(s.forgotten, " "), "2 3 4")
		want(t, "lines about queues", strings.Count(log.String(), "the webhooks of a queue are gone"), 1)
	})
}

// C85: health that can't be deleted keeps no queue from being guarded, and is deleted later.
func TestTheQueueOfAWebhookIsGuardedThoughItsHealthCanNotBeDeleted(t *testing.T) {
	inBubble(t, func(t *testing.T, s *store, r *Registry, log *bytes.Buffer) {
		s.list, s.keeps = []tables.Registration{on("a", "1", true)}, errors.New("injected")
		s.left = []tables.LeftQueue{{Queue: "c", At: time.Now()}}
		r.Removed("2", "b")
		read(t, r)
		for range 2 {
			r.RefreshLeft(t.Context())
		}
		want(t, "guarded", names(r.ToGuard()), "b c")
		want(t, "lines about the health", strings.Count(log.String(), "the health of a webhook that is gone can't be removed"), 1)
		want(t, "lines about the notes", strings.Count(log.String(), "can't be read"), 0)
		s.set(func() { s.keeps = nil })
		r.RefreshLeft(t.Context())
		want(t, "forgotten", strings.Join(s.forgotten, " "), "2")
	})
}

// C85: who deletes a webhook of which nothing is known, since it is missed or can't be read, leaves its queue.
func TestTheQueueOfAMissedWebhookIsGuardedWhenThatIsDeleted(t *testing.T) {
	inBubble(t, func(t *testing.T, s *store, r *Registry, _ *bytes.Buffer) {
		s.bad = []tables.RowError{{ID: "1", Queue: "a", Err: tables.ErrVanished}}
		read(t, r)
		r.RefreshLeft(t.Context())
		s.set(func() { s.bad, s.left = nil, []tables.LeftQueue{{Queue: "a", At: time.Now()}} })
		read(t, r)
		r.RefreshLeft(t.Context())
		want(t, "guarded", names(r.ToGuard()), "a")
	})
}

func TestAQueueThatLostItsLastWebhookIsGuardedForWhatWasThere(t *testing.T) {
	inBubble(t, func(t *testing.T, s *store, r *Registry, _ *bytes.Buffer) {
		s.list = []tables.Registration{on("a", "1", true)}
		read(t, r)
		r.RefreshLeft(t.Context())
		deleted := time.Now()
		note := tables.LeftQueue{Queue: "a", At: deleted}
		s.set(func() { s.list, s.left = nil, []tables.LeftQueue{note} })
		r.RefreshLeft(t.Context())
		want(t, "guarded before the webhooks are read", names(r.ToGuard()), "")
		read(t, r)
		r.RefreshLeft(t.Context())
		want(t, "guarded", names(r.ToGuard()), "a")
		want(t, "what was there is ours", r.LeftWith("a", deleted.Add(-time.Hour)), true)
		want(t, "what clocks that differ may have put there is", r.LeftWith("a", deleted.Add(tables.LeftSkew)), true)
		want(t, "what came later is not", r.LeftWith("a", deleted.Add(tables.LeftSkew+time.Second)), false)
		s.set(func() { s.list = []tables.Registration{on("a", "2", false)} })
		read(t, r)
		_, left := r.LeftQueue("a")
		want(t, "left although a webhook is there again", left, false)
		s.set(func() { s.list = nil })
		read(t, r)
		if err := r.Forget(t.Context(), note); err != nil {
			t.Fatal(err)
		}
		want(t, "guarded when nothing is left", names(r.ToGuard()), "")
		want(t, "notes in the store", len(s.left), 0)
	})
}

func TestWhatWasKnownOfARowThatCannotBeReadStaysInForce(t *testing.T) {
	inBubble(t, func(t *testing.T, s *store, r *Registry, log *bytes.Buffer) {
		s.list = []tables.Registration{on("a", "1", true), on("b", "2", true)}
		read(t, r)
		s.set(func() {
			s.list, s.bad = nil, []tables.RowError{{ID: "1", Err: errors.New("bad row")}, {ID: "3", Queue: "c", Err: errors.New("bad row")}, {ID: "4", Err: errors.New("bad row")}}
		})
		read(t, r)
		want(t, "polled", names(r.ToPoll()), "a")
		want(t, "guarded, since it is known whose it is", names(r.ToGuard()), "c")
		for _, id := range []string{"1", "3", "4"} {
			want(t, "told of "+id, strings.Contains(r.Unreadable().Error(), "webhook "+id+":"), true)
		}
		s.set(func() { s.bad = nil })
		read(t, r)
		want(t, "polled when they are gone", names(r.ToPoll()), "")
		if err := r.Unreadable(); err != nil {
			t.Errorf("when they are gone: %v", err)
		}
	})
	inBubble(t, func(t *testing.T, s *store, r *Registry, _ *bytes.Buffer) { // one is deleted and registered again, on another queue, between two readings
		s.list = []tables.Registration{on("a", "1", true), on("a", "2", true)}
		read(t, r)
		s.set(func() { s.list = []tables.Registration{on("b", "1", true), on("a", "2", true)} })
		read(t, r)
		want(t, "polled", names(r.ToPoll()), "a b")
		want(t, "webhooks of the queue that it left", len(r.Of("a")), 1)
		want(t, "unreadable", r.Unreadable() == nil, true)
	})
	inBubble(t, func(t *testing.T, s *store, r *Registry, _ *bytes.Buffer) { // all that there were, until each is deleted
		s.list = []tables.Registration{on("a", "1", true), on("b", "2", true)}
		read(t, r)
		s.set(func() {
			s.list, s.err = nil, &tables.VanishedError{Missed: []tables.RowError{{ID: "1", Queue: "a"}, {ID: "2", Queue: "b"}}}
		})
		want(t, "read when all have vanished", r.Refresh(t.Context()), false)
		want(t, "polled", names(r.ToPoll()), "a b")
		s.set(func() { s.err = &tables.VanishedError{Missed: []tables.RowError{{ID: "2", Queue: "b"}}} })
		want(t, "read when one of them was deleted", r.Refresh(t.Context()), false)
		want(t, "polled when one of them was deleted", names(r.ToPoll()), "b")
		if _, err := r.Status(); !errors.Is(err, tables.ErrVanished) {
			t.Errorf("Status = %v", err)
		}
	})
	for name, change := range map[string]func(*tables.Registration){
		"no policy": func(r *tables.Registration) { r.Policy = policy.Policy{} },
		"no queue":  func(r *tables.Registration) { r.Queue = "" },
		"no time":   func(r *tables.Registration) { r.Timeout = -1 },
		"no pause":  func(r *tables.Registration) { r.Policy.MaxAttempts, r.Policy.Backoff = 2, policy.Backoff{} },
		"no age":    func(r *tables.Registration) { r.Policy.MaxAge = 0 },
	} {
		reg := on("a", "1", true)
		if change(&reg); !errors.Is(usable(&reg), tables.ErrDamaged) {
			t.Errorf("%s: a registration that nothing can be sent by is taken", name)
		}
	}
}
