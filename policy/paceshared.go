package policy

import "time"

// Share tells what other instances have learned. With
// others POSTs are refused that came just after another one's, whatever the pace, and some of
// them are put up with. What was found to be a limit here is not taken for noise again for a while because
// others say so: they may have it from here.
func (p *Pacer) Share(others Others, now time.Time) {
	followed, before := p.noise.follows(), p.noise.others
	p.noise.tell(others, now)
	if others.Posts > others.Failed { // the webhook takes POSTs
		p.lastTaken, p.firstNo = now, time.Time{}
	}
	if !p.noise.follows() && (followed || others.Instances < before.Instances) {
		p.takeOver(before, others, now)
	}
	if p.Limited() && p.window == 0 { // it took another one hours to find that out
		p.window, p.lent = min(max(others.Window, 0), paceLongest), true
	}
	if p.noise.compared(others, now) {
		p.stay()
	}
	if wrong := p.noise.wrong; !wrong.IsZero() && now.Sub(wrong).Abs() < noiseWrong {
		return
	}
	if p.Limited() && p.noise.share == 0 && p.noise.learn(others.Noise) {
		p.back(p.Rate(), now)
	}
}

// takeOver goes on at about the rate of those that were taken more often until now: what they had learned where they are gone, however
// little they were sent.
func (p *Pacer) takeOver(before, left Others, now time.Time) {
	rate := before.Taken
	if learned := max(before.Learned, p.noise.led); left.Instances < before.Instances && left.Learned < learned/2 { // who had learned that is gone
		rate = learned
	}
	if rate *= paceStart; p.Limited() && p.noise.share == 0 && rate > p.Rate() {
		p.base, p.top, p.doubling, p.used, p.near, p.guessing = rate*(1-paceBelow), rate, 0, 0, false, false
		p.next = earlier(p.next, now.Add(p.gap()))
		p.cuts++
	}
}

// move has the places ahead taken anew after a refusal. Their time is counted then, and not twice.
func (p *Pacer) move(refused PacePlace, now time.Time) {
	if ahead := p.begun.Sub(now); ahead > 0 {
		p.used, p.begun = max(p.used-ahead, min(p.used, refused.used)), now
	}
	p.cuts++
}

// Shared tells whether other instances were limited when Share was last told.
func (p *Pacer) Shared() bool { return p.noise.shared() }

// TakesBeside tells whether others are taken something, as rows tell that were read a good while after that time, and lately.
func (p *Pacer) TakesBeside(since, now time.Time) bool {
	told := p.noise.toldAt
	return p.noise.shared() && p.noise.others.Posts > p.noise.others.Failed && told.After(since.Add(2*peerSeldom)) && now.Sub(told).Abs() < 2*peerSeldom
}

// Turn is at how many messages a second those come back that this instance could not send. Any of the instances may receive them, and they come
// so fast that the part which the leader receives is all that it may send. It is 0 where this one is alone.
func (p *Pacer) Turn() float64 {
	if !p.Limited() || !p.noise.shared() {
		return 0
	}
	if !p.noise.follows() {
		return p.All()
	}
	n := float64(p.noise.others.Instances)
	return p.All() * (n + 1) / n
}

// All is how many POSTs a second all instances together send, as they have learned; 0 without a limit.
func (p *Pacer) All() float64 {
	if !p.Limited() {
		return 0
	}
	all := p.Rate() + p.noise.others.Rate
	if p.noise.follows() {
		all = max(all, p.noise.others.Learned)
	}
	return all
}

// Follows tells whether another instance is taken more often than this one, and most that is sent is sent by it.
func (p *Pacer) Follows() bool { return p.Limited() && p.noise.follows() }

// Leader is the instance that sends most of what is sent; empty where that is this one.
func (p *Pacer) Leader() string {
	if !p.Follows() {
		return ""
	}
	return p.noise.others.Leader
}

// Asks tells whether Share is to be called soon: a trial waits for that.
func (p *Pacer) Asks() bool { return p.noise.asks }
