package policy

import "time"

const (
	// noiseLeast and noiseMost are the shares of refusals that can be none of the pace's, and
	// noiseMargin how many times such a share may be exceeded.
	noiseLeast  = 0.03
	noiseMost   = 0.5
	noiseMargin = 1.3
	// noiseShared is the share that is put up with while other instances send, too.
	noiseShared = 0.12
	// noiseDoubling is the time in which the rate doubles while there is noise.
	noiseDoubling = time.Minute
	// A batch has noisePosts POSTs with noiseRefused refusals, or noiseMany; noisy ones
	// have noiseSure.
	noisePosts, noiseRefused, noiseMany, noiseSure = 12, 3, 60, 30
	// noiseFall is how far the rate must have fallen in vain, and noiseLoss how far what is
	// taken must have with it. Shares that differ by less than noiseAlike are alike.
	noiseFall, noiseLoss, noiseAlike = 1.5, 1.25, 2.5
	// Nothing can be compared after a fall by noiseJump, nor over more than noiseLong.
	noiseJump = 8
	noiseLong = 2 * time.Minute
)

// paceNoise finds the share of refusals that has nothing to do with the pace: of a receiver
// that refuses at random, or single messages. Such a share stays while the rate falls, and
// what is taken falls with the rate, where a limited receiver takes as much as before.
type paceNoise struct {
	share      float64 // 0: none
	shared     bool    // other instances send, too
	credit     float64 // refusals that are excused
	first, now paceBatch
}

// paceBatch is what came of some POSTs, one after the other.
type paceBatch struct {
	paceCount
	rate  float64 // the highest
	taken float64 // a second
}

// paceCount counts POSTs since a time.
type paceCount struct {
	since          time.Time
	taken, refused int
}

func (c *paceCount) posts() int { return c.taken + c.refused }

// speed is how many were taken in a second.
func (c *paceCount) speed(now time.Time) float64 {
	return float64(c.taken) / max(now.Sub(c.since).Seconds(), 0.001)
}

// share is that of the refused ones.
func (c *paceCount) share() float64 { return float64(c.refused) / float64(max(c.posts(), 1)) }

// add takes in a POST at the pace of its time. If found is not 0, the rate is to go back to
// that: it has fallen in vain.
func (n *paceNoise) add(refused bool, rate float64, now time.Time) (found float64) {
	if n.now.posts() == 0 {
		n.now.since = now
	}
	n.now.rate = max(n.now.rate, rate)
	if refused {
		n.now.refused++
	} else {
		n.now.paceCount.taken++
	}
	allowed := noiseMargin * n.share
	if n.shared {
		allowed = max(allowed, noiseShared)
	}
	n.credit = min(n.credit+allowed, 2*noiseMargin)
	if !n.full() {
		return 0
	}
	batch := n.now
	batch.taken = batch.speed(now)
	n.now = paceBatch{}
	return n.judge(batch, now)
}

// full tells whether a batch is complete.
func (n *paceNoise) full() bool {
	posts := n.now.posts()
	if n.share > 0 {
		return posts >= noiseSure
	}
	return posts >= noisePosts && n.now.refused >= noiseRefused || posts >= noiseMany
}

func (n *paceNoise) judge(b paceBatch, now time.Time) (found float64) {
	share, first := b.share(), n.first.share()
	switch {
	case n.share > 0:
		if share < n.share/3 || share > 2*n.share { // it is another one, or was none
			*n = paceNoise{shared: n.shared}
		}
	case share < noiseLeast || n.shared:
		n.first = paceBatch{}
	case share >= noiseAlike*first || first >= noiseAlike*share || b.rate < n.first.rate/noiseJump || now.Sub(n.first.since) > noiseLong:
		n.first = b
	case b.rate < n.first.rate/noiseFall && b.taken < n.first.taken/noiseLoss:
		found = n.first.rate
		n.share, n.credit, n.first = min((share+first)/2, noiseMost), noiseMargin, paceBatch{}
	}
	return found
}

// excuses tells whether a refusal is one of those.
func (n *paceNoise) excuses() bool {
	if n.credit < 1 {
		return false
	}
	n.credit--
	return true
}
