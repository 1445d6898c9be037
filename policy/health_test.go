package policy_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pushlease/pushlease/policy"
)

func TestAutoDisableCountsMessagesOverATimeWithoutSuccess(t *testing.T) {
	const day = 24 * time.Hour
	f := policy.DefaultFlow()
	type step struct {
		do string
		n  int
		at time.Duration
	}
	tests := []struct {
		name  string
		steps []step
		due   bool
	}{
		{"twenty over five days", []step{{"fail", 1, 0}, {"fail", 19, 5 * day}}, true},
		{"nineteen", []step{{"fail", 1, 0}, {"fail", 18, 5 * day}}, false},
		{"twenty within less", []step{{"fail", 19, 0}, {"fail", 1, 5*day - time.Second}}, false},
		{"a success in between", []step{{"fail", 30, 0}, {"succeed", 1, day}, {"fail", 30, 5 * day}}, false},
		{"five days after that", []step{{"fail", 30, 0}, {"succeed", 1, day}, {"fail", 30, 2 * day}, {"fail", 1, 7 * day}}, true},
		{"enabled again, and one failure", []step{{"fail", 30, 0}, {"fail", 1, 6 * day}, {"reset", 1, 6 * day}, {"fail", 1, 12 * day}}, false},
		{"idle for long, then failures", []step{{"succeed", 1, 0}, {"fail", 30, 30 * day}}, false},
		{"the clock was set back", []step{{"fail", 30, 20 * day}, {"fail", 1, 0}, {"fail", 1, 4 * day}}, false},
		{"nothing", nil, false},
	}
	for _, tt := range tests {
		var a policy.AutoDisable
		now := start
		for _, s := range tt.steps {
			now = start.Add(s.at)
			for range s.n {
				switch s.do {
				case "fail":
					a.Failed(now)
				case "succeed":
					a.Succeeded(now)
				default:
					a.Reset()
				}
			}
		}
		var again policy.AutoDisable
		again.Restore(a.State())
		if got := again.State().Due(f, now); got != tt.due {
			t.Errorf("%s: due %v, want %v (%+v)", tt.name, got, tt.due, a.State())
		}
		never := f
		never.AutoDisableAfter = 0
		if a.State().Due(never, now) {
			t.Errorf("%s: due, but never was set", tt.name)
		}
	}
}

func TestTogetherASuccessOfOneInstanceCountsForAll(t *testing.T) {
	at := func(h int) time.Time { return start.Add(time.Duration(h) * time.Hour) }
	tests := []struct {
		name   string
		since  time.Time
		states []policy.AutoDisableState
		want   policy.AutoDisableState
	}{
		{"none", time.Time{}, nil, policy.AutoDisableState{}},
		{"failures add up", time.Time{}, []policy.AutoDisableState{{FailingSince: at(3), FailedMessages: 4}, {FailingSince: at(2), FailedMessages: 5}, {}},
			policy.AutoDisableState{FailingSince: at(2), FailedMessages: 9}},
		{"another had a success since", time.Time{}, []policy.AutoDisableState{{FailingSince: at(1), FailedMessages: 4}, {LastSuccess: at(2)}},
			policy.AutoDisableState{LastSuccess: at(2)}},
		{"and it failed after that", time.Time{}, []policy.AutoDisableState{{FailingSince: at(1), FailedMessages: 4}, {LastSuccess: at(2), FailingSince: at(3), FailedMessages: 1}},
			policy.AutoDisableState{FailingSince: at(3), FailedMessages: 1, LastSuccess: at(2)}},
		{"enabled again, which one does not know yet", at(5), []policy.AutoDisableState{{FailingSince: at(1), FailedMessages: 40}, {FailingSince: at(6), FailedMessages: 1}},
			policy.AutoDisableState{FailingSince: at(6), FailedMessages: 1}},
	}
	for _, tt := range tests {
		if d := cmp.Diff(tt.want, policy.Together(tt.since, tt.states...)); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
	}
}

func TestOutageIsOursWhenHardlyAnyWebhookAnswers(t *testing.T) {
	tests := []struct {
		name                     string
		silent, answering, mixed int
		want                     bool
	}{
		{"nothing was tried", 0, 0, 0, false},
		{"two silent of two", 2, 0, 0, false},
		{"three of three", 3, 0, 0, true},
		{"four of five", 4, 1, 0, true},
		{"three of four", 3, 1, 0, false},
		{"all had an answer before", 0, 0, 20, false},
		{"twenty of twenty", 20, 0, 0, true},
	}
	for _, tt := range tests {
		var o policy.Outage
		for i := range tt.silent + tt.answering + tt.mixed {
			id := fmt.Sprint(i)
			if i >= tt.silent {
				o.Report(id, overloaded, start)
			}
			if i < tt.silent || i >= tt.silent+tt.answering {
				o.Report(id, unanswered, start.Add(time.Second))
			}
			o.Report(id, policy.Sign{}, start) // says nothing
		}
		if got := o.Ours(start.Add(2 * time.Second)); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestOutageEndsWhenWebhooksAnswerOrNobodyTries(t *testing.T) {
	var o policy.Outage
	for i := range 20 {
		o.Report(fmt.Sprint(i), unanswered, start)
	}
	now := start.Add(time.Second)
	for i := range 5 {
		if !o.Ours(now) {
			t.Fatalf("over after %d answers of 20 webhooks, want it to go on for 4", i)
		}
		now = now.Add(time.Second)
		o.Report(fmt.Sprint(i), taken, now)
		now = now.Add(time.Second)
	}
	if o.Ours(now) {
		t.Error("5 of 20 answer, and it is not over")
	}
	for i := range 20 {
		o.Report(fmt.Sprint(i), unanswered, now.Add(2*time.Minute))
	}
	if now = now.Add(2*time.Minute + time.Second); !o.Ours(now) {
		t.Error("all silent again, and no outage")
	}
	if o.Ours(now.Add(2 * time.Hour)) {
		t.Error("nothing was tried for two hours, and it is not over")
	}
}

// C34: all egress is blocked for six days. Breakers open and probe rarely; none of the
// webhooks is switched off. One that alone is dead is.
func TestOutageOfOursDisablesNoWebhookAndADeadOneIsDisabled(t *testing.T) {
	run := func(silent func(webhook int) bool) (disabled int) {
		f := policy.DefaultFlow()
		var o policy.Outage
		var breakers [20]policy.Breaker
		var failing [20]policy.AutoDisable
		for now := start; now.Before(start.Add(6 * 24 * time.Hour)); now = now.Add(29 * time.Second) {
			for i := range breakers {
				ok, _, generation := breakers[i].Allow(f.Breaker, now)
				if !ok {
					continue
				}
				sign := taken
				if silent(i) {
					sign = unanswered
				}
				o.Report(fmt.Sprint(i), sign, now)
				breakers[i].Report(f.Breaker, generation, !sign.Failed, now, float64(i)/20)
				switch {
				case sign.Delivered:
					failing[i].Succeeded(now)
				case !o.Ours(now):
					failing[i].Failed(now)
				}
			}
		}
		for i := range failing {
			if failing[i].State().Due(f, start.Add(6*24*time.Hour)) {
				disabled++
			}
		}
		return disabled
	}
	if n := run(func(int) bool { return true }); n != 0 {
		t.Errorf("%d of 20 webhooks were switched off by an outage of ours", n)
	}
	if n := run(func(i int) bool { return i == 7 }); n != 1 {
		t.Errorf("%d webhooks were switched off, want the one that is dead", n)
	}
}
