package flow

import (
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/policy"
)

// While no token can be had nothing is sent, and then one POST at a time, until one had a token.
func TestOnePostAtATimeTriesForAToken(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := testFlow(func(f *policy.Flow) { f.Concurrency = 8 })
		enter := func(wants bool) *Ticket {
			t.Helper()
			ticket, _ := f.Enter(time.Now())
			want(t, "a POST may begin", ticket != nil, wants)
			return ticket
		}
		first, beside := enter(true), enter(true)
		r := first.NoToken("it is down", time.Now().Add(time.Minute))
		first.Unused()
		want(t, "reason", r.Reason, policy.NoToken)
		beside.Answered(Answer{Sign: policy.Sign{Delivered: true, Answered: true}, Began: time.Now(), Took: time.Second}) // it had a token that ended since
		s := f.Status(time.Now())
		want(t, "state", s.State, status.NoToken)
		want(t, "why", s.Why, "it is down, at "+time.Now().UTC().Format(time.RFC3339))
		want(t, "until", s.Until, time.Now().Add(time.Minute))
		want(t, "room", roomOf(f, 0, 4), 0)
		if _, refused := f.Enter(time.Now()); refused == nil || refused.Reason != policy.NoToken {
			t.Errorf("refused as %v", refused)
		}

		time.Sleep(time.Minute)
		want(t, "until, when it is due", f.Status(time.Now()).Until, time.Time{})
		want(t, "room, when it is due", roomOf(f, 0, 4), 1)
		want(t, "held ones worth showing", f.releasable(time.Now(), time.Second), 1)
		try := enter(true)
		want(t, "room beside who tries", roomOf(f, 0, 4), 0)
		try.Unused()                                    // its lease was over
		enter(true).Answered(Answer{Began: time.Now()}) // it was cut short by us
		want(t, "state after that", f.Status(time.Now()).State, status.NoToken)
		want(t, "room after that", roomOf(f, 0, 4), 1)
		enter(true).Answered(Answer{Sign: policy.Sign{Failed: true}, Began: time.Now()}) // there was a token
		want(t, "state with a token", f.Status(time.Now()).State, status.Healthy)
		want(t, "room with a token", roomOf(f, 0, 0) > 1, true)
	})
}

// One that waits for its place by the rate is held when it turns out meanwhile that there is no token.
func TestAPostThatWaitsForItsPlaceIsHeldWithoutAToken(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := testFlow(func(f *policy.Flow) { f.Rate, f.Burst = 1, 1 })
		first, _ := f.Enter(time.Now())
		next, _ := f.Enter(time.Now())
		first.NoToken("it is down", time.Now().Add(time.Minute))
		first.Unused()
		if refused := next.Begin(t.Context()); refused == nil || refused.Reason != policy.NoToken {
			t.Errorf("refused as %v", refused)
		}
	})
}

// What nothing has tried again for long is told no more: nothing waits for it. So is that no request could be made.
func TestAnOldFaultOfASettingIsToldNoMore(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := testFlow(func(*policy.Flow) {})
		ticket, _ := f.Enter(time.Now())
		ticket.NoToken("it is down", time.Now().Add(time.Minute))
		ticket.Unused()
		time.Sleep(time.Minute + policy.FaultTold - time.Second)
		want(t, "state", f.Status(time.Now()).State, status.NoToken)
		time.Sleep(time.Second)
		want(t, "state after that", f.Status(time.Now()).State, status.Healthy)
		want(t, "room", roomOf(f, 0, 4), 1)

		f.TellUnusable("its certificate has ended", time.Now())
		want(t, "why", f.Status(time.Now()).Why, "its certificate has ended")
		time.Sleep(policy.FaultTold)
		want(t, "why, after that", f.Status(time.Now()).Why, "")
		f.TellUnusable("its certificate has ended", time.Now())
		ticket, _ = f.Enter(time.Now())
		ticket.Answered(Answer{Sign: policy.Sign{Delivered: true, Answered: true}, Began: time.Now()})
		want(t, "why, when it was mended", f.Status(time.Now()).Why, "")
	})
}
