package policy_test

import (
	"testing"
	"time"
)

// longWindow is how long the windows of windowed are.
const longWindow = 15 * time.Minute

// windowed sends for 16 windows, as much as a Pacer lets through, to a receiver that takes 100 POSTs in each. fate is called at each POST, and tells
// whether the receiver refuses everything then. windowed returns how often the breaker opened in the last four windows.
func windowed(t *testing.T, fate func(p *pacer, now time.Time) (away bool)) (opened int) {
	t.Helper()
	takes := fixedWindow(100, longWindow)
	p, before := newPacer(1).(*pacer), -1
	tr := &trial{senders: []learner{p}, latency: time.Millisecond, window: true, accepts: func(now time.Time) bool {
		if before < 0 && now.Sub(start) >= 12*longWindow {
			before = p.opened
		}
		return !fate(p, now) && takes(now)
	}}
	tr.run(16*longWindow, 1)
	if ok, _ := tr.between(12*longWindow, 16*longWindow); ok < 320 {
		t.Errorf("%d taken of 400", ok)
	}
	return p.opened - before
}

// A window that is longer than 75 s is learned after a restart as before it, where only the rate was stored, as earlier versions did. The breaker opened each time that it
// was used up, for as long as the process lived.
func TestALongWindowIsLearnedAfterARestart(t *testing.T) {
	restarted := false
	opened := windowed(t, func(p *pacer, now time.Time) bool {
		if !restarted && now.Sub(start) > 5*longWindow {
			restarted = true
			st := p.State()
			st.Window = 0
			p.Restore(st, now)
		}
		return false
	})
	if opened > 0 {
		t.Errorf("the breaker opened %d times in four windows", opened)
	}
}

// A window that is known is stored beside the rate: it opens no breaker after a restart either.
func TestALongWindowOutlivesARestart(t *testing.T) {
	restarts := 0
	opened := windowed(t, func(p *pacer, now time.Time) bool {
		if now.Sub(start) > time.Duration(12+restarts)*longWindow+longWindow/2 {
			restarts++
			p.Restore(p.State(), now)
		}
		return false
	})
	if opened > 0 || restarts != 4 {
		t.Errorf("the breaker opened %d times in four windows with %d restarts", opened, restarts)
	}
}

// A window that was met at its rate outlives an outage that is longer than itself.
func TestALongWindowOutlivesALongOutage(t *testing.T) {
	opened := windowed(t, func(_ *pacer, now time.Time) bool {
		since := now.Sub(start)
		return since > 10*longWindow && since < 11*longWindow+longWindow/2
	})
	if opened > 0 { // it did when the outage began, before them
		t.Errorf("the breaker opened %d times in the four windows after an outage", opened)
	}
}
