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
	// BreakerHalfOpen: one probe is under way, or a few POSTs since one succeeded.
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

// rampPosts successes, or one rampTime after the first, close a breaker that is half open.
const (
	rampPosts = 7
	rampTime  = 10 * time.Second
)

// Breaker stops sending to a webhook that mostly fails and finds out, with one POST at a time,
// when it takes messages again. Then more are let through, twice as many with each round of
// successes, until it closes. The zero Breaker is closed and ready.
//
// Each POST gets the generation that Allow returned and hands it back to Report or
// Abort, once. The generation changes with the phase, so an answer that comes late
// changes nothing. Settings are an argument everywhere: they may change at any time.
type Breaker struct {
	tally      tally
	open       bool
	probing    bool // half open; only when open
	generation uint64
	since      time.Time
	until      time.Time // of the wait, or of the patience with a probe
	wait       time.Duration
	// tooMany is since when each probe was refused as too much, and hastened that the last one was.
	tooMany  time.Time
	hastened bool
	// While half open: POSTs under way, and what came of the others.
	flying, ok, failed int
	firstOK            time.Time
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
	if b.Room(s, now) == 0 {
		return false, false, b.generation
	}
	if !b.probing || !now.Before(b.until) { // the first one, or those under way are lost
		b.generation++
		b.probing, b.until, b.flying, b.ok, b.failed = true, now.Add(ProbeTimeout), 0, 0, 0
	}
	b.flying++
	return true, b.ok == 0, b.generation
}

// Room is how many POSTs may begin now; negative when the breaker does not bound them.
func (b *Breaker) Room(s BreakerSettings, now time.Time) int {
	if !b.open || !s.Enabled {
		return -1
	}
	b.bound(s, now)
	switch {
	case !now.Before(b.until):
		return 1
	case b.probing:
		return max(b.ok+1-b.flying, 0)
	}
	return 0
}

// Report takes in the answer of a POST that Allow allowed; only a failure opens it. random is uniform in [0, 1)
// and spreads the probes of webhooks that fail together. It tells whether the breaker has
// opened, closed, or let the first POST through again: a probe that fails changes nothing. Signs that say nothing belong to Abort.
func (b *Breaker) Report(s BreakerSettings, generation uint64, ok bool, now time.Time, random float64) (changed bool) {
	switch {
	case generation != b.generation || !s.Enabled:
		return false
	case !b.open:
		b.tally.add(ok, now)
		if !ok && b.tripped(s, now) {
			b.trip(s, now, now, random)
			return true
		}
		return false
	case !b.probing: // nobody has this generation
		return false
	}
	b.flying = max(b.flying-1, 0)
	if !ok {
		b.failed++
		if float64(b.failed) < s.FailureShare*float64(b.ok+b.failed) {
			return false
		}
		took := b.ok > 0
		b.trip(s, b.since, now, random)
		return took
	}
	if b.ok++; b.ok == 1 {
		b.firstOK, b.hastened = now, false // what it refused before counts no more
		return true
	}
	if b.ok < rampPosts && now.Sub(b.firstOK).Abs() < rampTime {
		return false
	}
	*b = Breaker{generation: b.generation + 1, since: now}
	return true
}

// Open opens the breaker: the webhook has refused everything since then, by signs that
// Report does not count.
func (b *Breaker) Open(s BreakerSettings, since, now time.Time, random float64) (changed bool) {
	if b.open || !s.Enabled {
		return false
	}
	b.trip(s, since, now, random)
	return true
}

// probeTooMany is the longest wait for a probe of a webhook that refuses with 429, or the part of the time for which it has refused so: some messages may be
// over a quota of their own, and the next one not. A day's quota is not asked for thousands of times.
const (
	probeTooMany     = 10 * time.Second
	probeTooManyPart = 60
)

// Hasten has the next probe come soon, of a webhook that is there and refuses what is too much, or no later than at the end of the wait that it names; 0 for none.
func (b *Breaker) Hasten(s BreakerSettings, wait time.Duration, now time.Time) {
	if !b.open || b.probing {
		return
	}
	if b.tooMany.IsZero() {
		b.tooMany = now
	}
	b.hastened = true
	soon := max(probeTooMany, time.Duration(s.ProbeAfter))
	most := max(soon, now.Sub(b.tooMany)/probeTooManyPart)
	if wait > 0 {
		most = min(most, max(soon, wait))
	}
	b.wait = min(b.wait, most)
	b.until = earlier(b.until, now.Add(b.wait))
}

// Abort says that a POST that Allow allowed has no answer that counts: it was not
// made, or cut short by us. If it was the probe, the next Allow is one.
func (b *Breaker) Abort(generation uint64) {
	if generation != b.generation || !b.probing {
		return
	}
	if b.flying = max(b.flying-1, 0); b.ok == 0 {
		b.generation++
		b.probing, b.until = false, time.Time{}
	}
}

// Ramping tells whether the webhook takes messages again, and is sent a few.
func (b *Breaker) Ramping() bool { return b.probing && b.ok > 0 }

// Current tells whether a POST of that generation is one of the present phase.
func (b *Breaker) Current(generation uint64) bool { return generation == b.generation }

// Reset closes the breaker and forgets what it counted: the webhook was enabled, has
// another URL, or an operator says so.
func (b *Breaker) Reset() { *b = Breaker{generation: b.generation + 1} }

// Next is when it is worth asking Allow again: now or later.
func (b *Breaker) Next(s BreakerSettings, now time.Time) time.Time {
	if !b.open || !s.Enabled {
		return now
	}
	b.bound(s, now)
	if b.Ramping() {
		return now
	}
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

func (b *Breaker) trip(s BreakerSettings, since, now time.Time, random float64) {
	b.since = earlier(since, now)
	b.wait = min(max(OutageWait(time.Duration(s.ProbeAfter), now.Sub(b.since)), MinProbeAfter), max(time.Duration(s.ProbeMax), MinProbeAfter))
	until := now.Add(b.wait)
	if b.wait > spreadAfter { // until then their beginnings spread them
		until = now.Add(jittered(b.wait, presetJitter, random))
	}
	tooMany := b.tooMany
	if !b.hastened { // the failure before this one was another one
		tooMany = time.Time{}
	}
	*b = Breaker{open: true, generation: b.generation + 1, since: b.since, wait: b.wait, until: until, tooMany: tooMany}
}

// spreadAfter is the longest wait for a probe without jitter: there would be no room for it
// between what a webhook is to be sent in vain, and how soon it is to be found well.
const spreadAfter = 5 * time.Minute

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
