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
	noiseShared = 0.12
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
	noiseRun = 1e-4
	// noiseCredit bounds how many refusals are put up with in a row beside other instances.
	noiseCredit = 2.6
	// noiseDoubling is the time in which the rate doubles while there is noise.
	noiseDoubling = 2 * time.Second
)

// paceNoise finds the share of refusals that has nothing to do with the pace: of a receiver
// that refuses at random, or single messages. It compares two explanations of what is refused
// after the pace became slower: a limit, by which a POST is taken that comes long after the
// last one that was taken, and noise, by which the share of refusals stays as it was. Each POST
// makes one of them likelier (Wald's sequential test), so that as many POSTs are needed as it
// takes to be sure, at any pace. The same test tells that more, or less, is refused than noise explains.
type paceNoise struct {
	share  float64 // of refusals that are none of the pace's; 0: none is known
	others float64 // the rate of other instances, together; 0: this one is alone

	before paceStretch // with what later POSTs are compared
	posts  int         // since then
	told   int         // how often the rate of other instances was told since then
	noise  float64     // the logarithm of how much likelier noise is than a limit
	excess float64     // the same of more refusals than noise explains, since that was unlikely
	fewer  float64     // the same of half as many as noise explains
	credit float64     // refusals that are put up with beside other instances
	run    int         // refusals in a row; negative: POSTs in a row that were taken

	last, lastTaken time.Time
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

func (n *paceNoise) shared() bool { return n.others > 0 }

// learn takes in a share that was found elsewhere, or before a restart, and tells whether it is one.
func (n *paceNoise) learn(share float64) bool {
	if !(share > 0 && share < 1) { // also when it is NaN
		return false
	}
	if share != n.share {
		n.share, n.excess, n.fewer = share, 0, 0
	}
	return true
}

// least is the share that is refused where the rate is right.
func (n *paceNoise) least() float64 {
	if n.shared() {
		return max(noiseShared, n.share)
	}
	return max(noiseLeast, n.share)
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
	n.credit = min(n.credit+noiseShared, noiseCredit)
	if n.share > 0 {
		n.excess = max(n.excess+likelier(refused, 2*n.share/(1+n.share), n.share), 0)
		n.fewer = max(n.fewer+likelier(refused, n.share/2, n.share), 0)
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
		back, n.share, n.excess, n.fewer = n.before.rate, share, 0, 0
		n.again()
	case n.noise < -2*noiseSure: // a lucky streak is no limit
		n.again()
	}
	return back
}

// slowed tells whether all instances together send at most half of what was taken when there were
// the POSTs to compare with. Of others nobody knew then they count as none.
func (n *paceNoise) slowed(rate float64) bool {
	return !n.shared() || n.told >= noiseTold && 2*(rate+n.others) <= n.before.speed()+n.before.others
}

// passed is how long before it the last POST began, and how long before it the last one that was
// taken was answered: at least so long was the time between them at the receiver, however late
// either of them was.
func (n *paceNoise) passed(refused bool, began, now time.Time) (sinceLast, sinceTaken time.Duration) {
	if n.last.IsZero() {
		n.last, n.lastTaken = began, now
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
	n.before.rate, n.before.others = max(n.before.rate, rate), max(n.before.others, n.others)
	if n.before.full() && n.before.share() < noiseMargin*n.least() {
		n.again()
	}
}

func (n *paceNoise) again() { n.before, n.posts, n.told, n.noise = paceStretch{}, 0, 0, 0 }

// floor is the rate that is low enough to tell noise from a limit. It is lower the longer that
// takes.
func (n *paceNoise) floor() float64 {
	if !n.before.full() {
		posts := n.before.taken + n.before.refused
		return n.before.rate / noiseDepth / math.Exp2(max(float64(posts-noisePosts), 0)/noiseHalves)
	}
	low := min(1/(1.5*n.slower()*max(n.before.gap().Seconds(), 1e-6)), n.before.rate/noiseDepth)
	return low / math.Exp2(float64(n.posts)/noisePosts)
}

// took takes in that a POST was taken. When half as many refusals are likelier by far, they are what is
// expected from then on; it tells when that is too few to be noise.
func (n *paceNoise) took() (over bool) {
	n.run = min(n.run, 0) - 1
	if n.share == 0 || n.fewer <= noiseSure {
		return false
	}
	n.share, n.excess, n.fewer = n.share/2, 0, 0
	if n.share >= noiseLeast {
		return false
	}
	n.share = 0
	return true
}

// excuses tells whether a refusal is explained by the noise, or by other instances.
func (n *paceNoise) excuses() bool {
	n.run = max(n.run, 0) + 1
	switch {
	case n.share == 0:
		if !n.shared() || n.credit < 1 {
			return false
		}
		n.credit--
		return true
	case math.Pow(n.share, float64(n.run)) < noiseRun:
		return false
	case n.excess > noiseSure:
		n.excess = 0
		return false
	}
	return true
}
