package flow

import (
	"log/slog"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

func TestTurningTheBreakerOffEndsAnOpenOne(t *testing.T) {
	r := tables.Registration{Webhook: webhook.Webhook{ID: "wh_a", Queue: "orders"}, Flow: policy.DefaultFlow(), Enabled: true}
	f := testFlows().Of(&r)
	f.breaker.Restore(policy.BreakerState{Phase: policy.BreakerOpen, Since: time.Now(), NextProbe: time.Now().Add(time.Hour), Wait: policy.Duration(time.Hour)})
	want(t, "state", f.Status(time.Now()).State, status.Failing)
	r.Flow.Breaker.Enabled = false
	f.update(r)
	want(t, "state after it was turned off", f.Status(time.Now()).State, status.Healthy)
	if n, _ := f.room(0, 4, time.Now()); n != 4 {
		t.Errorf("room = %d, want 4", n)
	}
}

func testRegistration() tables.Registration {
	return tables.Registration{Webhook: webhook.Webhook{ID: "wh_a", Queue: "orders"}, Flow: policy.DefaultFlow(), Enabled: true}
}

func testFlow(change func(*policy.Flow)) *Flow {
	r := testRegistration()
	change(&r.Flow)
	return testFlows().Of(&r)
}

func TestATicketThatIsGivenBackGivesItsTokenBack(t *testing.T) {
	f := testFlow(func(f *policy.Flow) { f.Rate, f.Burst = 0.1, 1 })
	now := time.Now()
	for range 3 {
		ticket, refused := f.Enter(now)
		if refused != nil {
			t.Fatalf("refused: %+v", refused)
		}
		ticket.Unused()
	}
	if _, refused := f.Enter(now); refused != nil {
		t.Fatalf("refused: %+v", refused)
	}
	if _, refused := f.Enter(now); refused == nil {
		t.Error("a token that was used is there again")
	}
}

func TestAProbeDoesNotWaitForPostsOfBefore(t *testing.T) {
	f := testFlow(func(f *policy.Flow) { f.Concurrency = 2 })
	now := time.Now()
	for range 2 {
		if _, refused := f.Enter(now); refused != nil {
			t.Fatal(refused)
		}
	}
	f.breaker.Restore(policy.BreakerState{Phase: policy.BreakerOpen, Since: now, NextProbe: now.Add(time.Second), Wait: policy.Duration(time.Minute)})
	due := now.Add(time.Second)
	n, _ := f.room(0, 4, due)
	want(t, "room for the probe", n, 1)
	if ticket, _ := f.Enter(due); ticket == nil {
		t.Fatal("no probe beside POSTs of before")
	}
	n, _ = f.room(0, 4, due)
	want(t, "room beside the probe", n, 0)
}

// testFlows knows no webhook yet; nothing is stored.
func testFlows() *Flows {
	return New(Options{
		Log: slog.New(slog.DiscardHandler), Turned: func(string, policy.BreakerPhase) {}, Shown: func(string, string) {},
	})
}

func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}
