package app

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/api"
	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/tables"
)

// instanceRows is a store of instances that may be away.
type instanceRows struct {
	mu     sync.Mutex
	rows   map[string]tables.Instance
	away   bool
	writes int
}

func (s *instanceRows) PutInstance(_ context.Context, i tables.Instance) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return errors.New("storage does not answer")
	}
	s.writes++
	s.rows[i.Name] = i
	return nil
}

func (s *instanceRows) ListInstances(context.Context) (list []tables.Instance, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range s.rows {
		list = append(list, i)
	}
	return list, nil
}

func (s *instanceRows) DropInstance(_ context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.rows, name)
	return nil
}

func (s *instanceRows) of(name string) tables.Instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rows[name]
}

func (s *instanceRows) names() (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.rows {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func noError() (string, time.Time) { return "", time.Time{} }

// A check that comes and goes, as of a queue that is throttled, costs storage no row each time; what is so
// in the end is told.
func TestAReadinessThatComesAndGoesIsNotToldEachTime(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &instanceRows{rows: map[string]tables.Instance{}}
		looks, until := 0, time.Now().Add(10*time.Minute)
		h := &heartbeat{
			store: s, about: tables.Instance{Name: "one"}, log: slog.New(slog.DiscardHandler),
			checks: func(context.Context) []api.Check {
				looks++
				return []api.Check{{Name: "queue orders", OK: looks%2 == 0 && time.Now().Before(until), Degrades: true}}
			},
			atWork: func() status.Work { return status.Work{Polled: []string{"a"}} }, worst: noError,
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); h.run(ctx) }()
		time.Sleep(11 * time.Minute)
		if one := s.of("one"); one.Trouble != "queue orders" || s.writes > 11*3+1 {
			t.Errorf("%d writes in 11 minutes, and the last one says %q", s.writes, one.Trouble)
		}
		stop()
		<-ended
	})
}

func TestAnInstanceSaysOnceAMinuteThatItIsThereAndIsGoneWhenItStops(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		now := time.Now()
		s := &instanceRows{rows: map[string]tables.Instance{
			"killed-today":     {Name: "killed-today", SeenAt: now.Add(-instanceRetention + time.Hour), Queues: 3},
			"polls-too":        {Name: "polls-too", SeenAt: now.Add(time.Minute), Queues: 3}, // its clock is ahead
			"polls-no-queue":   {Name: "polls-no-queue", SeenAt: now},
			"of-tomorrow":      {Name: "of-tomorrow", SeenAt: now.Add(24 * time.Hour), Queues: 3}, // it was, and is gone
			"killed-yesterday": {Name: "killed-yesterday", SeenAt: now.Add(-instanceRetention - time.Second)},
		}}
		var log strings.Builder
		checks := []api.Check{{Name: "draining", OK: true}}
		h := &heartbeat{
			store: s, about: tables.Instance{Name: "one", Mode: "serve", StartedAt: now}, log: slog.New(slog.NewTextHandler(&log, nil)),
			checks: func(context.Context) []api.Check { s.mu.Lock(); defer s.mu.Unlock(); return slices.Clone(checks) },
			atWork: func() status.Work { return status.Work{InFlight: 3, Leases: 4, Polled: []string{"a", "b"}} },
			worst:  func() (string, time.Time) { return strings.Repeat("a", 300), now },
			clock:  func() (time.Duration, bool) { return 1500 * time.Microsecond, true },
			lanes:  func() (int, int64) { return 1, 7 },
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); h.run(ctx) }()
		time.Sleep(time.Second)
		if err := expireInstances(ctx, s, time.Now()); err != nil {
			t.Error(err)
		}
		if got := s.names(); !slices.Equal(got, []string{"killed-today", "one", "polls-no-queue", "polls-too"}) {
			t.Errorf("instances %v, want those of the last day", got)
		}
		if one := s.of("one"); one.InFlight != 3 || one.Leases != 4 || one.Queues != 2 || !slices.Equal(one.Polled, []string{"a", "b"}) || one.Lanes != 1 || one.LaneStalls != 7 || len([]rune(one.LastError)) != 200 || !one.LastErrorAt.Equal(now) || !one.Ready || one.Trouble != "" || one.ClockAhead != time.Millisecond || !one.StartedAt.Equal(now) {
			t.Errorf("%+v", one)
		}
		if n := h.pollers.Load(); n != 2 {
			t.Errorf("%d instances poll, want this one and polls-too", n)
		}
		s.mu.Lock()
		checks = []api.Check{{Name: "webhooks"}}
		s.mu.Unlock()
		time.Sleep(readinessEvery)
		if one := s.of("one"); one.Ready || one.Trouble != "webhooks" || s.writes != 2 {
			t.Errorf("after %d writes it is not told that the readiness has changed: %+v", s.writes, one)
		}
		s.mu.Lock()
		checks = []api.Check{{Name: "draining", OK: true}}
		s.mu.Unlock()
		time.Sleep(changesEvery + readinessEvery)
		if one := s.of("one"); !one.Ready || s.writes != 3 {
			t.Errorf("after %d writes: %+v", s.writes, one)
		}
		s.mu.Lock()
		s.away = true
		checks = []api.Check{{Name: "storage", Detail: "SECRET"}, {Name: "queue orders", Degrades: true}}
		s.mu.Unlock()
		time.Sleep(10 * time.Minute)
		s.mu.Lock()
		s.away = false
		s.mu.Unlock()
		time.Sleep(time.Minute)
		if one := s.of("one"); one.Ready || one.Trouble != "queue orders, storage" || time.Since(one.SeenAt) > time.Minute {
			t.Errorf("%+v", one)
		}
		if n := h.pollers.Load(); n != 1 {
			t.Errorf("%d instances poll when the other one was not seen for ten minutes", n)
		}
		stop()
		<-ended
		if s.writes > 5 {
			t.Errorf("%d writes in two minutes in which storage answered and the readiness changed twice", s.writes)
		}
		if n := strings.Count(log.String(), "can't say that it is there"); n != 1 {
			t.Errorf("an outage is said %d times", n)
		}
		if got := s.names(); slices.Contains(got, "one") {
			t.Errorf("instances %v after the stop", got)
		}
	})
}

// C113: of two processes with one name each overwrites what the other records. Both say so, as long as both are there; a
// process that was killed a moment ago, and one that stops, are no second one.
func TestTwoProcessesOfOneNameSaySo(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &instanceRows{rows: map[string]tables.Instance{"one": {Name: "one", StartedAt: time.Now().Add(-time.Hour), SeenAt: time.Now().Add(-time.Second)}}}
		var log strings.Builder
		begin := func() (h *heartbeat, end func()) {
			h = &heartbeat{
				store: s, about: tables.Instance{Name: "one", StartedAt: time.Now()}, log: slog.New(slog.NewTextHandler(&log, nil)),
				checks: func(context.Context) []api.Check { return nil }, atWork: func() status.Work { return status.Work{Polled: []string{"a"}} }, worst: noError,
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { defer close(ended); h.run(ctx) }()
			return h, func() { stop(); <-ended }
		}
		say := func(what string, want bool, hs ...*heartbeat) {
			t.Helper()
			for i, h := range hs {
				if c := h.nameCheck(time.Now()); c.OK == want || c.OK == c.Degrades || want && !strings.Contains(c.Detail, "called one") {
					t.Errorf("%s: process %d says %+v", what, i, c)
				}
			}
		}
		first, endFirst := begin()
		time.Sleep(time.Second)
		say("the one before was killed", false, first)
		time.Sleep(5*time.Minute + beatEvery/2) // they beat in turn
		second, endSecond := begin()
		time.Sleep(5 * beatEvery / 4)
		say("both run", true, first, second)
		time.Sleep(beatEvery / 2)
		if got := s.of("one"); !got.StartedAt.Equal(first.about.StartedAt) {
			t.Fatalf("the first one was not the last to beat: %+v", got)
		}
		endFirst()
		if got := s.of("one"); got.Name == "" || strings.Count(log.String(), "another process of this name wrote the row") != 1 {
			t.Errorf("the first one has left the row %+v, and said %s", got, log.String())
		}
		time.Sleep(beatEvery + missedAfter)
		say("one has stopped", false, second)
		endSecond()
		if got := s.names(); len(got) > 0 {
			t.Errorf("the rows of %v are left", got)
		}
	})
}
