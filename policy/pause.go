package policy

import "time"

// MaxPause bounds a Pause, whatever the receiver asks for.
const MaxPause = 24 * time.Hour

// Pause keeps a webhook from being sent to for as long as its 429 or 503 asked for
// (Decision.Pause). Further answers make it longer, never shorter. The zero Pause is
// none.
type Pause struct{ asked, until time.Time }

// Ask pauses for d from now, at most MaxPause, unless it is paused for longer already.
func (p *Pause) Ask(d time.Duration, now time.Time) {
	if d <= 0 {
		return
	}
	if until := now.Add(min(d, MaxPause)); until.After(p.Until(now)) {
		p.until = until
	}
	p.asked = now
}

// Succeeded ends the pause when a POST that began after it was last asked for got a
// 2xx: the receiver is back early. One that was under way by then says nothing.
func (p *Pause) Succeeded(began time.Time) {
	if began.After(p.asked) {
		p.Reset()
	}
}

// Reset ends the pause: an operator says so, or the webhook has another URL.
func (p *Pause) Reset() { *p = Pause{} }

// Until is when the pause ends; zero when there is none.
func (p *Pause) Until(now time.Time) time.Time {
	if !p.until.After(now) {
		return time.Time{}
	}
	p.until = earlier(p.until, now.Add(MaxPause)) // the clock was set back
	return p.until
}

// Restore goes on with a pause until then, asked for now at the latest.
func (p *Pause) Restore(until, now time.Time) { *p = Pause{asked: now, until: until} }
