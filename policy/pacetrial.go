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
	// trialAfter is how old the limit is at least: by then other instances are known.
	trialAfter = 3 * time.Second
	// trialFresh is how old what is known of other instances is at most.
	trialFresh = 3 * time.Second
	// trialMost is how many POSTs a trial has at most, and trialVain the logarithm of how much likelier a
	// limit is when it ends.
	trialMost = 120
	trialVain = -4.6
	// trialMargin is how many times what a limit explains is still put down to it, and trialLeast the chance that
	// a limit takes a POST just after a refusal, at least.
	trialMargin = 2
	trialLeast  = 0.01
	// trialTime is how long a trial lasts at most, and trialAnswers how many answers are kept meanwhile.
	trialTime    = 5 * time.Second
	trialAnswers = 64
	// trialFlight is how many POSTs go out in a trial while one takes its time, trialLeastGap after each other at least: a limit
	// refuses them all. trialOrder is by how much two of them may arrive otherwise than they began, at most.
	trialFlight   = 8
	trialLeastGap = 10 * time.Millisecond
	trialOrder    = 20 * time.Millisecond
	// trialPause is how long after one POST the next one begins that says nothing of what a limit takes in a time: others
	// may have begun with it, and be taken.
	trialPause = 5 * time.Second
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
	others   float64       // what other instances sent then, in a second
	rate     float64       // the highest
	vain     int           // trials that showed nothing
	first    int           // POSTs in no trial, up to trialYoung
	refused  bool          // the last POST was
	from     time.Time     // the end of the last pause
	answers  []paceAnswer  // the last ones in a trial
	on       bool
	began    time.Time // when the trial did
	next     time.Time // when the next POST may begin in it
	posts    int       // in the trial
	expected float64   // the share of refused ones, in the trial
	odds     float64   // the logarithm of how much likelier noise is than a limit
	more     float64   // the same of noise that refuses more than expected: some twenty POSTs don't tell well
}

// paceAnswer is what came of a POST, and when.
type paceAnswer struct {
	began, at time.Time
	refused   bool
}

// runs tells whether POSTs do not keep the pace.
func (t *paceTrial) runs(now time.Time) bool {
	return t.on && now.Sub(t.began).Abs() < trialTime
}

// took gives the place at that time to a POST, where one takes so long.
func (t *paceTrial) took(at time.Time, lag time.Duration) {
	t.next = later(t.next, at).Add(trialGap(lag))
}

// trialGap is the time from one POST of a trial to the next.
func trialGap(lag time.Duration) time.Duration { return max(lag/trialFlight, trialLeastGap) }

// trialSlack is by how much two POSTs may arrive otherwise than they began.
func trialSlack(lag time.Duration) time.Duration { return min(lag/4, trialOrder) }

// follows tells of a POST that began then how long before it the last one began, if that one was refused: a limit has just
// refused it. When answers come says nothing, since they come in whatever order. What began within a moment may
// have arrived in another order, too.
func (t *paceTrial) follows(began time.Time, lag time.Duration) (since time.Duration, refusal bool) {
	var last *paceAnswer
	for i := range t.answers {
		if a := &t.answers[i]; a.began.Before(began) && (last == nil || a.began.After(last.began)) {
			last = a
		}
	}
	if last == nil || !last.refused {
		return 0, false
	}
	return began.Sub(last.began) + trialSlack(lag), true
}

// share is that of the refused ones.
func (t *paceTrial) share() float64 {
	return (float64(t.count.refused) + 0.5) / float64(t.count.posts()+1)
}

// add takes in a POST that began so long after the last one that was taken, while others send so
// many in a second that are taken. It tells whether noise is sure.
func (t *paceTrial) add(refused bool, began, now time.Time, sinceTaken time.Duration, rate, others float64) (noise bool) {
	after := t.refused
	t.refused = refused
	if t.on {
		t.posts++
		if since, refusal := t.follows(began, now.Sub(began)); refusal {
			t.weigh(refused, since)
		}
		t.keep(paceAnswer{began, now, refused})
	} else {
		t.first = min(t.first+1, trialYoung)
		t.rate = max(t.rate, rate)
		if t.count.posts() >= 2*t.enough() {
			t.count.taken, t.count.refused, t.turns, t.longest = t.count.taken/2, t.count.refused/2, t.turns/2, t.longest/2
		}
	}
	switch {
	case refused:
		t.count.refused++
		if long := min(sinceTaken, max(began.Sub(t.from), 0)); most(long, others) < most(t.longest, t.others) {
			t.longest, t.others = long, others
		}
	default:
		t.count.taken++
		if after {
			t.turns++
		}
	}
	switch {
	case !t.on:
	case max(t.odds, t.more) > noiseSure:
		return true
	case t.odds < trialVain && t.more < trialVain/2:
		t.vain = min(t.vain+1, trialDoublings)
		t.end()
	case t.posts >= trialMost || !t.runs(now):
		t.pause()
	}
	return false
}

// weigh takes in a POST that began so long after one that was refused before it. Where a limit may
// take such a POST as well as noise, it says nothing.
func (t *paceTrial) weigh(refused bool, since time.Duration) {
	limit := t.limit(since)
	if limit < 1-t.expected {
		t.odds += likelier(refused, t.expected, 1-max(limit, trialLeast))
	}
	if more := moreNoise(t.expected); limit < 1-more {
		t.more += likelier(refused, more, 1-max(limit, trialLeast))
	}
	if limit > (1-t.expected)/2 {
		t.posts += trialPosts
	}
}

// limit bounds the chance that a limit takes a POST so long after one that it has refused.
func (t *paceTrial) limit(since time.Duration) float64 {
	return trialMargin * since.Seconds() * most(t.longest, t.others)
}

// most bounds how many POSTs a second a limit takes that refused one so long after it had taken the last one, and takes so many a
// second of others.
func most(longest time.Duration, others float64) float64 {
	return 1/max(longest.Seconds(), 1e-3) + others
}

// keep keeps an answer in the place of the oldest one.
func (t *paceTrial) keep(a paceAnswer) {
	if len(t.answers) == trialAnswers {
		t.answers = append(t.answers[:0:0], t.answers[1:]...)
	}
	t.answers = append(t.answers, a)
}

// pause ends a trial that is not sure: what it says for noise counts in the next one.
func (t *paceTrial) pause() {
	odds, more := max(t.odds, 0), max(t.more, 0)
	if t.odds < 0 && t.more <= 0 {
		t.vain = min(t.vain+1, trialDoublings)
	}
	t.end()
	t.odds, t.more = odds, more
}

// end ends a trial that came to nothing, since POSTs stopped or the webhook was away.
func (t *paceTrial) end() {
	*t = paceTrial{vain: t.vain, first: t.first, rate: t.rate, refused: t.refused, from: t.from}
}

// enough is how many POSTs are worth a trial.
func (t *paceTrial) enough() int { return trialPosts << t.vain }

// worth tells whether a trial is worth it, after a refusal. It would say little where others send much.
func (t *paceTrial) worth(lag time.Duration) bool {
	return !t.on && t.longest >= max(trialLongest, trialLags*lag) && t.count.posts() >= t.enough() && t.turns > 0 &&
		t.turns*trialTurns >= t.count.taken && t.share() >= trialShare && t.limit(trialGap(lag)+trialSlack(lag)) <= (1-t.share())/2
}

// begin begins one.
func (t *paceTrial) begin(now time.Time) {
	t.on, t.began, t.posts, t.expected = true, now, 0, t.share()
}

// young tells whether a trial may soon be worth it.
func (t *paceTrial) young() bool { return t.vain == 0 && t.first < trialYoung }
