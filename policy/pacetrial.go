package policy

import "time"

// The numbers of paceTrial: docs/adr/0074-a-trial-in-passing.md.
const (
	// trialPosts is after how many POSTs a trial is made at least, twice as many after each one that showed
	// nothing, trialDoublings times at most. trialShare is the share of them that was refused, and of those
	// that were taken one in trialTurns followed a refusal.
	trialPosts     = 20
	trialDoublings = 6
	trialShare     = 0.3
	trialTurns     = 4
	// For trialYoung POSTs none waits for longer than trialWait, however many were refused in a row, and the rate falls to
	// no less than trialFloor: until it is known whether a trial is worth it.
	trialYoung = 48
	trialWait  = time.Second
	trialFloor = 0.8
	// trialLongest, and trialLags latencies, is how long after one that was taken another one was refused, at least:
	// otherwise a limit may explain what is taken in a trial.
	trialLongest = 250 * time.Millisecond
	trialLags    = 4
	// trialAfter is how old the limit is at least: by then other instances are known. trialSlow is the rate of all of them
	// together at most.
	trialAfter = 3 * time.Second
	trialSlow  = 0.5
	// trialMost is how many POSTs a trial has at most, and trialVain the logarithm of how much likelier a
	// limit is when it ends.
	trialMost = 120
	trialVain = -4.6
	// trialMargin is how many times what a limit explains is still put down to it, and trialLeast the chance that
	// a limit takes a POST just after a refusal, at least.
	trialMargin = 2
	trialLeast  = 0.01
)

// paceTrial tells soon, where a good part of all POSTs is refused at any pace, whether a limit is
// the reason. A limit that has just refused a POST refuses the next ones too, when they follow at once; so
// for some POSTs the pace is not kept. What refuses at random takes its share of them. Where a
// POST was refused that came a time after the last one that was taken, a limit takes at most one in such a time, or opens at most
// once in it: that bounds the chance that a limit takes a POST that follows a refusal.
type paceTrial struct {
	count    paceCount     // POSTs since the last trial, and in it
	turns    int           // taken ones of them after a refusal
	longest  time.Duration // after the last one that was taken one was still refused
	rate     float64       // the highest
	vain     int           // trials that showed nothing
	first    int           // POSTs, up to trialYoung
	refused  bool          // the last POST was
	on       bool
	posts    int     // in the trial
	expected float64 // the share of refused ones, in the trial
	odds     float64 // the logarithm of how much likelier noise is than a limit
}

// share is that of the refused ones.
func (t *paceTrial) share() float64 {
	return (float64(t.count.refused) + 0.5) / float64(t.count.posts()+1)
}

// add takes in a POST, so long after the last one and after the last one that was taken, while
// others send so many in a second. It tells whether noise is sure.
func (t *paceTrial) add(refused bool, sinceLast, sinceTaken time.Duration, rate, others float64) (noise bool) {
	after := t.refused
	t.first = min(t.first+1, trialYoung)
	t.refused = refused
	if t.on {
		t.posts++
		if after {
			limit := trialMargin * sinceLast.Seconds() * (1/max(t.longest.Seconds(), 1e-3) + others)
			t.odds += likelier(refused, t.expected, 1-max(limit, trialLeast))
			if limit > (1-t.expected)/2 {
				t.posts += trialPosts
			}
		}
	} else {
		t.rate = max(t.rate, rate)
		if t.count.posts() >= 2*t.enough() {
			t.count.taken, t.count.refused, t.turns, t.longest = t.count.taken/2, t.count.refused/2, t.turns/2, t.longest/2
		}
	}
	switch {
	case refused:
		t.count.refused++
		t.longest = max(t.longest, sinceTaken)
	default:
		t.count.taken++
		if after {
			t.turns++
		}
	}
	switch {
	case !t.on:
	case t.odds > noiseSure:
		return true
	case t.odds < trialVain || t.posts >= trialMost:
		*t = paceTrial{vain: min(t.vain+1, trialDoublings), first: t.first, rate: t.rate, refused: refused}
	}
	return false
}

// enough is how many POSTs are worth a trial.
func (t *paceTrial) enough() int { return trialPosts << t.vain }

// begin begins a trial if it is worth one, after a refusal.
func (t *paceTrial) begin(lag time.Duration) {
	if t.on || t.longest < max(trialLongest, trialLags*lag) || t.count.posts() < t.enough() || t.turns == 0 || t.turns*trialTurns < t.count.taken || t.share() < trialShare {
		return
	}
	t.on, t.posts, t.odds, t.expected = true, 0, 0, t.share()
}

// young tells whether a trial may soon be worth it.
func (t *paceTrial) young() bool { return t.vain == 0 && t.first < trialYoung }
