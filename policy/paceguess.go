package policy

import "time"

// begin begins with what was taken in the last second, or, if that was little, from where
// it soon finds the limit.
func (p *Pacer) begin(now time.Time) {
	lately := p.lately(now)
	p.base = max(lately*paceStart, paceFirst)
	p.doubling, p.guessing, p.guess, p.sent = paceFirstDoubling, true, paceCount{refused: 1}, paceCount{since: now}
	p.top, p.since = p.base/paceStart, now
	p.stretch = paceCount{since: earlier(time.Unix(p.second-1, 0), now), taken: int(lately)}
	p.cuts++
}

// guesses takes in a POST while the rate doubles from a guess, and tells whether it goes on. Where it
// does not, the rate is what was taken of it. A limit is passed by no more than that, and refusals
// at random leave a rate that finds them out soon.
func (p *Pacer) guesses(refused bool, now time.Time) bool {
	if !p.guessing {
		return false
	}
	if p.guess.posts() >= paceGuessed {
		p.guess.taken, p.guess.refused = p.guess.taken/2, p.guess.refused/2
	}
	p.guess.add(refused)
	p.sent.add(refused)
	rate := p.Rate() * float64(p.guess.taken+1) / float64(p.guess.posts()+1)
	switch {
	case !refused:
		return true
	case p.bounded(now):
		rate = p.lately(now)
	case p.guess.refused < paceGuessed/2 || p.guess.refused < p.guess.taken:
		return true
	}
	p.guessing = false
	p.noise.trial = paceTrial{rate: p.noise.trial.rate} // what a guess is refused says little
	p.base, p.used = max(rate, paceMin), 0
	return false
}

// bounded tells whether a guess is more than what can be sent, as so many POSTs are in flight as may be, and a good part of
// what is sent is refused.
func (p *Pacer) bounded(now time.Time) bool {
	posts := float64(p.sent.posts())
	if posts < paceBounded {
		return false
	}
	speed, much := posts/max(now.Sub(p.sent.since).Seconds(), 0.001), float64(p.sent.refused) >= paceMuch*posts
	p.sent = paceCount{since: now}
	return much && 2*speed < p.Rate()
}

// late takes in a latency. One that is far from the others counts as twice what they are: some slow
// answers among quick ones are no reason for long steps.
func (p *Pacer) late(latency time.Duration) {
	if p.lag == 0 {
		p.lag = latency
	}
	latency = min(latency, 2*p.lag)
	p.lag += (latency - p.lag) / latencyWeight
}

// Asked says for how long nothing is sent after a refusal, since it names a wait: the longer that is the more seldom is the rate raised
// beyond what is taken. A limit whose waits are long is no longer remembered for it.
func (p *Pacer) Asked(wait time.Duration) { p.noise.asked = min(max(wait, 0), paceAsked) }
