package policy

import "time"

// BreakerPhase is a Breaker's state.
type BreakerPhase string

// The phases of a Breaker.
const (
	// BreakerClosed: POSTs go out.
	BreakerClosed BreakerPhase = "closed"
	// BreakerOpen: none do, until the next probe is due.
	BreakerOpen BreakerPhase = "open"
	// BreakerHalfOpen: one probe is under way, and decides.
	BreakerHalfOpen BreakerPhase = "half-open"
)

// BreakerPhases lists every BreakerPhase.
func BreakerPhases() []BreakerPhase {
	return []BreakerPhase{BreakerClosed, BreakerOpen, BreakerHalfOpen}
}

// ProbeTimeout is how long the answer of a probe is waited for before it counts as
// lost and another one may go out. It is longer than any POST.
const ProbeTimeout = 15 * time.Minute

// BreakerState is what a Breaker shows and what is stored of it.
type BreakerState struct {
	Phase BreakerPhase `json:"state"`
	// Since is when it opened, or when it closed again; zero when it never did.
	Since time.Time `json:"since,omitzero"`
	// NextProbe is when the next probe is due; zero unless open.
	NextProbe time.Time `json:"next_probe,omitzero"`
	// Wait is the wait before the next probe, without jitter; zero when closed.
	Wait Duration `json:"wait,omitempty"`
	// Samples and Failures are of the last BreakerWindow.
	Samples  int `json:"samples"`
	Failures int `json:"failures"`
}

// Breaker stops sending to a webhook that mostly fails and finds out, with one POST at
// a time, when it takes messages again. The zero Breaker is closed and ready.
//
// Each POST gets the generation that Allow returned and hands it back to Report or
// Abort, once. The generation changes with the phase, so an answer that comes late
// changes nothing. Settings are an argument everywhere: they may change at any time.
type Breaker struct {
	tally      tally
	open       bool
	probing    bool // only when open
	generation uint64
	since      time.Time
	until      time.Time // of the wait, or of the patience with a probe
	wait       time.Duration
}

// Allow tells whether a POST may begin now, and whether it is a probe, on which the
// breaker then waits. Ask for it last: one that is allowed has to be made, or aborted.
func (b *Breaker) Allow(s BreakerSettings, now time.Time) (ok, probe bool, generation uint64) {
	if b.open && !s.Enabled {
		b.Reset()
	}
	if !b.open {
		return true, false, b.generation
	}
	b.bound(s, now)
	if now.Before(b.until) {
		return false, false, b.generation
	}
	b.generation++
	b.probing, b.until = true, now.Add(ProbeTimeout)
	return true, true, b.generation
}

// Report takes in the answer of a POST that Allow allowed; only a failure opens it. random is uniform in [0, 1)
// and spreads the probes of webhooks that fail together. It tells whether the breaker
// has changed its phase. Signs that say nothing belong to Abort.
func (b *Breaker) Report(s BreakerSettings, generation uint64, ok bool, now time.Time, random float64) (changed bool) {
	switch {
	case generation != b.generation || !s.Enabled:
		return false
	case !b.open:
		b.tally.add(ok, now)
		if !ok && b.tripped(s, now) {
			b.trip(time.Duration(s.ProbeAfter), now, random)
			return true
		}
		return false
	case !b.probing: // nobody has this generation
		return false
	case ok:
		*b = Breaker{generation: b.generation + 1, since: now}
	default:
		b.trip(min(2*b.wait, time.Duration(s.ProbeMax)), now, random)
	}
	return true
}

// Abort says that a POST that Allow allowed has no answer that counts: it was not
// made, or cut short by us. If it was the probe, the next Allow is one.
func (b *Breaker) Abort(generation uint64) {
	if generation == b.generation && b.probing {
		b.generation++
		b.probing, b.until = false, time.Time{}
	}
}

// Reset closes the breaker and forgets what it counted: the webhook was enabled, has
// another URL, or an operator says so.
func (b *Breaker) Reset() { *b = Breaker{generation: b.generation + 1} }

// Next is when it is worth asking Allow again: now or later.
func (b *Breaker) Next(s BreakerSettings, now time.Time) time.Time {
	if !b.open || !s.Enabled {
		return now
	}
	b.bound(s, now)
	next := b.until
	if b.probing { // its answer comes before that, as a rule
		next = earlier(next, now.Add(time.Duration(s.ProbeAfter)))
	}
	return later(next, now)
}

// State is a snapshot.
func (b *Breaker) State(now time.Time) BreakerState {
	ok, failed := b.tally.counts(now)
	st := BreakerState{Phase: BreakerClosed, Since: b.since, Wait: Duration(b.wait), Samples: ok + failed, Failures: failed}
	switch {
	case b.probing:
		st.Phase = BreakerHalfOpen
	case b.open:
		st.Phase, st.NextProbe = BreakerOpen, later(b.until, b.since)
	}
	return st
}

// Restore goes on from a snapshot, after a restart. A probe that was under way is
// gone, so the next one is due at once; what was counted is not kept.
func (b *Breaker) Restore(st BreakerState) {
	*b = Breaker{generation: b.generation + 1, since: st.Since}
	if st.Phase == BreakerOpen || st.Phase == BreakerHalfOpen {
		b.open, b.until, b.wait = true, st.NextProbe, max(time.Duration(st.Wait), MinProbeAfter)
	}
}

func (b *Breaker) tripped(s BreakerSettings, now time.Time) bool {
	ok, failed := b.tally.counts(now)
	samples := ok + failed
	return samples >= s.MinSamples && float64(failed) >= s.FailureShare*float64(samples)
}

func (b *Breaker) trip(wait time.Duration, now time.Time, random float64) {
	wait = max(wait, MinProbeAfter)
	since := now
	if b.open { // and stays so, since the probe has failed
		since = b.since
	}
	*b = Breaker{open: true, generation: b.generation + 1, since: since, wait: wait, until: now.Add(jittered(wait, presetJitter, random))}
}

// bound keeps the wait within what the settings and the clock of today allow.
func (b *Breaker) bound(s BreakerSettings, now time.Time) {
	longest := jittered(time.Duration(s.ProbeMax), presetJitter, 1)
	if b.probing {
		longest = ProbeTimeout
	}
	b.wait = min(b.wait, time.Duration(s.ProbeMax))
	b.until = earlier(b.until, now.Add(longest))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// OutageWait is how long a webhook that has taken nothing for that time is left alone before
// it is asked again: at least as long as least, and half of the time that it was away for; of
// a long outage a little more, so that no more than 12 POSTs of 10 minutes are in vain.
func OutageWait(least, away time.Duration) time.Duration {
	share := 0.5
	if away > 40*time.Second {
		share = 0.7
	}
	return max(least, time.Duration(share*float64(away)), min(away, 2*time.Second))
}
