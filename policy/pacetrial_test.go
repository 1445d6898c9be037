package policy

import (
	"testing"
	"time"
)

// A refusal is answered at once, and what is taken takes its time. What was sent before the refusal
// says nothing about a limit that has just refused, though its answer comes later.
func TestWhatBeganBeforeARefusalIsNoSignOfNoise(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	run := func() *paceTrial {
		return &paceTrial{on: true, began: start, expected: 0.5, longest: time.Hour, rate: 10}
	}
	tr := run()
	tr.add(true, at(50), at(55), time.Second, 10, 0)
	tr.add(false, at(0), at(300), time.Second, 10, 0)
	if tr.odds != 0 {
		t.Errorf("one that was sent before the refusal, and taken: %.1f, want 0", tr.odds)
	}
	tr.add(false, at(60), at(360), time.Second, 10, 0)
	if tr.odds < 3 {
		t.Errorf("one that was sent just after the refusal, and taken: %.1f, want 3 and more", tr.odds)
	}
	tr = run()
	tr.longest = 100 * time.Millisecond
	tr.add(true, at(0), at(5), time.Second, 10, 0)
	tr.longest = 100 * time.Millisecond
	tr.add(true, at(60), at(65), time.Second, 10, 0)
	if tr.odds != 0 {
		t.Errorf("a refusal when a limit may take another one: %.1f, want 0", tr.odds)
	}
	tr.add(true, at(6000), at(6001), time.Second, 10, 0)
	if tr.on || tr.vain != 0 {
		t.Errorf("after six seconds: on %v, in vain %d times; want it to have ended without a word", tr.on, tr.vain)
	}
}

// A trial of a receiver whose answers take long ends by its time before anything is sure. What speaks for noise counts in the next one; where a
// limit is likelier, the next one comes later.
func TestATrialThatEndsByItsTimeWasNotForNothing(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	for _, tt := range []struct {
		odds, more, left float64
		vain             int
	}{{3, 2, 3, 0}, {-1, 2, 0, 0}, {-3, -1, 0, 1}, {-3, 0, 0, 1}, {0, 0, 0, 0}} {
		tr := &paceTrial{on: true, began: start, expected: 0.5, longest: time.Hour, rate: 10, odds: tt.odds, more: tt.more}
		tr.add(true, start.Add(6*time.Second), start.Add(6*time.Second), time.Second, 10, 0)
		if tr.on || tr.vain != tt.vain || tr.odds != tt.left {
			t.Errorf("%+v: on %v, in vain %d times, %.1f left", tt, tr.on, tr.vain, tr.odds)
		}
	}
}

// A trial goes by what others send: when that is not known as of now it is asked for, and there is none before.
func TestATrialWaitsForWhatOtherInstancesSend(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	n := &paceNoise{trial: paceTrial{count: paceCount{taken: 6, refused: 16}, turns: 4, longest: time.Minute, rate: 10}}
	if n.try(time.Millisecond, now); n.trial.on || !n.asks {
		t.Errorf("nothing was told: on %v, asks %v", n.trial.on, n.asks)
	}
	n.tell(Others{}, now)
	if n.asks {
		t.Error("it was told, and asks still")
	}
	if n.try(time.Millisecond, now.Add(4*time.Second)); n.trial.on || !n.asks {
		t.Errorf("it was told 4 s ago: on %v, asks %v", n.trial.on, n.asks)
	}
	if n.try(time.Millisecond, now.Add(2*time.Second)); !n.trial.on || n.asks {
		t.Errorf("it was told 2 s ago: on %v, asks %v", n.trial.on, n.asks)
	}
	n.tell(Others{Rate: 5, Taken: 5, Posts: 50, Instances: 1}, now)
	if n.trial.on || n.trial.count.posts() > 0 {
		t.Error("what was seen before others were known still counts")
	}
}
