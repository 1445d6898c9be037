package policy

import (
	"math"
	"time"
)

// The numbers of paceNoise: docs/adr/0054-learned-rate.md.
const (
	// noiseLeast is the share of refusals that looking for a limit costs, and noiseShared that of
	// looking for it beside other instances. noiseMargin times that share is worth a comparison.
	noiseLeast  = 0.03
	noiseShared = 0.08
	noiseMargin = 1.5
	// noisePosts is how many POSTs are compared with later ones at least, noiseTaken how many
	// of them were taken, and noiseOld after how many others they are too old.
	noisePosts = 20
	noiseTaken = 5
	noiseOld   = 1000
	// noiseSlower is by how much longer after the last one that was taken a POST must come than
	// those did to be compared with them, and noiseSlowerShared beside other instances.
	noiseSlower       = 2.0
	noiseSlowerShared = 3.0
	// noiseDepth is how far the rate falls at most until there is something to compare. Where
	// that takes more POSTs, as few are taken, it halves with each noiseHalves of them.
	noiseDepth  = 8
	noiseHalves = 4
	// noiseTold is how often the rate of other instances has to be told since the POSTs to
	// compare with, to be one of after them.
	noiseTold = 2
	// noiseSure is the logarithm of how much likelier one explanation has to be.
	noiseSure = 7
	// noiseRun is how unlikely a run of refusals may be that is still taken for noise.
	noiseRun = 1e-6
	// noiseLed is the share of refusals that the instance which is taken most often puts up with at most.
	noiseLed = 0.16
	// noiseFollow is the rate to which one falls at most beside another that is taken noiseFollows times as often, so
	// that it is soon noticed when that one stops.
	noiseFollow  = 1.0 / 30
	noiseFollows = 20
	// noiseLeads is what is left of the rate that the one which leads had learned each time that its row tells less: it has fallen
	// already when it is found out that nothing of it is taken any more.
	noiseLeads = 0.9
	// noiseCredit bounds how many refusals are put up with in a row beside other instances.
	noiseCredit = 2.6
	// noiseDoubling is the time in which the rate doubles while there is noise, and noiseDoublingPosts in how many
	// POSTs at least.
	noiseDoubling      = 2 * time.Second
	noiseDoublingPosts = 30
	// noiseWrong is for how long a share that was found to be a limit's is not learned from other instances again.
	noiseWrong = 15 * time.Minute
	// noiseSteps is how many times as long a step is while there is noise: with so many POSTs more it is found out whether
	// more is refused, or less.
	noiseSteps = 2
)

// paceNoise finds the share of refusals that has nothing to do with the pace: of a receiver
// that refuses at random, or single messages. It compares two explanations of what is refused
// after the pace became slower: a limit, by which a POST is taken that comes long after the
// last one that was taken, and noise, by which the share of refusals stays as it was. Each POST
// makes one of them likelier (Wald's sequential test), so that as many POSTs are needed as it
// takes to be sure, at any pace. The same test tells that more, or less, is refused than noise explains.
type paceNoise struct {
	share  float64 // of refusals that are none of the pace's; 0: none is known
	others Others
	led    float64       // about what the one that leads had learned while it was taken
	toldAt time.Time     // when these were told last
	asks   bool          // they are to be told soon
	asked  time.Duration // the wait that a refusal costs
	wrong  time.Time     // when a share was last found to be a limit's

	before paceStretch // with what later POSTs are compared
	posts  int         // since then
	told   int         // how often the rate of other instances was told since then
	noise  float64     // the logarithm of how much likelier noise is than a limit
	excess float64     // the same of more refusals than noise explains, since that was unlikely
	left   float64     // the rate to go on from when that was not the pace, until it is known
	fewer  float64     // the same of half as many as noise explains
	credit float64     // refusals that are put up with beside other instances
	run    int         // refusals in a row; negative: POSTs in a row that were taken

	last, lastTaken time.Time
	trial           paceTrial
}

// paceStretch is what came of some POSTs, one after the other.
type paceStretch struct {
	taken, refused int
	length         time.Duration
	rate           float64 // the highest
	others         float64 // the rate of other instances
}

func (s *paceStretch) full() bool {
	return s.taken+s.refused >= noisePosts && s.taken >= noiseTaken
}

// share is that of the refused ones.
func (s *paceStretch) share() float64 {
	return (float64(s.refused) + 0.5) / float64(s.taken+s.refused+1)
}

// gap is the mean time from one that was taken to the next.
func (s *paceStretch) gap() time.Duration { return s.length / time.Duration(max(s.taken, 1)) }

// speed is how many were taken in a second.
func (s *paceStretch) speed() float64 { return float64(s.taken) / max(s.length.Seconds(), 1e-6) }

// likelier is by how much a POST makes the share p likelier than q, as a logarithm.
func likelier(refused bool, p, q float64) float64 {
	p, q = min(max(p, 0.01), 0.99), min(max(q, 0.01), 0.99)
	if refused {
		return math.Log(p / q)
	}
	return math.Log((1 - p) / (1 - q))
}

func (n *paceNoise) shared() bool { return n.others.Rate > 0 }

// follows tells whether another instance is taken more often than this one.
func (n *paceNoise) follows() bool { return n.shared() && n.others.Leader != "" }

// tolerated is the share of refusals that is put down to other instances: none where one of them leads, and otherwise
// as much as they are taken of the limit, up to noiseLed, and noiseLeast at least; less where a refusal costs the POSTs of a wait.
func (n *paceNoise) tolerated(rate float64) float64 {
	if !n.shared() || n.follows() {
		return 0
	}
	return max(min(n.others.Taken/(rate+n.others.Taken), noiseLed), noiseLeast/max(rate*n.asked.Seconds(), 1))
}

// tell takes in what others have learned. What was seen before one knew of them was seen as if they were not there.
func (n *paceNoise) tell(others Others, now time.Time) {
	if !n.shared() && others.Rate > 0 {
		n.trial.end()
		n.again()
	}
	n.others, n.toldAt, n.asks = others, now, false
	switch {
	case others.Leader == "":
		n.led *= noiseLeads
	case others.Posts > others.Failed:
		n.led = max(others.Learned, noiseLeads*n.led)
	}
	n.told++
}

// tryable tells whether a trial may be made, of a limit that is known for so long. Who follows another instance makes none: a strict limit
// refuses it most of what it sends, and a trial would take the limit from the one that leads.
func (n *paceNoise) tryable(known time.Duration) bool {
	return n.share == 0 && known >= trialAfter && !n.follows()
}

// try begins a trial where one is worth it, once it is known what other instances send.
func (n *paceNoise) try(lag time.Duration, now time.Time) {
	if n.asks = false; !n.trial.worth(lag) {
		return
	}
	if now.Sub(n.toldAt).Abs() > trialFresh {
		n.asks = true
		return
	}
	n.trial.begin(now)
}

// young tells whether a trial may soon show that there is noise.
func (n *paceNoise) young() bool { return n.share == 0 && n.trial.young() }

// learn takes in a share that was found elsewhere, or before a restart, and tells whether it is one.
func (n *paceNoise) learn(share float64) bool {
	if !(share > 0 && share < 1) { // also when it is NaN
		return false
	}
	if share != n.share {
		n.believe(share)
	}
	return true
}

// believe takes a share of refusals for noise, and begins to look whether it is.
func (n *paceNoise) believe(share float64) {
	if share < noiseLeast {
		share = 0
	}
	n.share, n.excess, n.fewer, n.left, n.trial = share, 0, 0, 0, paceTrial{}
}

// least is the share that is refused where the rate is right.
func (n *paceNoise) least() float64 { return max(n.looking(), n.share) }

// looking is the share of refusals that looking for a limit costs.
func (n *paceNoise) looking() float64 {
	if n.shared() {
		return noiseShared
	}
	return noiseLeast
}

// slower is by how much longer a POST must come after the last one that was taken.
func (n *paceNoise) slower() float64 {
	if n.shared() {
		return noiseSlowerShared
	}
	return noiseSlower
}

// add takes in a POST at the pace of the time when it began. If back is not 0, the rate is to go
// back to that: it has fallen in vain.
func (n *paceNoise) add(refused bool, rate float64, began, now time.Time) (back float64) {
	sinceLast, sinceTaken := n.passed(refused, began, now)
	n.credit = min(n.credit+n.tolerated(rate), noiseCredit)
	switch trying := n.trial.on; {
	case n.share > 0 && n.left > 0:
		return n.doubt(refused, now)
	case n.share > 0:
		n.excess = max(n.excess+likelier(refused, moreNoise(n.share), n.share), 0)
		n.fewer = max(n.fewer+likelier(refused, lessNoise(n.share), n.share), 0)
	case n.trial.add(refused, began, now, sinceTaken, rate, n.others.Taken):
		return n.found(n.trial.rate, n.trial.share())
	case trying:
		return 0
	}
	if !n.before.full() {
		n.stretch(refused, sinceLast, rate)
		return 0
	}
	if n.posts++; n.posts > noiseOld {
		n.again()
		return 0
	}
	// What comes after a refusal says little: a window may be closed, and then all are refused.
	if n.run >= 1 || float64(sinceTaken) < n.slower()*float64(n.before.gap()) {
		return 0
	}
	share := n.before.share()
	n.noise += likelier(refused, share, min(share, n.least()/2))
	switch {
	case n.noise > noiseSure && n.slowed(rate): // otherwise the others' pace explains it
		return n.found(n.before.rate, share)
	case n.noise < -2*noiseSure: // a lucky streak is no limit
		n.again()
	}
	return 0
}

// found notes that so much is refused whatever the pace, and returns the rate to go back to.
func (n *paceNoise) found(rate, share float64) (back float64) {
	n.believe(share)
	n.again()
	return rate
}

// doubt takes in a POST at what was taken while more was refused than the noise explains. A limit alone refuses next to
// nothing there; then there is no noise. Otherwise it returns the rate to go on from.
func (n *paceNoise) doubt(refused bool, now time.Time) (back float64) {
	switch n.excess += likelier(refused, n.share, n.looking()); {
	case n.excess > noiseSure:
		back = n.left
		n.believe(moreNoise(n.share))
	case n.excess < -noiseSure:
		n.lower(0, now)
	}
	return back
}

// slowed tells whether all instances together send at most half of what was taken when there were
// the POSTs to compare with. Of others nobody knew then they count as none.
func (n *paceNoise) slowed(rate float64) bool {
	return !n.shared() || !n.follows() && n.before.share() < trialShare && n.told >= noiseTold && 2*(rate+n.others.Rate) <= n.before.speed()+n.before.others
}

// passed is how long before it the last POST began, and how long before it the last one that was
// taken was answered: at least so long was the time between them at the receiver, however late
// either of them was.
func (n *paceNoise) passed(refused bool, began, now time.Time) (sinceLast, sinceTaken time.Duration) {
	if n.last.IsZero() {
		n.last, n.lastTaken = began, now
	}
	if began.Sub(n.last) > trialPause {
		n.trial.from = began
	}
	sinceLast, sinceTaken = max(began.Sub(n.last), 0), max(began.Sub(n.lastTaken), 0)
	n.last = began
	if !refused {
		n.lastTaken = now
	}
	return sinceLast, sinceTaken
}

// stretch adds a POST to those with which later ones are compared.
func (n *paceNoise) stretch(refused bool, sinceLast time.Duration, rate float64) {
	if refused {
		n.before.refused++
	} else {
		n.before.taken++
	}
	n.before.length += sinceLast
	n.told = 0
	n.before.rate = max(n.before.rate, rate)
	if n.others.Posts > 0 { // otherwise it is what they may send
		n.before.others = max(n.before.others, n.others.Rate)
	}
	if n.before.full() && n.before.share() < noiseMargin*n.least() {
		n.again()
	}
}

func (n *paceNoise) again() { n.before, n.posts, n.told, n.noise = paceStretch{}, 0, 0, 0 }

// floor is the rate that is low enough to tell noise from a limit. It is lower the longer that
// takes.
func (n *paceNoise) floor() float64 {
	low := n.lowest()
	if n.young() {
		low = max(low, trialFloor)
	}
	if n.follows() {
		low = max(low, min(noiseFollow, n.others.Taken/noiseFollows))
	}
	return low
}

func (n *paceNoise) lowest() float64 {
	if !n.before.full() {
		posts := n.before.taken + n.before.refused
		return n.before.rate / noiseDepth / math.Exp2(max(float64(posts-noisePosts), 0)/noiseHalves)
	}
	low := min(1/(1.5*n.slower()*max(n.before.gap().Seconds(), 1e-6)), n.before.rate/noiseDepth)
	return low / math.Exp2(float64(n.posts)/noisePosts)
}

// took takes in that a POST was taken. When half as many refusals are likelier by far, they are what is
// expected from then on; it tells when that is too few to be noise.
func (n *paceNoise) took(now time.Time) (over bool) {
	n.run = min(n.run, 0) - 1
	if n.share == 0 || n.fewer <= noiseSure {
		return false
	}
	return n.lower(lessNoise(n.share), now)
}

// lower takes a smaller share for noise, and tells when that is too small to be any.
func (n *paceNoise) lower(share float64, now time.Time) (over bool) {
	if n.believe(share); n.share > 0 {
		return false
	}
	n.wrong = now
	return true
}

// compared takes in what came of POSTs of other instances. Noise refuses as many of theirs; what is left of a limit that they use up
// looks like noise here. It tells when there is none.
func (n *paceNoise) compared(o Others, now time.Time) (over bool) {
	share := n.share
	for share > noiseLeast {
		less := lessNoise(share)
		if float64(o.Failed)*likelier(true, less, share)+float64(o.Posts-o.Failed)*likelier(false, less, share) <= noiseSure {
			break
		}
		share = less
	}
	if share == n.share {
		return false
	}
	if share <= 2*noiseShared { // a limit costs several instances as much
		share = 0
	}
	return n.lower(share, now)
}

// excuses tells whether a refusal is explained by the noise, or by other instances. over tells that more is refused
// than the noise that was known explains: either it is more, or the rate is over a limit. Both are taken
// to be so; fewer refusals at what was taken so far tell that it was the limit alone.
func (n *paceNoise) excuses() (excused, over bool) {
	n.run = max(n.run, 0) + 1
	switch {
	case n.share == 0:
		if !n.shared() || n.credit < 1 {
			return false, false
		}
		n.credit--
		return true, false
	case math.Pow(n.share, float64(n.run)) < noiseRun:
		return false, false
	case n.left == 0 && n.excess > noiseSure:
		return false, true
	}
	return true, false
}

// moreNoise is the share by which a POST is twice as likely to be refused, as odds, and lessNoise half as likely.
func moreNoise(share float64) float64 { return 2 * share / (1 + share) }
func lessNoise(share float64) float64 { return share / (2 - share) }

// excused tells whether a refusal is explained by the noise, or by other instances. Where more is refused than that, the
// rate is what was taken lately, until it is known why.
func (p *Pacer) excused(now time.Time) bool {
	excused, over := p.noise.excuses()
	if over {
		p.exceeded(now)
	}
	return excused || over
}

// exceeded sets the rate to what was taken lately: more was refused than the noise explains.
func (p *Pacer) exceeded(now time.Time) {
	p.top = max(min(p.stretch.speed(now), p.Rate()), paceMin)
	p.noise.left = min(p.top*(1-2*paceBelow)/(1-p.noise.share), p.Rate())
	p.noise.excess = 0
	p.base, p.doubling, p.used, p.near = max(p.top*(1-2*paceBelow), paceMin), 0, 0, true
	p.stretch = paceCount{since: now}
	p.cuts++
}

// noiseDoubles is the time in which a rate doubles while there is noise.
func noiseDoubles(rate float64) time.Duration {
	return max(noiseDoubling, time.Duration(noiseDoublingPosts/max(rate, paceMin)*float64(time.Second)))
}

// learnNoise counts a POST for the noise, and goes back to the rate that was left in vain, if one was.
func (p *Pacer) learnNoise(refused bool, began, now time.Time) (back bool) {
	rate := p.noise.add(refused, p.Rate(), began, now)
	if rate == 0 {
		return false
	}
	p.back(rate, now)
	return true
}

// back goes back to a rate that was left in vain, and up from there.
func (p *Pacer) back(rate float64, now time.Time) {
	p.base, p.top, p.doubling, p.used, p.run, p.guessing = rate, rate, noiseDoubles(rate), 0, 0, false
	p.stretch = paceCount{since: now}
	p.cuts++
}
