package policy

import "time"

// MaxPause bounds a Pause, whatever the receiver asks for.
const MaxPause = 24 * time.Hour

// Pause keeps a webhook from being sent to for as long as an answer asked for
// (Decision.Pause). Further answers make it longer, never shorter. The zero Pause is
// none.
type Pause struct{ until time.Time }

// Ask pauses for d from now, at most MaxPause, unless it is paused for longer already.
func (p *Pause) Ask(d time.Duration, now time.Time) {
	if d <= 0 {
		return
	}
	if until := now.Add(min(d, MaxPause)); until.After(p.Until(now)) {
		p.until = until
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

// Restore goes on with a pause until then.
func (p *Pause) Restore(until time.Time) { *p = Pause{until: until} }
