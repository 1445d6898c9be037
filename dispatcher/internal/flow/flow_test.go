package flow

import (
	"context"
	"fmt"
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
	f.refusing = true
	want(t, "state", f.Status(time.Now()).State, status.Failing)
	r.Flow.Breaker.Enabled = false
	f.update(r)
	want(t, "refuses everything after it was turned off", f.Status(time.Now()).Refusing, false)
	want(t, "state after it was turned off", f.Status(time.Now()).State, status.Healthy)
	if n, _ := f.room(0, 0, 4, time.Now()); n != 4 {
		t.Errorf("room = %d, want 4", n)
	}
}

// A batch is received before there is room for it where the webhook takes it within a second.
func TestThereIsRoomAheadWhereAWebhookTakesThatSoon(t *testing.T) {
	for took, ahead := range map[time.Duration]int{50 * time.Millisecond: 4, 2 * time.Second: 4, 3 * time.Second: 0} {
		f := testFlow(func(f *policy.Flow) { f.Adaptive, f.Concurrency = false, 8 })
		var tickets []*Ticket
		for range 8 {
			ticket, refused := f.Enter(time.Now())
			if refused != nil {
				t.Fatal(refused)
			}
			tickets = append(tickets, ticket)
		}
		want(t, "room before the first answer", roomOf(f, 0, 4), 0)
		tickets[0].Answered(Answer{Sign: policy.Sign{Delivered: true, Answered: true}, Began: time.Now(), Took: took})
		want(t, "room", roomOf(f, 0, 0), 1)
		want(t, "room with some that wait, at "+took.String(), roomOf(f, 0, 4), 1+ahead)
		want(t, "beside three on the way, at "+took.String(), roomOf(f, 3, 4), max(1+ahead-3, 0))
	}
}

func roomOf(f *Flow, onTheWay, ahead int) int {
	n, _ := f.room(onTheWay, ahead, 32, time.Now())
	return n
}

// A row of before, and a call that leaves no time to read it.
func TestWhatWasKnownOfAWebhookIsReadHoweverLittleTimeThereIs(t *testing.T) {
	for breaker, refuses := range map[bool]bool{true: true, false: false} {
		db := testStore(t)
		now := time.Now()
		if err := db.PutHealth(t.Context(), tables.Health{
			WebhookID: "wh_a", Instance: "before", Refusing: true, UpdatedAt: now,
			Breaker: policy.BreakerState{Phase: policy.BreakerOpen, Since: now, NextProbe: now.Add(time.Hour), Wait: policy.Duration(time.Hour)},
		}); err != nil {
			t.Fatal(err)
		}
		fs := New(Options{Store: db, Log: slog.New(slog.DiscardHandler), Turned: func(string, policy.BreakerPhase) {}})
		r := testRegistration()
		r.Flow.Breaker.Enabled = breaker
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		fs.Sync(ended, []tables.Registration{r})
		want(t, fmt.Sprintf("refuses everything, with a breaker that is on: %v", breaker), fs.Get("wh_a").Status(now).Refusing, refuses)
	}
}

// C85: a later start knows by its health that a webhook was there, and on which queue, however long nothing was sent to it.
func TestTheHealthOfAWebhookIsWrittenThoughNothingIsSent(t *testing.T) {
	for age, wanted := range map[time.Duration]int{0: 1, time.Hour: 0, savedAgain - time.Hour: 0, savedAgain + time.Hour: 1} {
		db := testStore(t)
		if age > 0 {
			if err := db.PutHealth(t.Context(), tables.Health{WebhookID: "wh_a", Instance: "before", UpdatedAt: time.Now().Add(-age)}); err != nil {
				t.Fatal(err)
			}
		}
		w := &writes{Healths: db}
		fs := New(Options{Store: w, Instance: "now", Log: slog.New(slog.DiscardHandler)})
		fs.Sync(t.Context(), []tables.Registration{testRegistration()})
		for range 2 { // once
			if err := fs.save(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		want(t, fmt.Sprintf("rows that are written beside one that is %s old", age), w.count(), wanted)
		rows, err := db.ListHealth(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range rows {
			if h.Instance == "now" {
				want(t, "its queue", h.Queue, "orders")
			}
		}
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
	n, _ := f.room(0, 0, 4, due)
	want(t, "room for the probe", n, 1)
	if ticket, _ := f.Enter(due); ticket == nil {
		t.Fatal("no probe beside POSTs of before")
	}
	n, _ = f.room(0, 0, 4, due)
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
