package policy

import (
	"cmp"
	"math"
	"time"
)

// PaceState is what a Pacer shows and what is stored of it.
type PaceState struct {
	// Rate is the POSTs a second that were learned; 0 without a limit.
	Rate float64 `json:"rate"`
	// Since is when the limit was found; zero without one.
	Since time.Time `json:"since,omitzero"`
	// Refused counts the POSTs that were refused since then.
	Refused int64 `json:"refused"`
	// Noise is the share of POSTs that is refused whatever the pace; 0: none is known.
	Noise float64 `json:"noise,omitempty"`
	// Window is how long a window of the limit lasts, where one that takes nothing for minutes was learned here; 0: none was.
	Window time.Duration `json:"window,omitempty"`
}

// Others is what other instances have learned of a webhook.
type Others struct {
	// Rate is the POSTs a second that they send, together; 0: none is limited. Taken is how many of
	// them are taken, at most.
	Rate, Taken float64
	// Learned is the rate that the leader has learned, however little it sends now; where that is this one, the highest of the others.
	Learned float64
	// Posts and Failed are how many POSTs of theirs were counted last, and how many of these failed.
	Posts, Failed int64
	// Sum is how many of their POSTs were taken since it was read first what they sent.
	Sum int64
	// Instances is how many they are, and Leader is the one that is taken most often; empty where that is this one.
	Instances int
	Leader    string
	// Noise is the share of refusals that has nothing to do with the pace; 0: none knows of any.
	Noise float64
	// Window is the longest window that one of them has learned; 0: none has.
	Window time.Duration
}

// Plus is what these and another instance have learned.
func (o Others) Plus(one Others) Others {
	return Others{
		Rate: o.Rate + one.Rate, Taken: o.Taken + one.Taken, Learned: max(o.Learned, one.Learned),
		Posts: o.Posts + one.Posts, Failed: o.Failed + one.Failed,
		Instances: o.Instances + one.Instances, Leader: cmp.Or(o.Leader, one.Leader), Noise: max(o.Noise, one.Noise), Window: max(o.Window, one.Window),
	}
}

// Milli is the rate in POSTs of a thousand seconds, and the noise in thousandths, as they are stored.
func (st PaceState) Milli() (rate, noise int64) {
	return int64(math.Round(st.Rate * 1000)), int64(math.Round(st.Noise * 1000))
}

// SetMilli sets rate and noise to what Milli was.
func (st *PaceState) SetMilli(rate, noise int64) {
	st.Rate, st.Noise = float64(rate)/1000, float64(noise)/1000
}

// State is a snapshot.
func (p *Pacer) State() PaceState {
	st := PaceState{Rate: p.Rate(), Since: p.since, Refused: p.refused, Noise: p.noise.share}
	if !p.lent {
		st.Window = p.window
	}
	return st
}

// Restore goes on from a snapshot, after a restart.
func (p *Pacer) Restore(st PaceState, now time.Time) {
	p.Reset()
	if !(st.Rate > 0) { // also when it is NaN
		return
	}
	p.top = min(max(st.Rate, paceMin), MaxRate/2)
	p.next = now
	p.base, p.since, p.refused = max(p.top*(1-paceBelow), paceMin), earlier(st.Since, now), max(st.Refused, 0)
	p.lastTaken, p.lastNo, p.found, p.kept = now, now, true, true
	p.stretch = paceCount{since: now}
	p.window = min(max(st.Window, 0), paceLongest)
	p.noise.learn(st.Noise)
	p.noise.trial.first = trialYoung // what was learned before stands, until a trial shows something else
}
