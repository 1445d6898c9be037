package policy

import (
	"math"
	"time"
)

// A Pacer's numbers. They were chosen by simulation: docs/adr/0054-learned-rate.md.
const (
	// A limit begins with this share of what was taken in the last second, paceFirst at least. That is
	// a guess: it doubles in each paceFirstDoubling until half of the last paceGuessed POSTs, at most, were refused.
	paceStart         = 0.85
	paceFirst         = 5
	paceFirstDoubling = time.Second
	paceGuessed       = 16
	// A guess ends too where of paceBounded POSTs, which went at half of it at most, paceMuch were refused.
	paceBounded = 256
	paceMuch    = 0.25
	// paceSure is with how many POSTs at least a rate is compared with what was taken.
	paceSure = 10
	// paceCut is by how much of itself a refusal lowers the rate: twice as much if the one
	// before was short ago, and four times the next.
	paceCut      = 0.04
	paceSeverest = 2
	// paceYield is by how much of itself a refusal lowers the rate beside an instance that is taken more often. It
	// comes back as after any other cut, so that an instance with a limit of its own loses little by it.
	paceYield = 0.3
	// A step is the time in which the rate comes back to where it was refused: that of
	// paceStepPosts POSTs at that rate. It is longer for a webhook that answers late,
	// paceStepLags times its latency, for one whose refusals stop everything, since they name a wait, paceStepWaits times
	// that, of paceAsked at most, and for one that refuses for long.
	paceStepPosts = 20
	paceStepLags  = 20
	paceStepWaits = 10
	paceAsked     = 2 * time.Second
	// paceRise is by how much of itself the rate has risen a step after that, and paceNear how
	// near two rates are that are about the same.
	paceRise = 0.15
	paceNear = 0.15
	// paceForget is how many times what was refused last the rate may be until the limit is
	// taken to be gone.
	paceForget = 40
	// paceMin is the least rate: one POST in two minutes.
	paceMin = 1.0 / 120
	// paceDenied is the share of the time in which everything is refused that tells what the
	// webhook takes on average, and paceBelow how far below that the rate begins.
	paceDenied = 0.15
	paceBelow  = 0.05
	// paceUnsure is the share of that time, and paceMany the number of POSTs taken, by which
	// such an average is a guess.
	paceUnsure = 0.4
	paceMany   = 30
	// paceGuesses is in how many POSTs the rate doubles at least from a guess, and paceGuess
	// in what time.
	paceGuesses = 6
	paceGuess   = 5 * time.Second
	// paceLately is how long ago a webhook may have taken its last POST to be limited, and
	// not broken. It is longer than the windows of most limits, which are a minute.
	paceLately = 75 * time.Second
	// paceQuiet is what counts of a time in which nothing was sent between two refusals: three in a row tell more than two.
	paceQuiet = paceLately/2 + time.Second
	// paceLateGaps is the least of that for a slow one, in POSTs at its rate.
	paceLateGaps = 3
	// paceLongest is the longest window of a limit that is told from outages, and paceAgain from the end of one time in which it takes
	// nothing to the end of the next one, at most: probes find that out late. A day's quota is no pace.
	paceLongest = time.Hour
	paceAgain   = 2 * paceLongest
	// A limit is taken to be gone when nothing was refused for paceGone, and in paceGonePosts at
	// its rate; one that was only guessed after paceNone. It outlives a night with few messages.
	paceGone      = 24 * time.Hour
	paceNone      = time.Hour
	paceGonePosts = 100
	// paceRetries is into how many parts the wait of a limit with a known window is cut, and
	// paceWaits the part of the time in which everything was refused that the next POST waits
	// for: less than one for each two in a row, or runs of noise would never end.
	paceRetries = 8
	paceWaits   = 0.3
)

// Pacer learns how many POSTs a second a webhook takes that refuses what is beyond its limit
// and names no wait (Sign.Limited). Until the first refusal it limits nothing; the zero Pacer is
// that. From then on POSTs begin one after the other at the rate that it has
// learned.
//
// A refusal lowers the rate a little, and more when the next one follows soon. The rate then
// comes back to where it was refused, at first quickly and then carefully, stays near, and
// rises ever faster beyond it, as CUBIC does, of TCP. That happens in the time during which
// the rate is used: a webhook that is sent little says nothing about more. Where everything
// is refused for a good part of the time, as by a limit of so many in a minute, the rate is
// what was taken on average; while one POST after the other is refused, they follow at ever
// longer times. Refusals that have nothing to do with the pace do not lower it: see
// paceNoise.
//
// A POST that was allowed before the last cut, or before all places were moved, says nothing about the pace after it. The
// caller asks Next, takes that place with Take, begins the POST if the place is still
// Current, and says with Taken or Refused what came of it.
type Pacer struct {
	base, top float64       // the rate after the last cut, and the one that was refused; 0: no limit
	doubling  time.Duration // while only a guess is known: the rate doubles in that time
	near      bool          // the last two refusals were at about the same rate
	found     bool          // two were, once, a good while after each other
	kept      bool          // a POST was taken since the limit is known
	severity  int           // of cuts
	guessing  bool          // the rate doubles, though some are refused: most are not
	guess     paceCount     // of the last POSTs of that time
	sent      paceCount     // of more of them, up to paceBounded
	cuts      uint32        // and other times when all places are taken anew
	used      time.Duration // since the last cut, as far as the rate was used
	begun     time.Time     // the place of the last POST
	started   time.Time     // when the last one really began
	next      time.Time     // when the next one may begin
	lag       time.Duration // between a POST and its answer
	cycle     time.Duration // in which the limit takes much and then nothing
	windows   bool          // such a time has come again
	span      time.Duration // the cycle then
	window    time.Duration // the same of a limit that takes nothing for longer than paceLately

	lent bool // others say so: it is not told on, so that it ends with the one that has learned it

	run      int // refusals in a row, each at the pace of its time
	runSince time.Time
	idle     time.Duration // of the time since then in which nothing was sent
	broken   bool          // for longer than a limit explains, or the breaker has opened
	shut     bool          // it was refused over the limit, and did not fail otherwise, last
	opened   paceCount     // since such a time ended
	quota    int           // taken from the one before that to the beginning of it, by others, too
	beside   int64         // taken by others from one such time to the next
	sum      int64         // and in all, by the beginning of the last one
	stretch  paceCount     // since the rate was last compared with what was taken
	denied   time.Duration
	noise    paceNoise

	second    int64     // of the clock
	taken     [2]uint32 // in it, and in the one before
	lastTaken time.Time
	firstNo   time.Time // when the first one was refused since then
	lastNo    time.Time // and the last one
	since     time.Time
	refused   int64
}

// Limited tells whether a limit is known.
func (p *Pacer) Limited() bool { return p.base > 0 }

// TookLately tells whether a POST was taken within the longest time for which a limit takes none, as most have it.
func (p *Pacer) TookLately(now time.Time) bool {
	return !p.lastTaken.IsZero() && now.Sub(p.lastTaken).Abs() <= paceLately
}

// Rate is POSTs a second now; 0 without a limit.
func (p *Pacer) Rate() float64 {
	if !p.Limited() {
		return 0
	}
	if p.doubling > 0 {
		return min(p.base*math.Exp2(min(float64(p.used)/float64(p.doubling), 20)), MaxRate)
	}
	step := p.step()
	back := step
	if p.near {
		back *= 2
	}
	if p.used < back {
		return p.top - (p.top-p.base)*cube(1-float64(p.used)/float64(back))
	}
	return min(p.top*(1+paceRise*cube(float64(p.used-back)/float64(step))), MaxRate)
}

func cube(x float64) float64 { return x * x * x }

// gap is the time from one POST to the next.
func (p *Pacer) gap() time.Duration {
	return time.Duration(float64(time.Second) / max(p.Rate(), paceMin))
}

// step is the time that the rate takes to come back.
func (p *Pacer) step() time.Duration {
	posts := time.Duration(paceStepPosts / max(p.top, paceMin) * float64(time.Second))
	if p.noise.share > 0 {
		posts *= noiseSteps
	}
	return max(posts, paceStepLags*p.lag, p.cycle/2, paceStepWaits*p.noise.asked)
}

// Next is when the next POST may begin: now or later.
func (p *Pacer) Next(now time.Time) time.Time {
	switch {
	case !p.Limited():
		return now
	case p.noise.trial.runs(now):
		return later(p.noise.trial.next, now)
	}
	if p.begun.Sub(now) > BucketAhead { // the clock was set back: no place is taken so far ahead
		p.begun, p.next = now, now.Add(p.gap())
	}
	p.next = earlier(p.next, now.Add(BucketAhead+2*max(p.gap(), OutageWait(0, paceLately))))
	return later(p.next, now)
}

// PacePlace is the place of one POST. It is taken some time ahead, and the rate has risen when the answer comes: a
// refusal is one of the rate that the place was taken at.
type PacePlace struct {
	cuts uint32
	used time.Duration
}

// Take takes the place of a POST that begins at that time, which Next has named.
func (p *Pacer) Take(at time.Time) PacePlace {
	if !p.Limited() {
		return PacePlace{cuts: p.cuts}
	}
	if p.noise.trial.runs(at) {
		p.noise.trial.took(at, p.lag)
	}
	gap := p.gap()
	if quiet := at.Sub(p.next); quiet > paceLately && !p.firstNo.IsZero() { // in which nothing was refused, since nothing was sent
		p.firstNo = p.firstNo.Add(quiet - paceQuiet)
	}
	p.idle += max(at.Sub(p.next), 0)
	if idle := at.Sub(p.begun); idle > 0 && idle <= 2*gap { // nearly as soon as it may
		p.used += min(idle, gap*5/4)
	}
	if rate := p.Rate(); rate >= MaxRate || p.doubling == 0 && rate >= paceForget*p.top {
		p.forget()
		return PacePlace{cuts: p.cuts}
	}
	p.begun, p.next = at, at.Add(p.gap())
	return PacePlace{p.cuts, p.used}
}

// Start begins a POST whose place has come, or says when it may begin: some time after the
// one before it, which may have been late. A limiter goes by when POSTs really come. Beside
// other instances each keeps its places, or their POSTs would never fall into step.
func (p *Pacer) Start(now time.Time) (at time.Time) {
	if !p.Limited() || p.noise.trial.runs(now) {
		return now
	}
	if !p.noise.shared() {
		if at = p.free(now); at.After(now) {
			return at
		}
		p.next = later(p.next, now.Add(p.gap()))
	}
	p.started = now
	return now
}

// free is when the next POST may begin by when the last one really began. After a refusal it
// does not wait for that.
func (p *Pacer) free(now time.Time) time.Time {
	if p.run > 0 {
		return now
	}
	return earlier(p.started, now).Add(p.gap())
}

// Give gives back a place that was taken for a POST that is not made.
func (p *Pacer) Give(place PacePlace, now time.Time) {
	if p.Limited() && p.Current(place) {
		p.next, p.used = p.next.Add(-p.gap()), max(p.used-p.gap(), 0)
		if !p.noise.shared() {
			p.next = later(p.next, p.free(now))
		}
	}
}

// Current tells whether a place that was taken is still one: it is not to be taken anew, after a cut or beside another instance.
func (p *Pacer) Current(place PacePlace) bool { return place.cuts == p.cuts }

// Taken takes in a POST that was not refused. It began at that time.
func (p *Pacer) Taken(place PacePlace, began, now time.Time) {
	p.count(now)
	p.opened.taken++
	p.lastTaken, p.firstNo = now, time.Time{}
	if !p.Limited() {
		return
	}
	p.stretch.taken++
	if !p.Current(place) {
		p.noise.lastTaken = now
		return
	}
	if p.gone(now) {
		p.forget()
		return
	}
	p.late(max(now.Sub(began), 0))
	if p.broken {
		p.reopen(now)
		return
	}
	p.kept = true
	p.guesses(false, now)
	p.learnNoise(false, began, now)
	if p.noise.took(now) {
		p.stay()
	}
	if p.run > 0 {
		if p.noise.share == 0 {
			p.compare(now)
		}
		p.run, p.next = 0, later(p.next, p.begun.Add(p.gap()))
	}
}

// Refused takes in a POST that was refused over a limit. It began at that time. limited tells
// whether the webhook has taken others lately; if not it is broken, and broken is since when it
// has refused everything, of one that was limited before. random is uniform in [0, 1), so that
// POSTs of several instances do not meet for ever.
func (p *Pacer) Refused(place PacePlace, began, now time.Time, random float64) (limited bool, broken time.Time) {
	switch {
	case p.lastTaken.After(now): // the clock was set back
		p.lastTaken = now
	case p.lastTaken.IsZero() && p.noise.shared(): // others are sent what it takes
		p.lastTaken = now
	}
	p.lastNo, p.shut = now, true
	if p.firstNo.IsZero() || p.firstNo.After(now) {
		p.firstNo = now
	}
	switch away := now.Sub(p.lastTaken); {
	case p.Limited() && now.Sub(p.firstNo) > max(paceLately, paceLateGaps*p.gap(), p.window):
		if !p.broken { // by now what others were taken before is known
			p.beside, p.sum = p.noise.others.Sum-p.sum, p.noise.others.Sum
		}
		p.broken = true
		p.refused++
		p.run++
		p.wait(began, now, random) // where no breaker opens
		return false, p.runSince
	case p.lastTaken.IsZero() || !p.Limited() && away > paceLately:
		return false, time.Time{}
	}
	if !p.Limited() {
		p.begin(now)
	} else {
		p.stretch.refused++
		if p.explained(place, began, now) {
			if p.refused++; p.Current(place) && p.noise.share == 0 && !p.noise.trial.on {
				p.elsewhere(began, now, random)
				if p.noise.shared() { // it met another instance's POST, and so would those that have their places
					p.move(place, now)
				}
			}
			return true, time.Time{}
		}
		p.cut()
	}
	p.refused++
	p.run++
	p.wait(began, now, random)
	if !p.guessing && p.noise.tryable(now.Sub(p.since)) {
		p.noise.try(p.lag, now)
	}
	return true, time.Time{}
}

// explained tells whether a refusal has another reason than the rate at its place. If not the rate is that one.
func (p *Pacer) explained(place PacePlace, began, now time.Time) bool {
	if !p.Current(place) {
		return true
	}
	used, guessing := p.used, p.guessing
	p.used = min(used, place.used)
	if !p.learnNoise(true, began, now) && !p.noise.trial.on && !p.guesses(true, now) && !p.excused(now) {
		return false
	}
	if p.Current(place) && p.guessing == guessing { // a guess that ended has set the rate
		p.used = used
	}
	return true
}

// wait sets when the next POST may begin after a refusal.
func (p *Pacer) wait(began, now time.Time, random float64) {
	if p.run == 1 {
		p.runSince, p.idle = now, 0
		p.elsewhere(began, now, random)
		return
	}
	gap := float64(p.gap())
	away := max(now.Sub(p.runSince)-p.idle, 0)
	window := max(p.cycle/paceRetries, time.Duration(paceWaits*float64(away)), min(away, 2*time.Second))
	if !p.broken && (p.kept || p.noise.shared()) && p.noise.young() {
		window = min(window, trialWait)
	}
	p.next = now.Add(max(time.Duration(gap*(1+random/2)), window))
}

// elsewhere has the next POST begin at another time of the round than those before it.
func (p *Pacer) elsewhere(began, now time.Time, random float64) {
	p.next = now.Add(time.Duration(float64(p.gap()) * (0.25 + 0.75*random)))
	if p.started.After(began) { // another one went out meanwhile
		p.next = later(p.next, earlier(p.started, now).Add(p.gap()))
	}
}

// stay takes the rate as it is for one that was refused.
func (p *Pacer) stay() {
	rate := p.Rate()
	p.base, p.top, p.doubling, p.used = rate, rate, 0, 0
}

// cut lowers the rate.
func (p *Pacer) cut() {
	rate := p.Rate()
	if p.run == 0 { // otherwise it is the refused one already
		p.near = p.doubling == 0 && math.Abs(rate-p.top) <= paceNear*p.top
		p.top = rate
	}
	if p.used < p.step()/2 {
		p.severity = min(p.severity+1, paceSeverest)
	} else {
		p.severity = 0
		p.found = p.found || p.near
	}
	left := 1 - paceCut*float64(int(1)<<p.severity)
	if p.noise.follows() {
		left = 1 - paceYield
	}
	if p.run > 0 && p.doubling > 0 && p.noise.share == 0 { // the beginning was a guess, and too high
		left = 0.5
	}
	p.base, p.used = max(rate*left, min(p.noise.floor(), rate), paceMin), 0
	switch {
	case p.noise.share > 0:
		p.doubling = noiseDoubles(p.base)
	case p.run == 0: // the limit is found
		p.doubling = 0
	}
	p.cuts++
}

// count counts a POST that was taken in this second.
func (p *Pacer) count(now time.Time) {
	switch second := now.Unix(); {
	case second == p.second+1:
		p.taken[1], p.taken[0], p.second = p.taken[0], 0, second
	case second != p.second:
		p.taken, p.second = [2]uint32{}, second
	}
	p.taken[0]++
}

// lately is how many were taken in the last second.
func (p *Pacer) lately(now time.Time) float64 {
	part := float64(now.Nanosecond()) / float64(time.Second)
	switch now.Unix() {
	case p.second:
		return float64(p.taken[0]) + float64(p.taken[1])*(1-part)
	case p.second + 1:
		return float64(p.taken[0]) * (1 - part)
	}
	return 0
}

// gone tells whether nothing was refused for so long that there is no limit.
func (p *Pacer) gone(now time.Time) bool {
	after := paceNone
	if p.found {
		after = paceGone
	}
	return now.Sub(p.lastNo) > max(after, paceGonePosts*p.gap(), 2*p.window)
}

// forget takes the limit to be gone.
func (p *Pacer) forget() {
	*p = Pacer{cuts: p.cuts + 1, second: p.second, taken: p.taken, lastTaken: p.lastTaken, opened: p.opened, quota: p.quota, beside: p.beside, sum: p.sum, noise: paceNoise{others: p.noise.others}}
}

// Reset begins anew: the webhook was enabled, or has another URL.
func (p *Pacer) Reset() { *p = Pacer{cuts: p.cuts + 1, sum: p.noise.others.Sum} }

// paceCount counts POSTs since a time.
type paceCount struct {
	since          time.Time
	taken, refused int
}

func (c *paceCount) posts() int { return c.taken + c.refused }

func (c *paceCount) add(refused bool) {
	if refused {
		c.refused++
	} else {
		c.taken++
	}
}

// speed is how many were taken in a second.
func (c *paceCount) speed(now time.Time) float64 {
	return float64(c.taken) / max(now.Sub(c.since).Seconds(), 0.001)
}
