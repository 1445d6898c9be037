package policy

import (
	"cmp"
	"math"
	"time"
)

// paceMissed is for how many of its windows a limit takes nothing that was away.
const paceMissed = 2

// compare sets the rate to what the webhook took on average, where it refused everything for
// a good part of the time. The first POST that is taken again ends such a time.
func (p *Pacer) compare(now time.Time) {
	closed := max(now.Sub(p.runSince)-p.idle, 0)
	if p.run > 1 { // a single refusal is no time of them
		p.denied += closed
		p.stretch.since = earlier(p.stretch.since.Add(p.idle), now) // when nothing was sent nothing was refused
	}
	if p.stretch.posts() < paceSure {
		return
	}
	length := max(now.Sub(p.stretch.since), time.Millisecond)
	share := min(max(float64(p.denied)/float64(length), 0), 1)
	again := p.cycle > 0
	p.cycle = 0
	switch {
	case share <= paceDenied:
	case p.windows && closed > paceMissed*p.span, !again && share > paceUnsure && p.outage(closed):
		p.base, p.doubling, p.near, p.used = max(p.top/2, paceMin), 0, false, 0
		p.cycle = cmp.Or(p.span, min(length, paceLately))
	default:
		p.average(share, again, length, now)
	}
	p.stretch, p.denied = paceCount{since: now}, 0
}

// outage tells whether a limit that has taken nothing for so long is taken for one that was away: it was well known, and
// had no such times before.
func (p *Pacer) outage(closed time.Duration) bool {
	return p.found && !p.windows && !p.noise.follows() && float64(closed) > paceStepPosts/p.top*float64(time.Second)
}

// average sets the rate to what was taken on average, while that share of the time takes none.
func (p *Pacer) average(share float64, again bool, length time.Duration, now time.Time) {
	average := p.stretch.speed(now)
	if p.windows = p.windows || again; !again {
		average = max(average, p.top*(1-share))
	}
	p.top = max(min(max(average, p.noise.floor()), p.top), paceMin)
	p.base, p.near = max(p.top*(1-paceBelow), paceMin), false
	p.cycle = min(length, max(paceLately, p.window))
	if again {
		p.span = p.cycle
	}
	switch {
	case !p.found && !again && p.stretch.taken < paceMany:
		p.doubling = max(paceGuess, paceGuesses*p.gap())
	case !again && share > paceUnsure && p.stretch.taken < paceMany:
		p.doubling = p.step()
	}
}

// reopen goes on after more time in which everything was refused than a limit explains. Where a good number was taken between two such times, and as many
// as before them, and the webhook is mostly closed, these are windows of a limit that are longer than others. Otherwise it was an outage: the
// limit goes on that was known before, and a window that was met since; without one nothing is known.
func (p *Pacer) reopen(now time.Time) {
	taken, before := p.opened.taken-1+int(max(p.beside, 0)), p.quota
	length, closed := now.Sub(p.opened.since), now.Sub(p.runSince)
	average := float64(taken) / max(length.Seconds(), 1)
	mostly := p.shut && taken >= paceSure && length < paceAgain && float64(closed) > paceUnsure*float64(length)
	p.broken, p.quota, p.opened = false, taken, paceCount{since: now, taken: 1}
	switch {
	case p.noise.share > 0:
		p.halve(now)
	case mostly && math.Abs(float64(taken-before)) <= paceNear*float64(taken):
		p.top, p.kept = max(average, paceMin), true
		p.window, p.lent = min(length, paceLongest), false
		p.halve(now)
		p.base, p.cycle = max(p.top*(1-paceBelow), paceMin), p.window
	case p.kept && (p.window == 0 || p.found):
		p.halve(now)
	default:
		p.forget()
	}
}

// Away takes in that a POST failed otherwise than over a limit while the breaker is open since then. What is refused until one is taken has nothing to do
// with the limit, and no window of it is learned.
func (p *Pacer) Away(since time.Time) {
	if !p.Limited() {
		return
	}
	if p.run == 0 {
		p.run, p.runSince, p.idle = 1, since, 0
	}
	p.broken, p.shut = true, false
}

// Resume goes on after an outage, in which a POST has just been taken.
func (p *Pacer) Resume(now time.Time) {
	if p.Limited() && !p.opened.since.Equal(now) { // otherwise Taken has
		p.halve(now)
	}
}

// halve goes on from half of the rate that was last refused.
func (p *Pacer) halve(now time.Time) {
	p.base, p.doubling, p.near, p.used, p.run, p.guessing = max(p.top/2, paceMin), 0, false, 0, 0, false
	p.stretch, p.denied, p.cycle = paceCount{since: now}, 0, max(p.cycle, p.span)
	p.cuts++
	p.started, p.next = now, now.Add(p.gap())
	p.noise.trial.end()
}
